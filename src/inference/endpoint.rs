//! An OpenAI-compatible server, over HTTP and server-sent events.

use std::{sync::Arc, time::Duration};

use async_openai::{
    Client, config::Config, error::OpenAIError, middleware::HttpRequestFactory, types::stream::StreamResponse,
};
use bytes::Bytes;
use futures_util::StreamExt;
use mcp::Token;
use reqwest::{
    Response, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    Hint, Reply, Request, Tokens,
    assembly::{Assembly, Pushed},
    request::{Fault, Nature},
    service::Listener,
};
use crate::context::tokens_in;
use subjects::Message;

const CONNECT_WITHIN: Duration = Duration::from_secs(10);
const PROBE_WITHIN: Duration = Duration::from_secs(5);
/// Of an error page no more is read than can be shown.
const MOST_ERROR_BYTES: usize = 4 * 1_024;
const MOST_ERROR_CHARS: usize = 300;
/// The frame of a streamed token is many times its size.
const FRAME_BYTES_PER_BYTE: usize = 256;

/// Where to ask, and for which models.
#[derive(Debug)]
pub(crate) struct Endpoint {
    name: String,
    client: Client<Address>,
    transport: Transport,
    models: Models,
    /// The longest silence.
    silence: Duration,
    most_bytes: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Models {
    pub(crate) usual: String,
    pub(crate) fast: Option<String>,
    pub(crate) strong: Option<String>,
}

impl Models {
    fn for_hint(&self, hint: Hint) -> &str {
        let wanted = match hint {
            Hint::Usual => None,
            Hint::Fast => self.fast.as_deref(),
            Hint::Strong => self.strong.as_deref(),
        };
        wanted.unwrap_or(&self.usual)
    }
}

/// The base URL, as the client wants it. Its own configuration would read provider keys from the environment.
#[derive(Debug)]
struct Address {
    base_url: String,
    no_key: secrecy::SecretString,
}

impl Config for Address {
    fn headers(&self) -> HeaderMap {
        HeaderMap::new()
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base_url)
    }

    fn query(&self) -> Vec<(&str, &str)> {
        Vec::new()
    }

    fn api_base(&self) -> &str {
        &self.base_url
    }

    fn api_key(&self) -> &secrecy::SecretString {
        &self.no_key
    }
}

impl Endpoint {
    pub(crate) fn new(
        name: &str,
        base_url: &str,
        token: Option<Token>,
        models: Models,
        silence: Duration,
        most_bytes: usize,
    ) -> Result<Self, reqwest::Error> {
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_WITHIN)
            // A redirect could carry the token to someone else.
            .redirect(reqwest::redirect::Policy::none())
            // Prompts and tokens go where the configuration says, and nowhere else.
            .no_proxy()
            .tcp_nodelay(true)
            .build()?;
        let address = Address {
            base_url: base_url.trim_end_matches('/').to_owned(),
            no_key: secrecy::SecretString::default(),
        };
        let transport = Transport { http: http.clone(), token: token.map(Arc::new) };
        let most_stream_bytes = most_bytes.saturating_mul(FRAME_BYTES_PER_BYTE);
        // In place of the client's own: that one hides `Retry-After` and reads bodies without a limit.
        let sending = transport.clone();
        let service = tower::service_fn(move |request: HttpRequestFactory| {
            let sending = sending.clone();
            async move { accepted(sending.send(request.build().await?).await?, most_stream_bytes).await }
        });
        let client = Client::build(http, address).with_http_service(service);
        Ok(Self { name: name.to_owned(), client, transport, models, silence, most_bytes })
    }

    pub(crate) fn label(&self, hint: Hint) -> String {
        format!("{}/{}", self.name, self.models.for_hint(hint))
    }

    /// One try. What was told to `listener` before a fault is void.
    pub(super) async fn ask(&self, request: &Request<'_>, listener: &dyn Listener) -> Result<Reply, Fault> {
        let body = body_of(request, self.models.for_hint(request.hint));
        if request.shape.is_none() {
            return self.put(body, request, listener).await;
        }
        match self.put(body.clone(), request, listener).await {
            // Perhaps a server that knows no forms. The form stands in the question too.
            Err(Fault::Final(_)) => {
                let mut plain = body;
                plain.as_object_mut().and_then(|body| body.remove("response_format"));
                self.put(plain, request, listener).await
            }
            answered => answered,
        }
    }

    async fn put(&self, body: Value, request: &Request<'_>, listener: &dyn Listener) -> Result<Reply, Fault> {
        let silence = self.silence;
        let chat = self.client.chat();
        let asked = timeout(silence, chat.create_stream_byot(body));
        let mut stream: StreamResponse<Value> = match asked.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(fault(error)),
            Err(_) => return Err(silent(silence)),
        };
        let mut assembly = Assembly::new(self.most_bytes);
        loop {
            match timeout(silence, stream.next()).await {
                Ok(Some(Ok(chunk))) => match assembly.push(&chunk) {
                    Ok(Pushed::Text(added)) => {
                        let content = assembly.content();
                        listener.said(&content[content.len() - added..]);
                    }
                    Ok(Pushed::Nothing) => {}
                    Ok(Pushed::Enough) => break,
                    Err(why) => return Err(stumble(&short(&why))),
                },
                Ok(Some(Err(error))) => return Err(fault(error)),
                Ok(None) => break,
                Err(_) => return Err(silent(silence)),
            }
        }
        let whole = assembly.finish().ok_or_else(|| stumble("the stream broke off"))?;
        if whole.content.trim().is_empty() && whole.calls.is_empty() {
            return Err(stumble("an empty reply"));
        }
        let tokens = whole.tokens.unwrap_or_else(|| counted(request, &whole.content));
        Ok(Reply {
            content: whole.content,
            calls: whole.calls,
            finish: whole.finish,
            tokens,
            model: self.label(request.hint),
            tries: 1,
            cost_usd: None,
        })
    }

    /// Whether someone is there at all. Any answer but a server's own failure will do.
    pub(crate) async fn is_there(&self) -> bool {
        let models =
            self.transport.http.get(self.client.config().url("/models")).timeout(PROBE_WITHIN).build();
        let Ok(request) = models else { return false };
        self.transport.send(request).await.is_ok_and(|response| !response.status().is_server_error())
    }
}

