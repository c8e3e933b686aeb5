//! Connections: how many there may be, how long a request may take to begin, how long one may be silent.
//!
//! When there are too many, the oldest on which nobody has shown a good token makes room. Those of agents and administrators stay.

mod head; // when the head of a request began to come
mod places; // who has a place, and who makes room

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

pub(crate) use self::places::Trust;
use self::{
    head::{Head, Watched, until_sent},
    places::{Place, Places},
};
use crate::config;

/// When the system has no more files, a moment later it may have.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);
const LONGEST_TICK: Duration = Duration::from_secs(1);
const SHORTEST_TICK: Duration = Duration::from_millis(20);

/// Serves until told to stop; requests that came before are answered.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    settings: config::Connections,
    stop: CancellationToken,
) {
    let places = Arc::new(Places::new(settings.max));
    let tasks = TaskTracker::new();
    loop {
        let accepted = select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_of_the_connection(&error) => continue,
            Err(error) => {
                error!(%error, "Accept failed; retrying.");
                sleep(ACCEPT_AGAIN_AFTER).await;
                continue;
            }
        };
        let place = select! {
            biased;
            () = stop.cancelled() => break,
            place = Places::take(&places) => place,
        };
        if let Err(error) = stream.set_nodelay(true) {
            // Without it an answer in two pieces waits for the other side's delayed acknowledgement.
            warn!(%error, "TCP_NODELAY not set on a connection.");
        }
        tasks.spawn(connection(stream, peer, router.clone(), settings, place, stop.clone()));
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    settings: config::Connections,
    place: Place,
    stop: CancellationToken,
) {
    let head = Arc::new(Head::default());
    let trust = place.trust();
    let watched = Watched::new(stream, head.clone());
    let service = service_fn({
        let head = head.clone();
        move |request: Request<Incoming>| {
            let (router, trust, sending) = (router.clone(), trust.clone(), head.begin_request());
            async move {
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(ConnectInfo(peer));
                request.extensions_mut().insert(trust);
                let response = router.oneshot(request).await;
                response.map(|response| response.map(|body| until_sent(body, sending)))
            }
        }
    });
    // hyper's time for a head begins when the last answer was sent, so it is the time for silence as well.
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.idle_timeout)
        .serve_connection(TokioIo::new(watched), service);
    let mut serving = std::pin::pin!(serving);
    let mut look = interval((settings.header_timeout / 4).clamp(SHORTEST_TICK, LONGEST_TICK));
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
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
            () = place.must_go() => {
                debug!(%peer, "Idle connection closed to make room.");
                return;
            }
            () = stop.cancelled(), if !is_stopping => {
                is_stopping = true;
                serving.as_mut().graceful_shutdown();
            }
            _ = look.tick() => {
                if head.is_older_than(settings.header_timeout) {
                    debug!(%peer, "Request header timeout.");
                    return;
                }
            }
        }
    }
}

fn is_of_the_connection(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
