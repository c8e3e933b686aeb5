//! A fake model server: implements the OpenAI chat protocol over HTTP and server-sent events, and follows the
//! script of a test, including misbehaviour.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Response, StatusCode},
    routing::{get, post},
    serve::ListenerExt,
};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

/// How the server answers one request.
#[derive(Clone, Debug)]
pub enum Script {
    /// Streams this text, a few bytes at a time.
    Say(String),
    /// Calls tools, given by name and arguments, streamed in fragments of a few bytes.
    Call(Vec<(String, String)>),
    /// Streams this text and then breaks the connection.
    Cut(String),
    /// Returns an HTTP status, optionally with `Retry-After`.
    Status(u16, Option<String>),
    /// Returns an HTTP status with an error message.
    Refuse(u16, String),
    /// Accepts the request and never answers.
    Hang,
    /// Streams this text and then sends nothing more.
    HangAfter(String),
    /// Streams this text and finishes with the reason `length`.
    TooLong(String),
    /// Answers with one JSON document instead of a stream.
    Whole(String),
    /// Waits, then follows another script.
    After(Duration, Box<Script>),
    /// Waits until more than `turn` turns are answered, then follows another script.
    Held { turn: usize, answered: watch::Receiver<usize>, then: Box<Script> },
    /// Streams exactly these events, then `[DONE]`.
    Raw(Vec<String>),
    /// Streams exactly these events and closes the connection.
    Closed(Vec<String>),
    /// Streams exactly these events and then breaks the connection.
    Broken(Vec<String>),
    /// Streams exactly these events and then sends nothing more.
    Stalled(Vec<String>),
    /// Answers with exactly this document.
    Json(Value),
    /// Streams empty deltas at this interval, forever.
    Drip(Duration),
}

impl Script {
    pub fn say(text: &str) -> Self {
        Self::Say(text.to_owned())
    }

    pub fn call(name: &str, arguments: &Value) -> Self {
        Self::Call(vec![(name.to_owned(), arguments.to_string())])
    }
}

/// A request that the server received.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    pub body: Value,
    pub authorization: Option<String>,
    pub traceparent: Option<String>,
    /// The header `Cynode-Lease`.
    pub lease: Option<String>,
    /// All headers, as one text.
    pub headers: String,
    pub at: Instant,
}

impl ModelRequest {
    /// Returns the name of the requested structured output, or `None` for a turn of a conversation.
    pub fn form(&self) -> Option<&str> {
        self.body.pointer("/response_format/json_schema/name").and_then(Value::as_str)
    }

    pub fn system(&self) -> &str {
        self.body.pointer("/messages/0/content").and_then(Value::as_str).unwrap_or_default()
    }

    pub fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Returns the names of the offered tools.
    pub fn offered(&self) -> Vec<&str> {
        let tools = self.body["tools"].as_array().map_or(&[][..], Vec::as_slice);
        tools.iter().filter_map(|tool| tool.pointer("/function/name").and_then(Value::as_str)).collect()
    }
}

type Responder = dyn Fn(&ModelRequest) -> Script + Send + Sync;

/// A model server. Stopped when it is dropped.
pub struct Model {
    address: SocketAddr,
    state: Arc<Inner>,
    serving: JoinHandle<()>,
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Model").field("address", &self.address).finish_non_exhaustive()
    }
}

struct Inner {
    turns: Box<Responder>,
    structured: Box<Responder>,
    asked: Mutex<Vec<ModelRequest>>,
    failing: Mutex<Option<u16>>,
    /// What the server says of its model, if it does.
    description: Mutex<Option<Value>>,
}

impl Model {
    /// Answers the turns of conversations in this order and repeats the last one. Structured outputs are
    /// answered with [`typical`].
    pub async fn start(turns: impl IntoIterator<Item = Script>) -> Self {
        Self::start_with_structured(turns, |asked| {
            Script::Say(typical(asked.form().unwrap_or_default()).to_string())
        })
        .await
    }