/// Requests, with the token as it is now.
#[derive(Clone, Debug)]
struct Transport {
    http: reqwest::Client,
    token: Option<Arc<Token>>,
}

impl Transport {
    async fn send(&self, mut request: reqwest::Request) -> Result<Response, OpenAIError> {
        if let Some(token) = &self.token {
            let header = token.header().await.map_err(|error| OpenAIError::Boxed(Box::new(error)))?;
            request.headers_mut().insert(AUTHORIZATION, header);
        }
        self.http.execute(request).await.map_err(OpenAIError::Reqwest)
    }
}

/// What goes over the wire.
pub(crate) fn body_of(request: &Request<'_>, model: &str) -> Value {
    let system = json!({ "role": "system", "content": request.system.text() });
    let mut body = json!({
        "model": model,
        "messages": [system],
        "temperature": request.temperature,
        "stream": true,
        "stream_options": { "include_usage": true },
    });
    if let Some(messages) = body["messages"].as_array_mut() {
        messages.extend(in_turns(request));
    }
    if let Some(most) = request.max_tokens {
        body["max_tokens"] = json!(most);
    }
    if !request.tools.is_empty() {
        let tools =
            request.tools.iter().map(|function| json!({ "type": "function", "function": **function }));
        body["tools"] = tools.collect();
        if !request.may_call {
            body["tool_choice"] = json!("none");
        }
    }
    if let Some(shape) = &request.shape {
        body["response_format"] = json!({
            "type": "json_schema",
            "json_schema": { "name": shape.name, "strict": true, "schema": &*shape.schema },
        });
    }
    body
}

/// Many servers want user and assistant to take turns, the user first: neighbours of one role become one message.
fn in_turns(request: &Request<'_>) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::with_capacity(request.messages.len() + 1);
    // Of the plain messages of one role that stand side by side.
    let mut plain: Option<(&str, String)> = None;
    if matches!(request.messages.first(), Some(Message::Assistant { .. })) {
        plain = Some(("user", "(The conversation so far.)".to_owned()));
    }
    for next in request.messages {
        let (role, text) = match next {
            Message::User { content } => ("user", content),
            Message::Assistant { content, calls } if calls.is_empty() => ("assistant", content),
            Message::Assistant { .. } | Message::Tool { .. } => {
                out.extend(plain.take().map(|(role, content)| json!({ "role": role, "content": content })));
                out.push(message(next));
                continue;
            }
        };
        match &mut plain {
            Some((last, content)) if *last == role => {
                content.push_str("\n\n");
                content.push_str(text);
            }
            _ => {
                let done = plain.replace((role, text.clone()));
                out.extend(done.map(|(role, content)| json!({ "role": role, "content": content })));
            }
        }
    }
    if let (Some((_, content)), Some(shape)) = (&mut plain, &request.shape) {
        // In the question too: not every server holds a model to a form, and some do not know what one is.
        let form = "Answer with one JSON object that fits this JSON Schema, and nothing else:";
        content.push_str(&format!("\n\n{form}\n{}", shape.schema));
    }
    out.extend(plain.map(|(role, content)| json!({ "role": role, "content": content })));
    out
}

fn message(message: &Message) -> Value {
    match message {
        Message::User { content } => json!({ "role": "user", "content": content }),
        Message::Assistant { content, calls } if calls.is_empty() => {
            json!({ "role": "assistant", "content": content })
        }
        Message::Assistant { content, calls } => {
            let calls: Vec<Value> = calls
                .iter()
                .map(|call| {
                    let function = json!({ "name": call.name, "arguments": call.arguments });
                    json!({ "id": call.id, "type": "function", "function": function })
                })
                .collect();
            let content = if content.is_empty() { Value::Null } else { json!(content) };
            json!({ "role": "assistant", "content": content, "tool_calls": calls })
        }
        Message::Tool { call_id, content, .. } => {
            json!({ "role": "tool", "tool_call_id": call_id, "content": content })
        }
    }
}

