//! The ledger: steps and usage of one handoff so far.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use subjects::{
    Act, Answer, Assessment, HandoffId, PlannedStep, Role, ScopeId, Step, StepOutcome, Stop, TaskChange,
    TaskChangeKind, Trace, Usage, Verification,
};

use crate::inference::Reply;

/// Records the steps and usage of one handoff. It outlives the work, so that the answer to a cancelled
/// handoff can report them too.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: Mutex<Entries>,
}

/// The position of a step among those that run concurrently. The trace lists steps lane by lane, so that
/// their order does not depend on which was faster (G2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lane(u32);

impl Lane {
    /// A task in the background of the work.
    pub(crate) const BACKGROUND: Self = Self(0);
    /// The work itself.
    pub(crate) const MAIN: Self = Self(1);
    /// Steps that follow the concurrent ones.
    pub(crate) const LAST: Self = Self(u32::MAX);

    pub(super) fn number(self) -> u32 {
        self.0
    }

    /// Returns the lane of the `number`th of several concurrent steps.
    pub(crate) fn parallel(number: usize) -> Self {
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
    tool_words: BTreeMap<String, Vec<String>>,
    plan: Vec<PlannedStep>,
    /// Keyed by the number of the call that changed the task.
    tasks: BTreeMap<u32, TaskChange>,
    verifications: BTreeMap<u32, Verification>,
    /// Handed off to analysts and not answered yet.
    open_verifications: BTreeSet<HandoffId>,
}

/// The contents of a closed ledger, for the answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct LedgerSummary {
    pub(crate) usage: Usage,
    pub(crate) tasks: Vec<TaskChange>,
    pub(crate) verifications: Vec<Verification>,
    pub(crate) trace: Option<Trace>,
}

impl LedgerSummary {
    /// Shortens what an answer says was done, more each time: without the trace, which can be long; then also
    /// without the findings of the verifications; then to the usage alone.
    pub(crate) fn shorten(answer: &Answer) -> Vec<Self> {
        let completion = match answer {
            Answer::Completion(completion) => completion,
            Answer::Findings(findings) => return vec![Self { usage: findings.usage, ..Self::default() }],
        };
        let (usage, tasks, verifications) = (completion.usage, &completion.tasks, &completion.verifications);
        let with = |verifications| Self { usage, tasks: tasks.clone(), verifications, trace: None };
        let mut shortened = vec![with(verifications.clone())];
        if verifications.iter().any(|verification| !verification.findings.is_empty()) {
            let without = |it: &Verification| Verification { findings: Vec::new(), ..it.clone() };
            shortened.push(with(verifications.iter().map(without).collect()));
        }
        if !tasks.is_empty() || !verifications.is_empty() {
            shortened.push(Self { usage, ..Self::default() });
        }
        shortened
    }
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
    /// Adds a step as unfinished and returns its index.
    pub(super) fn begin_step(&self, lane: Lane, act: Act, name: &str) -> usize {
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

    pub(super) fn end_step(&self, index: usize, end: StepEnd) {
        if let Some(Entry { step, .. }) = self.lock().steps.get_mut(index) {
            (step.outcome, step.ms, step.tries, step.detail) = (end.outcome, end.ms, end.tries, end.detail);
        }
    }

    /// Sets the outcome of the last step with this name.
    pub(super) fn describe_last(&self, name: &str, detail: String) {
        let mut entries = self.lock();
        if let Some(last) = entries.steps.iter_mut().rev().find(|entry| entry.step.name == name) {
            last.step.detail = Some(detail);
        }
    }

    /// Records a tool call that was not executed.
    pub(super) fn record_refusal(&self, name: &str, why: &str) {
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

    /// Records the tokens and cost of a model's reply, and which model gave it.
    pub(super) fn record_usage(&self, index: usize, reply: &Reply) {
        let mut entries = self.lock();
        entries.usage.prompt_tokens += reply.tokens.prompt;
        entries.usage.completion_tokens += reply.tokens.completion;
        if let Some(entry) = entries.steps.get_mut(index) {
            reply.model.clone_into(&mut entry.step.name);
            entry.cost_usd = reply.cost_usd;
        }
    }

    pub(super) fn tokens_used(&self) -> u64 {
        let usage = self.lock().usage;
        usage.prompt_tokens + usage.completion_tokens
    }

    pub(super) fn set_assessment(&self, input: Assessment) {
        self.lock().input = Some(input);
    }

    /// Records which tools are offered, and the words of the goal that each of them matches.
    pub(super) fn set_offered_tools(&self, tools: &[String], words: BTreeMap<String, Vec<String>>) {
        let mut entries = self.lock();
        tools.clone_into(&mut entries.tools);
        entries.tool_words = words;
    }

    pub(super) fn set_plan(&self, plan: Vec<PlannedStep>) {
        self.lock().plan = plan;
    }

    pub(super) fn record_task_change(&self, call: u32, task_id: ScopeId, change: TaskChangeKind) {
        self.lock().tasks.insert(call, TaskChange { task_id, change });
    }

    pub(super) fn record_verification(&self, number: u32, verification: Verification) {
        self.lock().verifications.insert(number, verification);
    }

    pub(super) fn verification_started(&self, verification: HandoffId) {
        self.lock().open_verifications.insert(verification);
    }

    pub(super) fn verification_ended(&self, verification: HandoffId) {
        self.lock().open_verifications.remove(&verification);
    }

    /// Returns the verifications that were handed off to analysts and not answered yet.
    pub(crate) fn open_verifications(&self) -> Vec<HandoffId> {
        self.lock().open_verifications.iter().copied().collect()
    }

    /// Returns the verifications so far.
    pub(super) fn verifications(&self) -> Vec<Verification> {
        self.lock().verifications.values().cloned().collect()
    }

    /// Returns the tasks whose verification failed, each with the reason.
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

    /// Takes the contents out of the ledger and sorts the steps by lane.
    pub(crate) fn close(&self, trace_id: &str, role: Role, stop: Stop) -> LedgerSummary {
        let mut entries = std::mem::take(&mut *self.lock());
        entries.steps.sort_by_key(|entry| entry.lane);
        let costs: Vec<f64> = entries.steps.iter().filter_map(|entry| entry.cost_usd).collect();
        let steps = entries.steps.into_iter().zip(0..).map(|(entry, index)| Step { index, ..entry.step });
        let trace = Trace {
            trace_id: trace_id.to_owned(),
            profile: Some(role),
            input: entries.input,
            tools: entries.tools,
            tool_words: entries.tool_words,
            plan: entries.plan,
            steps: steps.collect(),
            stop,
        };
        let cost_usd = (!costs.is_empty()).then(|| costs.iter().sum());
        LedgerSummary {
            usage: Usage { cost_usd, ..entries.usage },
            tasks: without_repetition(entries.tasks.into_values()),
            verifications: entries.verifications.into_values().collect(),
            trace: Some(trace),
        }
    }

    /// Entries are never left half written, so a poisoned lock is safe to use.
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the first change of each task: a task that was created and then updated counts as created.
pub(super) fn without_repetition(changes: impl Iterator<Item = TaskChange>) -> Vec<TaskChange> {
    let mut out: Vec<TaskChange> = Vec::new();
    for change in changes {
        if !out.iter().any(|known| known.task_id == change.task_id) {
            out.push(change);
        }
    }
    out
}