    /// Like [`Self::start`], but structured outputs are answered by `structured`.
    pub async fn start_with_structured(
        turns: impl IntoIterator<Item = Script>,
        structured: impl Fn(&ModelRequest) -> Script + Send + Sync + 'static,
    ) -> Self {
        let turns: Mutex<VecDeque<Script>> = Mutex::new(turns.into_iter().collect());
        let next = move |_: &ModelRequest| {
            let mut turns = turns.lock().expect("no panic while answering");
            let next = if turns.len() > 1 { turns.pop_front() } else { turns.front().cloned() };
            next.expect("the test wrote a turn")
        };
        Self::start_answering(next, structured).await
    }

    /// Answers turns by `turns` and structured outputs by `structured`, each given the request.
    pub async fn start_answering(
        turns: impl Fn(&ModelRequest) -> Script + Send + Sync + 'static,
        structured: impl Fn(&ModelRequest) -> Script + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(Inner {
            turns: Box::new(turns),
            structured: Box::new(structured),
            asked: Mutex::default(),
            failing: Mutex::default(),
            description: Mutex::default(),
        });
        let app = Router::new()
            .route("/v1/chat/completions", post(complete))
            .route("/v1/responses", post(complete))
            .route("/v1/models", get(models))
            .with_state(Arc::clone(&state));
        let listener = listener.tap_io(|stream| stream.set_nodelay(true).expect("a TCP socket"));
        let serving = async move { axum::serve(listener, app).await.expect("it serves") };
        #[expect(clippy::disallowed_methods, reason = "it is aborted when the server is dropped")]
        let serving = tokio::spawn(serving);
        Self { address, state, serving }
    }

    /// Answers every request with this status from now on; `None` ends that.
    pub fn fail_with(&self, status: Option<u16>) {
        *self.state.failing.lock().expect("no panic while failing") = status;
    }

    /// From now on describes its one model with this entry of `/v1/models`.
    pub fn describe_as(&self, entry: Value) {
        *self.state.description.lock().expect("no panic while describing") = Some(entry);
    }

    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns all requests so far.
    pub fn asked(&self) -> Vec<ModelRequest> {
        self.state.asked.lock().expect("no panic while asking").clone()
    }

