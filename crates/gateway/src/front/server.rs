//! The MCP server: lists tools and calls them. It has no resources, prompts or completions.

use std::sync::Arc;

use http::request::Parts;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CacheScope, CallToolRequestParams, CallToolResponse, CompleteRequestMethod, CompleteRequestParams,
        CompleteResult, Implementation, ListPromptsRequestMethod, ListPromptsResult,
        ListResourceTemplatesRequestMethod, ListResourceTemplatesResult, ListResourcesRequestMethod,
        ListResourcesResult, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
};
use tokio::sync::mpsc;
use tracing::error;
use upstream::Progress;

use super::{
    call::{Call, PROGRESS_BUFFER, denied, progress_param, unavailable},
    identity::Identity,
};
use crate::calls::Calls;

/// Tools per page of `tools/list`.
const PAGE_SIZE: usize = 200;

/// Handles MCP requests that the fast path does not answer. Never sends a request to the caller.
#[derive(Clone, Debug)]
pub(super) struct Server(Arc<Calls>);

impl Server {
    pub(super) fn new(calls: Arc<Calls>) -> Self {
        Self(calls)
    }
}

/// Returns the identity that the guard attached to the request. A request without one has bypassed the guard
/// and fails.
fn identity(context: &RequestContext<RoleServer>) -> Result<Identity, ErrorData> {
    let found = context.extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Identity>());
    found.cloned().ok_or_else(|| ErrorData::internal_error("no identity", None))
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut config = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        config.server_info = Implementation::new("cynode-gateway", env!("CARGO_PKG_VERSION"));
        config
    }

    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let identity = identity(&context)?;
        policy::check_listing(&identity.standing).map_err(|denial| denied(&denial, ""))?;
        let first = page.and_then(|page| page.cursor).map_or(Ok(0), |cursor| cursor.parse::<usize>());
        let first = first.map_err(|_| ErrorData::invalid_params("invalid cursor", None))?;
        let catalogue =
            self.0.catalogue.at_least(&self.0.store, identity.revision).await.map_err(|error| {
                error!(%error, "Store not available; tool list fails.");
                unavailable()
            })?;
        let mut visible =
            catalogue.visible_to(&identity.standing).skip(first).map(|tool| tool.definition.clone());
        let tools: Vec<Tool> = visible.by_ref().take(PAGE_SIZE).collect();
        let more = visible.next().is_some();
        // Not cacheable, because changes take effect at once; and private, because the list depends on the
        // caller.
        let mut result = ListToolsResult::with_all_items(tools).with_ttl_ms(0);
        result.cache_scope = Some(CacheScope::Private);
        result.next_cursor = more.then(|| (first + PAGE_SIZE).to_string());
        Ok(result)
    }

    // Requests about anything other than tools fail. rmcp's default answer is an empty list, which suggests
    // that there could be entries, and each of these requests would be a way around the access decision.
    async fn list_prompts(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn list_resources(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourcesRequestMethod>())
    }

    async fn list_resource_templates(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourceTemplatesRequestMethod>())
    }

    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    /// rmcp calls this before a call, to compare headers with arguments.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.0.catalogue.cached().get(name).map(|tool| tool.definition.clone())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let identity = identity(&context)?;
        let call = Call::read(request.name.into_owned(), request.arguments, &context.meta)?;
        let (progress, forwarding) = forward_progress(&context);
        let (result, ()) = tokio::join!(call.run(&self.0, identity, progress), forwarding);
        Ok(result?.into())
    }
}

/// Returns a channel for the progress of a call and a future that forwards it to the caller until the call
/// drops the sender. Without a progress token there is no sender.
fn forward_progress(
    context: &RequestContext<RoleServer>,
) -> (Option<mpsc::Sender<Progress>>, impl Future<Output = ()> + use<>) {
    let token = context.meta.get_progress_token();
    let (sender, mut received) = mpsc::channel::<Progress>(PROGRESS_BUFFER);
    let sender = token.is_some().then_some(sender);
    let peer = context.peer.clone();
    let forwarding = async move {
        let Some(token) = token else { return };
        while let Some(progress) = received.recv().await {
            if peer.notify_progress(progress_param(&token, progress)).await.is_err() {
                // The caller has disconnected.
                return;
            }
        }
    };
    (sender, forwarding)
}
