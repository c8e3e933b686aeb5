//! Tool calls. All calls of a turn are prepared first, so that their intents are journalled together, and
//! then performed.

use futures_util::future::join_all;
use serde_json::{Map, Value};
use subjects::{
    Act, Progress, StepOutcome, TaskChangeKind,
    journal::{Returned, ToolOutcome},
};
use tracing::Instrument;

use super::{
    WorkError,
    ledger::StepEnd,
    session::{Session, excerpt, failed_step},
};
use crate::{
    crash_points::{Point, reach},
    journal::{self, Remembered},
    recording::Timed,
    telemetry::spans,
    tools::{CallError, PermittedCall},
};

/// A permitted call with its journal entry, ready to be performed.
#[derive(Debug)]
pub(super) struct PreparedCall {
    /// Index of the step in the ledger.
    index: usize,
    call: PermittedCall,
    journalled: journal::Call,
    has_effect: bool,
}

impl Session<'_> {
    /// Makes one tool call, if the role is permitted to make it.
    pub(super) async fn call(
        &self,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<Returned, WorkError> {
        self.perform(self.prepare(name, arguments)?).await
    }

    /// Makes all calls concurrently and returns the results in the order of the calls.
    pub(super) async fn call_all(
        &self,
        calls: impl IntoIterator<Item = (&str, Map<String, Value>)>,
    ) -> Vec<Result<Returned, WorkError>> {
        let prepared: Vec<_> =
            calls.into_iter().map(|(name, arguments)| self.prepare(name, arguments)).collect();
        join_all(prepared.into_iter().map(async |prepared| self.perform(prepared?).await)).await
    }

    /// Checks the call against the role's allowlist and registers it in the ledger and the journal. Returns
    /// [`CallError::Rejected`] if the role may not make it.
    pub(super) fn prepare(
        &self,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<PreparedCall, WorkError> {
        let index = self.ledger.begin_step(self.lane, Act::Tool, name);
        let Some(call) = PermittedCall::new(self.resources.tools.allowlist(), name, arguments) else {
            let why = format!("a {} may not call it", self.resources.role);
            let end = StepEnd { outcome: StepOutcome::Rejected, ms: 0, tries: 0, detail: Some(why.clone()) };
            self.ledger.end_step(index, end);
            return Err(CallError::Rejected { tool: name.to_owned(), why }.into());
        };
        let has_effect = !self.catalogue.only_reads(name);
        let journalled = self.journal.begin_call(name, call.arguments_hash(), has_effect);
        Ok(PreparedCall { index, call, journalled, has_effect })
    }

    /// Returns the journalled outcome of an earlier attempt if there is one, and makes the call otherwise.
    /// Hands the handoff back if the gateway refuses the worker's token.
    pub(super) async fn perform(&self, prepared: PreparedCall) -> Result<Returned, WorkError> {
        let PreparedCall { index, call, mut journalled, has_effect } = prepared;
        if let Some(Remembered { value, ms }) = journalled.outcome.take() {
            return self.finish_call(index, &call, journalled.id.number, restored_outcome(&call, value), ms);
        }
        self.live.publish_progress(Progress::Calling, Some(call.name()));
        if has_effect {
            self.journal.write_and_confirm().await;
        }
        let calling = spans::tool(call.name(), has_effect);
        // Boxed, since few handoffs are in a call at any time and the others should not reserve memory for
        // one.
        let live = Box::pin(async {
            reach(Point::BeforeTool).await;
            let before_retry = || async {
                if has_effect {
                    self.journal.write_and_confirm().await;
                }
            };
            let called =
                self.resources.tools.call(&call, &journalled.key, &self.traceparent(), before_retry).await;
            reach(Point::ToolAnswered).await;
            called
        })
        .instrument(calling.clone());
        let Timed { value, ms } = self.resources.recording.tool(self.ledger, &call, live).await;
        spans::record_call(&calling, &value);
        drop(calling);
        if let Err(CallError::TokenRefused { why }) = value {
            return self.journal.hand_back(why).await;
        }
        self.live.publish_progress(Progress::Called, Some(call.name()));
        let number = journalled.id.number;
        let known = match &value {
            Ok(returned) => Some(ToolOutcome::Returned(returned.clone())),
            Err(CallError::Rejected { why, .. }) => Some(ToolOutcome::Rejected { why: why.clone() }),
            // These leave no result, so a later attempt may make the call again.
            Err(
                CallError::Unavailable { .. } | CallError::TokenRefused { .. } | CallError::NotRecorded(_),
            ) => None,
        };
        if let Some(known) = known {
            self.journal.record_result(journalled, known, ms, has_effect);
        }
        self.finish_call(index, &call, number, value, ms)
    }

    /// Records the outcome of a call in the ledger, whether it was made now or in an earlier attempt.
    fn finish_call(
        &self,
        index: usize,
        call: &PermittedCall,
        number: u32,
        value: Result<Returned, CallError>,
        ms: u64,
    ) -> Result<Returned, WorkError> {
        match &value {
            Ok(returned) => {
                let outcome = if returned.failed { StepOutcome::Failed } else { StepOutcome::Ok };
                let detail = returned.failed.then(|| excerpt(&returned.text));
                self.ledger.end_step(index, StepEnd { outcome, ms, tries: returned.tries, detail });
                if !returned.failed {
                    self.record_task_change(number, call, returned);
                }
            }
            Err(CallError::Rejected { why, .. }) => {
                let end = StepEnd { outcome: StepOutcome::Rejected, ms, tries: 1, detail: Some(why.clone()) };
                self.ledger.end_step(index, end);
            }
            Err(CallError::Unavailable { tries, why, .. }) => {
                self.ledger.end_step(index, failed_step(ms, *tries, why.clone()));
            }
            Err(error @ (CallError::TokenRefused { .. } | CallError::NotRecorded(_))) => {
                self.ledger.end_step(index, failed_step(ms, 0, error.to_string()));
            }
        }
        Ok(value?)
    }

    /// Records the task that the call created or updated, for the answer.
    fn record_task_change(&self, number: u32, call: &PermittedCall, returned: &Returned) {
        let change = match call.name() {
            "db.task.create" => TaskChangeKind::Created,
            "db.task.update" | "db.task.update_status" => TaskChangeKind::Updated,
            _ => return,
        };
        let returned = returned.json();
        let returned = returned.as_ref().and_then(task_id_in);
        let given = call.arguments().get("task_id").and_then(Value::as_str);
        if let Some(id) = returned.or(given).and_then(|id| id.parse().ok()) {
            self.ledger.record_task_change(number, id, change);
        }
    }
}

/// Converts a journalled outcome back into the result of the call.
fn restored_outcome(call: &PermittedCall, known: ToolOutcome) -> Result<Returned, CallError> {
    match known {
        ToolOutcome::Returned(returned) => Ok(returned),
        ToolOutcome::Rejected { why } => Err(CallError::Rejected { tool: call.name().to_owned(), why }),
    }
}

/// Returns the task id in the result of a task tool.
pub(super) fn task_id_in(structured: &Value) -> Option<&str> {
    let task = structured.get("task").unwrap_or(structured);
    task.get("task_id").or_else(|| task.get("id")).and_then(Value::as_str)
}
