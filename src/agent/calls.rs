//! Tool calls: prepared all at once, so that what they are about to do is written down together, then carried out.

use futures_util::future::join_all;
use serde_json::{Map, Value};
use subjects::{
    Act, Progress, StepOutcome, TaskChangeKind,
    journal::{Returned, ToolOutcome},
};
use tracing::Instrument;

use super::{
    Broken,
    ledger::StepEnd,
    session::{Session, excerpt, failed},
};
use crate::{
    crash_points::{Point, reach},
    journal::{self, Remembered},
    recording::Timed,
    telemetry::spans,
    tools::{CallError, Permitted},
};

/// A call that the role may make, and its place in the journal.
#[derive(Debug)]
pub(super) struct Prepared {
    /// In the ledger.
    index: usize,
    call: Permitted,
    journalled: journal::Call,
    has_effect: bool,
}

impl Session<'_> {
    /// One tool call, as the role may make it.
    pub(super) async fn call(&self, name: &str, arguments: Map<String, Value>) -> Result<Returned, Broken> {
        self.perform(self.prepare(name, arguments)?).await
    }

    /// All at once; the results in the order of the calls.
    pub(super) async fn call_all(
        &self,
        calls: impl IntoIterator<Item = (&str, Map<String, Value>)>,
    ) -> Vec<Result<Returned, Broken>> {
        let prepared: Vec<_> =
            calls.into_iter().map(|(name, arguments)| self.prepare(name, arguments)).collect();
        join_all(prepared.into_iter().map(async |prepared| self.perform(prepared?).await)).await
    }

    pub(super) fn prepare(&self, name: &str, arguments: Map<String, Value>) -> Result<Prepared, Broken> {
        let index = self.ledger.begin(self.lane, Act::Tool, name);
        let Some(call) = Permitted::new(self.bench.tools.allowed(), name, arguments) else {
            let why = format!("a {} may not call it", self.bench.role);
            let end = StepEnd { outcome: StepOutcome::Rejected, ms: 0, tries: 0, detail: Some(why.clone()) };
            self.ledger.end(index, end);
            return Err(CallError::Rejected { tool: name.to_owned(), why }.into());
        };
        let has_effect = !self.catalogue.only_reads(name);
        let journalled = self.journal.call(name, call.arguments_hash(), has_effect);
        Ok(Prepared { index, call, journalled, has_effect })
    }

    pub(super) async fn perform(&self, prepared: Prepared) -> Result<Returned, Broken> {
        let Prepared { index, call, mut journalled, has_effect } = prepared;
        if let Some(Remembered { value, ms }) = journalled.outcome.take() {
            return self.came_to(index, &call, journalled.id.number, outcome(&call, value), ms);
        }
        self.live.tell(Progress::Calling, Some(call.name()));
        if has_effect {
            self.journal.secure().await;
        }
        let calling = spans::tool(call.name(), has_effect);
        // Boxed: few handoffs are in a call, and none should hold room for one.
        let live = Box::pin(async {
            reach(Point::BeforeTool).await;
            let before_again = || async {
                if has_effect {
                    self.journal.secure().await;
                }
            };
            let called =
                self.bench.tools.call(&call, &journalled.key, &self.traceparent(), before_again).await;
            reach(Point::ToolAnswered).await;
            called
        })
        .instrument(calling.clone());
        let Timed { value, ms } = self.bench.recording.tool(self.ledger, &call, live).await;
        spans::called(&calling, &value);
        drop(calling);
        if let Err(CallError::TokenRefused { why }) = value {
            return self.journal.hand_back(why).await;
        }
        self.live.tell(Progress::Called, Some(call.name()));
        let number = journalled.id.number;
        let known = match &value {
            Ok(returned) => Some(ToolOutcome::Returned(returned.clone())),
            Err(CallError::Rejected { why, .. }) => Some(ToolOutcome::Rejected { why: why.clone() }),
            // Nothing came of it, so it may be tried again.
            Err(
                CallError::Unavailable { .. } | CallError::TokenRefused { .. } | CallError::NotRecorded(_),
            ) => None,
        };
        if let Some(known) = known {
            self.journal.returned(journalled, known, ms, has_effect);
        }
        self.came_to(index, &call, number, value, ms)
    }

    /// Writes into the ledger what a call came to, now or in an earlier attempt.
    fn came_to(
        &self,
        index: usize,
        call: &Permitted,
        number: u32,
        value: Result<Returned, CallError>,
        ms: u64,
    ) -> Result<Returned, Broken> {
        match &value {
            Ok(returned) => {
                let outcome = if returned.failed { StepOutcome::Failed } else { StepOutcome::Ok };
                let detail = returned.failed.then(|| excerpt(&returned.text));
                self.ledger.end(index, StepEnd { outcome, ms, tries: returned.tries, detail });
                if !returned.failed {
                    self.note_task(number, call, returned);
                }
            }
            Err(CallError::Rejected { why, .. }) => {
                let end = StepEnd { outcome: StepOutcome::Rejected, ms, tries: 1, detail: Some(why.clone()) };
                self.ledger.end(index, end);
            }
            Err(CallError::Unavailable { tries, why, .. }) => {
                self.ledger.end(index, failed(ms, *tries, why.clone()));
            }
            Err(error @ (CallError::TokenRefused { .. } | CallError::NotRecorded(_))) => {
                self.ledger.end(index, failed(ms, 0, error.to_string()));
            }
        }
        Ok(value?)
    }

    /// Tasks that a call created or changed are named in the answer.
    fn note_task(&self, number: u32, call: &Permitted, returned: &Returned) {
        let change = match call.name() {
            "db.task.create" => TaskChangeKind::Created,
            "db.task.update" | "db.task.update_status" => TaskChangeKind::Updated,
            _ => return,
        };
        let returned = returned.json();
        let returned = returned.as_ref().and_then(task_id_in);
        let given = call.arguments().get("task_id").and_then(Value::as_str);
        if let Some(id) = returned.or(given).and_then(|id| id.parse().ok()) {
            self.ledger.changed_task(number, id, change);
        }
    }
}

/// As it was when it was new.
fn outcome(call: &Permitted, known: ToolOutcome) -> Result<Returned, CallError> {
    match known {
        ToolOutcome::Returned(returned) => Ok(returned),
        ToolOutcome::Rejected { why } => Err(CallError::Rejected { tool: call.name().to_owned(), why }),
    }
}

/// The id in what a tool for tasks returns.
pub(super) fn task_id_in(structured: &Value) -> Option<&str> {
    let task = structured.get("task").unwrap_or(structured);
    task.get("task_id").or_else(|| task.get("id")).and_then(Value::as_str)
}