/// A response whose body can be read as events, and not without end.
async fn accepted(response: Response, most_bytes: usize) -> Result<Response, OpenAIError> {
    if !response.status().is_success() {
        return Err(OpenAIError::Boxed(Box::new(turned_down(response).await)));
    }
    let streams = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let status = response.status();
    let mut left = most_bytes;
    let limited = response.bytes_stream().map(move |piece| {
        let piece = piece.map_err(std::io::Error::other)?;
        left = left.checked_sub(piece.len()).ok_or_else(|| std::io::Error::other("the reply has no end"))?;
        Ok::<Bytes, std::io::Error>(piece)
    });
    let body = if streams { reqwest::Body::wrap_stream(limited) } else { as_one_event(limited).await? };
    let mut made = http::Response::new(body);
    *made.status_mut() = status;
    Ok(made.into())
}

/// A server that does not stream sends the whole reply as one JSON document.
async fn as_one_event(
    pieces: impl futures_util::Stream<Item = Result<Bytes, std::io::Error>>,
) -> Result<reqwest::Body, OpenAIError> {
    let mut pieces = std::pin::pin!(pieces);
    let mut body = Vec::new();
    while let Some(piece) = pieces.next().await {
        body.extend_from_slice(&piece.map_err(|error| OpenAIError::Boxed(Box::new(error)))?);
    }
    let reply: Value = serde_json::from_slice(&body).map_err(|error| OpenAIError::Boxed(Box::new(error)))?;
    Ok(format!("data: {reply}\n\ndata: [DONE]\n\n").into())
}

/// What the server said instead of an answer.
#[derive(Debug, thiserror::Error)]
#[error("HTTP {status}: {message}")]
struct TurnedDown {
    status: StatusCode,
    after: Option<Duration>,
    message: String,
}

async fn turned_down(response: Response) -> TurnedDown {
    let status = response.status();
    let after = response.headers().get(RETRY_AFTER).and_then(wanted_wait);
    let mut body = Vec::new();
    let mut pieces = response.bytes_stream();
    while let Some(Ok(piece)) = pieces.next().await {
        body.extend_from_slice(&piece);
        if body.len() > MOST_ERROR_BYTES {
            break;
        }
    }
    let said: Option<Value> = serde_json::from_slice(&body).ok();
    let message = said
        .as_ref()
        .and_then(|said| said.pointer("/error/message").or_else(|| said.get("error")).and_then(Value::as_str))
        .map_or_else(|| String::from_utf8_lossy(&body).into_owned(), str::to_owned);
    TurnedDown { status, after, message: short(&message) }
}

/// In seconds. The other form, a date, would need this clock to agree with the server's; it gets the usual wait.
fn wanted_wait(value: &HeaderValue) -> Option<Duration> {
    let seconds: f64 = value.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn fault(error: OpenAIError) -> Fault {
    if let OpenAIError::Boxed(boxed) = &error
        && let Some(turned_down) = boxed.downcast_ref::<TurnedDown>()
    {
        let why = turned_down.to_string();
        let passes = turned_down.status.is_server_error()
            || matches!(turned_down.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
        let is_outage = turned_down.status.is_server_error();
        let nature = if is_outage { Nature::Outage } else { Nature::Stumble };
        let after = turned_down.after;
        return if passes { Fault::Passing { why, after, nature } } else { Fault::Final(why) };
    }
    match error {
        // Its own words would quote the body.
        OpenAIError::JSONDeserialize(..) => stumble("an event of the stream is not JSON"),
        // An address of ours is nothing for a user's eyes.
        OpenAIError::Reqwest(error) if error.is_connect() => Fault::Passing {
            why: short(&broker::Chain(&error.without_url()).to_string()),
            after: None,
            nature: Nature::Outage,
        },
        OpenAIError::Reqwest(error) => stumble(&short(&broker::Chain(&error.without_url()).to_string())),
        other => stumble(&short(&broker::Chain(&other).to_string())),
    }
}

fn stumble(why: &str) -> Fault {
    Fault::Passing { why: why.to_owned(), after: None, nature: Nature::Stumble }
}

fn silent(limit: Duration) -> Fault {
    stumble(&format!("silent for {}", humantime::format_duration(limit)))
}

/// One line, without control characters, of a length that people read.
fn short(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ").chars().take(MOST_ERROR_CHARS).collect()
}

/// For servers that do not count.
fn counted(request: &Request<'_>, content: &str) -> Tokens {
    let asked = request.messages.iter().map(|message| tokens_in(message.content())).sum::<usize>();
    Tokens { prompt: (request.system.tokens() + asked) as u64, completion: tokens_in(content) as u64 }
}
