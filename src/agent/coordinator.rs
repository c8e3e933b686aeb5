//! G4, G10: the planner makes a plan, workers carry out its steps, the coordinator says who does which and in what
//! order.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU32, Ordering},
};

use serde_json::json;
use subjects::{FinishReason, PlannedState, PlannedStep};

use super::{
    Broken, Outcome,
    calls::task_id_in,
    session::Session,
    thoughts::{DraftPlan, DraftStep},
};

const CREATE: &str = "db.task.create";
/// How many workers a plan's steps are shared among.
const WORKERS: u32 = 3;

/// Has the steps of a plan carried out, in their order, by workers in turn. A step is carried out by creating its task;
/// the task's own workflow does the rest.
pub(super) struct Coordinator<'s> {
    session: &'s Session<'s>,
    draft: DraftPlan,
    workers: Vec<Worker<'s>>,
    round: RoundRobin,
    plan: Vec<PlannedStep>,
    /// The id of each step's task, once it has one.
    tasks: Vec<Option<String>>,
}

impl<'s> Coordinator<'s> {
    pub(super) fn new(session: &'s Session<'s>, draft: DraftPlan) -> Self {
        let workers: Vec<Worker<'s>> = (0..WORKERS).map(|number| Worker { number, session }).collect();
        let tasks = vec![None; draft.steps.len()];
        Self { session, draft, workers, round: RoundRobin::over(WORKERS), plan: Vec::new(), tasks }
    }

    pub(super) async fn carry_out(mut self) -> Result<Outcome, Broken> {
        let chosen: Vec<u32> = self.draft.steps.iter().map(|_| self.round.choose()).collect();
        let planned = |(step, worker): (&DraftStep, u32)| PlannedStep {
            name: step.name.clone(),
            worker,
            state: PlannedState::NotStarted,
        };
        self.plan = self.draft.steps.iter().zip(chosen).map(planned).collect();
        self.session.ledger.planned(self.plan.clone());
        if !self.session.catalogue.has(CREATE) {
            let why = "The plan was not put into tasks: no tool for that is offered here.";
            return Ok(Outcome::completed(self.in_words(why), FinishReason::Stop));
        }
        for index in 0..self.draft.steps.len() {
            let created =
                self.worker_of(index).create(index, &self.draft.steps[index], &self.earlier(index)).await;
            self.plan[index].state = if created.is_ok() { PlannedState::Done } else { PlannedState::Failed };
            self.session.ledger.planned(self.plan.clone());
            self.tasks[index] = created?;
        }
        let done = match self.tasks.len() {
            1 => "One task was created.".to_owned(),
            count => format!("{count} tasks were created, in this order."),
        };
        Ok(Outcome::completed(self.in_words(&done), FinishReason::Stop))
    }

    fn worker_of(&self, index: usize) -> Worker<'s> {
        let chosen = self.plan[index].worker;
        let found = self.workers.iter().find(|worker| worker.number == chosen);
        found.copied().unwrap_or(Worker { number: chosen, session: self.session })
    }

    /// The tasks of the steps that must be done first.
    fn earlier(&self, index: usize) -> Vec<String> {
        let position = |name: &String| self.draft.steps.iter().position(|step| step.name == *name);
        let wanted = self.draft.steps[index].depends_on.iter();
        wanted.filter_map(|name| self.tasks.get(position(name)?)?.clone()).collect()
    }

    fn in_words(&self, end: &str) -> String {
        let mut out = format!("{}\n", self.draft.summary.trim());
        for (index, step) in self.draft.steps.iter().enumerate() {
            // Writing to a string cannot fail.
            let _written = write!(out, "\n{}. `{}`: {}", index + 1, step.name, step.description.trim());
            for criterion in &step.acceptance_criteria {
                let _written = write!(out, "\n   - {}", criterion.trim());
            }
        }
        out.push_str("\n\n");
        out.push_str(end);
        out
    }
}

/// Carries out one step at a time, with tools.
#[derive(Clone, Copy)]
struct Worker<'s> {
    number: u32,
    session: &'s Session<'s>,
}

impl Worker<'_> {
    async fn create(
        &self,
        index: usize,
        step: &DraftStep,
        earlier: &[String],
    ) -> Result<Option<String>, Broken> {
        let (session, scope) = (self.session, &self.session.handoff.scope);
        let id = |value: Option<&subjects::ScopeId>| value.map(|id| json!(id));
        let arguments = session.arguments_for(
            CREATE,
            &[
                ("name", Some(json!(step.name))),
                ("title", Some(json!(step.name))),
                ("description", Some(json!(step.description))),
                ("acceptance_criteria", Some(json!(step.acceptance_criteria))),
                ("order", Some(json!(index + 1))),
                ("depends_on", (!earlier.is_empty()).then(|| json!(earlier))),
                ("project_id", id(scope.project_id.as_ref())),
                ("user_id", id(scope.user_id.as_ref())),
                ("parent_task_id", id(scope.task_id.as_ref())),
            ],
        );
        let returned = session.call(CREATE, arguments).await?;
        if returned.failed {
            return Err(Broken::Tool { tool: CREATE.to_owned(), why: returned.text });
        }
        Ok(returned.json().as_ref().and_then(task_id_in).map(str::to_owned))
    }
}

/// Chooses workers in turn. Fair and safe when many choose at once.
#[derive(Debug)]
pub(super) struct RoundRobin {
    workers: u32,
    next: AtomicU32,
}

impl RoundRobin {
    pub(super) fn over(workers: u32) -> Self {
        Self { workers: workers.max(1), next: AtomicU32::new(0) }
    }

    pub(super) fn choose(&self) -> u32 {
        // `fetch_update` instead of a plain addition: after 2³² choices a remainder would favour some.
        let chosen = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| Some((next + 1) % self.workers));
        chosen.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, thread};

    use super::*;

    /// G10: every worker gets its share, also when many threads choose at the same time.
    #[test]
    fn the_choice_is_fair_under_concurrency() {
        let round = RoundRobin::over(3);
        assert_eq!((0..6).map(|_| round.choose()).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2]);
        let counts = thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (0..3_000).map(|_| round.choose()).collect::<Vec<_>>()))
                .collect();
            let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
            for chosen in threads.into_iter().flat_map(|thread| thread.join().unwrap()) {
                *counts.entry(chosen).or_default() += 1;
            }
            counts
        });
        assert_eq!(counts, BTreeMap::from([(0, 8_000), (1, 8_000), (2, 8_000)]));
        assert_eq!(RoundRobin::over(0).choose(), 0, "nobody to choose from is one");
    }
}
