//! The life of a call: decide, run, record, answer. In this order, and nothing in between can be left out.

mod behind; // tools of servers behind us
mod facts; // what the store knows about the ids of a call
mod once; // a key, and the one effect that it stands for
mod own; // tools that run in here
mod waiting; // calls that wait for one with their key

use std::{sync::Arc, time::Duration};

use rmcp::model::{CallToolResult, ContentBlock};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span, error, info};
use upstream::Progress;

use self::waiting::Waiting;
use crate::{
    audit::{Decision, Ledger, Record, Status, Unavailable, Unrecorded, WasBegun},
    canonical,
    catalogue::{Runs, Served, Shelf},
    clock,
    policy::{self, Denial, Named, Permitted, Standing},
    spans,
    store::{Store, entity::idempotency},
    upstreams::Upstreams,
};

/// A call as it was asked for.
#[derive(Clone, Debug)]
pub struct Request {
    pub call_id: String,
    pub standing: Standing,
    /// What the store was at when the token was looked up.
    pub revision: i64,
    pub tool: String,
    pub arguments: Map<String, Value>,
    /// Calls with the same key have one effect.
    pub key: Option<String>,
    pub traceparent: Option<String>,
    /// Where the caller wants to hear how far it is.
    pub progress: Option<mpsc::Sender<Progress>>,
}

/// What the caller is told.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The tool ran, well or not.
    Answered(Box<CallToolResult>),
    Denied(Denial),
    /// Nothing can be decided or recorded at the moment, so nothing is permitted. No tool had an effect.
    Unavailable,
    /// The tool was called, and what became of it is not recorded yet.
    InDoubt,
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub max_result_bytes: usize,
    /// How long the answer to a key is kept.
    pub keep_keys: Duration,
}

#[derive(Debug)]
pub struct Calls {
    pub(crate) store: Store,
    pub(crate) shelf: Shelf,
    pub(crate) ledger: Ledger,
    upstreams: Arc<Upstreams>,
    limits: Limits,
    running: TaskTracker,
    waiting: Waiting,
}

/// How a tool ended, for the audit and for the caller.
struct Ended {
    status: Status,
    error_type: Option<&'static str>,
    result: CallToolResult,
}

impl Ended {
    fn well(result: CallToolResult) -> Self {
        Self { status: Status::Success, error_type: None, result }
    }

    fn replayed(result: CallToolResult) -> Self {
        Self { status: Status::Replayed, error_type: None, result }
    }

    /// An error that the agent reads: a code that programs know, and words.
    fn badly(code: &'static str, message: &str) -> Self {
        let mut result = CallToolResult::error(vec![ContentBlock::text(message)]);
        result.structured_content = Some(json!({ "code": code, "message": message }));
        Self { status: Status::Failure, error_type: Some(code), result }
    }
}

/// Why there is nothing to tell the agent.
enum Stop {
    Denied(Denial),
    /// Before a tool was called. What was announced of the call is taken back.
    Unavailable {
        why: &'static str,
        begun: WasBegun,
    },
    /// The store failed while it made the effect of a tool of ours durable.
    InDoubt,
}

/// How far a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    /// It had no effect, and it is known that it had none.
    Nothing,
    Tool,
}

impl From<DbErr> for Stop {
    fn from(error: DbErr) -> Self {
        error!(%error, "Store not available; calls are denied.");
        Self::Unavailable { why: "store_unavailable", begun: WasBegun::Not }
    }
}

impl Calls {
    pub fn new(
        store: Store,
        shelf: Shelf,
        ledger: Ledger,
        upstreams: Arc<Upstreams>,
        limits: Limits,
    ) -> Self {
        Self {
            store,
            shelf,
            ledger,
            upstreams,
            limits,
            running: TaskTracker::new(),
            waiting: Waiting::default(),
        }
    }

    /// Runs a call to its end, also when the caller does not wait for it: what was begun is ended and recorded.
    pub async fn call(self: &Arc<Self>, request: Request) -> Outcome {
        let calls = self.clone();
        let record = begin(&request);
        let mut lost = record.clone();
        let span = spans::call(&request);
        let work = async move {
            let outcome = Box::pin(calls.run(record, request)).await;
            spans::answered(&Span::current(), &outcome);
            outcome
        };
        let task = self.running.spawn(work.instrument(span));
        match task.await {
            Ok(outcome) => outcome,
            Err(error) => {
                error!(%error, call_id = lost.call_id, "Call panicked.");
                lost.end(Decision::Allow, Status::Unknown, Some("internal"), clock::now());
                // It may have been begun, and must not get a second row for that.
                if self.ledger.end(lost, WasBegun::Yes).await.is_err() {
                    error!("Panicked call not recorded.");
                }
                Outcome::InDoubt
            }
        }
    }

    /// Waits for the calls that run.
    pub async fn drain(&self) {
        self.running.close();
        self.running.wait().await;
    }

    /// A call that never came to a decision: it could not be read, or was too early, too large, too fast.
    pub async fn refuse(&self, mut record: Record, error_type: &str) -> Result<(), Unavailable> {
        record.end(Decision::Deny, Status::Denied, Some(error_type), clock::now());
        self.ledger.end(record, WasBegun::Not).await.map_err(|Unrecorded| Unavailable)
    }

