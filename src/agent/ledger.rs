use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use subjects::{
    Act, Assessment, PlannedStep, Role, ScopeId, Step, StepOutcome, Stop, TaskChange, TaskChangeKind, Trace,
    Usage, Verification,
};

use crate::inference::Reply;

/// What was done and used so far. It outlives the work, so that an answer to a cancelled handoff can tell it too.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    usage: Usage,
    steps: Vec<Step>,
    input: Option<Assessment>,
    tools: Vec<String>,
    plan: Vec<PlannedStep>,
    tasks: Vec<TaskChange>,
    verifications: Vec<Verification>,
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
    /// Steps are counted in the order in which they begin.
    pub(super) fn begin(&self, act: Act, name: &str) -> usize {
        let mut entries = self.lock();
        let index = entries.steps.len();
        entries.steps.push(Step {
            index: u32::try_from(index).unwrap_or(u32::MAX),
            act,
            name: name.to_owned(),
            outcome: StepOutcome::Unfinished,
            ms: 0,
            tries: 1,
            detail: None,
        });
        match act {
            Act::Tool => entries.usage.tool_calls += 1,
            Act::Model | Act::Think => entries.usage.model_calls += 1,
            Act::Analyst => {}
        }
        index
    }

    pub(super) fn end(&self, index: usize, end: StepEnd) {
        if let Some(step) = self.lock().steps.get_mut(index) {
            (step.outcome, step.ms, step.tries, step.detail) = (end.outcome, end.ms, end.tries, end.detail);
        }
    }

    /// A call that was not carried out.
    pub(super) fn refused(&self, name: &str, why: &str) {
        let steps = &mut self.lock().steps;
        steps.push(Step {
            index: u32::try_from(steps.len()).unwrap_or(u32::MAX),
            act: Act::Tool,
            name: name.to_owned(),
            outcome: StepOutcome::Failed,
            ms: 0,
            tries: 0,
            detail: Some(why.to_owned()),
        });
    }

    /// A name that was not known when the step began.
    pub(super) fn rename(&self, index: usize, name: &str) {
        if let Some(step) = self.lock().steps.get_mut(index) {
            name.clone_into(&mut step.name);
        }
    }

    pub(super) fn paid(&self, reply: &Reply) {
        let usage = &mut self.lock().usage;
        usage.prompt_tokens += reply.tokens.prompt;
        usage.completion_tokens += reply.tokens.completion;
        if let Some(cost) = reply.cost_usd {
            usage.cost_usd = Some(usage.cost_usd.unwrap_or(0.0) + cost);
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

    pub(super) fn changed_task(&self, task_id: ScopeId, change: TaskChangeKind) {
        let tasks = &mut self.lock().tasks;
        if !tasks.iter().any(|known| known.task_id == task_id) {
            tasks.push(TaskChange { task_id, change });
        }
    }

    pub(super) fn verified(&self, verification: Verification) {
        self.lock().verifications.push(verification);
    }

    /// How often this effect was asked for before, in this run.
    pub(crate) fn asked_before(&self, effect: &str) -> usize {
        let mut entries = self.lock();
        let count = entries.asked.entry(effect.to_owned()).or_default();
        *count += 1;
        *count - 1
    }

    pub(crate) fn close(&self, trace_id: &str, role: Role, stop: Stop) -> Account {
        let entries = std::mem::take(&mut *self.lock());
        let trace = Trace {
            trace_id: trace_id.to_owned(),
            profile: Some(role),
            input: entries.input,
            tools: entries.tools,
            plan: entries.plan,
            steps: entries.steps,
            stop,
        };
        Account {
            usage: entries.usage,
            tasks: entries.tasks,
            verifications: entries.verifications,
            trace: Some(trace),
        }
    }

    /// No entry is ever left half written, so a panic elsewhere does not matter.
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
