//! The public handle of an upstream: list tools, call, health, close.

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use mcp::{Fate, Retry};
use rmcp::model::{CallToolRequestParams, CallToolResult};
use serde_json::{Map, Value};
use tokio::{
    sync::{Semaphore, SemaphorePermit, mpsc, watch},
    time::{timeout, timeout_at},
};
use tracing::debug;

use crate::{
    Error, Failure, Health, Options, Progress, State,
    breaker::{Breaker, Permit},
    call::{self, Answer},
    health::StateTracker,
    link::{Link, LiveConnection},
};

const MAX_LIST_BYTES: usize = 16 * 1024 * 1024;

/// A handle to one upstream. Clones share its connection, limits and state. Dropping the last clone closes
/// the connection or ends the process.
#[derive(Clone, Debug)]
pub struct Upstream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    link: Arc<Link>,
    breaker: Breaker,
    slots: Semaphore,
    concurrency: usize,
    call_timeout: Duration,
    max_result_bytes: usize,
    state: StateTracker,
}

impl Upstream {
    /// Creates the handle without connecting. Fails if the options are invalid.
    pub fn new(options: Options) -> Result<Self, Error> {
        if options.concurrency == 0 || options.concurrency > Semaphore::MAX_PERMITS {
            return Err(Error::Options(format!("{} calls at a time", options.concurrency)));
        }
        Ok(Self(Arc::new(Inner {
            breaker: Breaker::new(options.breaker),
            slots: Semaphore::new(options.concurrency),
            concurrency: options.concurrency,
            call_timeout: options.call_timeout,
            max_result_bytes: options.max_result_bytes,
            state: StateTracker::new(),
            link: Arc::new(Link::new(options)?),
        })))
    }

    /// Fetches the current list of tools as raw JSON objects with all fields. The list is not trusted and
    /// must not be used for access decisions.
    pub async fn tools(&self) -> Result<Vec<Map<String, Value>>, Error> {
        let inner = &self.0;
        let permit = inner.permit()?;
        // Boxed, since rmcp's futures are large and would make every calling future large.
        let listed = timeout(inner.call_timeout, Box::pin(inner.list())).await;
        let listed = listed.unwrap_or(Err(Failure { error: Error::TimedOut, fate: Fate::Unknown }));
        inner.record(permit, &listed);
        listed.map_err(|failure| failure.error)
    }

    /// Calls a tool. `meta` is sent as `_meta` of the request, without the keys that the protocol reserves.
    /// Progress notifications are sent to `progress`, and dropped when the channel is full. Dropping the
    /// future cancels the call.
    pub async fn call(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        meta: Map<String, Value>,
        progress: Option<mpsc::Sender<Progress>>,
    ) -> Result<CallToolResult, Failure> {
        let inner = &self.0;
        let _slot = inner.slot().await?;
        let permit = inner.permit().map_err(Failure::not_run)?;
        let request = call::request(name, arguments, meta);
        let deadline = Instant::now() + inner.call_timeout;
        let called = Box::pin(inner.call(request, progress, deadline)).await;
        inner.record(permit, &called);
        let result = called?;
        if !call::fits(&result, inner.max_result_bytes) {
            return Err(Failure::answered(Error::TooLarge(inner.max_result_bytes)));
        }
        Ok(result)
    }

    /// Returns the current state of the upstream. Does no I/O.
    pub fn health(&self) -> Health {
        let inner = &self.0;
        let live = inner.link.live();
        let state = match &live {
            _ if inner.breaker.is_open(Instant::now()) => State::Open,
            Some(_) => State::Up,
            None if inner.link.was_tried() => State::Down,
            None => State::Idle,
        };
        let (since, last_error) = inner.state.observe(state);
        Health {
            state,
            since,
            version: live.and_then(|live| live.version.clone()),
            last_error,
            restarts: inner.link.restarts(),
            in_flight: inner.concurrency.saturating_sub(inner.slots.available_permits()),
        }
    }

    /// Returns a receiver that changes when the upstream announces a change of its tools, and after every
    /// reconnect, since a change may have been missed.
    pub fn tool_changes(&self) -> watch::Receiver<u64> {
        self.0.link.events.changes()
    }

    /// Closes the session or ends the process, and waits until it has ended. Running and later calls fail.
    pub async fn close(&self) {
        self.0.link.close().await;
    }
}

