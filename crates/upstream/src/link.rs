//! The connection to a server: made when it is first needed, made anew when it is lost, one attempt at a time.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use mcp::{
    Again, Connection, Direct, Era, FIRST_DIRECT, Fate, Hint, Http, Indirect, NotOpened, Tap, can_be_named,
};
use rmcp::{
    ClientHandler, Peer, RoleClient,
    model::{ClientConfig, ProtocolVersion, SubscriptionFilter},
};
use tokio::{sync, time};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info, warn};

use crate::{
    Error, Options, Transport,
    events::Events,
    restart::Restarts,
    stdio::{Ending, Program},
};

/// A caller does not wait longer for a process that keeps dying.
const PATIENCE: Duration = Duration::from_secs(1);
const LISTEN_AGAIN_AFTER: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Link {
    name: String,
    endpoint: Endpoint,
    connect_timeout: Duration,
    /// As what we present ourselves.
    us: ClientConfig,
    pub(crate) events: Events,
    pub(crate) tasks: TaskTracker,
    pub(crate) indirect: Indirect,
    next_direct: AtomicI64,
    live: Mutex<Option<Arc<Live>>>,
    /// Locked while connecting, so that everyone waits for the one handshake.
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
    /// The process does not take the newer handshake; asking costs a start each time.
    is_older: bool,
    connected_before: bool,
    failed: Option<(Instant, Error)>,
}

/// An open connection. It closes when it is dropped.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) peer: Peer<RoleClient>,
    pub(crate) version: Option<String>,
    is_newer: bool,
    connection: sync::Mutex<Option<Connection<Events>>>,
    ending: Option<Ending>,
}

impl Link {
    pub(crate) fn new(options: Options) -> Result<Self, Error> {
        let (events, max_message) = (Events::new(), options.max_message());
        let endpoint = match options.transport {
            Transport::Http { url, token_file, addresses } => {
                let http = Http::guarded(&url, token_file, options.connect_timeout, max_message, addresses)
                    .map_err(|error| Error::from_mcp(error, |text| text))?;
                Endpoint::Http(http.with_tap(Arc::new(events.clone())))
            }
            Transport::Stdio { argv, env, secret_env, folder } => {
                Endpoint::Stdio(Program::new(&options.name, argv, env, secret_env, folder, max_message)?)
            }
        };
        Ok(Self {
            name: options.name,
            endpoint,
            connect_timeout: options.connect_timeout,
            us: events.get_info(),
            events,
            indirect: Indirect::default(),
            next_direct: AtomicI64::new(FIRST_DIRECT),
            tasks: TaskTracker::new(),
            live: Mutex::default(),
            attempts: sync::Mutex::default(),
            was_tried: AtomicBool::new(false),
            restarts: AtomicU64::new(0),
            stop: CancellationToken::new(),
        })
    }

