use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use subjects::{
    Act, Assessment, HandoffId, PlannedStep, Role, ScopeId, Step, StepOutcome, Stop, TaskChange,
    TaskChangeKind, Trace, Usage, Verification,
};

use crate::inference::Reply;

/// What was done and used so far. It outlives the work, so that an answer to a cancelled handoff can tell it too.
#[derive(Debug)]
pub(crate) struct Ledger {
    handoff: HandoffId,
    entries: Mutex<Entries>,
}

/// Where a step stands among those that run beside it. Steps are told lane by lane, so that their order does not depend
/// on who was faster (G2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lane(u32);

impl Lane {
    /// Beside the work itself.
    pub(crate) const ASIDE: Self = Self(0);
    /// The work itself.
    pub(crate) const MAIN: Self = Self(1);
    /// What follows when everything beside it has ended.
    pub(crate) const LAST: Self = Self(u32::MAX);

    pub(super) fn number(self) -> u32 {
        self.0
    }

    /// The `number`th of several that run at the same time.
    pub(crate) fn among_many(number: usize) -> Self {
        Self(u32::try_from(number).unwrap_or(u32::MAX).saturating_add(2).min(u32::MAX - 1))
    }
}

#[derive(Debug)]
struct Entry {
    lane: Lane,
    step: Step,
    cost_usd: Option<f64>,
}

#[derive(Debug, Default)]
struct Entries {
    usage: Usage,
    steps: Vec<Entry>,
    input: Option<Assessment>,
    tools: Vec<String>,
    plan: Vec<PlannedStep>,
    /// By the number of the call that changed them.
    tasks: BTreeMap<u32, TaskChange>,
    verifications: BTreeMap<u32, Verification>,
    /// Handed off to analysts, and not answered yet.
    verifying: BTreeSet<HandoffId>,
    /// How often each effect was asked of a recording.
    asked: HashMap<String, usize>,
}

/// The ledger, closed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    pub(crate) usage: Usage,
    pub(crate) tasks: Vec<TaskChange>,
    pub(crate) verifications: Vec<Verification>,
    pub(crate) trace: Option<Trace>,
}

/// How a step ended.
#[derive(Clone, Debug)]
pub(crate) struct StepEnd {
    pub(crate) outcome: StepOutcome,
    pub(crate) ms: u64,
    pub(crate) tries: u32,
    pub(crate) detail: Option<String>,
}

impl Ledger {
    pub(crate) fn new(handoff: HandoffId) -> Self {
        Self { handoff, entries: Mutex::default() }
    }

    pub(crate) fn handoff(&self) -> Option<HandoffId> {
        Some(self.handoff)
    }

    pub(super) fn begin(&self, lane: Lane, act: Act, name: &str) -> usize {
        let mut entries = self.lock();
        let index = entries.steps.len();
        let step = Step {
            index: 0,
            act,
            name: name.to_owned(),
            outcome: StepOutcome::Unfinished,
            ms: 0,
            tries: 1,
            detail: None,
        };
        entries.steps.push(Entry { lane, step, cost_usd: None });
        match act {
            Act::Tool => entries.usage.tool_calls += 1,
            Act::Model | Act::Think => entries.usage.model_calls += 1,
            Act::Analyst => {}
        }
        index
    }

    pub(super) fn end(&self, index: usize, end: StepEnd) {
        if let Some(Entry { step, .. }) = self.lock().steps.get_mut(index) {
            (step.outcome, step.ms, step.tries, step.detail) = (end.outcome, end.ms, end.tries, end.detail);
        }
    }

    /// A call that was not carried out.
    pub(super) fn refused(&self, name: &str, why: &str) {
        let step = Step {
            index: 0,
            act: Act::Tool,
            name: name.to_owned(),
            outcome: StepOutcome::Failed,
            ms: 0,
            tries: 0,
            detail: Some(why.to_owned()),
        };
        self.lock().steps.push(Entry { lane: Lane::MAIN, step, cost_usd: None });
    }

