//! Tool calls. All calls of a turn are prepared first, so that their intents are journalled together, and
//! then performed.

use contract::ToolContract;
use crash::reach;
use futures_util::future::join_all;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use subjects::{
    Act, StepOutcome,
    journal::{Returned, ToolOutcome},
};
use tracing::{Instrument, warn};

use super::{
    WorkError,
    ledger::StepEnd,
    live::LiveStep,
    recorded::task_change,
    session::{Session, excerpt},
};
use crate::{
    crash_points::Point,
    journal::{self, Remembered},
    recording::Timed,
    tools::{CallError, PermittedCall, spans},
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
    /// Calls a tool of the contract, if the role is permitted to, and returns its result, also if it failed.
    pub(super) async fn call<T: ToolContract + Serialize>(&self, input: &T) -> Result<Returned, WorkError> {
        self.perform(self.prepare_tool(input)?).await
    }

    /// Calls a tool of the contract and returns its output. Returns [`WorkError::ToolFailed`] if the tool
    /// failed or its result is not what the contract says.
    pub(super) async fn call_for_output<T>(&self, input: &T) -> Result<T::Output, WorkError>
    where
        T: ToolContract<Output: DeserializeOwned> + Serialize,
    {
        let returned = self.call(input).await?;
        let failed = |why: String| WorkError::ToolFailed { tool: T::NAME.to_owned(), why };
        if returned.failed {
            return Err(failed(returned.text));
        }
        returned.parse().map_err(|error| failed(format!("it ran, but its result is not valid: {error}")))
    }

    /// Makes all calls concurrently and returns the results in the order of the calls.
    pub(super) async fn call_all<T: ToolContract + Serialize>(
        &self,
        inputs: impl IntoIterator<Item = T>,
    ) -> Vec<Result<Returned, WorkError>> {
        let prepared: Vec<_> = inputs.into_iter().map(|input| self.prepare_tool(&input)).collect();
        join_all(prepared.into_iter().map(async |prepared| self.perform(prepared?).await)).await
    }

    /// Prepares a call of a tool of the contract. Arguments that the offered schema does not declare are left
    /// out, since an older gateway or another server would refuse them.
    pub(super) fn prepare_tool<T: ToolContract + Serialize>(
        &self,
        input: &T,
    ) -> Result<PreparedCall, WorkError> {
        let mut arguments = contract::arguments(input);
        if let Some(tool) = self.catalogue.get(T::NAME) {
            if let Some(declared) = tool.input_schema.get("properties").and_then(Value::as_object) {
                arguments.retain(|name, _| declared.contains_key(name));
            }
            if let Err(why) = self.scoped_ids.fill(tool, &mut arguments) {
                return Err(WorkError::ToolFailed { tool: T::NAME.to_owned(), why });
            }
        }
        self.prepare(T::NAME, arguments)
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
            self.live.not_called(Some(name), StepOutcome::Rejected);
            return Err(CallError::Rejected { tool: name.to_owned(), why }.into());
        };
        let has_effect = !self.catalogue.only_reads(name);
        let journalled = self.journal.begin_call(name, &call.arguments_hash(), has_effect);
        Ok(PreparedCall { index, call, journalled, has_effect })
    }

    /// Returns the journalled outcome of an earlier attempt if there is one, and makes the call otherwise.
    /// Hands the handoff back if the gateway refuses the worker's token.
    pub(super) async fn perform(&self, prepared: PreparedCall) -> Result<Returned, WorkError> {
        let PreparedCall { index, call, mut journalled, has_effect } = prepared;
        if let Some(Remembered { value, ms }) = journalled.outcome.take() {
            return self.finish_call(index, &call, journalled.id.number, restored_outcome(&call, value), ms);
        }
        let step = LiveStep { index, act: Act::Tool, name: Some(call.name()) };
        self.live.started(step);
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
            let listener = self.live.calling(step);
            let (key, traceparent, tools) = (&journalled.key, self.traceparent(), &self.resources.tools);
            let called = tools.call(&call, key, &traceparent, self.lease, &listener, before_retry).await;
            reach(Point::ToolAnswered).await;
            called
        })
        .instrument(calling.clone());
        let Timed { value, ms } = self.resources.recording.tool(&self.effects, &call, live).await;
        spans::record_call(&calling, &value);
        drop(calling);
        let (outcome, tries) = outcome_of(&value);
        self.live.ended(step, outcome, tries, ms);
        if let Err(CallError::TokenRefused { why }) = value {
            return self.journal.hand_back(why).await;
        }
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
        let (outcome, tries) = outcome_of(&value);
        let detail = match &value {
            Ok(returned) => returned.failed.then(|| excerpt(&returned.text)),
            Err(CallError::Rejected { why, .. } | CallError::Unavailable { why, .. }) => Some(why.clone()),
            Err(error @ (CallError::TokenRefused { .. } | CallError::NotRecorded(_))) => {
                Some(error.to_string())
            }
        };
        self.ledger.end_step(index, StepEnd { outcome, ms, tries, detail });
        if let Ok(returned) = &value
            && !returned.failed
        {
            self.record_task_change(number, call, returned);
        }
        Ok(value?)
    }

    /// Records the task that the call created or updated, for the answer.
    fn record_task_change(&self, number: u32, call: &PermittedCall, returned: &Returned) {
        match task_change(call.name(), returned) {
            None => {}
            Some(Some((id, change))) => self.ledger.record_task_change(number, id, change),
            Some(None) => warn!(
                handoff.id = %self.handoff.id,
                tool = call.name(),
                "Result names no task; the answer does not report the change."
            ),
        }
    }
}

/// Returns how a call ended, and after how many tries.
fn outcome_of(called: &Result<Returned, CallError>) -> (StepOutcome, u32) {
    match called {
        Ok(returned) if returned.failed => (StepOutcome::Failed, returned.tries),
        Ok(returned) => (StepOutcome::Ok, returned.tries),
        Err(CallError::Rejected { .. }) => (StepOutcome::Rejected, 1),
        Err(CallError::Unavailable { tries, .. }) => (StepOutcome::Failed, *tries),
        Err(CallError::TokenRefused { .. } | CallError::NotRecorded(_)) => (StepOutcome::Failed, 0),
    }
}

/// Converts a journalled outcome back into the result of the call.
fn restored_outcome(call: &PermittedCall, known: ToolOutcome) -> Result<Returned, CallError> {
    match known {
        ToolOutcome::Returned(returned) => Ok(returned),
        ToolOutcome::Rejected { why } => Err(CallError::Rejected { tool: call.name().to_owned(), why }),
    }
}