    /// The connection if there is one that is open.
    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        self.current().as_ref().filter(|live| !live.peer.is_transport_closed()).cloned()
    }

    pub(crate) fn was_tried(&self) -> bool {
        self.was_tried.load(Ordering::Relaxed) && !self.stop.is_cancelled()
    }

    pub(crate) fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    pub(crate) async fn connected(self: &Arc<Self>) -> Result<Arc<Live>, Error> {
        if let Some(live) = self.live() {
            return Ok(live);
        }
        let (link, asked) = (self.clone(), Instant::now());
        // Boxed: whoever calls carries the room for it, and it is rare.
        let connecting = Box::pin(async move {
            let stop = link.stop.clone();
            // Given up half-way, a connection or a process that was just made is closed by its drop.
            stop.run_until_cancelled(link.connect(asked)).await.unwrap_or(Err(Error::Closed))
        });
        // In a task of its own: who waits here may lose patience, and the next one finds it done.
        let done = self.tasks.spawn(connecting).await;
        done.unwrap_or_else(|error| Err(Error::Unavailable(error.to_string())))
    }

    /// How a tool is called without rmcp between, if it can be: over HTTP, in the newer era, and with nothing about it that
    /// rmcp alone knows.
    pub(crate) fn direct(&self, live: &Live, tool: &str) -> Option<Direct<'_>> {
        let Endpoint::Http(http) = &self.endpoint else { return None };
        (live.is_newer && can_be_named(tool) && !self.indirect.has(tool)).then(|| {
            let id = self.next_direct.fetch_add(1, Ordering::Relaxed);
            Direct { http, us: &self.us, id, tasks: &self.tasks }
        })
    }

    /// Closed, we wait for nothing: what runs on rmcp's connection ends with that, the rest ends here.
    pub(crate) async fn until_closed<T>(
        &self,
        work: impl Future<Output = Result<T, mcp::Failure>>,
    ) -> Result<T, mcp::Failure> {
        self.stop.run_until_cancelled(work).await.unwrap_or_else(|| {
            let error = mcp::Error::Unavailable("the connection was closed".into());
            Err(mcp::Failure { error, fate: Fate::Unknown, again: Again::Never })
        })
    }

    /// Others may have found out before us and connected anew: that connection stays.
    pub(crate) fn forget(&self, lost: &Arc<Live>) {
        let mut current = self.current();
        if current.as_ref().is_some_and(|live| Arc::ptr_eq(live, lost)) {
            *current = None;
        }
    }

    /// What an error on this connection means; if its process ended, that is what it means.
    pub(crate) fn error(&self, live: &Live, error: mcp::Error) -> Error {
        match (error, live.ending.as_ref().and_then(Ending::words)) {
            (mcp::Error::Unavailable(_), Some(words)) => Error::Unavailable(words),
            (error, _) => self.masked(error),
        }
    }

    pub(crate) fn stop(&self) {
        self.stop.cancel();
        *self.current() = None;
    }

    pub(crate) async fn close(&self) {
        self.stop.cancel();
        // Whoever is connecting has stopped when this is ours, so that no connection comes after the last.
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

    fn current(&self) -> MutexGuard<'_, Option<Arc<Live>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn masked(&self, error: mcp::Error) -> Error {
        Error::from_mcp(error, |text| match &self.endpoint {
            Endpoint::Http(http) => http.mask(text),
            Endpoint::Stdio(program) => program.mask(text),
        })
    }

    async fn connect(&self, asked: Instant) -> Result<Arc<Live>, Error> {
        let mut attempts = self.attempts.lock().await;
        if self.stop.is_cancelled() {
            return Err(Error::Closed);
        }
        if let Some(live) = self.live() {
            return Ok(live);
        }
        // Another one tried while we waited for our turn.
        if let Some((_, error)) = attempts.failed.as_ref().filter(|(at, _)| *at >= asked) {
            return Err(error.clone());
        }
        self.was_tried.store(true, Ordering::Relaxed);
        let now = Instant::now();
        let pause = attempts.restarts.not_before(now).saturating_duration_since(now);
        if pause > PATIENCE {
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
                warn!(upstream = self.name, error = error.in_full(), "Upstream connection failed.");
                attempts.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn open(&self, attempts: &mut Attempts) -> Result<Live, Error> {
        let (connection, ending) = match &self.endpoint {
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
        Ok(Live { peer, version, is_newer, connection: sync::Mutex::new(Some(connection)), ending })
    }

    async fn start(
        &self,
        program: &Program,
        attempts: &mut Attempts,
    ) -> Result<(Connection<Events>, Option<Ending>), Error> {
        let now = Instant::now();
        time::sleep(attempts.restarts.not_before(now).saturating_duration_since(now)).await;
        attempts.restarts.starts(Instant::now());
        self.restarts.store(attempts.restarts.count(), Ordering::Relaxed);
        if !attempts.is_older {
            match self.greet(program, Era::NewestFirst, self.connect_timeout / 2).await {
                // No answer at all is what some old servers have for a method that they do not know.
                Err((Error::TimedOut, _) | (_, Hint::Older | Hint::Hangup)) => {}
                other => return other.map_err(|(error, _)| error),
            }
        }
        let greeted = self.greet(program, Era::Older, self.connect_timeout).await;
        attempts.is_older = greeted.is_ok();
        greeted.map_err(|(error, _)| error)
    }

    async fn greet(
        &self,
        program: &Program,
        era: Era,
        limit: Duration,
    ) -> Result<(Connection<Events>, Option<Ending>), (Error, Hint)> {
        let started = program.start(Arc::new(self.events.clone())).await;
        let (transport, ending) = started.map_err(|error| (error, Hint::Nothing))?;
        let opening = Connection::open(self.events.clone(), transport, era);
        match time::timeout(limit, opening).await {
            Ok(Ok(connection)) => Ok((connection, Some(ending))),
            Ok(Err(NotOpened { failure, hint })) => {
                let ended = ending.words().map(Error::Unavailable);
                Err((ended.unwrap_or_else(|| self.masked(failure.error)), hint))
            }
            Err(_) => Err((Error::TimedOut, Hint::Nothing)),
        }
    }

    /// Servers of the newer era say that their tools changed to those only who asked for it.
    fn listen(&self, peer: &Peer<RoleClient>) {
        let Some(info) = peer.peer_info() else { return };
        let tells = info.capabilities.tools.as_ref().and_then(|tools| tools.list_changed) == Some(true);
        if !tells || info.protocol_version < ProtocolVersion::V_2026_07_28 {
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
                    // Nobody knows what was said in between.
                    events.tools_changed();
                }
                while let Ok(Some(_)) = changes.next().await {
                    events.tools_changed();
                }
            }
            Err(error) => debug!(%error, "Upstream does not support list-changed notifications."),
        }
        time::sleep(LISTEN_AGAIN_AFTER).await;
    }
}
