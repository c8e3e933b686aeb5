//! Errands for benchmarks: the model answers immediately and the tool only counts. Both cost as little as
//! possible, so that the benchmark measures the cost of running errands.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Router, extract::State, http::header::CONTENT_TYPE, response::IntoResponse, routing::post,
    serve::ListenerExt,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

use super::{CREATE, ERRAND, Errands, effect};
use crate::{Nats, Worker, WorkerBuilder};

/// A model server and a tool server for any number of errands.
#[derive(Debug)]
pub struct QuickErrands {
    address: SocketAddr,
    effects: Effects,
    serving: JoinHandle<()>,
}

type Effects = Arc<Mutex<BTreeMap<String, usize>>>;

impl QuickErrands {
    pub async fn start() -> Self {
        let effects = Effects::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let listener = listener.tap_io(|stream| stream.set_nodelay(true).expect("a TCP socket"));
        let app = Router::new()
            .route(
                "/v1/chat/completions",
                post(async |asked: String| ([(CONTENT_TYPE, "text/event-stream")], turn(&asked))),
            )
            .route("/mcp", post(call))
            .with_state(Arc::clone(&effects));
        let serving = async move { axum::serve(listener, app).await.expect("it serves") };
        #[expect(clippy::disallowed_methods, reason = "it is aborted when this is dropped")]
        let serving = tokio::spawn(serving);
        Self { address, effects, serving }
    }

    pub fn model_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub fn tools_url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Returns the configuration of a worker that can run errands.
    pub fn worker(&self, nats: &Nats) -> WorkerBuilder {
        Worker::manager(nats)
            .set("inference.base_url", self.model_url())
            .set("inference.model", "scripted")
            .set("gateway.url", self.tools_url())
            .set("agent.assess_input", "false")
    }

    /// Returns how often each effect of any errand occurred.
    pub fn effects(&self) -> BTreeMap<String, usize> {
        self.effects.lock().expect("no panic while counting").clone()
    }
}

impl Drop for QuickErrands {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Returns the model's reply in as few events as the protocol allows. Only searches the request for the name
/// of the errand and the number of earlier replies, instead of parsing it.
fn turn(asked: &str) -> String {
    let (_, name) = asked.split_once(&format!("tasks of {ERRAND} ")).expect("an errand");
    let name = name.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).next().expect("a name");
    let create = |number: usize| {
        json!({
            "index": number % 2, "id": format!("call_{number}"), "type": "function",
            "function": { "name": CREATE, "arguments": json!({ "title": effect(name, number) }).to_string() },
        })
    };
    let (delta, finish) = match asked.matches(r#""role":"assistant""#).count() {
        0 => (json!({ "tool_calls": [create(0), create(1)] }), "tool_calls"),
        1 => (json!({ "tool_calls": [create(2), create(3)] }), "tool_calls"),
        _ => (json!({ "content": Errands::answer(name) }), "stop"),
    };
    let content = json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] });
    let usage = json!({ "prompt_tokens": 100, "completion_tokens": 10 });
    let ended = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": finish }], "usage": usage });
    format!("data: {content}\n\ndata: {ended}\n\ndata: [DONE]\n\n")
}

/// The parts of a newer-era request that matter here.
#[derive(Deserialize)]
struct Request {
    id: Value,
    method: String,
    #[serde(default)]
    params: Params,
}

#[derive(Default, Deserialize)]
struct Params {
    #[serde(default)]
    arguments: Arguments,
}

#[derive(Default, Deserialize)]
struct Arguments {
    title: Option<String>,
}

async fn call(State(effects): State<Effects>, body: String) -> impl IntoResponse {
    let request: Request = serde_json::from_str(&body).expect("a request");
    let result = match request.method.as_str() {
        "server/discover" => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} },
            "ttlMs": 0, "cacheScope": "private",
            "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "quick errands", "version": "1" } },
        }),
        "tools/list" => {
            let schema = json!({
                "type": "object", "properties": { "title": { "type": "string" } }, "required": ["title"],
            });
            let tool = json!({
                "name": CREATE.replace("__", "."), "description": "Creates a task.", "inputSchema": schema,
            });
            json!({ "resultType": "complete", "tools": [tool], "ttlMs": 0, "cacheScope": "private" })
        }
        "tools/call" => {
            let title = request.params.arguments.title.expect("a title");
            *effects.lock().expect("no panic while counting").entry(title).or_default() += 1;
            json!({ "resultType": "complete", "content": [{ "type": "text", "text": "created" }] })
        }
        other => panic!("unexpected method {other}"),
    };
    let answer = json!({ "jsonrpc": "2.0", "id": request.id, "result": result });
    ([(CONTENT_TYPE, "application/json")], answer.to_string())
}
