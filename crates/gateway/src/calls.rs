//! Runs tool calls: decides, runs the tool, records the outcome, answers. Always in this order; no step is
//! optional.

mod built_in;
mod facts;
mod keyed_calls;
mod keys;
mod spans;
mod upstream_tool;

use std::{sync::Arc, time::Duration};

use rmcp::model::{CallToolResult, ContentBlock};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span, error, info};
use upstream::Progress;

use self::keyed_calls::KeyedCalls;
use policy::{CallIds, Denial, LeaseStanding, Permitted, Standing};

use audit::{Announcement, Decision, Ledger, Record, Status, Unavailable, Unrecorded};
use control::{LeaseIssuer, Memories, Sandboxes};
use registry::{
    canonical,
    catalogue::{Backend, CatalogueCache, ServedTool},
    upstreams::Upstreams,
};
use store::{Store, clock, entity::idempotency};

/// A call as the caller requested it.
#[derive(Clone, Debug)]
pub struct Request {
    pub call_id: String,
    pub standing: Standing,
    /// Revision of the store when the token was looked up; the decision uses this one or a newer one.
    pub revision: i64,
    pub tool: String,
    pub arguments: Map<String, Value>,
    /// Idempotency key: calls of one holder with the same key have one effect.
    pub key: Option<String>,
    pub traceparent: Option<String>,
    /// Receives the progress of the call, if the caller asked for it.
    pub progress: Option<mpsc::Sender<Progress>>,
}

/// The answer to the caller.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The tool ran, and succeeded or failed.
    Answered(Box<CallToolResult>),
    Denied(Denial),
    /// The call could not be decided or recorded, so it is not permitted. No tool had an effect.
    Unavailable,
    /// The tool was called, and its outcome is not recorded yet.
    InDoubt,
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub max_result_bytes: usize,
    /// How long the answer under a key is kept.
    pub keep_keys: Duration,
}

#[derive(Debug)]
pub struct Calls {
    pub(crate) store: Store,
    pub(crate) catalogue: Arc<CatalogueCache>,
    pub(crate) ledger: Ledger,
    upstreams: Arc<Upstreams>,
    pub(crate) leases: Arc<LeaseIssuer>,
    sandboxes: Arc<Sandboxes>,
    memories: Arc<Memories>,
    limits: Limits,
    tasks: TaskTracker,
    keyed_calls: KeyedCalls,
}

/// The result of a tool, for the audit and for the caller.
struct ToolReply {
    status: Status,
    error_type: Option<&'static str>,
    result: CallToolResult,
}

impl ToolReply {
    fn success(result: CallToolResult) -> Self {
        Self { status: Status::Success, error_type: None, result }
    }

    fn replayed(result: CallToolResult) -> Self {
        Self { status: Status::Replayed, error_type: None, result }
    }

    /// Creates an error result with a code for programs and a message for the agent.
    fn failure(code: &'static str, message: &str) -> Self {
        let mut result = CallToolResult::error(vec![ContentBlock::text(message)]);
        result.structured_content = Some(json!({ "code": code, "message": message }));
        Self { status: Status::Failure, error_type: Some(code), result }
    }
}

/// Why a call has no result of a tool.
enum CallError {
    Denied(Denial),
    /// Failed before the tool was called. The announcement, if any, is removed.
    Unavailable {
        reason: &'static str,
        announcement: Announcement,
    },
    /// The commit of a built-in tool's effect failed and may have happened nevertheless.
    InDoubt,
}

/// Whether a call may have had a side effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SideEffect {
    /// The call is known to have had none.
    None,
    Possible,
}

impl From<DbErr> for CallError {
    fn from(error: DbErr) -> Self {
        error!(%error, "Store not available; calls are denied.");
        Self::Unavailable { reason: "store_unavailable", announcement: Announcement::None }
    }
}

/// Services that built-in tools use besides the store.
#[derive(Debug)]
pub struct ToolResources {
    pub leases: Arc<LeaseIssuer>,
    pub sandboxes: Arc<Sandboxes>,
    pub memories: Arc<Memories>,
}

