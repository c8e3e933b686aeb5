use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use broker::{Chain, retry::Waits};
use mcp::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tracing::debug;

use super::{Allowlist, Catalogue, ToolInfo};
use crate::{inference::Breaker, telemetry::Metrics};

/// The gateway's list is asked for again after this time.
const LIST_IS_GOOD_FOR: Duration = Duration::from_secs(30);
const TRIES: u32 = 3;
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

    pub(crate) fn arguments(&self) -> &Map<String, Value> {
        &self.arguments
    }
}

/// What a tool gave back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Returned {
    pub(crate) text: String,
    pub(crate) structured: Option<Value>,
    /// The tool ran and says that it failed.
    pub(crate) failed: bool,
    pub(crate) truncated: bool,
    pub(crate) tries: u32,
}

/// Why a tool gave nothing back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub(crate) enum CallError {
    /// The gateway said no. Final: never repeated, never worked around.
    #[error("the gateway rejected {tool}: {why}")]
    Rejected { tool: String, why: String },
    #[error("{tool} could not be called: {why}")]
    Unavailable { tool: String, tries: u32, why: String },
    #[error("the recording holds no such call of {0}")]
    NotRecorded(String),
}

/// The way to the gateway.
#[derive(Debug)]
pub(crate) struct Tools {
    /// `None`: a worker without tools.
    client: Option<Client>,
    allowed: Allowlist,
    listed: Mutex<Option<(Instant, Arc<Catalogue>)>>,
    breaker: Breaker,
    metrics: Arc<Metrics>,
}

impl Tools {
    pub(crate) fn new(
        client: Option<Client>,
        allowed: Allowlist,
        breaker: Breaker,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { client, allowed, listed: Mutex::new(None), breaker, metrics }
    }

    pub(crate) fn allowed(&self) -> Allowlist {
        self.allowed
    }

    pub(crate) fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// What may be called. Asked for once for all who want to know.
    pub(crate) async fn catalogue(&self) -> Result<Arc<Catalogue>, CallError> {
        let mut listed = self.listed.lock().await;
        if let Some((at, catalogue)) = &*listed
            && at.elapsed() < LIST_IS_GOOD_FOR
        {
            return Ok(Arc::clone(catalogue));
        }
        match self.list().await {
            Ok(tools) => {
                let catalogue = Arc::new(Catalogue::new(self.allowed, tools));
                *listed = Some((Instant::now(), Arc::clone(&catalogue)));
                Ok(catalogue)
            }
            // A list that was good half a minute ago is better than none; the gateway decides at each call anyway.
            Err(error) => match &*listed {
                Some((_, catalogue)) => Ok(Arc::clone(catalogue)),
                None => Err(error),
            },
        }
    }

    async fn list(&self) -> Result<Vec<ToolInfo>, CallError> {
        let Some(client) = &self.client else { return Ok(Vec::new()) };
        let listed = self.with_tries("tools/list", || client.tools()).await;
        let tools = listed.map(|(tools, _)| tools)?;
        Ok(tools
            .into_iter()
            .map(|tool| ToolInfo {
                name: tool.name,
                description: tool.description,
                input_schema: tool.input_schema,
            })
            .collect())
    }

    /// Makes the call. With its key it has its effect once, however often it is sent.
    pub(crate) async fn call(
        &self,
        call: &Permitted,
        key: &str,
        traceparent: &str,
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
        let (reply, tries) = self.with_tries(&call.name, make).await?;
        Ok(Returned {
            text: reply.text,
            structured: reply.structured,
            failed: reply.is_error,
            truncated: reply.truncated,
            tries,
        })
    }

    async fn with_tries<T, F: Future<Output = Result<T, mcp::Error>>>(
        &self,
        tool: &str,
        make: impl Fn() -> F,
    ) -> Result<(T, u32), CallError> {
        let mut waits = Waits::forever(FIRST_WAIT, LONGEST_WAIT);
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
            if let mcp::Error::Rejected { message, .. } = error {
                self.breaker.succeeded();
                self.metrics.tool_rejections.inc();
                return Err(CallError::Rejected { tool: tool.to_owned(), why: message });
            }
            self.metrics.tool_failures.inc();
            // A tool that takes too long says nothing about the gateway.
            if !matches!(error, mcp::Error::TimedOut) {
                self.breaker.failed(&format!("MCP gateway: {why}"));
            }
            if tries >= TRIES || !error.may_pass() {
                return Err(CallError::Unavailable { tool: tool.to_owned(), tries, why });
            }
            debug!(tool, why, tries, "A call did not come through; calling again with the same key.");
            tokio::time::sleep(waits.next_wait().unwrap_or(LONGEST_WAIT)).await;
        }
    }

    /// Whether the gateway answers.
    pub(crate) async fn is_there(&self) -> bool {
        match &self.client {
            Some(client) => client.tools().await.is_ok(),
            None => true,
        }
    }
}
