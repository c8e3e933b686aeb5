//! The HTTP transport for rmcp: one exchange per request.
//!
//! Replaces rmcp's own implementation, because it adds a token that may change during a connection, a size
//! limit for every response, and errors that tell whether the request can have reached the server.

use std::{collections::HashMap, io, path::PathBuf, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::BoxStream};
use http::{
    HeaderName, HeaderValue, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE},
};
use reqwest::{RequestBuilder, Response, redirect};
use rmcp::{
    model::{ClientJsonRpcMessage, ClientRequest, ErrorData, RequestId, ServerJsonRpcMessage},
    transport::{
        common::http_header::{
            EVENT_STREAM_MIME_TYPE, HEADER_LAST_EVENT_ID, HEADER_SESSION_ID, JSON_MIME_TYPE,
        },
        streamable_http_client::{
            SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
        },
    },
};
use rustls::crypto::{CryptoProvider, ring};
use sse_stream::{Sse, SseStream};

use crate::{
    Error,
    error::sanitize,
    guard::{self, AddressFilter},
    lease,
    raw::{self, Tap},
    token::Token,
};

/// Shorter than the idle timeouts of servers and proxies, so that the client closes first and no request is
/// sent on a connection that is being closed.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const TCP_KEEPALIVE: Duration = Duration::from_secs(15);

/// The header that names the memory profile of the caller.
const PROFILE: HeaderName = HeaderName::from_static("cynode-profile");
const JSON_OR_SSE: HeaderValue = HeaderValue::from_static("text/event-stream, application/json");

