//! One connection: a handshake in the era that the server knows, and the requests that follow it.

use std::{collections::HashSet, sync::Arc};

use rmcp::{
    ClientHandler, RoleClient,
    model::{
        CallToolRequestParams, CallToolResult, ClientConfig, Implementation, PaginatedRequestParams,
        ProtocolVersion, Tool,
    },
    service::{
        ClientCacheConfig, ClientInitializeError, ClientLifecycleMode, ClientServiceExt, RunningService,
    },
    transport::{StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig},
};
use tracing::debug;

use crate::{
    exchange::Http,
    failure::{Failure, Told},
};

/// rmcp lets 16 requests wait for their answer at a time. How many calls run is for our caller to bound.
const MAX_CONCURRENT: usize = 4096;
const MAX_PAGES: usize = 50;
const MAX_TOOLS: usize = 2000;

/// What we are to the server: someone who calls tools and cannot be asked for anything.
#[derive(Debug)]
struct Caller;

impl ClientHandler for Caller {
    fn get_info(&self) -> ClientConfig {
        let mut config = ClientConfig::default();
        config.client_info = Implementation::new("cynode-pma", env!("CARGO_PKG_VERSION"));
        config.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        config
    }
}

#[derive(Debug)]
pub(crate) struct Connection(RunningService<RoleClient, Caller>);

impl Connection {
    pub(crate) async fn open(http: Http, url: Arc<str>) -> Result<Self, Failure> {
        let newest_first = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        };
        let service = match serve(http.clone(), url.clone(), newest_first).await {
            // Servers of the older era that do not say no as rmcp expects it: some answer an unknown method with an
            // empty result, some know the method but list older versions only.
            Err(
                ClientInitializeError::ExpectedInitResult(_)
                | ClientInitializeError::NoCompatibleProtocolVersion { .. },
            ) => serve(http, url, ClientLifecycleMode::Initialize).await?,
            other => other?,
        };
        // A list that is old, or of another token, is worse than one more request.
        service.peer().set_response_cache_config(ClientCacheConfig::disabled()).await;
        let version = service.peer_info().map(|info| info.protocol_version.to_string());
        debug!(version, "Connected to the tool server.");
        Ok(Self(service))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed() || self.0.is_transport_closed()
    }

    pub(crate) async fn call(&self, request: CallToolRequestParams) -> Result<CallToolResult, Failure> {
        Ok(self.0.call_tool(request).await?)
    }

    pub(crate) async fn tools(&self) -> Result<Vec<Tool>, Failure> {
        let mut tools = Vec::new();
        let mut seen = HashSet::new();
        let mut page = None;
        for _ in 0..MAX_PAGES {
            let listed = self.0.list_tools(page).await?;
            tools.extend(listed.tools);
            if tools.len() > MAX_TOOLS {
                return Err(Failure::protocol(Told(format!("more than {MAX_TOOLS} tools are listed"))));
            }
            let Some(cursor) = listed.next_cursor else { return Ok(tools) };
            if !seen.insert(cursor.clone()) {
                return Err(Failure::protocol(Told("the list of tools goes in circles".to_owned())));
            }
            page = Some(PaginatedRequestParams::default().with_cursor(Some(cursor)));
        }
        Err(Failure::protocol(Told(format!("the list of tools has more than {MAX_PAGES} pages"))))
    }
}

async fn serve(
    http: Http,
    url: Arc<str>,
    mode: ClientLifecycleMode,
) -> Result<RunningService<RoleClient, Caller>, ClientInitializeError> {
    let config = StreamableHttpClientTransportConfig::with_uri(url).max_concurrent_requests(MAX_CONCURRENT);
    let transport = StreamableHttpClientTransport::with_client(http, config);
    Caller.serve_with_lifecycle(transport, mode).await
}
