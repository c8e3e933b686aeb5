//! A client of OpenAI's API that shows everything that comes over the wire.

use std::{pin::Pin, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use reqwest::{Method, header::HeaderMap, redirect};
use serde_json::{Value, json};

/// Sends requests with one API key.
#[derive(Clone, Debug)]
pub struct ChatClient {
    url: String,
    key: String,
    http: reqwest::Client,
    headers: Vec<(String, String)>,
}

/// A response that came as a whole.
#[derive(Clone, Debug)]
pub struct ChatResponse {
    pub status: u16,
    pub headers: HeaderMap,
    /// The body as JSON, or as text.
    pub body: Value,
}

impl ChatClient {
    /// `url` is the base URL, with `/v1`.
    pub fn new(url: &str, key: &str) -> Self {
        // Fails if another thread installed a provider first, which is fine.
        drop(rustls::crypto::ring::default_provider().install_default());
        let http = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .build()
            .expect("an HTTP client");
        Self { url: url.to_owned(), key: key.to_owned(), http, headers: Vec::new() }
    }

    /// Sends this header with every request.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends a request to a path below `/v1`.
    pub async fn send(&self, method: &str, path: &str, body: Option<Value>) -> ChatResponse {
        let body = body.map(|body| body.to_string().into_bytes());
        self.send_bytes(method, path, body).await.expect("the server answers")
    }

    /// Like [`Self::send`], with any bytes. Fails if the connection breaks.
    pub async fn send_bytes(
        &self,
        method: &str,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<ChatResponse, reqwest::Error> {
        let response = self.request(method, path, body).send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await?;
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(ChatResponse { status, headers, body })
    }

    /// Asks the project manager one thing and waits for the answer.
    pub async fn ask(&self, text: &str) -> ChatResponse {
        self.send("POST", "/chat/completions", Some(chat_body(&[("user", text)]))).await
    }

    /// Opens a stream. Fails if the connection breaks.
    pub async fn open(&self, path: &str, body: &Value) -> Result<ChatStream, reqwest::Error> {
        let request = self.request("POST", path, Some(body.to_string().into_bytes()));
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Ok(ChatStream { status, headers, bytes: Box::pin(response.bytes_stream()), buffer: BytesMut::new() })
    }

    /// Opens a stream of a chat.
    pub async fn stream(&self, messages: &[(&str, &str)]) -> ChatStream {
        let mut body = chat_body(messages);
        body["stream"] = json!(true);
        self.open("/chat/completions", &body).await.expect("the server answers")
    }

    fn request(&self, method: &str, path: &str, body: Option<Vec<u8>>) -> reqwest::RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if !self.key.is_empty() {
            request = request.bearer_auth(&self.key);
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        match body {
            Some(body) => request.header("content-type", "application/json").body(body),
            None => request,
        }
    }
}

/// Returns the body of a chat with the project manager, of roles and contents.
pub fn chat_body(messages: &[(&str, &str)]) -> Value {
    let messages: Vec<Value> =
        messages.iter().map(|(role, content)| json!({ "role": role, "content": content })).collect();
    json!({ "model": "cynodeai.pm", "messages": messages })
}

impl ChatResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns the text of a completion.
    #[track_caller]
    pub fn content(&self) -> &str {
        let content = self.body.pointer("/choices/0/message/content").and_then(Value::as_str);
        content.unwrap_or_else(|| panic!("no completion: {self:?}"))
    }

    /// Returns the code of an error.
    #[track_caller]
    pub fn code(&self) -> &str {
        let code = self.body.pointer("/error/code").and_then(Value::as_str);
        code.unwrap_or_else(|| panic!("no error: {self:?}"))
    }
}

/// A stream of server-sent events.
pub struct ChatStream {
    pub status: u16,
    pub headers: HeaderMap,
    bytes: Pin<Box<dyn Stream<Item = Result<Bytes, reqwest::Error>> + Send>>,
    buffer: BytesMut,
}

/// One event of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum ChatEvent {
    Data(Value),
    Comment(String),
    Done,
    /// The stream ended.
    End,
    /// The connection broke.
    Broken,
}

/// Everything that came in a stream.
#[derive(Clone, Debug, Default)]
pub struct Streamed {
    pub content: String,
    pub reasoning: String,
    pub finish_reason: Option<String>,
    pub usage: Option<Value>,
    pub error: Option<Value>,
    pub comments: usize,
    pub is_done: bool,
    pub id: Option<String>,
}

impl ChatStream {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Waits for the next event.
    pub async fn next(&mut self) -> ChatEvent {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|window| window == b"\n\n") {
                let event = self.buffer.split_to(end + 2);
                let event = std::str::from_utf8(&event).expect("UTF-8").trim_end();
                if let Some(comment) = event.strip_prefix(':') {
                    return ChatEvent::Comment(comment.trim().to_owned());
                }
                let data = event.lines().find_map(|line| line.strip_prefix("data: "));
                let data = data.unwrap_or_else(|| panic!("no data: {event}"));
                if data == "[DONE]" {
                    return ChatEvent::Done;
                }
                return ChatEvent::Data(serde_json::from_str(data).expect("JSON"));
            }
            match self.bytes.next().await {
                Some(Ok(bytes)) => self.buffer.extend_from_slice(&bytes),
                Some(Err(_)) => return ChatEvent::Broken,
                None => return ChatEvent::End,
            }
        }
    }

    /// Reads up to the first event for which `is_last` holds, which is included.
    pub async fn read_until(&mut self, is_last: impl Fn(&ChatEvent) -> bool) -> Streamed {
        let mut streamed = Streamed::default();
        loop {
            let event = self.next().await;
            streamed.add(&event);
            if is_last(&event) || matches!(event, ChatEvent::End | ChatEvent::Broken) {
                return streamed;
            }
        }
    }

    /// Reads to the end. Returns `None` if nothing comes for so long.
    pub async fn read_within(mut self, silence: Duration) -> Option<Streamed> {
        let mut streamed = Streamed::default();
        loop {
            let event = tokio::time::timeout(silence, self.next()).await.ok()?;
            streamed.add(&event);
            if matches!(event, ChatEvent::End | ChatEvent::Broken) {
                return Some(streamed);
            }
        }
    }

    /// Reads to the end.
    pub async fn read(mut self) -> Streamed {
        self.read_until(|_| false).await
    }
}

impl Streamed {
    fn add(&mut self, event: &ChatEvent) {
        let data = match event {
            ChatEvent::Data(data) => data,
            ChatEvent::Comment(_) => {
                self.comments += 1;
                return;
            }
            ChatEvent::Done => {
                self.is_done = true;
                return;
            }
            ChatEvent::End | ChatEvent::Broken => return,
        };
        assert!(!self.is_done, "an event after the end: {data}");
        let text = |path: &str| data.pointer(path).and_then(Value::as_str).map(str::to_owned);
        self.content.push_str(&text("/choices/0/delta/content").unwrap_or_default());
        self.reasoning.push_str(&text("/choices/0/delta/reasoning_content").unwrap_or_default());
        self.finish_reason = text("/choices/0/finish_reason").or(self.finish_reason.take());
        self.id = text("/id").or(self.id.take());
        self.usage = data.get("usage").filter(|usage| !usage.is_null()).cloned().or(self.usage.take());
        self.error = data.get("error").cloned().or(self.error.take());
    }
}

impl std::fmt::Debug for ChatStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatStream").field("status", &self.status).finish_non_exhaustive()
    }
}