    /// Returns the requests that are turns of conversations.
    pub fn turns(&self) -> Vec<ModelRequest> {
        self.asked().into_iter().filter(|asked| asked.form().is_none()).collect()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Returns a typical answer for each structured output that the worker requests.
pub fn typical(form: &str) -> Value {
    match form {
        "assessment" => json!({
            "type": "feature_request", "scope": "medium", "estimated_files": 3, "components": ["docs"],
            "reasons": ["several pages change"],
        }),
        "plan" => json!({
            "summary": "Build, then publish.",
            "steps": [
                { "name": "build-docs", "description": "Build the pages.",
                  "acceptance_criteria": ["The build passes"], "depends_on": [] },
                { "name": "publish-docs", "description": "Publish the pages.",
                  "acceptance_criteria": ["The site shows them"], "depends_on": ["build-docs"] },
            ],
            "question": null,
        }),
        "scheduled_task" => json!({
            "name": "check-links", "description": "Check the links of the site.",
            "acceptance_criteria": ["Every link answers"],
        }),
        "judgement" => json!({
            "verdict": "met", "severity": "info", "evidence": "published in 212 s",
            "location": "logs/deploy.txt",
            "recommended_action": null,
        }),
        "steps" => json!({
            "summary": "Build, then look.",
            "steps": [
                { "name": "build", "description": "Build the pages.", "kind": "job", "script": "make site",
                  "files": [{ "path": "Makefile", "text": "site:\n\ttrue\n" }], "outputs": ["site/**"],
                  "network": [], "seconds": 60, "criteria": ["The build passes"], "depends_on": [],
                  "needs_approval": false },
                { "name": "look", "description": "Look at the pages.", "kind": "manager", "script": null,
                  "files": [], "outputs": [], "network": [], "seconds": null, "criteria": [],
                  "depends_on": ["build"], "needs_approval": true },
            ],
            "question": null,
        }),
        "review" => json!({
            "decision": "pass", "reasons": ["Every criterion is met."], "issues": [], "step": null,
            "question": null,
        }),
        "check" => json!({ "sum": 5 }),
        other => panic!("no typical answer for {other}"),
    }
}

async fn models(State(state): State<Arc<Inner>>) -> Response<Body> {
    let failing = *state.failing.lock().expect("no panic while failing");
    match failing {
        Some(status) => play(Script::Status(status, None)).await,
        None => {
            let described = state.description.lock().expect("no panic while describing").clone();
            let body = json!({ "object": "list", "data": described.into_iter().collect::<Vec<_>>() });
            Response::new(Body::from(body.to_string()))
        }
    }
}

async fn complete(State(state): State<Arc<Inner>>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    let body: Value = serde_json::from_slice(&body).expect("the worker sends JSON");
    let header = |name| headers.get(name).map(|value| value.to_str().expect("text").to_owned());
    let (authorization, traceparent) = (header("authorization"), header("traceparent"));
    let lease = header("cynode-lease");
    let headers = format!("{headers:?}");
    let asked = ModelRequest { body, authorization, traceparent, lease, headers, at: Instant::now() };
    state.asked.lock().expect("no panic while asking").push(asked.clone());
    if let Err(why) = well_formed(asked.messages()) {
        let body = json!({ "error": { "message": why } });
        return Response::builder().status(400).body(Body::from(body.to_string())).expect("a response");
    }
    let failing = *state.failing.lock().expect("no panic while failing");
    if let Some(status) = failing {
        return play(Script::Status(status, None)).await;
    }
    let script = if asked.form().is_some() { (state.structured)(&asked) } else { (state.turns)(&asked) };
    play(script).await
}

/// Checks what strict servers require of a conversation: turns alternate, calls have arguments, results have
/// calls.
fn well_formed(messages: &[Value]) -> Result<(), String> {
    let mut last = "system";
    let mut open: Vec<&str> = Vec::new();
    for message in messages.iter().skip(1) {
        let role = message["role"].as_str().unwrap_or_default();
        let is_expected = match last {
            "system" => role == "user",
            "user" => role == "assistant",
            "assistant" if !open.is_empty() => role == "tool",
            "assistant" => role == "user",
            _ if !open.is_empty() => role == "tool",
            _ => role == "assistant" || role == "user",
        };
        if !is_expected {
            return Err(format!("{role} after {last}"));
        }
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let before = open.len();
            open.retain(|known| *known != id);
            if open.len() + 1 != before {
                return Err(format!("a result for {id}, which is not open"));
            }
        }
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            open.push(call["id"].as_str().unwrap_or_default());
            let arguments = call.pointer("/function/arguments").and_then(Value::as_str).unwrap_or_default();
            if !serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object()) {
                return Err(format!("arguments that are no object: {arguments}"));
            }
        }
        last = role;
    }
    Ok(())
}