pub(crate) type Headers = HashMap<HeaderName, HeaderValue>;
pub(crate) type Events = BoxStream<'static, Result<Sse, SseError>>;
type Outcome<T> = Result<T, StreamableHttpError<Failure>>;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The connection could not be established; nothing was sent.
    #[error("connecting")]
    Connect(#[source] reqwest::Error),
    #[error("the connection closed before the response was complete")]
    Broken(#[source] reqwest::Error),
    #[error("HTTP {status}: {body}")]
    Status { status: StatusCode, body: String },
    #[error("the response has more than {0} bytes")]
    TooLarge(usize),
    #[error("the response is not a JSON-RPC message")]
    NotJsonRpc(#[source] serde_json::Error),
    #[error(transparent)]
    Token(Error),
}

impl From<reqwest::Error> for Failure {
    fn from(error: reqwest::Error) -> Self {
        // The URL is known from the configuration and may contain secrets.
        let error = error.without_url();
        if error.is_connect() { Self::Connect(error) } else { Self::Broken(error) }
    }
}

impl From<Failure> for StreamableHttpError<Failure> {
    fn from(failure: Failure) -> Self {
        Self::Client(failure)
    }
}

/// An HTTP client for one MCP endpoint.
#[derive(Clone, Debug)]
pub struct Http {
    pub(crate) url: Arc<str>,
    /// `url`, parsed.
    address: reqwest::Url,
    client: reqwest::Client,
    token: Option<Arc<Token>>,
    max_body: usize,
    /// The memory profile that every request names.
    profile: Option<HeaderValue>,
    pub(crate) tap: Option<Arc<dyn Tap>>,
}

impl Http {
    /// Creates the client without connecting. `connect_timeout` limits one TCP and TLS connection; `max_body`
    /// limits the bytes of one response.
    pub fn new(
        url: &str,
        token_file: Option<PathBuf>,
        connect_timeout: Duration,
        max_body: usize,
    ) -> Result<Self, Error> {
        Self::with_address_filter(url, token_file, connect_timeout, max_body, None)
    }

    /// Like [`Http::new`], but connects only to addresses that the filter allows. The filter is applied to
    /// the resolved addresses at the time of connecting, so changing a DNS record does not bypass it.
    pub fn with_address_filter(
        url: &str,
        token_file: Option<PathBuf>,
        connect_timeout: Duration,
        max_body: usize,
        filter: Option<AddressFilter>,
    ) -> Result<Self, Error> {
        let address = reqwest::Url::parse(url).map_err(|error| Error::Options(error.into()))?;
        if !matches!(address.scheme(), "http" | "https") {
            return Err(Error::Options(format!("{} is not an HTTP address", address.scheme()).into()));
        }
        if CryptoProvider::get_default().is_none() {
            // Fails if another thread installed a provider first, which is fine.
            drop(ring::default_provider().install_default());
        }
        let mut builder = reqwest::Client::builder();
        if let Some(filter) = filter {
            guard::check_literal(&address, filter)?;
            builder = builder.dns_resolver(guard::Resolver(filter));
        }
        let client = builder
            .redirect(redirect::Policy::none())
            .no_proxy()
            .connect_timeout(connect_timeout)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .tcp_nodelay(true)
            .tcp_keepalive(TCP_KEEPALIVE)
            .build()
            .map_err(|error| Error::Options(error.into()))?;
        let token = token_file.map(|path| Arc::new(Token::new(path)));
        Ok(Self { url: address.as_str().into(), address, client, token, max_body, profile: None, tap: None })
    }

    /// Names a memory profile in every request.
    pub(crate) fn with_profile(mut self, profile: &str) -> Result<Self, Error> {
        let value = HeaderValue::try_from(profile).map_err(|error| Error::Options(error.into()))?;
        self.profile = Some(value);
        Ok(self)
    }

    /// Passes notifications to `tap`, and preserves the raw tools of a listing for [`crate::raw_tools`].
    #[must_use]
    pub fn with_tap(mut self, tap: Arc<dyn Tap>) -> Self {
        self.tap = Some(tap);
        self
    }

    /// Replaces the token in a text.
    pub fn mask(&self, text: String) -> String {
        match &self.token {
            Some(token) => token.mask(text),
            None => text,
        }
    }

    fn read(&self, body: &[u8], request: &ClientRequest) -> Result<ServerJsonRpcMessage, serde_json::Error> {
        match request {
            ClientRequest::CallToolRequest(_) => raw::parse_call_response(body),
            ClientRequest::ListToolsRequest(_) if self.tap.is_some() => raw::parse_list_response(body),
            _ => serde_json::from_slice(body),
        }
    }

    pub(crate) fn events(&self, response: Response, may_list: bool) -> Events {
        let events = events(response, self.max_body);
        let Some(tap) = self.tap.clone() else { return events };
        let sifted = events.map(move |event| {
            let mut event = event?;
            event.data = event.data.and_then(|data| raw::filter_event(data, tap.as_ref(), may_list));
            Ok(event)
        });
        sifted.boxed()
    }

    /// Sends a request with the memory profile and the current token. If the server refuses the token and the
    /// file contains another one, sends the request once more with that one.
    async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let request = match &self.profile {
            Some(profile) => request.header(PROFILE, profile),
            None => request,
        };
        let Some(token) = &self.token else { return Ok(request.send().await?) };
        let used = token.header().await.map_err(Failure::Token)?;
        let second = request.try_clone();
        let response = request.header(AUTHORIZATION, used.clone()).send().await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        match (second, token.reload_if_changed(&used).await) {
            (Some(second), Some(newer)) => Ok(second.header(AUTHORIZATION, newer).send().await?),
            _ => Ok(response),
        }
    }

    pub(crate) async fn post(
        &self,
        body: Vec<u8>,
        session: Option<Arc<str>>,
        headers: Headers,
    ) -> Result<Response, Failure> {
        let request = self
            .client
            .post(self.address.clone())
            .header(ACCEPT, JSON_OR_SSE)
            .header(CONTENT_TYPE, JSON_MIME_TYPE)
            .body(body);
        self.send(add_headers(request, session, headers)).await
    }

    pub(crate) async fn body(&self, mut response: Response) -> Result<Vec<u8>, Failure> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if body.len() + chunk.len() > self.max_body {
                return Err(Failure::TooLarge(self.max_body));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// Reads the error from a response whose status is not 2xx: the JSON-RPC error if the body contains one,
    /// else a failure with the status.
    pub(crate) async fn read_error(&self, response: Response) -> Result<ErrorData, Failure> {
        let status = response.status();
        let body = self.body(response).await?;
        if may_carry_an_error(status)
            && let Ok(ServerJsonRpcMessage::Error(error)) = serde_json::from_slice(&body)
        {
            return Ok(error.error);
        }
        Err(Failure::Status { status, body: sanitize(&String::from_utf8_lossy(&body)) })
    }
}

fn may_carry_an_error(status: StatusCode) -> bool {
    !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS)
}

/// Turns an HTTP client error in response to `server/discover` into a JSON-RPC error. A server of the older
/// era may answer that way, and rmcp falls back to `initialize` only after a JSON-RPC error.
fn discover_rejection(failure: Failure, request: &ClientRequest) -> Result<ErrorData, Failure> {
    match failure {
        Failure::Status { status, body }
            if may_carry_an_error(status)
                && status.is_client_error()
                && matches!(request, ClientRequest::DiscoverRequest(_)) =>
        {
            Ok(ErrorData::invalid_request(format!("HTTP {status}: {body}"), None))
        }
        other => Err(other),
    }
}

/// Returns the response with the id of the request. A server that could not parse the request returns an
/// error without an id, and rmcp would then wait for another response until the call times out.
fn answer(message: ServerJsonRpcMessage, id: &RequestId) -> StreamableHttpPostResponse {
    let message = match message {
        ServerJsonRpcMessage::Error(error) => ServerJsonRpcMessage::error(error.error, Some(id.clone())),
        other => other,
    };
    StreamableHttpPostResponse::Json(message, None)
}

pub(crate) fn has_content_type(response: &Response, kind: &str) -> bool {
    let found = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    found.is_some_and(|found| found.starts_with(kind.as_bytes()))
}

pub(crate) fn unexpected_content_type(response: &Response) -> StreamableHttpError<Failure> {
    let found = response.headers().get(CONTENT_TYPE);
    StreamableHttpError::UnexpectedContentType(
        found.map(|found| sanitize(&String::from_utf8_lossy(found.as_bytes()))),
    )
}

fn events(response: Response, limit: usize) -> Events {
    let mut left = limit;
    let bytes = response.bytes_stream().map(move |chunk| {
        let chunk = chunk.map_err(|error| io::Error::other(error.without_url()))?;
        left = left.checked_sub(chunk.len()).ok_or_else(|| io::Error::other(Failure::TooLarge(limit)))?;
        Ok::<_, io::Error>(chunk)
    });
    SseStream::from_bytes_stream(bytes).boxed()
}

fn add_headers(mut request: RequestBuilder, session: Option<Arc<str>>, headers: Headers) -> RequestBuilder {
    for (name, value) in headers {
        request = request.header(name, value);
    }
    match session {
        Some(session) => request.header(HEADER_SESSION_ID, session.as_ref()),
        None => request,
    }
}

impl StreamableHttpClient for Http {
    type Error = Failure;

    async fn post_message(
        &self,
        _our_address: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _no_token: Option<String>,
        headers: Headers,
    ) -> Outcome<StreamableHttpPostResponse> {
        let mut body = serde_json::to_vec(&message)?;
        let mut headers = headers;
        headers.extend(lease::take_encoded(&mut body)?);
        let has_session = session.is_some();
        let response = self.post(body, session, headers).await?;
        let status = response.status();
        if status == StatusCode::NOT_FOUND && has_session {
            return Err(StreamableHttpError::SessionExpired);
        }
        let ClientJsonRpcMessage::Request(request) = message else {
            if !status.is_success() {
                let body = sanitize(&String::from_utf8_lossy(&self.body(response).await?));
                return Err(Failure::Status { status, body }.into());
            }
            // Notifications and responses get no response, so the body is ignored.
            return Ok(StreamableHttpPostResponse::Accepted);
        };
        if !status.is_success() {
            let refused = self
                .read_error(response)
                .await
                .or_else(|failure| discover_rejection(failure, &request.request));
            let message = ServerJsonRpcMessage::error(refused?, Some(request.id.clone()));
            return Ok(answer(message, &request.id));
        }
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let given = response.headers().get(HEADER_SESSION_ID).and_then(|value| value.to_str().ok());
        let given = given.map(str::to_owned);
        if has_content_type(&response, EVENT_STREAM_MIME_TYPE) {
            let may_list = matches!(request.request, ClientRequest::ListToolsRequest(_));
            return Ok(StreamableHttpPostResponse::Sse(self.events(response, may_list), given));
        }
        if !has_content_type(&response, JSON_MIME_TYPE) {
            return Err(unexpected_content_type(&response));
        }
        let body = self.body(response).await?;
        let message = self.read(&body, &request.request).map_err(Failure::NotJsonRpc)?;
        match answer(message, &request.id) {
            StreamableHttpPostResponse::Json(message, _) => {
                Ok(StreamableHttpPostResponse::Json(message, given))
            }
            other => Ok(other),
        }
    }

    async fn get_stream(
        &self,
        _our_address: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _no_token: Option<String>,
        headers: Headers,
    ) -> Outcome<Events> {
        let mut request = self.client.get(self.address.clone()).header(ACCEPT, EVENT_STREAM_MIME_TYPE);
        if let Some(last_event) = last_event {
            request = request.header(HEADER_LAST_EVENT_ID, last_event);
        }
        let response = self.send(add_headers(request, session, headers)).await?;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => Err(StreamableHttpError::ServerDoesNotSupportSse),
            status if !status.is_success() => Err(Failure::Status { status, body: String::new() }.into()),
            _ if !has_content_type(&response, EVENT_STREAM_MIME_TYPE) => {
                Err(unexpected_content_type(&response))
            }
            // A resumed stream may contain the response to any request, also to a listing.
            _ => Ok(self.events(response, true)),
        }
    }

    async fn delete_session(
        &self,
        _our_address: Arc<str>,
        session: Arc<str>,
        _no_token: Option<String>,
        headers: Headers,
    ) -> Outcome<()> {
        let response =
            self.send(add_headers(self.client.delete(self.address.clone()), Some(session), headers)).await?;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => Err(StreamableHttpError::ServerDoesNotSupportDeleteSession),
            status if !status.is_success() => Err(Failure::Status { status, body: String::new() }.into()),
            _ => Ok(()),
        }
    }
}
