//! The MCP server: lists the tools and dispatches calls.

#![expect(deprecated, reason = "the older era has logging")]

use std::time::Duration;

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
        ListToolsResult, LoggingLevel, LoggingMessageNotificationParam, PaginatedRequestParams,
        ProgressNotificationParam, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
        ServerConfig, SetLevelRequestParams, Tool,
    },
    service::RequestContext,
};
use serde_json::json;
use tokio::time::sleep;

use crate::{ask, tools};

/// The delay between notifications, so that they are sent before the result and not together with it.
const STEP_DELAY: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub(crate) struct Server;

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        // rmcp serves empty lists of prompts and resources by default, and a server must declare what it
        // lists.
        let declared = json!({"tools": {}, "logging": {}, "prompts": {}, "resources": {}, "completions": {}});
        let capabilities = serde_json::from_value(declared);
        let mut config = ServerConfig::new(capabilities.expect("capabilities"));
        config.server_info = Implementation::new("mcp-conformance-upstream", "1");
        config
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut result = ListToolsResult::with_all_items(tools::all()).with_ttl_ms(60_000);
        result.cache_scope = Some(CacheScope::Public);
        Ok(result)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::all().into_iter().find(|tool| tool.name == name)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Err(ErrorData::invalid_params("no such resource", Some(json!({"uri": request.uri}))))
    }

    async fn set_level(
        &self,
        _request: SetLevelRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if let Some(result) = tools::answer(&request.name) {
            return Ok(result.into());
        }
        if let Some(response) = ask::answer(&request, context.client_capabilities().as_ref()) {
            return response;
        }
        match request.name.as_ref() {
            "test_tool_with_logging" | "test_logging_tool" => {
                for line in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
                    log(&context, line).await;
                    sleep(STEP_DELAY).await;
                }
            }
            "test_tool_with_progress" => {
                for percent in [0.0, 50.0, 100.0] {
                    progress(&context, percent).await;
                    sleep(STEP_DELAY).await;
                }
            }
            name => return Err(ErrorData::invalid_params(format!("unknown tool {name}"), None)),
        }
        Ok(CallToolResult::success(vec![ContentBlock::text("Done, and told so on the way.")]).into())
    }
}

/// Sends a log message. In the newer era only if the request asks for it.
async fn log(context: &RequestContext<RoleServer>, line: &str) {
    let version = context.protocol_version();
    let newer = version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
    if newer && context.meta.log_level().is_none() {
        return;
    }
    let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(line));
    // Fails if the client has disconnected, which is fine.
    drop(context.peer.notify_logging_message(message).await);
}

async fn progress(context: &RequestContext<RoleServer>, percent: f64) {
    if let Some(token) = context.meta.get_progress_token() {
        let progress = ProgressNotificationParam::new(token, percent).with_total(100.0);
        drop(context.peer.notify_progress(progress).await);
    }
}