async fn play(script: Script) -> Response<Body> {
    match script {
        Script::After(wait, then) => {
            tokio::time::sleep(wait).await;
            Box::pin(play(*then)).await
        }
        Script::Held { turn, mut answered, then } => {
            // An error means that the test has ended.
            answered.wait_for(|answered| *answered > turn).await.ok();
            Box::pin(play(*then)).await
        }
        Script::Status(status, retry_after) => {
            let mut response = Response::builder().status(StatusCode::from_u16(status).expect("a status"));
            if let Some(after) = retry_after {
                response = response.header("retry-after", after);
            }
            response.body(Body::from(r#"{"error":{"message":"as scripted"}}"#)).expect("a response")
        }
        Script::Refuse(status, words) => {
            let body = json!({ "error": { "message": words } }).to_string();
            let status = StatusCode::from_u16(status).expect("a status");
            Response::builder().status(status).body(Body::from(body)).expect("a response")
        }
        Script::Hang => std::future::pending().await,
        Script::Whole(text) => {
            let body = json!({
                "choices": [{ "message": { "role": "assistant", "content": text }, "finish_reason": "stop" }],
                "usage": { "prompt_tokens": 11, "completion_tokens": 5 },
            });
            Response::builder()
                .header("content-type", "application/json")
                .body(Body::from(body.to_string()))
                .expect("a response")
        }
        Script::Say(text) => events(text_chunks(&text), end_chunks("stop"), End::Clean),
        Script::TooLong(text) => events(text_chunks(&text), end_chunks("length"), End::Clean),
        Script::Cut(text) => events(text_chunks(&text), Vec::new(), End::Cut),
        Script::HangAfter(text) => events(text_chunks(&text), Vec::new(), End::Never),
        Script::Drip(every) => {
            let drops = stream::unfold((), move |()| async move {
                tokio::time::sleep(every).await;
                let empty = chunk(&json!({ "content": "" }), None);
                Some((Ok::<_, std::io::Error>(Bytes::from(format!("data: {empty}\n\n"))), ()))
            });
            let response = Response::builder().header("content-type", "text/event-stream");
            response.body(Body::from_stream(drops)).expect("a response")
        }
        Script::Json(document) => Response::builder()
            .header("content-type", "application/json")
            .body(Body::from(document.to_string()))
            .expect("a response"),
        Script::Raw(raw) => events(raw, Vec::new(), End::Clean),
        Script::Closed(raw) => events(raw, Vec::new(), End::Closed),
        Script::Broken(raw) => events(raw, Vec::new(), End::Cut),
        Script::Stalled(raw) => events(raw, Vec::new(), End::Never),
        Script::Call(calls) => events(call_chunks(&calls), end_chunks("tool_calls"), End::Clean),
    }
}

#[derive(Clone, Copy)]
enum End {
    Clean,
    /// The response ends without `[DONE]`.
    Closed,
    Cut,
    Never,
}

fn events(mut begin: Vec<String>, rest: Vec<String>, end: End) -> Response<Body> {
    begin.extend(rest);
    if matches!(end, End::Clean) {
        begin.push("[DONE]".to_owned());
    }
    let events =
        begin.into_iter().map(|event| Ok::<_, std::io::Error>(Bytes::from(format!("data: {event}\n\n"))));
    // Yields between events, so that they are sent one by one.
    let events = stream::iter(events).then(async |event| {
        tokio::task::yield_now().await;
        event
    });
    let body = match end {
        End::Clean | End::Closed => Body::from_stream(events),
        End::Cut => {
            // Waits until the text is sent, since the server would discard it together with the connection.
            let cut = stream::once(async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Err(std::io::Error::other("cut, as scripted"))
            });
            Body::from_stream(events.chain(cut))
        }
        End::Never => Body::from_stream(events.chain(stream::pending())),
    };
    Response::builder().header("content-type", "text/event-stream").body(body).expect("a response")
}

fn chunk(delta: &Value, finish: Option<&str>) -> String {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "scripted",
        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }],
    })
    .to_string()
}

fn text_chunks(text: &str) -> Vec<String> {
    let mut out = vec![chunk(&json!({ "role": "assistant", "content": null }), None)];
    out.extend(pieces(text, 16).map(|piece| chunk(&json!({ "content": piece }), None)));
    out
}

/// Returns the chunks of tool calls: first the names, then the arguments in pieces of three characters,
/// interleaved.
fn call_chunks(calls: &[(String, String)]) -> Vec<String> {
    let fragment = |index: usize, id: Option<String>, name: Option<&str>, arguments: &str| {
        let mut call = json!({ "index": index, "function": { "arguments": arguments } });
        if let (Some(id), Some(name)) = (id, name) {
            call["id"] = json!(id);
            call["type"] = json!("function");
            call["function"]["name"] = json!(name);
        }
        chunk(&json!({ "tool_calls": [call] }), None)
    };
    let mut out = vec![chunk(&json!({ "role": "assistant", "content": null }), None)];
    for (index, (name, _)) in calls.iter().enumerate() {
        out.push(fragment(index, Some(format!("call_{index}")), Some(name), ""));
    }
    let mut left: Vec<VecDeque<String>> =
        calls.iter().map(|(_, arguments)| pieces(arguments, 3).collect()).collect();
    while left.iter().any(|pieces| !pieces.is_empty()) {
        for (index, pieces) in left.iter_mut().enumerate() {
            if let Some(piece) = pieces.pop_front() {
                out.push(fragment(index, None, None, &piece));
            }
        }
    }
    out
}

fn end_chunks(reason: &str) -> Vec<String> {
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 100, "completion_tokens": 10 } });
    vec![chunk(&json!({}), Some(reason)), usage.to_string()]
}

fn pieces(text: &str, chars: usize) -> impl Iterator<Item = String> {
    let all: Vec<char> = text.chars().collect();
    let pieces: Vec<String> = all.chunks(chars).map(|piece| piece.iter().collect()).collect();
    pieces.into_iter()
}
