//! Tools of servers behind us. What they do cannot be undone from here, so it is written down before it is asked for.

use std::time::Duration;

use mcp::Fate;
use rmcp::model::{CallToolResult, MetaObject, ResultType};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use serde_json::{Map, Value};
use tracing::Instrument;
use upstream::Failure;

use super::{Calls, Ended, Outcome, Reached, Request, Stop, once, waiting::Running};
use crate::{
    audit::{Begun, Claim, Decision, Finish, NotAnnounced, Record, WasBegun},
    catalogue::Behind,
    clock,
    policy::Permitted,
    sanitize, spans,
    store::entity::idempotency,
};

/// What an answer may take beyond the time of the call itself: the turn before it, and the commit after it.
const BEYOND: Duration = Duration::from_secs(30);
const MAX_PROBLEMS: usize = 3;
/// The mark on what a stranger wrote.
const UNTRUSTED: &str = "dev.cynode/untrusted";

/// What is known before the call is made.
enum Before {
    /// Held until the outcome is recorded: calls with the same key wait for that.
    Go(Option<Running>),
    Ended(Ended),
}

impl Calls {
    pub(super) async fn run_behind(
        &self,
        behind: &Behind,
        permitted: &Permitted,
        record: &mut Record,
        mut request: Request,
    ) -> Result<Outcome, Stop> {
        record.decision = Decision::Allow;
        let problem = problem(behind, &mut request.arguments);
        let before = match problem {
            Some(problem) => Before::Ended(Ended::badly("invalid_arguments", &problem)),
            None => self.before(behind, permitted, record, &request).await?,
        };
        let _running;
        let (ended, begun, reached) = match before {
            Before::Ended(ended) => (ended, WasBegun::Not, Reached::Nothing),
            Before::Go(running) => {
                _running = running;
                let calling = spans::behind(behind);
                let meta = calling.in_scope(|| meta(&request));
                let arguments = std::mem::take(&mut request.arguments);
                let called = self
                    .upstreams
                    .call(&behind.server, &behind.remote, arguments, meta, request.progress.take())
                    .instrument(calling.clone())
                    .await;
                let (ended, effect) = self.after(behind, called);
                if let Some(error_type) = ended.error_type {
                    telemetry::failed(&calling, error_type);
                }
                drop(calling);
                let reached = match effect {
                    Effect::None => Reached::Nothing,
                    Effect::Had | Effect::InDoubt => Reached::Tool,
                };
                let begun = match request.key.take() {
                    None => WasBegun::Yes,
                    Some(key) => {
                        let holder = once::holder(permitted.caller());
                        WasBegun::WithKey(match effect {
                            Effect::Had => {
                                let result = serde_json::to_string(&ended.result).ok();
                                Some(Finish { holder, key, result })
                            }
                            Effect::None => Some(Finish { holder, key, result: None }),
                            // The key stays taken, and whoever comes with it again is told that nobody knows.
                            Effect::InDoubt => None,
                        })
                    }
                };
                (ended, begun, reached)
            }
        };
        Ok(self.finish(record, ended, begun, reached).await)
    }

    /// Writes down that the call begins, and takes its key.
    async fn before(
        &self,
        behind: &Behind,
        permitted: &Permitted,
        record: &Record,
        request: &Request,
    ) -> Result<Before, Stop> {
        let digest = record.arguments_digest.clone().unwrap_or_default();
        let holder = once::holder(permitted.caller());
        let time = Duration::from_millis(u64::try_from(behind.server.call_timeout_ms).unwrap_or(60_000));
        // Twice: a call may wait for its turn as long as it may take.
        let within = time * 2 + BEYOND;
        let mut running = request.key.as_ref().map(|_| self.waiting.register(&record.call_id));
        loop {
            let kept = i64::try_from(self.limits.keep_keys.as_micros()).unwrap_or(i64::MAX);
            let claim = request.key.as_ref().map(|key| Claim {
                holder: holder.clone(),
                key: key.clone(),
                tool: request.tool.clone(),
                arguments_digest: digest.clone(),
                expires_at: clock::now().saturating_add(kept),
            });
            let known = match self.ledger.begin(record.clone(), within, claim).await {
                Ok(Begun::Fresh) => return Ok(Before::Go(running.take())),
                Ok(Begun::Known(known)) => known,
                Err(not_announced) => {
                    let begun = match (not_announced, request.key.clone()) {
                        (NotAnnounced::Refused, _) => WasBegun::Not,
                        (NotAnnounced::Unconfirmed, None) => WasBegun::Yes,
                        (NotAnnounced::Unconfirmed, Some(key)) => {
                            WasBegun::WithKey(Some(Finish { holder, key, result: None }))
                        }
                    };
                    return Err(Stop::Unavailable { why: "audit_unavailable", begun });
                }
            };
            if let Some(ended) = once::recorded(&known, request, &digest) {
                return Ok(Before::Ended(ended));
            }
            self.waiting.until_over(&self.store, &known.call_id).await?;
            // Read, not claimed: all who waited look at the same moment.
            let Some(now) = self.look_up(&known).await? else { continue };
            if let Some(ended) = once::recorded(&now, request, &digest) {
                return Ok(Before::Ended(ended));
            }
            if now.call_id == known.call_id {
                if !behind.safe_to_repeat {
                    return Ok(Before::Ended(once::in_doubt()));
                }
                self.release(&known).await?;
            }
        }
    }

