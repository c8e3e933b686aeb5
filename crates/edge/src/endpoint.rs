//! The MCP endpoints of jobs: a unix socket for each, and one address on loopback for all, with a token.

use std::{
    collections::HashMap,
    fs::{self, Permissions},
    future::IntoFuture,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
    routing::any,
};
use data_encoding::BASE64URL_NOPAD;
use http::{Request, StatusCode, header::AUTHORIZATION};
use rand::RngCore;
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
};
use sha2::{Digest, Sha256};
use tokio::{
    net::{TcpListener, UnixListener},
    select,
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::error;

use crate::{Error, Session, Unrecorded, limited::Limited, renewal, server::Server, unclosed::Unclosed};

pub(crate) type Mcp = StreamableHttpService<Server, NeverSessionManager>;

/// How long calls in progress may take when an endpoint is closed.
const CLOSE_GRACE: Duration = Duration::from_secs(5);
const TOKEN_BYTES: usize = 32;

/// Endpoints by the digest of their tokens.
#[derive(Clone, Default)]
pub(crate) struct ByToken(Arc<Mutex<HashMap<[u8; 32], Mcp>>>);

impl std::fmt::Debug for ByToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ByToken").finish_non_exhaustive()
    }
}

impl ByToken {
    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], Mcp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The MCP endpoint of one job. Close it when the job has ended; if it is dropped instead, its audit is
/// closed without waiting for calls in progress.
#[derive(Debug)]
pub struct JobEndpoint {
    session: Arc<Session>,
    socket: PathBuf,
    token: String,
    by_token: ByToken,
    unclosed: Unclosed,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl JobEndpoint {
    /// Begins to serve on a unix socket, and on loopback under a new token. Any process that can reach the
    /// socket may call: keep it in a folder that only those reach who may.
    pub(crate) fn start(
        session: Arc<Session>,
        socket: &Path,
        by_token: ByToken,
        unclosed: Unclosed,
    ) -> Result<Self, Error> {
        let listen_error = |error| Error::Listen(socket.display().to_string(), error);
        // Of a process that was killed.
        match fs::remove_file(socket) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(listen_error(error)),
            _ => {}
        }
        let listener = UnixListener::bind(socket).map_err(listen_error)?;
        // The client may run as another user; the permissions of the folder control who reaches the socket.
        fs::set_permissions(socket, Permissions::from_mode(0o666)).map_err(listen_error)?;
        let limits = session.shared.limits;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let mcp = mcp_service(&session);
        let router = Router::new().route("/mcp", any(handle)).with_state(mcp.clone());
        let serving = axum::serve(Limited::new(listener, limits.connections), router)
            .with_graceful_shutdown(stop.clone().cancelled_owned());
        tasks.spawn(async move {
            if let Err(error) = serving.into_future().await {
                error!(%error, "Endpoint of a job ended.");
            }
        });
        let (renewing, stopped) = (session.clone(), stop.clone());
        tasks.spawn(async move {
            select! {
                () = stopped.cancelled() => {}
                never = renewal::keep_renewed(&renewing) => match never {},
            }
        });
        tasks.close();
        let mut secret = [0; TOKEN_BYTES];
        rand::rng().fill_bytes(&mut secret);
        let token = BASE64URL_NOPAD.encode(&secret);
        by_token.lock().insert(digest(&token), mcp);
        Ok(Self { session, socket: socket.to_owned(), token, by_token, unclosed, stop, tasks })
    }

    pub fn lease_id(&self) -> &str {
        &self.session.lease_id
    }

    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the secret with which the job's agent calls on loopback.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns whether a call of the job was not made, because this node could not write its line.
    pub fn unrecorded(&self) -> Option<Unrecorded> {
        self.session.unrecorded()
    }

    /// Waits until there is such a call.
    pub async fn wait_for_unrecorded(&self) -> Unrecorded {
        self.session.wait_for_unrecorded().await
    }

    /// Stops serving, waits a moment for calls in progress, and closes the audit.
    pub async fn close(self) {
        self.stop();
        let ended = async {
            self.tasks.wait().await;
            self.session.wait_for_calls().await;
        };
        if timeout(CLOSE_GRACE, ended).await.is_err() {
            error!(lease.id = self.session.lease_id, "Calls of a job still in progress at its end.");
        }
        // Dropping it closes the audit.
    }

    fn stop(&self) {
        self.stop.cancel();
        self.by_token.lock().remove(&digest(&self.token));
        // It may be gone with the folder of the job.
        drop(fs::remove_file(&self.socket));
    }
}

impl Drop for JobEndpoint {
    fn drop(&mut self) {
        self.stop();
        self.unclosed.close(&self.session);
    }
}

fn mcp_service(session: &Arc<Session>) -> Mcp {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        // Only processes of this machine reach it, with the job's socket or with its token.
        .disable_allowed_hosts()
        .with_allowed_origins(Vec::<String>::new())
        .enforce_origin_validation()
        .with_max_request_body_bytes(session.shared.limits.max_request_bytes);
    let server = Server::new(session.clone());
    StreamableHttpService::new(move || Ok(server.clone()), Arc::<NeverSessionManager>::default(), config)
}

async fn handle(State(mcp): State<Mcp>, request: Request<Body>) -> Response {
    mcp.handle(request).await.into_response()
}

/// Serves the endpoints of all jobs on one address, each under its own token, until `stop`.
pub(crate) async fn serve_loopback(
    address: SocketAddr,
    by_token: ByToken,
    connections: usize,
    stop: CancellationToken,
) -> Result<(SocketAddr, impl Future<Output = ()> + Send), Error> {
    let listen_error = |error| Error::Listen(address.to_string(), error);
    if !address.ip().is_loopback() {
        let why =
            std::io::Error::new(std::io::ErrorKind::InvalidInput, "not an address of this machine alone");
        return Err(listen_error(why));
    }
    let listener = TcpListener::bind(address).await.map_err(listen_error)?;
    let bound = listener.local_addr().map_err(listen_error)?;
    let router = Router::new().route("/mcp", any(handle_with_token)).with_state(by_token);
    let serving = axum::serve(Limited::new(listener, connections), router)
        .with_graceful_shutdown(stop.cancelled_owned());
    let serving = async move {
        if let Err(error) = serving.into_future().await {
            error!(%error, "Endpoint on loopback ended.");
        }
    };
    Ok((bound, serving))
}

async fn handle_with_token(State(by_token): State<ByToken>, request: Request<Body>) -> Response {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let secret =
        header.and_then(|text| text.split_once(' ')).filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
    // The digest is compared, so the time that it takes says nothing about the token.
    let found = secret.and_then(|(_, secret)| by_token.lock().get(&digest(secret.trim())).cloned());
    match found {
        Some(mcp) => mcp.handle(request).await.into_response(),
        None => (StatusCode::UNAUTHORIZED, "missing or unknown token").into_response(),
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}
