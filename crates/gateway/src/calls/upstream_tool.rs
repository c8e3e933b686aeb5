//! Runs upstream tools. Their effects cannot be undone, so each call is announced in the audit before it is
//! sent.

use std::time::Duration;

use mcp::Fate;
use rmcp::model::{CallToolResult, MetaObject, ResultType};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use serde_json::{Map, Value};
use tracing::Instrument;
use upstream::Failure;

use super::{CallError, Calls, Outcome, Request, SideEffect, ToolReply, keyed_calls::KeyedCall, keys, spans};
use policy::Permitted;

use audit::{Announcement, BeginError, ClaimOutcome, Decision, KeyClaim, KeyOutcome, Record};
use registry::{catalogue::UpstreamTool, sanitize};
use store::{clock, entity::idempotency};

/// Time that a call may take in addition to its timeout, for connecting and for the commit of its row.
const OVERHEAD: Duration = Duration::from_secs(30);
/// Key in `_meta` that marks a result as content of an upstream.
const UNTRUSTED: &str = "dev.cynode/untrusted";

/// The outcome of announcing a call.
enum Preparation {
    /// The tool is called. The guard is held until the outcome is recorded; calls with the same key wait for
    /// it.
    Proceed(Option<KeyedCall>),
    /// The call is answered without calling the tool.
    Done(ToolReply),
}

impl Calls {
    pub(super) async fn run_upstream_tool(
        &self,
        tool: &UpstreamTool,
        permitted: &Permitted,
        record: &mut Record,
        mut request: Request,
    ) -> Result<Outcome, CallError> {
        record.set_decision(Decision::Allow);
        let preparation = match validate_arguments(tool, &mut request.arguments) {
            Some(problem) => Preparation::Done(ToolReply::failure("invalid_arguments", &problem)),
            None => self.announce(tool, permitted, record, &request).await?,
        };
        let _keyed_call;
        let (reply, announcement, side_effect) = match preparation {
            Preparation::Done(reply) => (reply, Announcement::None, SideEffect::None),
            Preparation::Proceed(keyed_call) => {
                _keyed_call = keyed_call;
                let calling = spans::upstream_call(tool);
                let meta = calling.in_scope(|| meta(&request));
                let arguments = std::mem::take(&mut request.arguments);
                let called = self
                    .upstreams
                    .call(&tool.server, &tool.remote, arguments, meta, request.progress.take())
                    .instrument(calling.clone())
                    .await;
                let (reply, effect) = self.interpret(tool, called);
                if let Some(error_type) = reply.error_type {
                    telemetry::mark_failed(&calling, error_type);
                }
                drop(calling);
                let side_effect = match effect {
                    CallEffect::None => SideEffect::None,
                    CallEffect::Happened | CallEffect::Unknown => SideEffect::Possible,
                };
                let announcement = match request.key.take() {
                    None => Announcement::Made,
                    Some(key) => {
                        let holder = keys::holder(permitted.caller());
                        Announcement::WithKey(match effect {
                            CallEffect::Happened => {
                                let result = serde_json::to_string(&reply.result).ok();
                                Some(KeyOutcome { holder, key, result })
                            }
                            CallEffect::None => Some(KeyOutcome { holder, key, result: None }),
                            // The key stays claimed, and later calls with it are answered as in doubt.
                            CallEffect::Unknown => None,
                        })
                    }
                };
                (reply, announcement, side_effect)
            }
        };
        Ok(self.finish(record, reply, announcement, side_effect).await)
    }

    /// Announces the call and claims its key. If an earlier call holds the key, waits for it and returns its
    /// answer.
    async fn announce(
        &self,
        tool: &UpstreamTool,
        permitted: &Permitted,
        record: &Record,
        request: &Request,
    ) -> Result<Preparation, CallError> {
        let digest = record.arguments_digest.clone().unwrap_or_default();
        let holder = keys::holder(permitted.caller());
        let time = Duration::from_millis(u64::try_from(tool.server.call_timeout_ms).unwrap_or(60_000));
        // Twice, because a call may wait for a free slot of the upstream as long as it may run.
        let within = time * 2 + OVERHEAD;
        let mut keyed_call = request.key.as_ref().map(|_| self.keyed_calls.register(&record.call_id));
        loop {
            let kept = i64::try_from(self.limits.keep_keys.as_micros()).unwrap_or(i64::MAX);
            let claim = request.key.as_ref().map(|key| KeyClaim {
                holder: holder.clone(),
                key: key.clone(),
                tool: request.tool.clone(),
                arguments_digest: digest.clone(),
                expires_at: clock::now().saturating_add(kept),
            });
            let known = match self.ledger.begin(record.clone(), within, claim).await {
                Ok(ClaimOutcome::Fresh) => return Ok(Preparation::Proceed(keyed_call.take())),
                Ok(ClaimOutcome::Existing(known)) => known,
                Err(error) => {
                    let announcement = match (error, request.key.clone()) {
                        (BeginError::Refused, _) => Announcement::None,
                        (BeginError::Unconfirmed, None) => Announcement::Made,
                        (BeginError::Unconfirmed, Some(key)) => {
                            Announcement::WithKey(Some(KeyOutcome { holder, key, result: None }))
                        }
                    };
                    return Err(CallError::Unavailable { reason: "audit_unavailable", announcement });
                }
            };
            if let Some(reply) = keys::recorded_reply(&known, request, &digest) {
                return Ok(Preparation::Done(reply));
            }
            self.keyed_calls.wait_until_done(&self.store, &known.call_id).await?;
            // A read and not another claim, because all waiting calls get here at the same moment.
            let Some(now) = self.find_key(&known).await? else { continue };
            if let Some(reply) = keys::recorded_reply(&now, request, &digest) {
                return Ok(Preparation::Done(reply));
            }
            if now.call_id == known.call_id {
                if !tool.safe_to_repeat {
                    return Ok(Preparation::Done(keys::in_doubt()));
                }
                self.release_key(&known).await?;
            }
        }
    }

