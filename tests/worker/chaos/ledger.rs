//! Counts what must have happened exactly once.

use std::{
    collections::{BTreeMap, HashMap},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use async_nats::HeaderMap;
use futures_util::{StreamExt, stream};
use rand::{
    rngs::StdRng,
    seq::{IteratorRandom, SliceRandom},
};
use subjects::{
    Answer, Continue, Encoding, Handoff, HandoffId, Kind, Role, Subject, Work, headers,
    journal::{Entry, Question, Record},
    streams,
};
use testkit::{Errands, Orchestrator, eventually_within};

/// The published handoffs.
pub(crate) struct Ledger {
    published: BTreeMap<HandoffId, PublishedErrand>,
    /// Number of clarifying handoffs that were answered before; each has its own answer.
    questions: usize,
    copies: AtomicUsize,
}

struct PublishedErrand {
    name: String,
    handoff: Handoff,
    lease: String,
}

/// Errands of every kind, in random order.
pub(crate) fn mixed(count: usize, rng: &mut StdRng) -> Vec<String> {
    let name = |number: usize| match number % 10 {
        0 | 1 => format!("v{number}"),
        2 => format!("c{number}"),
        _ => format!("x{number}"),
    };
    let mut names: Vec<String> = (0..count).map(name).collect();
    names.shuffle(rng);
    names
}

/// Errands without an analyst and without a second handoff.
pub(crate) fn plain(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("x{number}")).collect()
}

/// What one handoff stored.
#[derive(Default)]
struct Run {
    answers: Vec<Answer>,
    /// How often each turn is stored in the journal.
    turns: HashMap<Question, usize>,
    claims: usize,
}

impl Ledger {
    /// Publishes these errands, each under a lease of its own. Those that are continued are first brought to
    /// their question.
    pub(crate) async fn publish(errands: &Errands, orchestrator: &Orchestrator, names: Vec<String>) -> Self {
        // First, so that they do not wait behind the others.
        let asking = names.iter().filter(|name| name.starts_with('c')).map(|name| async move {
            let handoff = Errands::handoff(name);
            errands.publish_leased(orchestrator, &handoff).await;
            let question = handoff.id;
            orchestrator.wait_for_answer_within(Duration::from_secs(120), Kind::Chat, question).await;
            (name.clone(), question)
        });
        let asked: HashMap<String, HandoffId> = stream::iter(asking).buffer_unordered(8).collect().await;
        let questions = asked.len();
        let publishing = stream::iter(names).map(|name| {
            let handoff = match asked.get(&name) {
                Some(question) => {
                    let input = format!("As they come, for {name}");
                    testkit::handoff(Work::Continue(Continue::new(*question, input)))
                }
                None => Errands::handoff(&name),
            };
            async move {
                let (_, lease) = errands.lease(handoff.id).await;
                orchestrator.publish_under(&handoff, &lease).await;
                (handoff.id, PublishedErrand { name, handoff, lease })
            }
        });
        let published = publishing.buffer_unordered(8).collect().await;
        Self { published, questions, copies: AtomicUsize::new(0) }
    }

    /// Publishes some of them again, without a message id, so that the server cannot drop them.
    pub(crate) async fn publish_copies(&self, orchestrator: &Orchestrator, rng: &mut StdRng) {
        for PublishedErrand { handoff, lease, .. } in self.published.values().choose_multiple(rng, 10) {
            let body = handoff.encode(Encoding::Json).expect("a handoff");
            let mut sent = HeaderMap::new();
            sent.insert(headers::LEASE, lease.as_str());
            orchestrator.publish_raw(handoff.kind(), sent, body).await;
            self.copies.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn copies(&self) -> usize {
        self.copies.load(Ordering::Relaxed)
    }

    /// Waits for the last answer, then counts everything.
    pub(crate) async fn balance(&self, errands: &Errands, orchestrator: &Orchestrator, patience: Duration) {
        let count = self.published.len();
        let began = Instant::now();
        let answers = orchestrator.all_answers(Role::ProjectManager, count + self.questions, patience).await;
        assert_eq!(answers.len(), count + self.questions, "an answer to a handoff that was never published");
        for id in self.published.keys() {
            assert_eq!(answers.get(id), Some(&1), "answers to {id}");
        }
        eventually_within(Duration::from_secs(60), "the queue to be empty", async || {
            (orchestrator.queued().await == 0).then_some(())
        })
        .await;
        assert_eq!(orchestrator.stored(streams::DEAD).await, 0, "a valid handoff was dead-lettered");
        let runs = self.runs(orchestrator).await;
        let (mut attempts, mut asked) = (0, 0);
        for (id, PublishedErrand { name, .. }) in &self.published {
            let run = runs.get(id).expect("a run");
            let [Answer::Completion(answer)] = run.answers.as_slice() else {
                panic!("{name}: not exactly one completion")
            };
            let said = answer.message.as_ref().map(|message| message.content.clone());
            assert_eq!(said, Some(Errands::answer(name)), "{name}: {:?}", answer.error);
            assert_eq!(answer.attempts as usize, run.claims, "{name}: attempts are claims");
            assert!(run.turns.values().all(|times| *times == 1), "{name}: a finished turn is stored twice");
            let paid: usize = errands.asked(name).iter().sum();
            // Each interrupted attempt may have been waiting for one model answer.
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
            .flat_map(|errand| Errands::expected_effects(&errand.name))
            .map(|it| (it, 1))
            .collect();
        assert!(errands.effects().await == expected, "not every effect exactly once");
        let verified = self.published.values().filter(|errand| errand.name.starts_with('v')).count();
        let findings =
            orchestrator.all_answers(Role::ProjectAnalyst, verified, Duration::from_secs(10)).await;
        assert!(
            findings.len() == verified && findings.values().all(|count| *count == 1),
            "each task is verified once"
        );
        println!(
            "{count} handoffs, {attempts} attempts, {count} answers; {} turns finished, {} model calls \
             interrupted by a crash; {} effects and {verified} verifications, each once; the last answer \
             came {:.0} s after the end",
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
                Ok(Subject::Findings(_) | Subject::Journal(Role::ProjectAnalyst, _)) => {}
                Ok(Subject::Journal(Role::ProjectManager, id)) => {
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