impl Calls {
    pub fn new(
        store: Store,
        catalogue: Arc<CatalogueCache>,
        ledger: Ledger,
        upstreams: Arc<Upstreams>,
        ToolResources { leases, sandboxes, memories }: ToolResources,
        limits: Limits,
    ) -> Self {
        Self {
            store,
            catalogue,
            ledger,
            upstreams,
            leases,
            sandboxes,
            memories,
            limits,
            tasks: TaskTracker::new(),
            keyed_calls: KeyedCalls::default(),
        }
    }

    /// Runs a call to its end and records it, even if the caller stops waiting.
    pub async fn call(self: &Arc<Self>, request: Request) -> Outcome {
        let calls = self.clone();
        let span = spans::call(&request);
        let record = new_record(&request, &span);
        let mut lost = record.clone();
        let work = async move {
            let outcome = Box::pin(calls.run(record, request)).await;
            spans::record_outcome(&Span::current(), &outcome);
            outcome
        };
        let task = self.tasks.spawn(work.instrument(span));
        match task.await {
            Ok(outcome) => outcome,
            Err(error) => {
                error!(%error, call_id = lost.call_id, "Call panicked.");
                lost.end(Decision::Allow, Status::Unknown, Some("internal"), clock::now());
                // The call may have been announced, and its announcement must not become a second row.
                if self.ledger.end(lost, Announcement::Made).await.is_err() {
                    error!("Panicked call not recorded.");
                }
                Outcome::InDoubt
            }
        }
    }