    async fn find_key(&self, known: &idempotency::Model) -> Result<Option<idempotency::Model>, CallError> {
        let key = (known.holder.clone(), known.key.clone());
        Ok(idempotency::Entity::find_by_id(key).one(self.store.read()).await?)
    }

    /// Releases the key of a lost call, unless another call has released and claimed it since.
    async fn release_key(&self, known: &idempotency::Model) -> Result<(), CallError> {
        let write = self.store.write().await?;
        idempotency::Entity::delete_many()
            .filter(idempotency::Column::Holder.eq(&known.holder))
            .filter(idempotency::Column::Key.eq(&known.key))
            .filter(idempotency::Column::CallId.eq(&known.call_id))
            .filter(idempotency::Column::State.eq(idempotency::RUNNING))
            .exec(&*write)
            .await?;
        Ok(write.commit().await?)
    }

    /// Converts the result of the upstream into a reply, and classifies its effect.
    fn interpret(
        &self,
        tool: &UpstreamTool,
        called: Result<CallToolResult, Failure>,
    ) -> (ToolReply, CallEffect) {
        let failure = match called {
            Ok(result) => return (self.limit_size(to_reply(result)), CallEffect::Happened),
            Err(failure) => failure,
        };
        let message = failure.error.to_string();
        let code = match &failure.error {
            upstream::Error::TimedOut => "upstream_timeout",
            upstream::Error::Rejected { .. } => "upstream_refused",
            upstream::Error::TooLarge(_) => "too_large",
            upstream::Error::InputRequired => "asks_for_input",
            upstream::Error::Busy | upstream::Error::BreakerOpen => "upstream_busy",
            _ => "upstream_unavailable",
        };
        match failure.fate {
            Fate::Answered => (ToolReply::failure(code, &message), CallEffect::Happened),
            Fate::NotRun => (ToolReply::failure(code, &message), CallEffect::None),
            Fate::Unknown if tool.safe_to_repeat => (ToolReply::failure(code, &message), CallEffect::None),
            Fate::Unknown => {
                let message = format!("{message}. It is unknown whether the call had its effect.");
                (ToolReply::failure(code, &message), CallEffect::Unknown)
            }
        }
    }
}

/// Whether a call had its effect.
enum CallEffect {
    Happened,
    None,
    Unknown,
}

/// Sanitizes a result, marks it as untrusted, and sets its status.
fn to_reply(result: CallToolResult) -> ToolReply {
    let mut result = sanitize::result(result);
    // Servers with an older protocol version do not send it, and callers with the newest one expect it.
    result.result_type = Some(ResultType::COMPLETE);
    result.meta.get_or_insert_with(MetaObject::default).0.insert(UNTRUSTED.to_owned(), true.into());
    if result.is_error == Some(true) {
        let failed = ToolReply::success(result);
        return ToolReply { status: audit::Status::Failure, error_type: Some("tool_error"), ..failed };
    }
    ToolReply::success(result)
}

/// Builds `_meta` for the upstream. It contains the trace of the call and nothing else of the caller (M102).
fn meta(request: &Request) -> Map<String, Value> {
    let mut meta = Map::new();
    if let Some(traceparent) = telemetry::traceparent().or_else(|| request.traceparent.clone()) {
        meta.insert("traceparent".to_owned(), traceparent.into());
    }
    meta
}

/// Returns how the arguments violate the approved schema, if they do, so that an invalid call has no effect
/// at the upstream.
fn validate_arguments(tool: &UpstreamTool, arguments: &mut Map<String, Value>) -> Option<String> {
    let validator = tool.arguments.as_ref()?;
    let value = Value::Object(std::mem::take(arguments));
    let problem = validator.check(&value).err();
    if let Value::Object(back) = value {
        *arguments = back;
    }
    problem.map(|problem| format!("The arguments do not match the tool's input schema: {problem}"))
}
