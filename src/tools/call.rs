use std::{
    future::ready,
    path::PathBuf,
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use broker::{Chain, retry::Waits};
use data_encoding::HEXLOWER;
use mcp::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
pub(crate) use subjects::journal::Returned;
use tokio::sync::Mutex;
use tracing::debug;

use super::{Allowlist, Catalogue, ToolInfo};
use crate::{breaker::Breaker, telemetry::Metrics};

/// The gateway's list is asked for again after this time.
const LIST_IS_GOOD_FOR: Duration = Duration::from_secs(30);
const LIST: &str = "tools/list";
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(4);

/// A call that the role may make. There is no other way to the gateway than with one of these.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Permitted {
    name: String,
    arguments: Map<String, Value>,
}

impl Permitted {
    /// P16: the role's list is looked at before the gateway is asked.
    pub(crate) fn new(allowed: Allowlist, name: &str, arguments: Map<String, Value>) -> Option<Self> {
        allowed.permits(name).then(|| Self { name: name.to_owned(), arguments })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn arguments_hash(&self) -> String {
        // Their names stand in order, so the same arguments have the same text.
        HEXLOWER.encode(&Sha256::digest(json!(self.arguments).to_string()))
    }

    pub(crate) fn arguments(&self) -> &Map<String, Value> {
        &self.arguments
    }
}

/// Why a tool gave nothing back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub(crate) enum CallError {
    /// The gateway said no. Final: never repeated, never worked around.
    #[error("the gateway rejected {tool}: {why}")]
    Rejected { tool: String, why: String },
    #[error("{tool} could not be called: {why}")]
    Unavailable { tool: String, tries: u32, why: String },
    /// The gateway does not accept this worker's token, whatever is called. The handoff is not at fault.
    #[error("{why}")]
    TokenRefused { why: String },
    #[error("the recording has no such call of {0}")]
    NotRecorded(String),
}

/// The way to the gateway.
#[derive(Debug)]
pub(crate) struct Tools {
    /// `None`: a worker without tools.
    client: Option<Client>,
    token_file: Option<PathBuf>,
    allowed: Allowlist,
    listed: std::sync::Mutex<Option<Listed>>,
    /// Held by the one who asks for the list.
    listing: Mutex<()>,
    breaker: Breaker,
    /// How long a gateway that is away is waited for, from the first call that failed.
    patience: Duration,
    metrics: Arc<Metrics>,
}

/// The list, and when it was fetched.
#[derive(Clone, Debug)]
struct Listed {
    at: Instant,
    catalogue: Arc<Catalogue>,
}

impl Listed {
    fn is_good(&self) -> bool {
        self.at.elapsed() < LIST_IS_GOOD_FOR
    }
}

