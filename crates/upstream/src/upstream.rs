use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use mcp::{Again, Fate};
use rmcp::model::{CallToolRequestParams, CallToolResult};
use serde_json::{Map, Value};
use tokio::{
    sync::{Semaphore, SemaphorePermit, mpsc, watch},
    time::{timeout, timeout_at},
};
use tracing::debug;

use crate::{
    Error, Failure, Health, Options, Progress, State,
    breaker::{Breaker, Pass},
    call::{self, Answer},
    health::Seen,
    link::{Link, Live},
};

const MAX_LIST_BYTES: usize = 16 * 1024 * 1024;

/// One server behind the gateway. Clones share its connection, its limits and its state; when the last one is dropped,
/// the connection is closed or the process ended.
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
    seen: Seen,
}

impl Upstream {
    /// Connects to nothing yet.
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
            seen: Seen::new(),
            link: Arc::new(Link::new(options)?),
        })))
    }

    /// The tools as the server describes them now: whole objects, with every field that it wrote. All of this is the
    /// server's word, and none of it may decide what is allowed.
    pub async fn tools(&self) -> Result<Vec<Map<String, Value>>, Error> {
        let inner = &self.0;
        let pass = inner.pass()?;
        // Boxed: rmcp's futures are large, and so would be every future that lists tools.
        let listed = timeout(inner.call_timeout, Box::pin(inner.list())).await;
        let listed = listed.unwrap_or(Err(Failure { error: Error::TimedOut, fate: Fate::Unknown }));
        inner.learn(pass, &listed);
        listed.map_err(|failure| failure.error)
    }

    /// Calls a tool. `meta` goes into `_meta` of the request, but for what the protocol reserves for itself. How far
    /// the call is goes to `progress`, where a full channel loses it. A call that is dropped is cancelled.
    pub async fn call(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        meta: Map<String, Value>,
        progress: Option<mpsc::Sender<Progress>>,
    ) -> Result<CallToolResult, Failure> {
        let inner = &self.0;
        let _slot = inner.slot().await?;
        let pass = inner.pass().map_err(Failure::not_run)?;
        let request = call::request(name, arguments, meta);
        let deadline = Instant::now() + inner.call_timeout;
        let called = Box::pin(inner.call(request, progress, deadline)).await;
        inner.learn(pass, &called);
        let result = called?;
        if !call::fits(&result, inner.max_result_bytes) {
            return Err(Failure::answered(Error::TooLarge(inner.max_result_bytes)));
        }
        Ok(result)
    }

    pub fn health(&self) -> Health {
        let inner = &self.0;
        let live = inner.link.live();
        let state = match &live {
            _ if inner.breaker.is_open(Instant::now()) => State::Open,
            Some(_) => State::Up,
            None if inner.link.was_tried() => State::Down,
            None => State::Idle,
        };
        let (since, last_error) = inner.seen.look(state);
        Health {
            state,
            since,
            version: live.and_then(|live| live.version.clone()),
            last_error,
            restarts: inner.link.restarts(),
            in_flight: inner.concurrency.saturating_sub(inner.slots.available_permits()),
        }
    }

    /// Changes whenever the server says that its tools did, and whenever it was connected to anew, since then nobody
    /// knows.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.0.link.events.changes()
    }

    /// Ends the session or the process, and waits until that is done. Calls that are running fail, as do later ones.
    pub async fn close(&self) {
        self.0.link.close().await;
    }
}

impl Inner {
    async fn slot(&self) -> Result<SemaphorePermit<'_>, Failure> {
        if self.breaker.is_open(Instant::now()) {
            return Err(Failure::not_run(Error::LeftAlone));
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

    fn pass(&self) -> Result<Pass<'_>, Error> {
        self.breaker.admit(Instant::now()).ok_or(Error::LeftAlone)
    }

    fn learn<T>(&self, pass: Pass<'_>, outcome: &Result<T, Failure>) {
        match outcome {
            Err(failure) if failure.is_its_fault() => {
                self.seen.failed(&failure.error);
                pass.failed(Instant::now());
            }
            Err(failure) if failure.fate != Fate::Answered => {
                self.seen.failed(&failure.error);
                drop(pass);
            }
            Ok(_) | Err(_) => pass.succeeded(),
        }
    }

    /// Calls, and calls a second time if the first cannot have run and another connection may help.
    async fn call(
        &self,
        request: CallToolRequestParams,
        progress: Option<mpsc::Sender<Progress>>,
        deadline: Instant,
    ) -> Result<CallToolResult, Failure> {
        let mut repeated = false;
        loop {
            let connected = timeout_at(deadline.into(), self.link.connected()).await;
            let live = connected.unwrap_or(Err(Error::TimedOut)).map_err(Failure::not_run)?;
            let sending = pin!(call::send(&self.link, &live, &request, progress.clone()));
            let failure = match timeout_at(deadline.into(), sending).await {
                Ok(Ok(Answer::Result(result))) => return Ok(result),
                Ok(Ok(Answer::InputRequired)) => return Err(Failure::answered(Error::AsksForInput)),
                Ok(Ok(Answer::Other)) => {
                    let error = Error::Protocol("what it answered is not the result of a call".to_owned());
                    return Err(Failure { error, fate: Fate::Unknown });
                }
                Ok(Err(failure)) => failure,
                Err(_) => return Err(Failure { error: Error::TimedOut, fate: Fate::Unknown }),
            };
            if failure.again == Again::AfterListing {
                self.link.indirect.also(&request.name);
            }
            let mending = timeout_at(deadline.into(), Box::pin(self.mend(&live, &failure))).await;
            if repeated || !mending.unwrap_or(false) || failure.fate != Fate::NotRun {
                return Err(Failure { fate: failure.fate, error: self.link.error(&live, failure.error) });
            }
            debug!(error = %failure.error, "Call was not delivered; sending it again.");
            repeated = true;
        }
    }

    async fn list(&self) -> Result<Vec<Map<String, Value>>, Failure> {
        let mut repeated = false;
        loop {
            let live = self.link.connected().await.map_err(Failure::not_run)?;
            let failure = match mcp::raw_tools(&live.peer, MAX_LIST_BYTES).await {
                Ok(tools) => {
                    self.link.indirect.learn(tools.iter().filter_map(named_schema));
                    return Ok(tools);
                }
                Err(failure) => failure,
            };
            if repeated || !self.mend(&live, &failure).await {
                return Err(Failure { fate: failure.fate, error: self.link.error(&live, failure.error) });
            }
            repeated = true;
        }
    }

    /// Does what may help the next attempt, and tells whether anything may.
    async fn mend(&self, live: &Arc<Live>, failure: &mcp::Failure) -> bool {
        match failure.again {
            Again::Never => false,
            Again::OnNewConnection => {
                self.link.forget(live);
                true
            }
            // Listing tells rmcp which arguments go into headers. It forgets with the connection.
            Again::AfterListing => mcp::raw_tools(&live.peer, MAX_LIST_BYTES).await.is_ok(),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.link.stop();
    }
}

/// A tool as its server wrote it: what it is called and what it takes.
fn named_schema(tool: &Map<String, Value>) -> Option<(&str, &Map<String, Value>)> {
    Some((tool.get("name")?.as_str()?, tool.get("inputSchema")?.as_object()?))
}
