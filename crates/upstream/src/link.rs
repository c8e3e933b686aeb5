//! The connection to an upstream: opened on first use and reopened when it is lost, one attempt at a time.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use mcp::{Connection, Direct, DirectCall, Era, Fate, Hint, Http, OpenError, Retry, Tap};
use rmcp::{
    ClientHandler, Peer, RoleClient,
    model::{ProtocolVersion, SubscriptionFilter},
};
use serde_json::{Map, Value};
use tokio::{sync, time};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info, warn};

use crate::{
    Error, Options, Transport,
    events::Events,
    restart::Restarts,
    stdio::{ExitReason, Program},
};

/// The longest time that a caller waits for the restart of a process. If the pause is longer, the call fails
/// at once.
const MAX_RESTART_WAIT: Duration = Duration::from_secs(1);
const LISTEN_RETRY_DELAY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Link {
    name: String,
    endpoint: Endpoint,
    connect_timeout: Duration,
    /// `None` for a process, or if every call is to go through rmcp.
    direct: Option<Direct>,
    pub(crate) events: Events,
    pub(crate) tasks: TaskTracker,
    live: Mutex<Option<Arc<LiveConnection>>>,
    /// Locked while connecting, so that concurrent callers wait for one handshake.
    attempts: sync::Mutex<Attempts>,
    was_tried: AtomicBool,
    restarts: AtomicU64,
    stop: CancellationToken,
}

#[derive(Debug)]
enum Endpoint {
    Http(Http),
    Stdio(Program),
}

#[derive(Debug, Default)]
struct Attempts {
    restarts: Restarts,
    /// The process does not support the newer handshake. Trying it costs an additional start each time.
    is_older: bool,
    connected_before: bool,
    failed: Option<(Instant, Error)>,
}

/// An open connection. Closed when it is dropped.
#[derive(Debug)]
pub(crate) struct LiveConnection {
    pub(crate) peer: Peer<RoleClient>,
    pub(crate) version: Option<String>,
    is_newer: bool,
    connection: sync::Mutex<Option<Connection<Events>>>,
    exit_reason: Option<ExitReason>,
}

impl Link {
    pub(crate) fn new(options: Options) -> Result<Self, Error> {
        let (events, max_message) = (Events::new(), options.max_message());
        let endpoint = match options.transport {
            Transport::Http { url, token_file, addresses } => {
                let http = Http::with_address_filter(
                    &url,
                    token_file,
                    options.connect_timeout,
                    max_message,
                    addresses,
                )
                .map_err(|error| Error::from_mcp(error, |text| text))?;
                Endpoint::Http(http.with_tap(Arc::new(events.clone())))
            }
            Transport::Stdio { argv, env, secret_env, folder } => {
                Endpoint::Stdio(Program::new(&options.name, argv, env, secret_env, folder, max_message)?)
            }
        };
        let tasks = TaskTracker::new();
        let direct = match &endpoint {
            Endpoint::Http(http) if options.fast_path => {
                Some(Direct::new(http.clone(), events.get_info(), tasks.clone()))
            }
            _ => None,
        };
        Ok(Self {
            name: options.name,
            endpoint,
            connect_timeout: options.connect_timeout,
            direct,
            events,
            tasks,
            live: Mutex::default(),
            attempts: sync::Mutex::default(),
            was_tried: AtomicBool::new(false),
            restarts: AtomicU64::new(0),
            stop: CancellationToken::new(),
        })
    }

    /// Returns the current connection if it is open.
    pub(crate) fn live(&self) -> Option<Arc<LiveConnection>> {
        self.current().as_ref().filter(|live| !live.peer.is_transport_closed()).cloned()
    }

    pub(crate) fn was_tried(&self) -> bool {
        self.was_tried.load(Ordering::Relaxed) && !self.stop.is_cancelled()
    }

