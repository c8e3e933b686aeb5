//! The client for tools: lists them, calls them with retries, and reports outages to the breaker.

use std::{
    future::ready,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use broker::Chain;
use data_encoding::HEXLOWER;
use leased::{HeldLease, under_lease};
use mcp::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use subjects::Fault;
pub(crate) use subjects::journal::Returned;

use super::{
    Allowlist, Catalogue, ToolInfo,
    catalogues::{Catalogues, Known, audience},
};
use crate::telemetry::{Breaker, Metrics};

pub(crate) const LIST_METHOD: &str = "tools/list";

/// A call that the role's allowlist permits. Only such calls can be sent to the gateway.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PermittedCall {
    name: String,
    arguments: Map<String, Value>,
}

impl PermittedCall {
    /// P16: returns `None` if the allowlist does not permit the tool.
    pub(crate) fn new(allowlist: Allowlist, name: &str, arguments: Map<String, Value>) -> Option<Self> {
        allowlist.permits(name).then(|| Self { name: name.to_owned(), arguments })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn arguments_hash(&self) -> String {
        // `serde_json` sorts the names, so the same arguments have the same text.
        HEXLOWER.encode(&Sha256::digest(json!(self.arguments).to_string()))
    }

    pub(crate) fn arguments(&self) -> &Map<String, Value> {
        &self.arguments
    }
}

/// Learns of the tries of a call that fail.
pub(crate) trait TryListener: Send + Sync {
    /// A try failed, after as many tries. Called at once, before another one is made.
    fn on_failed_try(&self, tries: u32, fault: Fault);
}

/// For callers that report only the last failure.
pub(crate) struct NoListener;

impl TryListener for NoListener {
    fn on_failed_try(&self, _tries: u32, _fault: Fault) {}
}

/// Why a tool call returned no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub(crate) enum CallError {
    /// The gateway denied the call. Final: never retried, never worked around.
    #[error("the gateway rejected {tool}: {why}")]
    Rejected { tool: String, why: String },
    #[error("{tool} could not be called: {why}")]
    Unavailable { tool: String, tries: u32, why: String },
    /// The gateway does not accept this worker's token for any call. The handoff is not at fault.
    #[error("{why}")]
    TokenRefused { why: String },
    #[error("the recording has no such call of {0}")]
    NotRecorded(String),
}

/// Lists and calls the gateway's tools.
#[derive(Debug)]
pub(crate) struct Tools {
    /// `None` for a worker without tools.
    pub(super) client: Option<Client>,
    token_file: Option<PathBuf>,
    allowlist: Allowlist,
    catalogues: Catalogues,
    breaker: Breaker,
    /// How long an unavailable gateway is waited for, from the first call that failed.
    pub(super) patience: Duration,
    metrics: Arc<Metrics>,
}