    async fn look_up(&self, known: &idempotency::Model) -> Result<Option<idempotency::Model>, Stop> {
        let key = (known.holder.clone(), known.key.clone());
        Ok(idempotency::Entity::find_by_id(key).one(self.store.read()).await?)
    }

    /// Frees the key of a call that was lost, unless somebody else did and took it since.
    async fn release(&self, known: &idempotency::Model) -> Result<(), Stop> {
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

    fn after(&self, behind: &Behind, called: Result<CallToolResult, Failure>) -> (Ended, Effect) {
        let failure = match called {
            Ok(result) => return (self.within_limits(answered(result)), Effect::Had),
            Err(failure) => failure,
        };
        let told = failure.error.to_string();
        let code = match &failure.error {
            upstream::Error::TimedOut => "upstream_timeout",
            upstream::Error::Rejected { .. } => "upstream_refused",
            upstream::Error::TooLarge(_) => "too_large",
            upstream::Error::AsksForInput => "asks_for_input",
            upstream::Error::Busy | upstream::Error::LeftAlone => "upstream_busy",
            _ => "upstream_unavailable",
        };
        match failure.fate {
            Fate::Answered => (Ended::badly(code, &told), Effect::Had),
            Fate::NotRun => (Ended::badly(code, &told), Effect::None),
            Fate::Unknown if behind.safe_to_repeat => (Ended::badly(code, &told), Effect::None),
            Fate::Unknown => {
                let told = format!("{told}. It is unknown whether the call had its effect.");
                (Ended::badly(code, &told), Effect::InDoubt)
            }
        }
    }
}

/// Whether a call had its effect.
enum Effect {
    Had,
    None,
    InDoubt,
}

fn answered(result: CallToolResult) -> Ended {
    let mut result = sanitize::result(result);
    // Servers of the older era do not say it, and callers of the newer one expect it.
    result.result_type = Some(ResultType::COMPLETE);
    result.meta.get_or_insert_with(MetaObject::default).0.insert(UNTRUSTED.to_owned(), true.into());
    if result.is_error == Some(true) {
        let failed = Ended::well(result);
        return Ended { status: crate::audit::Status::Failure, error_type: Some("tool_error"), ..failed };
    }
    Ended::well(result)
}

/// Nothing of the caller goes to a server behind us but the trace that the call belongs to (M102).
fn meta(request: &Request) -> Map<String, Value> {
    let mut meta = Map::new();
    if let Some(traceparent) = telemetry::traceparent().or_else(|| request.traceparent.clone()) {
        meta.insert("traceparent".to_owned(), traceparent.into());
    }
    meta
}

/// What is wrong with the arguments. The server would find out too, but perhaps later than we would like.
fn problem(behind: &Behind, arguments: &mut Map<String, Value>) -> Option<String> {
    let validator = behind.arguments.as_ref()?;
    let value = Value::Object(std::mem::take(arguments));
    let problems: Vec<String> = validator
        .iter_errors(&value)
        .take(MAX_PROBLEMS)
        .map(|error| format!("{}: {}", error.instance_path(), error.masked()))
        .collect();
    if let Value::Object(back) = value {
        *arguments = back;
    }
    (!problems.is_empty())
        .then(|| format!("The arguments are not as the tool wants them: {}", problems.join("; ")))
}
