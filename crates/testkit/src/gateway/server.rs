//! The MCP server of the fake gateway.

use std::{borrow::Cow, net::TcpListener, sync::Arc, time::Instant};

use axum::{
    Router,
    extract::{Request, State as Shared},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    serve::ListenerExt,
};
use http::{
    StatusCode,
    header::{AUTHORIZATION, WWW_AUTHENTICATE},
    request::Parts,
};
use mcp::IDEMPOTENCY_KEY;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorCode,
        Implementation, ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerCapabilities,
        ServerConfig, ToolAnnotations,
    },
    service::RequestContext,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};

use super::{Answer, RecordedCall, State, Tool};

const PAGE: usize = 50;
const OLDER: [ProtocolVersion; 2] = [ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_11_25];

pub(super) async fn serve(listener: TcpListener, state: Arc<State>) {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(state.legacy)
        .with_json_response(!state.legacy)
        .with_allowed_hosts(["127.0.0.1"]);
    let served = state.clone();
    let service = StreamableHttpService::new(
        move || Ok(Server(served.clone())),
        Arc::<LocalSessionManager>::default(),
        config,
    );
    let app = Router::new().nest_service("/mcp", service).layer(middleware::from_fn_with_state(state, guard));
    let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
    // Without TCP_NODELAY every response waits for the client's delayed acknowledgement.
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).expect("a TCP socket"));
    axum::serve(listener, app).await.expect("serving ends with the runtime");
}

async fn guard(Shared(state): Shared<Arc<State>>, request: Request, next: Next) -> Response {
    let failing = *state.failing.lock().unwrap();
    if let Some(status) = failing {
        return StatusCode::from_u16(status).expect("a status").into_response();
    }
    let wanted = state.token.lock().unwrap().as_ref().map(|token| format!("Bearer {token}"));
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    if wanted.is_some() && given != wanted.as_deref() {
        return (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")]).into_response();
    }
    next.run(request).await
}

#[derive(Clone, Debug)]
struct Server(Arc<State>);

impl Server {
    fn tool(&self, name: &str) -> Option<&Tool> {
        self.0.tools.iter().find(|tool| tool.name == name)
    }

    /// Returns the answer to a call and when it becomes available. A repeated key gets its earlier answer.
    fn answer(&self, tool: &Tool, mut called: RecordedCall) -> (Answer, Instant) {
        let mut answered = self.0.answered.lock().unwrap();
        let known = called.idempotency_key.as_ref().and_then(|key| answered.get(key).cloned());
        called.repeated = known.is_some();
        let (arguments, key) = (called.arguments.clone(), called.idempotency_key.clone());
        self.0.calls.lock().unwrap().push(called);
        if let Some(known) = known {
            return known;
        }
        let mut answer = (tool.handler)(&arguments);
        let mut there = Instant::now();
        while let Answer::After(time, then) = answer {
            there += time;
            answer = *then;
        }
        if let Some(key) = key {
            answered.insert(key, (answer.clone(), there));
        }
        (answer, there)
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut config = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        config.server_info = Implementation::new("testkit-gateway", "1");
        config
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        if self.0.legacy { Cow::Borrowed(&OLDER) } else { Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS) }
    }

    async fn list_tools(
        &self,
        page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let first = page.and_then(|page| page.cursor).map_or(Ok(0), |cursor| cursor.parse::<usize>());
        let first = first.map_err(|_| ErrorData::invalid_params("not a cursor of ours", None))?;
        let tools = self.0.tools.iter().skip(first).take(PAGE).map(listed).collect();
        let mut result = ListToolsResult::with_all_items(tools).with_ttl_ms(60_000);
        result.cache_scope = Some(CacheScope::Private);
        let next = first + PAGE;
        result.next_cursor = (next < self.0.tools.len()).then(|| next.to_string());
        Ok(result)
    }

    fn get_tool(&self, name: &str) -> Option<rmcp::model::Tool> {
        self.tool(name).map(listed)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = self.tool(&request.name) else {
            return Err(ErrorData::invalid_params(format!("unknown tool {}", request.name), None));
        };
        let meta = |name: &str| Some(context.meta.0.0.get(name)?.as_str()?.to_owned());
        let parts = context.extensions.get::<Parts>();
        let header = |name: &str| Some(parts?.headers.get(name)?.to_str().ok()?.to_owned());
        let (answer, there) = self.answer(
            tool,
            RecordedCall {
                name: tool.name.clone(),
                arguments: request.arguments.unwrap_or_default(),
                idempotency_key: meta(IDEMPOTENCY_KEY),
                traceparent: meta("traceparent"),
                profile: header("cynode-profile"),
                authorization: header(AUTHORIZATION.as_str()),
                at: Instant::now(),
                repeated: false,
                version: context.protocol_version().map(|version| version.to_string()),
                session: header("mcp-session-id"),
            },
        );
        let counter = CancelCounter(Some(self.0.clone()));
        tokio::select! {
            () = tokio::time::sleep(there.saturating_duration_since(Instant::now())) => {}
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("cancelled", None)),
        }
        let result = match answer {
            Answer::Text(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
            Answer::Structured(value) => CallToolResult::structured(value),
            Answer::Error(text) => CallToolResult::error(vec![ContentBlock::text(text)]),
            Answer::Rejected(code, message) => {
                counter.disarm();
                return Err(ErrorData::new(ErrorCode(code), message, None));
            }
            Answer::Hang | Answer::After(..) => {
                context.ct.cancelled().await;
                return Err(ErrorData::internal_error("cancelled", None));
            }
        };
        counter.disarm();
        Ok(result.into())
    }
}

/// Counts a call that is dropped or cancelled before the answer, unless it is disarmed.
struct CancelCounter(Option<Arc<State>>);

impl CancelCounter {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelCounter {
    fn drop(&mut self) {
        if let Some(state) = &self.0 {
            *state.dropped.lock().unwrap() += 1;
        }
    }
}

fn listed(tool: &Tool) -> rmcp::model::Tool {
    let mut listed =
        rmcp::model::Tool::new(tool.name.clone(), tool.description.clone(), Arc::new(tool.schema.clone()));
    if tool.read_only {
        listed.annotations = Some(ToolAnnotations::default().read_only(true));
    }
    listed
}
