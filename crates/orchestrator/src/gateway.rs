//! The gateway's tools, called with the orchestrator's token.

use std::time::Duration;

use broker::{Chain, retry::RetryDelays};
use contract::ToolContract;
use mcp::{Call, Client, Options};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::{config, error::ApiError};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A turn of the largest size, with its JSON.
const MAX_RESULT_BYTES: usize = 4 << 20;
/// How long a call is repeated while the gateway is away, for example because it restarts.
const PATIENCE: Duration = Duration::from_secs(3);
const MIN_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Calls the gateway's tools.
#[derive(Clone, Debug)]
pub(crate) struct Gateway(Client);

/// Why a tool call has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The gateway is away, or does not answer in time.
    #[error("the gateway cannot be reached")]
    Unavailable(#[source] mcp::Error),
    /// The gateway refuses the orchestrator's call, for example because its token is not valid.
    #[error("the gateway refused {tool}")]
    Refused { tool: &'static str, source: mcp::Error },
    /// The tool ran and reported an error.
    #[error("{tool} failed: {message}")]
    Failed { tool: &'static str, code: String, message: String },
    #[error("the result of {tool} is unreadable")]
    Unreadable { tool: &'static str, source: serde_json::Error },
}

impl Gateway {
    /// Creates the client without connecting.
    pub(crate) fn new(settings: &config::Gateway) -> Result<Self, mcp::Error> {
        let client = Client::new(Options {
            url: settings.url.clone(),
            token_file: settings.token_file.clone(),
            connect_timeout: CONNECT_TIMEOUT,
            call_timeout: settings.timeout,
            max_result_bytes: MAX_RESULT_BYTES,
            fast_path: settings.fast_path,
            profile: None,
        })?;
        Ok(Self(client))
    }

    /// Calls a tool. While the gateway is away the call is repeated for a moment, so it has to be one that
    /// may be made twice.
    pub(crate) async fn call<T>(&self, input: &T) -> Result<T::Output, CallError>
    where
        T: ToolContract<Output: DeserializeOwned> + Serialize,
    {
        self.repeat(input, None).await
    }

    /// Calls a tool with an idempotency key, so that it has its effect once however often it is repeated.
    pub(crate) async fn call_with_key<T>(&self, input: &T, key: &str) -> Result<T::Output, CallError>
    where
        T: ToolContract<Output: DeserializeOwned> + Serialize,
    {
        self.repeat(input, Some(key)).await
    }

    async fn repeat<T>(&self, input: &T, key: Option<&str>) -> Result<T::Output, CallError>
    where
        T: ToolContract<Output: DeserializeOwned> + Serialize,
    {
        let mut delays = RetryDelays::within(MIN_RETRY_DELAY, MAX_RETRY_DELAY, PATIENCE);
        loop {
            let error = match self.call_once(input, key).await {
                Err(error @ CallError::Unavailable(_)) => error,
                done => return done,
            };
            let Some(delay) = delays.next_delay() else { return Err(error) };
            debug!(tool = T::NAME, error = %Chain(&error), "Gateway call failed; retrying.");
            sleep(delay).await;
        }
    }

    async fn call_once<T>(&self, input: &T, key: Option<&str>) -> Result<T::Output, CallError>
    where
        T: ToolContract<Output: DeserializeOwned> + Serialize,
    {
        let arguments = contract::arguments(input);
        let traceparent = telemetry::traceparent();
        let traceparent = traceparent.as_deref();
        let call = Call { name: T::NAME, arguments, idempotency_key: key, traceparent, lease: None };
        let reply = self.0.call(call).await.map_err(|error| CallError::of(T::NAME, error))?;
        let structured = reply.structured.unwrap_or_default();
        if reply.is_error {
            let code = structured.get("code").and_then(Value::as_str).unwrap_or_default().to_owned();
            return Err(CallError::Failed { tool: T::NAME, code, message: mcp::sanitize(&reply.text) });
        }
        serde_json::from_value(structured).map_err(|source| CallError::Unreadable { tool: T::NAME, source })
    }

    /// Returns the names of the tools that the gateway serves to this orchestrator.
    pub(crate) async fn tools(&self) -> Result<Vec<String>, CallError> {
        let tools = self.0.tools().await.map_err(|error| CallError::of("tools/list", error))?;
        Ok(tools.into_iter().map(|tool| tool.name).collect())
    }
}

impl CallError {
    fn of(tool: &'static str, error: mcp::Error) -> Self {
        if error.is_transient() { Self::Unavailable(error) } else { Self::Refused { tool, source: error } }
    }

    /// Logs the error and returns the one for the client, without internal details.
    pub(crate) fn into_api_error(self) -> ApiError {
        match &self {
            Self::Unavailable(_) => debug!(error = %Chain(&self), "Gateway not reachable."),
            Self::Refused { .. } | Self::Failed { .. } | Self::Unreadable { .. } => {
                warn!(error = %Chain(&self), "Gateway call failed.");
            }
        }
        ApiError::unavailable(
            "gateway_unavailable",
            "The gateway that keeps threads and API keys is not available at the moment; repeat the request.",
        )
    }
}