    pub(crate) fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// Returns the open connection, or opens one.
    pub(crate) async fn get_or_connect(self: &Arc<Self>) -> Result<Arc<LiveConnection>, Error> {
        if let Some(live) = self.live() {
            return Ok(live);
        }
        let (link, asked) = (self.clone(), Instant::now());
        // Boxed, since it is rarely needed and would make every calling future large.
        let connecting = Box::pin(async move {
            let stop = link.stop.clone();
            // If cancelled half-way, dropping the future closes the new connection or ends the new process.
            stop.run_until_cancelled(link.connect(asked)).await.unwrap_or(Err(Error::Closed))
        });
        // In a separate task, so that it continues when this caller times out, and the next caller can use
        // the connection.
        let done = self.tasks.spawn(connecting).await;
        done.unwrap_or_else(|error| Err(Error::Unavailable(error.to_string())))
    }

    /// Returns a direct call if the tool can be called without rmcp.
    pub(crate) fn direct(&self, live: &LiveConnection, tool: &str) -> Option<DirectCall<'_>> {
        self.direct.as_ref()?.prepare(live.is_newer, tool)
    }

    /// Tells the direct way about a complete listing, given as names and input schemas.
    pub(crate) fn learn<'t>(&self, tools: impl Iterator<Item = (&'t str, &'t Map<String, Value>)>) {
        if let Some(direct) = &self.direct {
            direct.learn(tools);
        }
    }

    /// Runs `work` until the link is closed. Needed for direct calls, since only calls through rmcp end with
    /// its connection.
    pub(crate) async fn until_closed<T>(
        &self,
        work: impl Future<Output = Result<T, mcp::Failure>>,
    ) -> Result<T, mcp::Failure> {
        self.stop.run_until_cancelled(work).await.unwrap_or_else(|| {
            let error = mcp::Error::Unavailable("the connection was closed".into());
            Err(mcp::Failure { error, fate: Fate::Unknown, retry: Retry::Never })
        })
    }

    /// Removes a lost connection. Keeps the current one if another caller has already replaced it.
    pub(crate) fn discard(&self, lost: &Arc<LiveConnection>) {
        let mut current = self.current();
        if current.as_ref().is_some_and(|live| Arc::ptr_eq(live, lost)) {
            *current = None;
        }
    }

    /// Converts an error on this connection. If the process has ended, the error says how.
    pub(crate) fn error(&self, live: &LiveConnection, error: mcp::Error) -> Error {
        match (error, live.exit_reason.as_ref().and_then(ExitReason::get)) {
            (mcp::Error::Unavailable(_), Some(reason)) => Error::Unavailable(reason),
            (error, _) => self.masked(error),
        }
    }

    pub(crate) fn stop(&self) {
        self.stop.cancel();
        *self.current() = None;
    }

    pub(crate) async fn close(&self) {
        self.stop.cancel();
        // Once this lock is held, no other task is connecting, so no connection is opened after the last one
        // is closed.
        let _attempts = self.attempts.lock().await;
        let live = self.current().take();
        if let Some(live) = live
            && let Some(connection) = live.connection.lock().await.take()
        {
            connection.close().await;
        }
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<LiveConnection>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn masked(&self, error: mcp::Error) -> Error {
        Error::from_mcp(error, |text| match &self.endpoint {
            Endpoint::Http(http) => http.mask(text),
            Endpoint::Stdio(program) => program.mask(text),
        })
    }

    async fn connect(&self, asked: Instant) -> Result<Arc<LiveConnection>, Error> {
        let mut attempts = self.attempts.lock().await;
        if self.stop.is_cancelled() {
            return Err(Error::Closed);
        }
        if let Some(live) = self.live() {
            return Ok(live);
        }
        // Another caller tried while this one waited for the lock.
        if let Some((_, error)) = attempts.failed.as_ref().filter(|(at, _)| *at >= asked) {
            return Err(error.clone());
        }
        self.was_tried.store(true, Ordering::Relaxed);
        let now = Instant::now();
        let pause = attempts.restarts.not_before(now).saturating_duration_since(now);
        if pause > MAX_RESTART_WAIT {
            let last = attempts.failed.as_ref().map(|(_, error)| error.to_string());
            let last = last.unwrap_or_else(|| "its process keeps ending".to_owned());
            return Err(Error::Unavailable(format!("{last}; not started again for another {pause:.0?}")));
        }
        match self.open(&mut attempts).await {
            Ok(live) => {
                let live = Arc::new(live);
                *self.current() = Some(live.clone());
                if std::mem::replace(&mut attempts.connected_before, true) {
                    self.events.tools_changed();
                }
                info!(upstream = self.name, version = live.version, "Upstream connected.");
                Ok(live)
            }
            Err(error) => {
                warn!(upstream = self.name, error = error.describe(), "Upstream connection failed.");
                attempts.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn open(&self, attempts: &mut Attempts) -> Result<LiveConnection, Error> {
        let (connection, exit_reason) = match &self.endpoint {
            Endpoint::Http(http) => {
                let opening = Connection::over_http(self.events.clone(), http);
                let opened =
                    time::timeout(self.connect_timeout, opening).await.map_err(|_| Error::TimedOut)?;
                (opened.map_err(|failure| self.masked(failure.error))?, None)
            }
            Endpoint::Stdio(program) => self.start(program, attempts).await?,
        };
        let peer = connection.peer().clone();
        self.listen(&peer);
        let (version, is_newer) = (connection.version(), connection.is_newer());
        Ok(LiveConnection {
            peer,
            version,
            is_newer,
            connection: sync::Mutex::new(Some(connection)),
            exit_reason,
        })
    }

    async fn start(
        &self,
        program: &Program,
        attempts: &mut Attempts,
    ) -> Result<(Connection<Events>, Option<ExitReason>), Error> {
        let now = Instant::now();
        time::sleep(attempts.restarts.not_before(now).saturating_duration_since(now)).await;
        attempts.restarts.record_start(Instant::now());
        self.restarts.store(attempts.restarts.count(), Ordering::Relaxed);
        if !attempts.is_older {
            match self.start_and_open(program, Era::NewestFirst, self.connect_timeout / 2).await {
                // Some old servers do not answer an unknown method at all.
                Err((Error::TimedOut, _) | (_, Hint::Older | Hint::Hangup)) => {}
                other => return other.map_err(|(error, _)| error),
            }
        }
        let opened = self.start_and_open(program, Era::Older, self.connect_timeout).await;
        attempts.is_older = opened.is_ok();
        opened.map_err(|(error, _)| error)
    }

    /// Starts the process and performs the handshake within `limit`.
    async fn start_and_open(
        &self,
        program: &Program,
        era: Era,
        limit: Duration,
    ) -> Result<(Connection<Events>, Option<ExitReason>), (Error, Hint)> {
        let started = program.start(Arc::new(self.events.clone()), &self.tasks, self.stop.clone()).await;
        let (transport, exit_reason) = started.map_err(|error| (error, Hint::Nothing))?;
        let opening = Connection::open(self.events.clone(), transport, era);
        match time::timeout(limit, opening).await {
            Ok(Ok(connection)) => Ok((connection, Some(exit_reason))),
            Ok(Err(OpenError { failure, hint })) => {
                let ended = exit_reason.get().map(Error::Unavailable);
                Err((ended.unwrap_or_else(|| self.masked(failure.error)), hint))
            }
            Err(_) => Err((Error::TimedOut, Hint::Nothing)),
        }
    }

    /// Subscribes to tool changes. Upstreams of the newer era announce them only to subscribers.
    fn listen(&self, peer: &Peer<RoleClient>) {
        let Some(info) = peer.peer_info() else { return };
        let announces_changes =
            info.capabilities.tools.as_ref().and_then(|tools| tools.list_changed) == Some(true);
        if !announces_changes || info.protocol_version < ProtocolVersion::V_2026_07_28 {
            return;
        }
        let listening = listen(peer.clone(), self.events.clone());
        let stop = self.stop.clone();
        self.tasks.spawn(async move { stop.run_until_cancelled(listening).await });
    }
}

async fn listen(peer: Peer<RoleClient>, events: Events) {
    let mut listened = false;
    while !peer.is_transport_closed() {
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        match peer.listen(filter).await {
            Ok(mut changes) => {
                if std::mem::replace(&mut listened, true) {
                    // A change may have been missed in between.
                    events.tools_changed();
                }
                while let Ok(Some(_)) = changes.next().await {
                    events.tools_changed();
                }
            }
            Err(error) => debug!(%error, "Upstream does not support list-changed notifications."),
        }
        time::sleep(LISTEN_RETRY_DELAY).await;
    }
}
