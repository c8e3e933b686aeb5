//! One HTTP exchange for rmcp.
//!
//! rmcp brings an implementation of its own. Ours adds what that one lacks: a token that may change while we are
//! connected, a limit on the size of every answer, and errors that say whether a request can have reached the server.

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
    error::told,
    guard::{self, AddressFilter},
    raw::{self, Tap},
    token::Token,
};

/// Shorter than what servers and the machines between us allow, so that we close first and no request meets a
/// connection that is just going away.
const KEEP_IDLE: Duration = Duration::from_secs(30);
const KEEP_ALIVE: Duration = Duration::from_secs(15);

const EITHER: HeaderValue = HeaderValue::from_static("text/event-stream, application/json");

pub(crate) type Headers = HashMap<HeaderName, HeaderValue>;
pub(crate) type Events = BoxStream<'static, Result<Sse, SseError>>;
type Outcome<T> = Result<T, StreamableHttpError<Failure>>;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Nothing was sent.
    #[error("connecting")]
    Connect(#[source] reqwest::Error),
    #[error("the connection closed before the response was complete")]
    Broken(#[source] reqwest::Error),
    #[error("HTTP {status}: {told}")]
    Status { status: StatusCode, told: String },
    #[error("the response has more than {0} bytes")]
    TooLarge(usize),
    #[error("the response is not a JSON-RPC message")]
    NotJsonRpc(#[source] serde_json::Error),
    #[error(transparent)]
    Token(Error),
}

impl From<reqwest::Error> for Failure {
    fn from(error: reqwest::Error) -> Self {
        // The address is configured, hence known; it may hold what a log should not.
        let error = error.without_url();
        if error.is_connect() { Self::Connect(error) } else { Self::Broken(error) }
    }
}

impl From<Failure> for StreamableHttpError<Failure> {
    fn from(failure: Failure) -> Self {
        Self::Client(failure)
    }
}

/// One address, the connections to it, and what is sent along.
#[derive(Clone, Debug)]
pub struct Http {
    pub(crate) url: Arc<str>,
    /// The same, so that it is not read anew for every request.
    address: reqwest::Url,
    client: reqwest::Client,
    token: Option<Arc<Token>>,
    max_body: usize,
    pub(crate) tap: Option<Arc<dyn Tap>>,
}

impl Http {
    /// Connects to nothing yet. `connect_timeout` is for one TCP and TLS connection, `max_body` for one answer.
    pub fn new(
        url: &str,
        token_file: Option<PathBuf>,
        connect_timeout: Duration,
        max_body: usize,
    ) -> Result<Self, Error> {
        Self::guarded(url, token_file, connect_timeout, max_body, None)
    }

    /// As [`Http::new`]; with a filter, connects to addresses alone that it lets pass. They are those that the name resolves to
    /// when the connection is made, so a name that is changed later leads nowhere else.
    pub fn guarded(
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
            // Lost against another thread is fine: then there is one.
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
            .pool_idle_timeout(KEEP_IDLE)
            .tcp_nodelay(true)
            .tcp_keepalive(KEEP_ALIVE)
            .build()
            .map_err(|error| Error::Options(error.into()))?;
        let token = token_file.map(|path| Arc::new(Token::new(path)));
        Ok(Self { url: address.as_str().into(), address, client, token, max_body, tap: None })
    }

    /// Keeps the tools of a list as they were written, for [`crate::raw_tools`], and tells `tap` of the rest.
    #[must_use]
    pub fn with_tap(mut self, tap: Arc<dyn Tap>) -> Self {
        self.tap = Some(tap);
        self
    }

    /// Takes the token out of a text.
    pub fn mask(&self, text: String) -> String {
        match &self.token {
            Some(token) => token.mask(text),
            None => text,
        }
    }

    fn read(&self, body: &[u8], request: &ClientRequest) -> Result<ServerJsonRpcMessage, serde_json::Error> {
        match request {
            ClientRequest::CallToolRequest(_) => raw::read_call(body),
            ClientRequest::ListToolsRequest(_) if self.tap.is_some() => raw::read_list(body),
            _ => serde_json::from_slice(body),
        }
    }

    pub(crate) fn events(&self, response: Response, may_list: bool) -> Events {
        let events = events(response, self.max_body);
        let Some(tap) = self.tap.clone() else { return events };
        let sifted = events.map(move |event| {
            let mut event = event?;
            event.data = event.data.and_then(|data| raw::sift(data, tap.as_ref(), may_list));
            Ok(event)
        });
        sifted.boxed()
    }

    /// Sends with the token of now; a second time if it is refused and the file has another.
    async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let Some(token) = &self.token else { return Ok(request.send().await?) };
        let used = token.header().await.map_err(Failure::Token)?;
        let again = request.try_clone();
        let response = request.header(AUTHORIZATION, used.clone()).send().await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        match (again, token.newer_than(&used).await) {
            (Some(again), Some(newer)) => Ok(again.header(AUTHORIZATION, newer).send().await?),
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
            .header(ACCEPT, EITHER)
            .header(CONTENT_TYPE, JSON_MIME_TYPE)
            .body(body);
        self.send(with(request, session, headers)).await
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

    /// A status other than 2xx, in answer to a request. It may still carry the server's JSON-RPC error, which says more.
    pub(crate) async fn refused(&self, response: Response) -> Result<ErrorData, Failure> {
        let status = response.status();
        let body = self.body(response).await?;
        if may_carry_an_error(status)
            && let Ok(ServerJsonRpcMessage::Error(error)) = serde_json::from_slice(&body)
        {
            return Ok(error.error);
        }
        Err(Failure::Status { status, told: told(&String::from_utf8_lossy(&body)) })
    }
}

fn may_carry_an_error(status: StatusCode) -> bool {
    !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS)
}

/// A server of the older era knows neither the method nor, perhaps, what a JSON-RPC error is. To rmcp it must look like a
/// server that says no, or it would not try `initialize`.
fn as_older(failure: Failure, request: &ClientRequest) -> Result<ErrorData, Failure> {
    match failure {
        Failure::Status { status, told }
            if may_carry_an_error(status)
                && status.is_client_error()
                && matches!(request, ClientRequest::DiscoverRequest(_)) =>
        {
            Ok(ErrorData::invalid_request(format!("HTTP {status}: {told}"), None))
        }
        other => Err(other),
    }
}

/// A direct answer belongs to the request of this exchange, whatever id an error carries: one that could not read
/// the request has none, and rmcp would wait for another answer until the call times out.
fn answer(message: ServerJsonRpcMessage, id: &RequestId) -> StreamableHttpPostResponse {
    let message = match message {
        ServerJsonRpcMessage::Error(error) => ServerJsonRpcMessage::error(error.error, Some(id.clone())),
        other => other,
    };
    StreamableHttpPostResponse::Json(message, None)
}

pub(crate) fn is(response: &Response, kind: &str) -> bool {
    let found = response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    found.is_some_and(|found| found.starts_with(kind.as_bytes()))
}

pub(crate) fn unexpected(response: &Response) -> StreamableHttpError<Failure> {
    let found = response.headers().get(CONTENT_TYPE);
    StreamableHttpError::UnexpectedContentType(
        found.map(|found| told(&String::from_utf8_lossy(found.as_bytes()))),
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

fn with(mut request: RequestBuilder, session: Option<Arc<str>>, headers: Headers) -> RequestBuilder {
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
        let body = serde_json::to_vec(&message)?;
        let has_session = session.is_some();
        let response = self.post(body, session, headers).await?;
        let status = response.status();
        if status == StatusCode::NOT_FOUND && has_session {
            return Err(StreamableHttpError::SessionExpired);
        }
        let ClientJsonRpcMessage::Request(request) = message else {
            if !status.is_success() {
                let told = told(&String::from_utf8_lossy(&self.body(response).await?));
                return Err(Failure::Status { status, told }.into());
            }
            // Notifications and our answers get none themselves, whatever the body says.
            return Ok(StreamableHttpPostResponse::Accepted);
        };
        if !status.is_success() {
            let refused = self.refused(response).await.or_else(|failure| as_older(failure, &request.request));
            let message = ServerJsonRpcMessage::error(refused?, Some(request.id.clone()));
            return Ok(answer(message, &request.id));
        }
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let given = response.headers().get(HEADER_SESSION_ID).and_then(|value| value.to_str().ok());
        let given = given.map(str::to_owned);
        if is(&response, EVENT_STREAM_MIME_TYPE) {
            let may_list = matches!(request.request, ClientRequest::ListToolsRequest(_));
            return Ok(StreamableHttpPostResponse::Sse(self.events(response, may_list), given));
        }
        if !is(&response, JSON_MIME_TYPE) {
            return Err(unexpected(&response));
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
        let response = self.send(with(request, session, headers)).await?;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => Err(StreamableHttpError::ServerDoesNotSupportSse),
            status if !status.is_success() => Err(Failure::Status { status, told: String::new() }.into()),
            _ if !is(&response, EVENT_STREAM_MIME_TYPE) => Err(unexpected(&response)),
            // It may carry on with any answer.
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
            self.send(with(self.client.delete(self.address.clone()), Some(session), headers)).await?;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => Err(StreamableHttpError::ServerDoesNotSupportDeleteSession),
            status if !status.is_success() => Err(Failure::Status { status, told: String::new() }.into()),
            _ => Ok(()),
        }
    }
}
