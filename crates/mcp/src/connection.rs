//! One connection: a handshake in the era that the server knows, and the requests that follow it.

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

/// rmcp lets 16 requests wait for their answer at a time. How many calls run is for our caller to bound.
const MAX_CONCURRENT: usize = 4096;

/// What we are to the server: someone who calls tools and cannot be asked for anything.
#[derive(Clone, Debug)]
pub(crate) struct Caller;

impl ClientHandler for Caller {
    fn get_info(&self) -> ClientConfig {
        introduction("cynode-pma")
    }
}

/// How a client of ours presents itself: by name, and with nothing that a server could ask of it.
pub fn introduction(name: &str) -> ClientConfig {
    let mut config = ClientConfig::default();
    config.client_info = Implementation::new(name, env!("CARGO_PKG_VERSION"));
    config.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
    config
}

/// Which handshake to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// That of 2026-07-28, and `initialize` on the same connection if the server says no to it.
    NewestFirst,
    /// `initialize` of 2025-11-25 and before.
    Older,
}

/// Why a connection was not opened.
#[derive(Debug)]
pub struct NotOpened {
    pub failure: Failure,
    pub hint: Hint,
}

/// What else may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// The server is of the older era and does not say no as rmcp expects it: some answer an unknown method with an
    /// empty result, some know the method but list older versions only.
    Older,
    /// The server went away when it was greeted, as servers do that expect nothing but `initialize`.
    Hangup,
    Nothing,
}

#[derive(Debug)]
pub struct Connection<H: ClientHandler> {
    service: RunningService<RoleClient, H>,
    is_newer: bool,
}

impl<H: ClientHandler> Connection<H> {
    pub async fn open<T, E, A>(handler: H, transport: T, era: Era) -> Result<Self, NotOpened>
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
        // rmcp keeps the span in which a connection is opened for as long as it lives, and with it whatever was done there
        // would never end.
        let service = opening.with_subscriber(NoSubscriber::default()).await?;
        // A list that is old, or of another token, is worse than one more request.
        service.peer().set_response_cache_config(ClientCacheConfig::disabled()).await;
        let is_newer =
            service.peer_info().is_some_and(|info| info.protocol_version == ProtocolVersion::V_2026_07_28);
        let connection = Self { service, is_newer };
        debug!(version = connection.version(), "MCP connection established.");
        Ok(connection)
    }

    /// Opens it over HTTP, in whichever era the server knows.
    pub async fn over_http(handler: H, http: &Http) -> Result<Self, Failure>
    where
        H: Clone,
    {
        match Self::open(handler.clone(), transport(http), Era::NewestFirst).await {
            Err(NotOpened { hint: Hint::Older, .. }) => {
                Self::open(handler, transport(http), Era::Older).await.map_err(|not| not.failure)
            }
            other => other.map_err(|not| not.failure),
        }
    }

    /// What requests are sent with. It outlives the connection, and fails then.
    pub fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    /// The version of the protocol that was agreed on.
    pub fn version(&self) -> Option<String> {
        self.service.peer_info().map(|info| info.protocol_version.to_string())
    }

    /// Whether it is of the newer era, where every call is an exchange of its own.
    pub fn is_newer(&self) -> bool {
        self.is_newer
    }

    /// Ends the session and waits until that is done.
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
        list::tools(self.peer()).await
    }
}

impl From<ClientInitializeError> for NotOpened {
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
    // A request that found its session gone is repeated by us, on a connection of its own: rmcp would fail those
    // that still run on the old one, and call that the server's answer.
    config.reinit_on_expired_session = false;
    StreamableHttpClientTransport::with_client(http.clone(), config)
}