    /// What the reply to a step cost, and who gave it.
    pub(super) fn paid(&self, index: usize, reply: &Reply) {
        let mut entries = self.lock();
        entries.usage.prompt_tokens += reply.tokens.prompt;
        entries.usage.completion_tokens += reply.tokens.completion;
        if let Some(entry) = entries.steps.get_mut(index) {
            reply.model.clone_into(&mut entry.step.name);
            entry.cost_usd = reply.cost_usd;
        }
    }

    pub(super) fn tokens(&self) -> u64 {
        let usage = self.lock().usage;
        usage.prompt_tokens + usage.completion_tokens
    }

    pub(super) fn assessed(&self, input: Assessment) {
        self.lock().input = Some(input);
    }

    pub(super) fn offered(&self, tools: &[String]) {
        tools.clone_into(&mut self.lock().tools);
    }

    pub(super) fn planned(&self, plan: Vec<PlannedStep>) {
        self.lock().plan = plan;
    }

    pub(super) fn changed_task(&self, call: u32, task_id: ScopeId, change: TaskChangeKind) {
        self.lock().tasks.insert(call, TaskChange { task_id, change });
    }

    pub(super) fn verified(&self, number: u32, verification: Verification) {
        self.lock().verifications.insert(number, verification);
    }

    pub(super) fn hands_off(&self, verification: HandoffId) {
        self.lock().verifying.insert(verification);
    }

    pub(super) fn heard_of(&self, verification: HandoffId) {
        self.lock().verifying.remove(&verification);
    }

    /// Handed off to analysts, and not answered yet.
    pub(crate) fn open_verifications(&self) -> Vec<HandoffId> {
        self.lock().verifying.iter().copied().collect()
    }

    /// What was to be verified and was not, and why.
    pub(super) fn unverified(&self) -> Vec<(ScopeId, String)> {
        let entries = self.lock();
        let without = entries.verifications.values().filter(|verification| verification.status.is_none());
        without
            .map(|it| {
                (
                    it.task_id.clone(),
                    it.error.as_ref().map_or_else(String::new, |error| error.message.clone()),
                )
            })
            .collect()
    }

    /// How often this effect was asked for before, in this run.
    pub(crate) fn asked_before(&self, effect: &str) -> usize {
        let mut entries = self.lock();
        let count = entries.asked.entry(effect.to_owned()).or_default();
        *count += 1;
        *count - 1
    }

    pub(crate) fn close(&self, trace_id: &str, role: Role, stop: Stop) -> Account {
        let mut entries = std::mem::take(&mut *self.lock());
        entries.steps.sort_by_key(|entry| entry.lane);
        let costs: Vec<f64> = entries.steps.iter().filter_map(|entry| entry.cost_usd).collect();
        let steps = entries.steps.into_iter().zip(0..).map(|(entry, index)| Step { index, ..entry.step });
        let trace = Trace {
            trace_id: trace_id.to_owned(),
            profile: Some(role),
            input: entries.input,
            tools: entries.tools,
            plan: entries.plan,
            steps: steps.collect(),
            stop,
        };
        let cost_usd = (!costs.is_empty()).then(|| costs.iter().sum());
        Account {
            usage: Usage { cost_usd, ..entries.usage },
            tasks: without_repetition(entries.tasks.into_values()),
            verifications: entries.verifications.into_values().collect(),
            trace: Some(trace),
        }
    }

    /// No entry is ever left half written, so a panic elsewhere does not matter.
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Each task once, as it was first heard of: one that was created and then changed was created.
fn without_repetition(changes: impl Iterator<Item = TaskChange>) -> Vec<TaskChange> {
    let mut out: Vec<TaskChange> = Vec::new();
    for change in changes {
        if !out.iter().any(|known| known.task_id == change.task_id) {
            out.push(change);
        }
    }
    out
}