impl Inner {
    /// Waits for a slot, at most for the call timeout.
    async fn slot(&self) -> Result<SemaphorePermit<'_>, Failure> {
        if self.breaker.is_open(Instant::now()) {
            return Err(Failure::not_run(Error::BreakerOpen));
        }
        if let Ok(slot) = self.slots.try_acquire() {
            return Ok(slot);
        }
        match timeout(self.call_timeout, self.slots.acquire()).await {
            Ok(Ok(slot)) => Ok(slot),
            Ok(Err(_)) => Err(Failure::not_run(Error::Closed)),
            Err(_) => Err(Failure::not_run(Error::Busy)),
        }
    }

    fn permit(&self) -> Result<Permit<'_>, Error> {
        self.breaker.admit(Instant::now()).ok_or(Error::BreakerOpen)
    }

    /// Reports the outcome to the breaker and to the health state.
    fn record<T>(&self, permit: Permit<'_>, outcome: &Result<T, Failure>) {
        match outcome {
            Err(failure) if failure.counts_against_upstream() => {
                self.state.record_error(&failure.error);
                permit.failed(Instant::now());
            }
            Err(failure) if failure.fate != Fate::Answered => {
                self.state.record_error(&failure.error);
                drop(permit);
            }
            Ok(_) | Err(_) => permit.succeeded(),
        }
    }

    /// Sends the call, and sends it a second time if the first cannot have run and a retry may succeed.
    async fn call(
        &self,
        request: CallToolRequestParams,
        progress: Option<mpsc::Sender<Progress>>,
        deadline: Instant,
    ) -> Result<CallToolResult, Failure> {
        let mut repeated = false;
        loop {
            let connected = timeout_at(deadline.into(), self.link.get_or_connect()).await;
            let live = connected.unwrap_or(Err(Error::TimedOut)).map_err(Failure::not_run)?;
            let sending = pin!(call::send(&self.link, &live, &request, progress.clone()));
            let failure = match timeout_at(deadline.into(), sending).await {
                Ok(Ok(Answer::Result(result))) => return Ok(result),
                Ok(Ok(Answer::InputRequired)) => return Err(Failure::answered(Error::InputRequired)),
                Ok(Ok(Answer::Other)) => {
                    let error = Error::Protocol("the response is not the result of a tool call".to_owned());
                    return Err(Failure { error, fate: Fate::Unknown });
                }
                Ok(Err(failure)) => failure,
                Err(_) => return Err(Failure { error: Error::TimedOut, fate: Fate::Unknown }),
            };
            let preparing = timeout_at(deadline.into(), Box::pin(self.prepare_retry(&live, &failure))).await;
            if repeated || !preparing.unwrap_or(false) || failure.fate != Fate::NotRun {
                return Err(Failure { fate: failure.fate, error: self.link.error(&live, failure.error) });
            }
            debug!(error = %failure.error, "Call was not delivered; sending it again.");
            repeated = true;
        }
    }

    async fn list(&self) -> Result<Vec<Map<String, Value>>, Failure> {
        let mut repeated = false;
        loop {
            let live = self.link.get_or_connect().await.map_err(Failure::not_run)?;
            let failure = match mcp::raw_tools(&live.peer, MAX_LIST_BYTES).await {
                Ok(tools) => {
                    self.link.learn(tools.iter().filter_map(named_schema));
                    return Ok(tools);
                }
                Err(failure) => failure,
            };
            if repeated || !self.prepare_retry(&live, &failure).await {
                return Err(Failure { fate: failure.fate, error: self.link.error(&live, failure.error) });
            }
            repeated = true;
        }
    }

    /// Prepares a second attempt. Returns whether one may succeed.
    async fn prepare_retry(&self, live: &Arc<LiveConnection>, failure: &mcp::Failure) -> bool {
        match failure.retry {
            Retry::Never => false,
            Retry::OnNewConnection => {
                self.link.discard(live);
                true
            }
            // From the listing, rmcp learns which arguments go into headers. It knows this per connection.
            Retry::AfterListing => mcp::raw_tools(&live.peer, MAX_LIST_BYTES).await.is_ok(),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.link.stop();
    }
}

/// Returns the name and the input schema of a raw tool.
fn named_schema(tool: &Map<String, Value>) -> Option<(&str, &Map<String, Value>)> {
    Some((tool.get("name")?.as_str()?, tool.get("inputSchema")?.as_object()?))
}
