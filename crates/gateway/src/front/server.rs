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
    call::{Call, PROGRESS_WAITING, told, unavailable},
    edge::Identity,
};
use crate::calls::Calls;

const PAGE: usize = 200;

/// What speaks MCP. It knows tools and nothing else: no resources, no prompts, nothing that could be asked of a caller.
#[derive(Clone, Debug)]
pub(super) struct Server(Arc<Calls>);

impl Server {
    pub(super) fn new(calls: Arc<Calls>) -> Self {
        Self(calls)
    }
}

/// The edge lets nobody in without; a request that comes without has found another way and goes nowhere.
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
        let first = page.and_then(|page| page.cursor).map_or(Ok(0), |cursor| cursor.parse::<usize>());
        let first = first.map_err(|_| ErrorData::invalid_params("the cursor is not one of ours", None))?;
        let catalogue = self.0.shelf.at(&self.0.store, identity.revision).await.map_err(|error| {
            error!(%error, "Store not available; tool list fails.");
            unavailable()
        })?;
        let mut seen = catalogue.seen_by(&identity.standing).skip(first).map(|tool| tool.shown.clone());
        let tools: Vec<Tool> = seen.by_ref().take(PAGE).collect();
        let more = seen.next().is_some();
        // Changes count at once, so nobody may keep the list; and it is this caller's alone.
        let mut result = ListToolsResult::with_all_items(tools).with_ttl_ms(0);
        result.cache_scope = Some(CacheScope::Private);
        result.next_cursor = more.then(|| (first + PAGE).to_string());
        Ok(result)
    }

    // Whatever is not about tools does not exist here. rmcp would answer with empty lists, which says that there could be
    // something; each of these would be a second way past the decision.
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

    /// Asked for before a call, to hold headers against arguments.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.0.shelf.last().get(name).map(|tool| tool.shown.clone())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let identity = identity(&context)?;
        let call = Call::read(request.name.into_owned(), request.arguments, &context.meta)?;
        let (progress, told) = tell_progress(&context);
        let (result, ()) = tokio::join!(call.run(&self.0, identity, progress), told);
        Ok(result?.into())
    }
}

/// How far a call is goes to whoever asked to know, until the call ends and drops its end of the channel.
fn tell_progress(
    context: &RequestContext<RoleServer>,
) -> (Option<mpsc::Sender<Progress>>, impl Future<Output = ()> + use<>) {
    let asked = context.meta.get_progress_token();
    let (sender, mut received) = mpsc::channel::<Progress>(PROGRESS_WAITING);
    let sender = asked.is_some().then_some(sender);
    let peer = context.peer.clone();
    let told = async move {
        let Some(token) = asked else { return };
        while let Some(progress) = received.recv().await {
            if peer.notify_progress(told(&token, progress)).await.is_err() {
                // Nobody listens any more.
                return;
            }
        }
    };
    (sender, told)
}