impl Tools {
    pub(crate) fn new(
        client: Option<Client>,
        token_file: Option<PathBuf>,
        allowed: Allowlist,
        breaker: Breaker,
        patience: Duration,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            client,
            token_file,
            allowed,
            listed: std::sync::Mutex::new(None),
            listing: Mutex::new(()),
            breaker,
            patience,
            metrics,
        }
    }

    pub(crate) fn allowed(&self) -> Allowlist {
        self.allowed
    }

    pub(crate) fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Returns what may be called. One caller asks the gateway for all; a caller that has an old list does not wait.
    pub(crate) async fn catalogue(&self) -> Result<Arc<Catalogue>, CallError> {
        let known = self.known();
        if let Some(known) = known.as_ref().filter(|known| known.is_good()) {
            return Ok(Arc::clone(&known.catalogue));
        }
        let asked_at = Instant::now();
        let _listing = match (&known, self.listing.try_lock()) {
            (_, Ok(listing)) => listing,
            (Some(old), Err(_)) => return Ok(Arc::clone(&old.catalogue)),
            (None, Err(_)) => self.listing.lock().await,
        };
        // Another caller may have fetched it while this one waited.
        if let Some(known) = self.known().filter(Listed::is_good) {
            return Ok(known.catalogue);
        }
        // A list that was good half a minute ago is better than none, and the gateway decides at each call anyway: with one,
        // a gateway that is away is not waited for here.
        let patience =
            if known.is_some() { Duration::ZERO } else { self.patience.saturating_sub(asked_at.elapsed()) };
        let catalogue = match (Box::pin(self.list(patience)).await, known) {
            (Ok(tools), _) => Arc::new(Catalogue::new(self.allowed, tools)),
            (Err(error @ CallError::TokenRefused { .. }), _) => return Err(error),
            (Err(_), Some(old)) => old.catalogue,
            (Err(error), None) => return Err(error),
        };
        *self.lock() = Some(Listed { at: Instant::now(), catalogue: Arc::clone(&catalogue) });
        Ok(catalogue)
    }

    fn known(&self) -> Option<Listed> {
        self.lock().clone()
    }

    /// Never left half written.
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Listed>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn list(&self, patience: Duration) -> Result<Vec<ToolInfo>, CallError> {
        let Some(client) = &self.client else { return Ok(Vec::new()) };
        let listed = self.with_tries(LIST, patience, || client.tools(), || ready(())).await;
        let (tools, _) = listed.map_err(|error| match error {
            // The gateway lets this worker list nothing: that is not the fault of one handoff.
            CallError::Rejected { why, .. } => self.token_refused(&why),
            other => other,
        })?;
        Ok(tools
            .into_iter()
            .map(|tool| ToolInfo {
                name: tool.name,
                description: tool.description,
                input_schema: tool.input_schema,
                only_reads: tool.read_only,
            })
            .collect())
    }

    /// Makes the call. With its key it has its effect once, however often it is sent. It is not sent again before
    /// `before_again` has ended.
    pub(crate) async fn call<F: Future<Output = ()>>(
        &self,
        call: &Permitted,
        key: &str,
        traceparent: &str,
        before_again: impl Fn() -> F,
    ) -> Result<Returned, CallError> {
        let Some(client) = &self.client else {
            let why = "no gateway is configured".to_owned();
            return Err(CallError::Unavailable { tool: call.name.clone(), tries: 0, why });
        };
        self.metrics.tool_calls.inc();
        let make = || {
            client.call(mcp::Call {
                name: &call.name,
                arguments: call.arguments.clone(),
                idempotency_key: Some(key),
                traceparent: Some(traceparent),
            })
        };
        let (reply, tries) = self.with_tries(&call.name, self.patience, make, before_again).await?;
        Ok(Returned {
            text: reply.text,
            structured: reply.structured,
            failed: reply.is_error,
            truncated: reply.truncated,
            tries,
        })
    }

    async fn with_tries<T, F, B>(
        &self,
        tool: &str,
        patience: Duration,
        make: impl Fn() -> F,
        before_again: impl Fn() -> B,
    ) -> Result<(T, u32), CallError>
    where
        F: Future<Output = Result<T, mcp::Error>>,
        B: Future<Output = ()>,
    {
        // Begins with the first call that fails.
        let (mut waits, mut waiting) = (None, None);
        let mut tries = 0;
        loop {
            tries += 1;
            let error = match make().await {
                Ok(value) => {
                    self.breaker.succeeded();
                    return Ok((value, tries));
                }
                Err(error) => error,
            };
            let why = Chain(&error).to_string();
            match error {
                mcp::Error::Unauthorized(_) | mcp::Error::Token(..) => {
                    break Err(self.token_refused(&why));
                }
                mcp::Error::Rejected { message, .. } => {
                    self.breaker.succeeded();
                    self.metrics.tool_rejections.inc();
                    break Err(CallError::Rejected { tool: tool.to_owned(), why: message });
                }
                _ => {}
            }
            self.metrics.tool_failures.inc();
            let timed_out = matches!(error, mcp::Error::TimedOut);
            // A tool that takes too long says nothing about the gateway; a list that does, does.
            if !timed_out || tool == LIST {
                waiting.get_or_insert_with(|| self.breaker.wait());
                self.breaker.failed(&format!("MCP gateway: {why}"));
            }
            let waits: &mut Waits =
                waits.get_or_insert_with(|| Waits::within(FIRST_WAIT, LONGEST_WAIT, patience));
            // A call that took all its time once may take it twice, not again and again.
            let wait = waits.next_wait().filter(|_| error.may_pass() && (!timed_out || tries < 2));
            let Some(wait) = wait else { break Err(unavailable(tool, tries, why)) };
            debug!(tool, why, tries, "Call failed; retrying with the same key.");
            tokio::time::sleep(wait).await;
            before_again().await;
        }
    }

    /// Stops the pulling and says which file to look at. The next probe that is let in starts it again.
    fn token_refused(&self, why: &str) -> CallError {
        let file = self.token_file.as_ref().map_or("not set".into(), |file| file.to_string_lossy());
        let why = format!("the gateway refused this worker's token (gateway.token_file: {file}): {why}");
        self.breaker.trip(&why);
        CallError::TokenRefused { why }
    }

    /// Whether the gateway answers.
    pub(crate) async fn is_there(&self) -> bool {
        match &self.client {
            Some(client) => client.tools().await.is_ok(),
            None => true,
        }
    }
}

fn unavailable(tool: &str, tries: u32, why: String) -> CallError {
    CallError::Unavailable { tool: tool.to_owned(), tries, why }
}
