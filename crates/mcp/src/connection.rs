//! One connection: the handshake in the era that the server supports, and requests on it.

use rmcp::{
    ClientHandler, Peer, RoleClient,
    model::{CallToolRequestParams, CallToolResult, ClientConfig, Implementation, ProtocolVersion, Tool},
    service::{
        ClientCacheConfig, ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RunningService,
    },
    transport::{
        IntoTransport, StreamableHttpClientTransport,
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use tracing::{debug, instrument::WithSubscriber, subscriber::NoSubscriber};

use crate::{exchange::Http, failure::Failure, list};

/// rmcp allows 16 pending requests by default. Here the caller limits the number of concurrent calls.
const MAX_CONCURRENT: usize = 4096;

/// The rmcp handler of a client that only calls tools and serves no requests.
#[derive(Clone, Debug)]
pub(crate) struct ToolsOnlyHandler;

impl ClientHandler for ToolsOnlyHandler {
    fn get_info(&self) -> ClientConfig {
        client_config("cynode-pma")
    }
}

/// Returns the configuration of a client with this name and without capabilities.
pub fn client_config(name: &str) -> ClientConfig {
    let mut config = ClientConfig::default();
    config.client_info = Implementation::new(name, env!("CARGO_PKG_VERSION"));
    config.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
    config
}

/// Which handshake to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// The handshake of 2026-07-28, then `initialize` on the same connection if the server rejects it.
    NewestFirst,
    /// Only `initialize`, as in 2025-11-25 and before.
    Older,
}

/// Why a connection could not be opened.
#[derive(Debug)]
pub struct OpenError {
    pub failure: Failure,
    pub hint: Hint,
}

/// The possible remedy after a connection could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Try [`Era::Older`]: the server supports only the older era and does not reject the newer handshake in
    /// the way that rmcp expects. Some answer an unknown method with an empty result, some know the method
    /// but list only older versions.
    Older,
    /// The server closed the connection during the handshake, as some do that accept nothing but
    /// `initialize`.
    Hangup,
    /// No remedy is known.
    Nothing,
}

#[derive(Debug)]
pub struct Connection<H: ClientHandler> {
    service: RunningService<RoleClient, H>,
    is_newer: bool,
}

impl<H: ClientHandler> Connection<H> {
    /// Performs the handshake over `transport`.
    pub async fn open<T, E, A>(handler: H, transport: T, era: Era) -> Result<Self, OpenError>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let mode = match era {
            Era::NewestFirst => ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            },
            Era::Older => ClientLifecycleMode::Initialize,
        };
        let opening = handler.serve_with_lifecycle(transport, mode);
        // rmcp keeps the current span open for the lifetime of the connection, so the span of the first
        // caller would never end.
        let service = opening.with_subscriber(NoSubscriber::default()).await?;
        // A cached list may be outdated or belong to another token.
        service.peer().set_response_cache_config(ClientCacheConfig::disabled()).await;
        let is_newer =
            service.peer_info().is_some_and(|info| info.protocol_version == ProtocolVersion::V_2026_07_28);
        let connection = Self { service, is_newer };
        debug!(version = connection.version(), "MCP connection established.");
        Ok(connection)
    }

    /// Opens a connection over HTTP in the era that the server supports.
    pub async fn over_http(handler: H, http: &Http) -> Result<Self, Failure>
    where
        H: Clone,
    {
        match Self::open(handler.clone(), transport(http), Era::NewestFirst).await {
            Err(OpenError { hint: Hint::Older, .. }) => {
                Self::open(handler, transport(http), Era::Older).await.map_err(|not| not.failure)
            }
            other => other.map_err(|not| not.failure),
        }
    }

    /// Returns the peer through which requests are sent. Requests fail after the connection is closed.
    pub fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// Returns the negotiated protocol version.
    pub fn version(&self) -> Option<String> {
        self.service.peer_info().map(|info| info.protocol_version.to_string())
    }

    /// Returns whether the connection uses the newer era, in which every call is a separate HTTP exchange.
    pub fn is_newer(&self) -> bool {
        self.is_newer
    }

    /// Closes the session and waits until it is closed.
    pub async fn close(mut self) {
        if let Err(error) = self.service.close().await {
            debug!(%error, "MCP connection closed with an error.");
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.is_transport_closed()
    }

    pub(crate) async fn call(&self, request: CallToolRequestParams) -> Result<CallToolResult, Failure> {
        Ok(self.service.call_tool(request).await?)
    }

    pub(crate) async fn tools(&self) -> Result<Vec<Tool>, Failure> {
        self.tools_under(None).await
    }

    pub(crate) async fn tools_under(&self, lease: Option<&str>) -> Result<Vec<Tool>, Failure> {
        list::tools(self.peer(), lease).await
    }
}

impl From<ClientInitializeError> for OpenError {
    fn from(error: ClientInitializeError) -> Self {
        let hint = match error {
            ClientInitializeError::ExpectedInitResult(_)
            | ClientInitializeError::NoCompatibleProtocolVersion { .. } => Hint::Older,
            ClientInitializeError::ConnectionClosed(_) => Hint::Hangup,
            _ => Hint::Nothing,
        };
        Self { failure: error.into(), hint }
    }
}

fn transport(http: &Http) -> StreamableHttpClientTransport<Http> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(http.url.clone())
        .max_concurrent_requests(MAX_CONCURRENT);
    config.channel_buffer_capacity = MAX_CONCURRENT;
    // This crate repeats a request whose session has expired on a new connection. rmcp would reinitialize the
    // old one, fail the requests that still run on it, and report that as an answer of the server.
    config.reinit_on_expired_session = false;
    StreamableHttpClientTransport::with_client(http.clone(), config)
}