    /// Waits for all running calls.
    pub async fn drain(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Records a call that was refused before a decision, for example because it is malformed, too large or
    /// over the rate limit.
    pub async fn refuse(&self, mut record: Record, error_type: &str) -> Result<(), Unavailable> {
        record.end(Decision::Deny, Status::Denied, Some(error_type), clock::now());
        self.ledger.end(record, Announcement::None).await.map_err(|Unrecorded| Unavailable)
    }

    async fn run(&self, mut record: Record, request: Request) -> Outcome {
        let ids = CallIds::read(&request.arguments);
        // Behind a lease that is not one, the arguments say nothing about whom the call is for.
        let caller = request.standing.caller();
        let has_forged_lease = caller.is_some_and(|caller| caller.lease == LeaseStanding::Unknown);
        if let Ok(ids) = &ids
            && !has_forged_lease
        {
            record.fill_ids(ids);
        }
        let deciding = spans::decide();
        let decided = self.decide(&request, ids.as_ref().ok()).instrument(deciding.clone()).await;
        deciding.record("cynode.decision", if decided.is_ok() { "allow" } else { "deny" });
        drop(deciding);
        let (permitted, tool) = match decided {
            Ok(decided) => decided,
            Err(error) => return self.fail(record, error).await,
        };
        if telemetry::is_enabled() {
            spans::set_tool(&Span::current(), &request.tool);
        }
        let ran = match &tool.backend {
            Backend::BuiltIn(entry) => self.run_built_in(entry, &permitted, &mut record, request).await,
            Backend::Upstream(tool) => self.run_upstream_tool(tool, &permitted, &mut record, request).await,
        };
        match ran {
            Ok(outcome) => outcome,
            Err(error) => self.fail(record, error).await,
        }
    }

    /// Records the outcome of a call, then answers. A call that may have had a side effect is never reported
    /// as denied or unavailable from here on.
    async fn finish(
        &self,
        record: &mut Record,
        reply: ToolReply,
        announcement: Announcement,
        side_effect: SideEffect,
    ) -> Outcome {
        let is_denied = reply.status == Status::Denied;
        let decision = if is_denied { Decision::Deny } else { Decision::Allow };
        record.end(decision, reply.status, reply.error_type, clock::now());
        match (self.ledger.end(record.clone(), announcement).await, side_effect) {
            (Ok(()), _) => Outcome::Answered(Box::new(reply.result)),
            (Err(Unrecorded), SideEffect::None) => Outcome::Unavailable,
            (Err(Unrecorded), SideEffect::Possible) => Outcome::InDoubt,
        }
    }

    async fn decide(
        &self,
        request: &Request,
        ids: Option<&CallIds>,
    ) -> Result<(Permitted, ServedTool), CallError> {
        let catalogue = self.catalogue.at_least(&self.store, request.revision).await?;
        let tool = catalogue.get(&request.tool);
        let known = tool.map(|tool| &tool.policy);
        // Checked first: a call that is denied for this needs no query.
        let visible = policy::check_visible(&request.standing, known).map_err(CallError::Denied)?;
        let facts = match ids {
            Some(ids) => facts::look_up(&self.store, visible.caller, &visible.tool.origin, ids).await?,
            None => policy::Facts::default(),
        };
        let decided = policy::decide(&request.standing, known, catalogue.rules(), &request.arguments, &facts);
        match (decided, tool) {
            (Ok(permitted), Some(tool)) => Ok((permitted, tool.clone())),
            (Err(denial), _) => Err(CallError::Denied(denial)),
            (Ok(_), None) => Err(CallError::Denied(Denial::UnknownTool)),
        }
    }

    /// Records a call that has no result of a tool, then answers.
    async fn fail(&self, mut record: Record, error: CallError) -> Outcome {
        let (decision, status, error_type, announcement, outcome) = match error {
            CallError::Denied(denial) => {
                let (call_id, tool, agent) = (&record.call_id, &record.tool, &record.agent);
                info!(call_id, tool, agent, reason = %denial, "Call denied.");
                let error_type = denial.error_type();
                (Decision::Deny, Status::Denied, error_type, Announcement::None, Outcome::Denied(denial))
            }
            CallError::Unavailable { reason, announcement } => {
                (Decision::Deny, Status::Failure, reason, announcement, Outcome::Unavailable)
            }
            CallError::InDoubt => {
                (Decision::Allow, Status::Unknown, "store_unavailable", Announcement::Made, Outcome::InDoubt)
            }
        };
        record.end(decision, status, Some(error_type), clock::now());
        match (self.ledger.end(record, announcement).await, outcome) {
            (Ok(()), outcome) | (Err(Unrecorded), outcome @ Outcome::InDoubt) => outcome,
            (Err(Unrecorded), _) => Outcome::Unavailable,
        }
    }

    /// Replaces a result that is too large by an error. It is not truncated, because half a structure is
    /// worse than none.
    fn limit_size(&self, reply: ToolReply) -> ToolReply {
        self.limit_size_to(0, reply)
    }

    /// Like [`Calls::limit_size`], with at least `limit` bytes.
    fn limit_size_to(&self, limit: usize, reply: ToolReply) -> ToolReply {
        let limit = limit.max(self.limits.max_result_bytes);
        let size = serde_json::to_vec(&reply.result).map_or(usize::MAX, |bytes| bytes.len());
        if size <= limit {
            return reply;
        }
        ToolReply::failure(
            "too_large",
            &format!("The result has {size} bytes; at most {limit} are given. Ask for less."),
        )
    }
}

/// Creates the record of a call. Without a trace of the caller, the call is in that of its span, or in one of
/// its own with the id of the call (G12).
fn new_record(request: &Request, span: &Span) -> Record {
    let mut record = Record::begin(request.call_id.clone(), clock::now(), &request.standing, &request.tool);
    record.arguments_digest = Some(canonical::digest(&request.arguments));
    let of_caller = request.traceparent.as_deref().and_then(trace_id);
    let of_span = || span.in_scope(telemetry::traceparent).as_deref().and_then(trace_id);
    record.trace_id = of_caller.or_else(of_span).or_else(|| Some(request.call_id.replace('-', "")));
    record
}

/// Deletes idempotency keys whose retention has ended.
pub async fn delete_expired_keys(store: &Store) -> Result<(), DbErr> {
    let write = store.write().await?;
    let expired = idempotency::Column::ExpiresAt.lt(clock::now());
    idempotency::Entity::delete_many().filter(expired).exec(&*write).await?;
    write.commit().await
}

/// Returns the trace id of a `00-<trace>-<span>-<flags>` header, in lower case; `None` for anything else.
fn trace_id(traceparent: &str) -> Option<String> {
    let id = traceparent.split('-').nth(1)?;
    (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| id.to_ascii_lowercase())
}