    async fn run(&self, mut record: Record, request: Request) -> Outcome {
        let named = Named::read(&request.arguments);
        if let Ok(named) = &named {
            record.name(named);
        }
        let deciding = spans::decide();
        let decided = self.decide(&request, named.as_ref().ok()).instrument(deciding.clone()).await;
        deciding.record("cynode.decision", if decided.is_ok() { "allow" } else { "deny" });
        drop(deciding);
        let (permitted, tool) = match decided {
            Ok(decided) => decided,
            Err(stop) => return self.stopped(record, stop).await,
        };
        if telemetry::is_on() {
            spans::is_about(&Span::current(), &request.tool);
        }
        let ran = match &tool.runs {
            Runs::Own(entry) => self.run_own(entry, &permitted, &mut record, request).await,
            Runs::Behind(behind) => self.run_behind(behind, &permitted, &mut record, request).await,
        };
        match ran {
            Ok(outcome) => outcome,
            Err(stop) => self.stopped(record, stop).await,
        }
    }

    /// Records how a call ended, and only then answers. Whatever reached its tool is never called denied from here on.
    async fn finish(&self, record: &mut Record, ended: Ended, begun: WasBegun, reached: Reached) -> Outcome {
        record.end(Decision::Allow, ended.status, ended.error_type, clock::now());
        match (self.ledger.end(record.clone(), begun).await, reached) {
            (Ok(()), _) => Outcome::Answered(Box::new(ended.result)),
            (Err(Unrecorded), Reached::Nothing) => Outcome::Unavailable,
            (Err(Unrecorded), Reached::Tool) => Outcome::InDoubt,
        }
    }

    async fn decide(&self, request: &Request, named: Option<&Named>) -> Result<(Permitted, Served), Stop> {
        let catalogue = self.shelf.at(&self.store, request.revision).await?;
        let tool = catalogue.get(&request.tool);
        let known = tool.map(|tool| &tool.policy);
        // What is refused anyway needs no look into the store.
        let (caller, seen) = policy::may_see(&request.standing, known).map_err(Stop::Denied)?;
        let facts = match named {
            Some(named) => facts::about(&self.store, caller, &seen.origin, named).await?,
            None => policy::Facts::default(),
        };
        let decided = policy::decide(&request.standing, known, catalogue.rules(), &request.arguments, &facts);
        match (decided, tool) {
            (Ok(permitted), Some(tool)) => Ok((permitted, tool.clone())),
            (Err(denial), _) => Err(Stop::Denied(denial)),
            (Ok(_), None) => Err(Stop::Denied(Denial::UnknownTool)),
        }
    }

    async fn stopped(&self, mut record: Record, stop: Stop) -> Outcome {
        let (decision, status, error_type, begun, outcome) = match stop {
            Stop::Denied(denial) => {
                info!(call_id = record.call_id, tool = record.tool, agent = record.agent, reason = %denial, "Call denied.");
                let error_type = denial.error_type();
                (Decision::Deny, Status::Denied, error_type, WasBegun::Not, Outcome::Denied(denial))
            }
            Stop::Unavailable { why, begun } => {
                (Decision::Deny, Status::Failure, why, begun, Outcome::Unavailable)
            }
            Stop::InDoubt => {
                (Decision::Allow, Status::Unknown, "store_unavailable", WasBegun::Yes, Outcome::InDoubt)
            }
        };
        record.end(decision, status, Some(error_type), clock::now());
        match (self.ledger.end(record, begun).await, outcome) {
            (Ok(()), outcome) | (Err(Unrecorded), outcome @ Outcome::InDoubt) => outcome,
            (Err(Unrecorded), _) => Outcome::Unavailable,
        }
    }

    /// A result that is too large is not cut: half of a structure is worse than none.
    fn within_limits(&self, ended: Ended) -> Ended {
        let size = serde_json::to_vec(&ended.result).map_or(usize::MAX, |bytes| bytes.len());
        if size <= self.limits.max_result_bytes {
            return ended;
        }
        let limit = self.limits.max_result_bytes;
        Ended::badly(
            "too_large",
            &format!("The result has {size} bytes; at most {limit} are given. Ask for less."),
        )
    }
}

fn begin(request: &Request) -> Record {
    let mut record = Record::begin(request.call_id.clone(), clock::now(), &request.standing, &request.tool);
    record.arguments_digest = Some(canonical::digest(&request.arguments));
    record.trace_id = request.traceparent.as_deref().and_then(trace_id);
    record
}

/// Answers that were kept long enough.
pub async fn forget_expired(store: &Store) -> Result<(), DbErr> {
    let write = store.write().await?;
    let expired = idempotency::Column::ExpiresAt.lt(clock::now());
    idempotency::Entity::delete_many().filter(expired).exec(&*write).await?;
    write.commit().await
}

/// `00-<trace>-<span>-<flags>`; anything else is nobody's trace.
fn trace_id(traceparent: &str) -> Option<String> {
    let id = traceparent.split('-').nth(1)?;
    (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| id.to_ascii_lowercase())
}