impl Tools {
    pub(crate) fn new(
        client: Option<Client>,
        token_file: Option<PathBuf>,
        allowlist: Allowlist,
        breaker: Breaker,
        patience: Duration,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            client,
            token_file,
            allowlist,
            catalogues: Catalogues::new(allowlist),
            breaker,
            patience,
            metrics,
        }
    }

    pub(crate) fn allowlist(&self) -> Allowlist {
        self.allowlist
    }

    pub(crate) fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Returns the catalogue of permitted tools under a lease. If the cached one is stale, one caller fetches
    /// a new one while the others use the stale one. If the fetch fails, the stale catalogue is used too,
    /// except when the gateway refuses the token. The listener learns of each try of the fetch that fails.
    pub(crate) async fn catalogue(
        &self,
        lease: Option<&HeldLease>,
        listener: &dyn TryListener,
    ) -> Result<Arc<Catalogue>, CallError> {
        let audience = audience(lease);
        let known = self.catalogues.get(&audience);
        if let Some(fresh) = known.fresh() {
            return Ok(fresh);
        }
        let Known { listing, cached } = known;
        let asked_at = Instant::now();
        let _listing = match (&cached, listing.try_lock()) {
            (_, Ok(listing)) => listing,
            (Some(old), Err(_)) => return Ok(Arc::clone(&old.catalogue)),
            (None, Err(_)) => listing.lock().await,
        };
        // Another caller may have fetched it while this one was waiting.
        if let Some(fresh) = self.catalogues.get(&audience).fresh() {
            return Ok(fresh);
        }
        // A stale catalogue is better than none, and the gateway checks each call anyway. With one, there is
        // no waiting for an unavailable gateway.
        let patience =
            if cached.is_some() { Duration::ZERO } else { self.patience.saturating_sub(asked_at.elapsed()) };
        let catalogue = match (Box::pin(self.list(lease, patience, listener)).await, cached) {
            (Ok(tools), _) => self.catalogues.read(tools),
            (Err(error @ CallError::TokenRefused { .. }), _) => return Err(error),
            (Err(_), Some(old)) => old.catalogue,
            (Err(error), None) => return Err(error),
        };
        self.catalogues.keep(audience, &catalogue);
        Ok(catalogue)
    }

    async fn list(
        &self,
        lease: Option<&HeldLease>,
        patience: Duration,
        listener: &dyn TryListener,
    ) -> Result<Vec<ToolInfo>, CallError> {
        let Some(client) = &self.client else { return Ok(Vec::new()) };
        let make =
            || under_lease(client, lease, |text| async move { client.tools_under(text.as_deref()).await });
        let listed = self.call_with_retries(LIST_METHOD, patience, make, listener, || ready(())).await;
        let (tools, _) = listed.map_err(|error| match error {
            // The lease of this handoff is not valid, or it has none and needs one.
            CallError::Rejected { why, .. } if lease.is_some() || why == missing() => {
                CallError::Rejected { tool: LIST_METHOD.to_owned(), why }
            }
            // The gateway does not let this worker list tools at all, so the handoff is not at fault.
            CallError::Rejected { why, .. } => self.token_refused(&why),
            other => other,
        })?;
        Ok(tools
            .into_iter()
            .map(|tool| ToolInfo {
                name: tool.name,
                title: tool.title.unwrap_or_default(),
                description: tool.description,
                input_schema: tool.input_schema,
                only_reads: tool.read_only,
            })
            .collect())
    }

    /// Makes the call, with retries. The idempotency key makes it take effect once, however often it is sent.
    /// The listener learns of each failed try at once; `before_retry` is awaited before each retry.
    pub(crate) async fn call<F: Future<Output = ()>>(
        &self,
        call: &PermittedCall,
        key: &str,
        traceparent: &str,
        lease: Option<&HeldLease>,
        listener: &dyn TryListener,
        before_retry: impl Fn() -> F,
    ) -> Result<Returned, CallError> {
        let Some(client) = &self.client else {
            let why = "no gateway is configured".to_owned();
            return Err(CallError::Unavailable { tool: call.name.clone(), tries: 0, why });
        };
        self.metrics.tool_calls.inc();
        let make = || {
            under_lease(client, lease, |text| async move {
                let call = mcp::Call {
                    name: &call.name,
                    arguments: call.arguments.clone(),
                    idempotency_key: Some(key),
                    traceparent: Some(traceparent),
                    lease: text.as_deref(),
                };
                client.call(call).await
            })
        };
        let called = self.call_with_retries(&call.name, self.patience, make, listener, before_retry);
        let (reply, tries) = called.await?;
        Ok(Returned {
            text: reply.text,
            structured: reply.structured,
            failed: reply.is_error,
            truncated: reply.truncated,
            tries,
        })
    }

    pub(super) async fn call_with_retries<T, F, B>(
        &self,
        tool: &str,
        patience: Duration,
        make: impl Fn() -> F,
        listener: &dyn TryListener,
        before_retry: impl Fn() -> B,
    ) -> Result<(T, u32), CallError>
    where
        F: Future<Output = Result<T, mcp::Error>>,
        B: Future<Output = ()>,
    {
        // Set when the gateway is found to be away.
        let mut waiting = None;
        let on_failed_try = |tries, error: &mcp::Error| {
            match error {
                mcp::Error::Unauthorized(_) | mcp::Error::Token(..) => {
                    listener.on_failed_try(tries, Fault::Unauthorized);
                    return false;
                }
                mcp::Error::Rejected { .. } => return false,
                _ => {}
            }
            self.metrics.tool_failures.inc();
            listener.on_failed_try(tries, fault(error));
            // A tool call that times out says nothing about the gateway, but a list that does is an outage.
            if !matches!(error, mcp::Error::TimedOut) || tool == LIST_METHOD {
                waiting.get_or_insert_with(|| self.breaker.count_waiting());
                let why = format!("MCP gateway: {}", Chain(error));
                if error.is_unreachable() {
                    self.breaker.note_lost(&why);
                }
                self.breaker.record_failure(&why);
            }
            true
        };
        let (made, tries) = leased::retry(tool, patience, make, on_failed_try, before_retry).await;
        let error = match made {
            Ok(value) => {
                self.breaker.record_success();
                self.breaker.note_connected();
                return Ok((value, tries));
            }
            Err(error) => error,
        };
        let why = Chain(&error).to_string();
        Err(match error {
            mcp::Error::Unauthorized(_) | mcp::Error::Token(..) => self.token_refused(&why),
            mcp::Error::Rejected { message, .. } => {
                self.breaker.record_success();
                self.breaker.note_connected();
                self.metrics.tool_rejections.inc();
                CallError::Rejected { tool: tool.to_owned(), why: message }
            }
            _ => unavailable(tool, tries, why),
        })
    }

    /// Opens the breaker, which stops pulling, and returns an error that names the token file. The next
    /// successful probe lets pulling resume.
    fn token_refused(&self, why: &str) -> CallError {
        let file = self.token_file.as_ref().map_or("not set".into(), |file| file.to_string_lossy());
        let why = format!("the gateway refused this worker's token (gateway.token_file: {file}): {why}");
        self.breaker.trip(&why);
        CallError::TokenRefused { why }
    }

    /// Returns whether the gateway answers; true without a gateway.
    pub(crate) async fn probe(&self) -> bool {
        match &self.client {
            // A worker that needs a lease for its list has reached the gateway with a good token.
            Some(client) => match client.tools().await {
                Err(mcp::Error::Rejected { message, .. }) => message == missing(),
                listed => listed.is_ok(),
            },
            None => true,
        }
    }
}

/// The gateway's words for a lease that is missing.
fn missing() -> String {
    policy::Denial::MissingLease.to_string()
}

/// Returns what an error is, without its text.
fn fault(error: &mcp::Error) -> Fault {
    match error {
        mcp::Error::TimedOut => Fault::TimedOut,
        error if error.is_unreachable() => Fault::Unreachable,
        mcp::Error::Unavailable(_) => Fault::Unavailable,
        mcp::Error::Unauthorized(_) | mcp::Error::Token(..) => Fault::Unauthorized,
        mcp::Error::Protocol(_) => Fault::BadResponse,
        mcp::Error::Rejected { .. } | mcp::Error::Options(_) => Fault::Refused,
    }
}

fn unavailable(tool: &str, tries: u32, why: String) -> CallError {
    CallError::Unavailable { tool: tool.to_owned(), tries, why }
}
