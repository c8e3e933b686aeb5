//! An MCP server over HTTP whose responses are written by a test.

use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::State as Shared,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::post,
    serve::ListenerExt,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

type Script = Box<dyn Fn(&Value) -> Value + Send + Sync>;

/// Serves one era, without sessions, until it is dropped.
#[derive(Debug)]
pub struct ScriptedServer {
    address: SocketAddr,
    state: Arc<State>,
    _serving: JoinSet<()>,
}

struct State {
    streamed: bool,
    older: bool,
    script: Script,
    seen: Mutex<Vec<Value>>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl ScriptedServer {
    /// `script` returns the result of each request. If responses are streamed, the messages in its `before`
    /// field are sent first.
    pub async fn start(streamed: bool, script: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        Self::start_as(false, streamed, Box::new(script)).await
    }

    /// Like [`Self::start`], but supports only 2025-11-25.
    pub async fn start_older(
        streamed: bool,
        script: impl Fn(&Value) -> Value + Send + Sync + 'static,
    ) -> Self {
        Self::start_as(true, streamed, Box::new(script)).await
    }

    async fn start_as(older: bool, streamed: bool, script: Script) -> Self {
        let state = Arc::new(State { streamed, older, script, seen: Mutex::default() });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let app = Router::new().route("/mcp", post(answer)).with_state(state.clone());
        let mut serving = JoinSet::new();
        let listener = listener.tap_io(|stream| stream.set_nodelay(true).expect("a TCP socket"));
        serving.spawn(async move { axum::serve(listener, app).await.expect("serving ends with its task") });
        Self { address, state, _serving: serving }
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Returns all received messages.
    pub fn seen(&self) -> Vec<Value> {
        self.state.seen.lock().unwrap().clone()
    }
}

async fn answer(Shared(state): Shared<Arc<State>>, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).expect("JSON");
    state.seen.lock().unwrap().push(request.clone());
    if request.get("method").is_none() || request.get("id").is_none() {
        return StatusCode::ACCEPTED.into_response();
    }
    let mut result = match request["method"].as_str() {
        Some("server/discover") if state.older => {
            let error = json!({"code": -32601, "message": "server/discover"});
            let message = json!({"jsonrpc": "2.0", "id": request["id"], "error": error});
            return ([(CONTENT_TYPE, "application/json")], message.to_string()).into_response();
        }
        Some("initialize") => json!({
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": true}},
            "serverInfo": {"name": "scripted", "version": "1"}, "instructions": "obey",
        }),
        Some("server/discover") => json!({
            "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": true}},
            "serverInfo": {"name": "scripted", "version": "1"}, "instructions": "obey",
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
        }),
        _ => (state.script)(&request),
    };
    let before = result.as_object_mut().and_then(|result| result.remove("before"));
    let message = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
    if !state.streamed {
        return ([(CONTENT_TYPE, "application/json")], message.to_string()).into_response();
    }
    let mut messages = before.and_then(|before| before.as_array().cloned()).unwrap_or_default();
    messages.push(message);
    let events: String = messages.iter().map(|message| format!("data: {message}\n\n")).collect();
    ([(CONTENT_TYPE, "text/event-stream")], events).into_response()
}
