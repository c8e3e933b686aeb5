//! What earlier attempts did, from their journal: for the answer of a handoff that is given up without
//! another attempt.

use std::collections::{BTreeMap, BTreeSet};

use contract::{ToolContract, task};
use serde::de::DeserializeOwned;
use subjects::{
    ScopeId, TaskChange, TaskChangeKind, Usage,
    journal::{Record, Returned, ToolOutcome},
};

use super::{LedgerSummary, ledger::without_repetition};

impl LedgerSummary {
    /// Returns the usage and the tasks of all attempts. Turns and calls that were not recorded are not known.
    pub(crate) fn from_records(records: &[Record]) -> Self {
        let (mut usage, mut tasks) = (Usage::default(), BTreeMap::new());
        // A call whose result was not stored in time is made again under its key, and is one call.
        let mut calls = BTreeSet::new();
        for record in records {
            match record {
                Record::ModelTurn(turn) => {
                    usage.model_calls += 1;
                    usage.prompt_tokens += turn.reply.tokens.prompt;
                    usage.completion_tokens += turn.reply.tokens.completion;
                    if let Some(cost) = turn.reply.cost_usd {
                        *usage.cost_usd.get_or_insert_default() += cost;
                    }
                }
                Record::ToolResult(result) => {
                    if calls.insert(result.call.number) {
                        usage.tool_calls += 1;
                    }
                    if let ToolOutcome::Returned(returned) = &result.outcome
                        && !returned.failed
                        && let Some(Some((task_id, change))) = task_change(&result.call.tool, returned)
                    {
                        tasks.insert(result.call.number, TaskChange { task_id, change });
                    }
                }
                Record::Claimed(_)
                | Record::Context(_)
                | Record::ToolIntent(_)
                | Record::Verified(_)
                | Record::Released
                | Record::Still => {}
            }
        }
        Self { usage, tasks: tasks.into_values().collect(), ..Self::default() }
    }

    /// Adds what earlier attempts did and this one did not come to.
    pub(crate) fn with_earlier(self, records: &[Record]) -> Self {
        let Self { usage: earlier, tasks, .. } = Self::from_records(records);
        let cost_usd = match (self.usage.cost_usd, earlier.cost_usd) {
            (Some(own), Some(earlier)) => Some(own + earlier),
            (own, earlier) => own.or(earlier),
        };
        let usage = Usage {
            prompt_tokens: self.usage.prompt_tokens + earlier.prompt_tokens,
            completion_tokens: self.usage.completion_tokens + earlier.completion_tokens,
            model_calls: self.usage.model_calls + earlier.model_calls,
            tool_calls: self.usage.tool_calls + earlier.tool_calls,
            cost_usd,
        };
        Self { usage, tasks: without_repetition(self.tasks.into_iter().chain(tasks)), ..self }
    }
}

/// Returns the task that a call created or changed. `None` if the tool does neither; `Some(None)` if it does,
/// and its result names no task.
pub(super) fn task_change(tool: &str, returned: &Returned) -> Option<Option<(ScopeId, TaskChangeKind)>> {
    let (id, change) = match tool {
        task::Create::NAME => (task_id::<task::Create>(returned, |it| it.task_id), TaskChangeKind::Created),
        task::Update::NAME => (task_id::<task::Update>(returned, |it| it.task_id), TaskChangeKind::Updated),
        task::UpdateStatus::NAME => {
            (task_id::<task::UpdateStatus>(returned, |it| it.task.task_id), TaskChangeKind::Updated)
        }
        _ => return None,
    };
    Some(id.map(|id| (id, change)))
}

/// Returns the task id in the result of a task tool.
fn task_id<T: ToolContract<Output: DeserializeOwned>>(
    returned: &Returned,
    id: fn(T::Output) -> String,
) -> Option<ScopeId> {
    id(returned.parse().ok()?).parse().ok()
}
