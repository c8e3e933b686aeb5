use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use subjects::{
    Answer, Encoding, HandoffId, Kind, Role, Subject,
    journal::{Entry, Question, Record},
    streams,
};
use testkit::{Errands, Orchestrator, eventually_within};

/// What was handed off.
pub(crate) struct Ledger {
    published: BTreeMap<HandoffId, String>,
}

/// What one handoff left behind.
#[derive(Default)]
struct Run {
    answers: Vec<Answer>,
    /// How often each turn is in the journal.
    turns: HashMap<Question, usize>,
    claims: usize,
}

impl Ledger {
    pub(crate) async fn publish(orchestrator: &Orchestrator, count: usize) -> Self {
        let names = stream::iter((0..count).map(|number| format!("x{number}")));
        let publishing = names.map(|name| async move {
            let id = orchestrator.publish(&Errands::handoff(&name)).await;
            (id, name)
        });
        Self { published: publishing.buffer_unordered(32).collect().await }
    }

    /// Waits for the last answer, then counts everything.
    pub(crate) async fn balance(&self, errands: &Errands, orchestrator: &Orchestrator, patience: Duration) {
        let count = self.published.len();
        let began = Instant::now();
        let answers = orchestrator.all_answers(Role::ProjectManager, count, patience).await;
        assert_eq!(answers.len(), count, "an answer to something that was never asked");
        for id in self.published.keys() {
            assert_eq!(answers.get(id), Some(&1), "answers to {id}");
        }
        eventually_within(Duration::from_secs(60), "the queue to be empty", async || {
            (orchestrator.queued().await == 0).then_some(())
        })
        .await;
        assert_eq!(orchestrator.stored(streams::DEAD).await, 0, "given up though nothing was wrong with it");
        let runs = self.runs(orchestrator).await;
        let (mut attempts, mut asked) = (0, 0);
        for (id, name) in &self.published {
            let run = runs.get(id).expect("a run");
            let [Answer::Completion(answer)] = run.answers.as_slice() else {
                panic!("{name}: not one completion")
            };
            let said = answer.message.as_ref().map(|message| message.content.clone());
            assert_eq!(said, Some(Errands::answer(name)), "{name}: {:?}", answer.error);
            assert_eq!(answer.attempts as usize, run.claims, "{name}: attempts are claims");
            assert!(
                run.turns.values().all(|times| *times == 1),
                "{name}: a finished turn stands there twice"
            );
            let paid: usize = errands.asked(name).iter().sum();
            // Each attempt that was cut off may have been waiting for one answer.
            assert!(
                (Errands::TURNS..Errands::TURNS + run.claims).contains(&paid),
                "{name}: {paid} model calls in {} attempts",
                run.claims
            );
            attempts += run.claims;
            asked += paid;
        }
        let expected: BTreeMap<String, usize> = self
            .published
            .values()
            .flat_map(|name| Errands::expected_effects(name))
            .map(|it| (it, 1))
            .collect();
        assert!(errands.effects().await == expected, "not every effect exactly once");
        println!(
            "{count} handoffs, {attempts} attempts, {count} answers; {} turns finished, {} model calls cut off by a death; \
             {} effects, each once; the last answer came {:.0} s after the end",
            count * Errands::TURNS,
            asked - count * Errands::TURNS,
            expected.len(),
            began.elapsed().as_secs_f64(),
        );
    }

    async fn runs(&self, orchestrator: &Orchestrator) -> HashMap<HandoffId, Run> {
        let mut runs: HashMap<HandoffId, Run> = HashMap::new();
        for message in orchestrator.contents(streams::RUNS).await {
            match message.subject.parse() {
                Ok(Subject::Completion(id)) => {
                    let answer = Answer::decode(Kind::Chat.role(), Encoding::Json, &message.payload);
                    runs.entry(id).or_default().answers.push(answer.expect("an answer"));
                }
                Ok(Subject::Journal(_, id)) => {
                    let run = runs.entry(id).or_default();
                    for record in Entry::decode(&message.payload).expect("an entry").records {
                        match record {
                            Record::Claimed(_) => run.claims += 1,
                            Record::ModelTurn(turn) => *run.turns.entry(turn.question).or_default() += 1,
                            _ => {}
                        }
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        runs
    }
}
