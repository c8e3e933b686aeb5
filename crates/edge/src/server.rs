//! The MCP server of one job: lists tools and calls them.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use policy::check_visible;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CacheScope, CallToolRequestParams, CallToolResponse, ErrorCode, Implementation,
        ListPromptsRequestMethod, ListPromptsResult, ListResourceTemplatesRequestMethod,
        ListResourceTemplatesResult, ListResourcesRequestMethod, ListResourcesResult, ListToolsResult,
        PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
};
use serde_json::json;
use tracing::debug;

use crate::{Answer, Call, Session, pass_on};

/// The code with which the gateway denies, too.
const DENIED: ErrorCode = ErrorCode(policy::DENIED_CODE);
/// How long the tools of the gateway are not asked for again.
const KEEP_TOOLS_FOR: Duration = Duration::from_secs(30);

/// Handles the MCP requests of one job. Never sends a request to the agent.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    session: Arc<Session>,
    /// The gateway's tools as they were listed last.
    of_gateway: Arc<Mutex<Option<Listed>>>,
}

/// Tools, and when they were listed.
type Listed = (Instant, Vec<Tool>);

impl Server {
    pub(crate) fn new(session: Arc<Session>) -> Self {
        Self { session, of_gateway: Arc::default() }
    }

    /// Returns the gateway's tools; those that were listed last while it cannot be reached.
    async fn tools_of_gateway(&self) -> Vec<Tool> {
        let known = self.of_gateway.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((at, tools)) = &known
            && at.elapsed() < KEEP_TOOLS_FOR
        {
            return tools.clone();
        }
        let text = self.session.validity().text;
        match pass_on::tools(&self.session.shared.gateway, &text).await {
            Ok(tools) => {
                let listed = Some((Instant::now(), tools.clone()));
                *self.of_gateway.lock().unwrap_or_else(PoisonError::into_inner) = listed;
                tools
            }
            Err(error) => {
                debug!(error = %broker::Chain(&error), "Tools of the gateway not listed.");
                known.map(|(_, tools)| tools).unwrap_or_default()
            }
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut config = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        config.server_info = Implementation::new("cynode-edge", env!("CARGO_PKG_VERSION"));
        config
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let standing = self.session.standing();
        policy::check_listing(&standing).map_err(|denial| denied(&denial, ""))?;
        let lease = self.session.validity().lease;
        let local = self.session.shared.local.pinned(&lease).await;
        let visible = local.into_iter().filter(|(tool, _)| check_visible(&standing, Some(tool)).is_ok());
        let mut tools: Vec<Tool> = visible.map(|(_, definition)| definition).collect();
        tools.extend(self.tools_of_gateway().await);
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        let mut result = ListToolsResult::with_all_items(tools).with_ttl_ms(0);
        result.cache_scope = Some(CacheScope::Private);
        Ok(result)
    }

    // As at the gateway, there is nothing but tools.
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

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let meta = |name: &str| Some(context.meta.0.0.get(name)?.as_str()?.to_owned());
        let call = Call {
            tool: request.name.into_owned(),
            arguments: request.arguments.unwrap_or_default(),
            idempotency_key: meta(mcp::IDEMPOTENCY_KEY),
            traceparent: meta("traceparent"),
        };
        let name = call.tool.clone();
        match Box::pin(self.session.call(call)).await {
            Answer::Result(result) => Ok((*result).into()),
            Answer::Denied(denial) => Err(denied(&denial, &name)),
            Answer::Rejected { code, message } => {
                Err(ErrorData::new(ErrorCode(i32::try_from(code).unwrap_or(DENIED.0)), message, None))
            }
            Answer::Unavailable(why) => {
                Err(ErrorData::internal_error(why, Some(json!({ "reason": "unavailable" }))))
            }
            Answer::InDoubt => Err(ErrorData::internal_error(
                "The tool was called, but the outcome could not be recorded. It may have had its effect.",
                Some(json!({ "reason": "in_doubt" })),
            )),
        }
    }
}

/// Converts a denial. A tool that the agent may not see is reported like one that does not exist.
fn denied(denial: &policy::Denial, name: &str) -> ErrorData {
    if denial.hides_the_tool() {
        return ErrorData::invalid_params(format!("Unknown tool: {name}"), None);
    }
    ErrorData::new(DENIED, denial.to_string(), Some(json!({ "reason": denial.error_type() })))
}
