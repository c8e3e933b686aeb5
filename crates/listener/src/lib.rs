//! Serves HTTP connections with limits on their number, on the time of a request head, and on idle time.
//!
//! When all connection slots are in use, the oldest connection without a valid token is closed. Connections
//! of agents and administrators are never closed for that.

mod head_timer;
pub mod hosts;
mod slots;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body, extract::ConnectInfo};
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    select,
    time::{MissedTickBehavior, interval, sleep},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;
use tracing::{debug, error, warn};

pub use self::slots::ConnectionAuth;
use self::{
    head_timer::{HeadTimer, WatchedStream, guard_body},
    slots::{ConnectionSlot, ConnectionSlots},
};

/// Limits of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at the same time.
    pub max: usize,
    /// How long the head of a request may take, from its first byte.
    pub header_timeout: Duration,
    /// How long a connection may be idle between requests.
    pub idle_timeout: Duration,
}

/// Pause after a failed accept, for example because the process has no file descriptors left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
const MAX_TICK: Duration = Duration::from_secs(1);
const MIN_TICK: Duration = Duration::from_millis(20);

/// Serves until `stop` is cancelled, then waits until all requests in flight are answered.
pub async fn serve(listener: TcpListener, router: Router, limits: Limits, stop: CancellationToken) {
    let slots = Arc::new(ConnectionSlots::new(limits.max));
    let tasks = TaskTracker::new();
    loop {
        let accepted = select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_connection_error(&error) => continue,
            Err(error) => {
                error!(%error, "Accept failed; retrying.");
                sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let slot = select! {
            biased;
            () = stop.cancelled() => break,
            slot = ConnectionSlots::acquire(&slots) => slot,
        };
        if let Err(error) = stream.set_nodelay(true) {
            // Without it an answer in two segments waits for the client's delayed acknowledgement.
            warn!(%error, "TCP_NODELAY not set on a connection.");
        }
        tasks.spawn(connection(stream, peer, router.clone(), limits, slot, stop.clone()));
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    limits: Limits,
    slot: ConnectionSlot,
    stop: CancellationToken,
) {
    let head = Arc::new(HeadTimer::default());
    let auth = slot.auth();
    let watched = WatchedStream::new(stream, head.clone());
    let service = service_fn({
        let head = head.clone();
        move |request: Request<Incoming>| {
            let (router, auth, sending) = (router.clone(), auth.clone(), head.begin_request());
            async move {
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(ConnectInfo(peer));
                request.extensions_mut().insert(auth);
                let response = router.oneshot(request).await;
                response.map(|response| response.map(|body| guard_body(body, sending)))
            }
        }
    });
    // hyper starts its head timeout when the last answer was sent, so it also limits idle time. `HeadTimer`
    // limits the time from the first byte of a head.
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle_timeout)
        .serve_connection(TokioIo::new(watched), service);
    let mut serving = std::pin::pin!(serving);
    let mut ticks = interval((limits.header_timeout / 4).clamp(MIN_TICK, MAX_TICK));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_stopping = false;
    loop {
        select! {
            biased;
            ended = serving.as_mut() => {
                if let Err(error) = ended {
                    debug!(%error, %peer, "Connection closed.");
                }
                return;
            }
            () = slot.evicted() => {
                debug!(%peer, "Idle connection closed to make room.");
                return;
            }
            () = stop.cancelled(), if !is_stopping => {
                is_stopping = true;
                serving.as_mut().graceful_shutdown();
            }
            _ = ticks.tick() => {
                if head.is_older_than(limits.header_timeout) {
                    debug!(%peer, "Request header timeout.");
                    return;
                }
            }
        }
    }
}

/// Returns whether accept failed because of the connection itself, so that the next accept can succeed at
/// once.
fn is_connection_error(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
