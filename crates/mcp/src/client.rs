//! The public client: lists tools, calls them, and retries where that is safe.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rmcp::{
    ClientHandler, ServiceError,
    model::{CallToolRequestParams, CallToolResult, ServerResult},
};
use serde_json::{Map, Value};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tracing::debug;

use crate::{
    Error, IDEMPOTENCY_KEY, Reply,
    connection::{Connection, ToolsOnlyHandler},
    direct::Direct,
    exchange::Http,
    failure::{Failure, Fate, Retry},
    lease,
};

const TRACEPARENT: &str = "traceparent";
/// JSON may encode a character as six bytes, and a result contains its content twice: as text and as
/// structure.
const BODY_BYTES_PER_RESULT_BYTE: usize = 12;
const MIN_BODY_BYTES: usize = 16 * 1024 * 1024;
/// A server that dies during the handshake may leave it unanswered.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct Options {
    pub url: String,
    /// The file that contains the bearer token. Without it, requests carry no token.
    pub token_file: Option<PathBuf>,
    /// The time limit for establishing one TCP and TLS connection.
    pub connect_timeout: Duration,
    /// The time limit for one call or one listing, including handshakes and retries.
    pub call_timeout: Duration,
    pub max_result_bytes: usize,
    /// Whether tools are called without rmcp's client where that is possible.
    pub fast_path: bool,
    /// The memory profile that every request names in the header `Cynode-Profile`.
    pub profile: Option<String>,
}

/// A tool as the server describes it. The description is not trusted and must not be used for access
/// decisions.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub name: String,
    pub title: Option<String>,
    pub description: String,
    pub input_schema: Map<String, Value>,
    pub read_only: bool,
}

#[derive(Clone, Debug)]
pub struct Call<'a> {
    pub name: &'a str,
    pub arguments: Map<String, Value>,
    /// With a key, a call of unknown fate is sent a second time. The server must treat both as one call.
    pub idempotency_key: Option<&'a str>,
    pub traceparent: Option<&'a str>,
    /// On whose behalf the call is made: a signed lease, sent as a header.
    pub lease: Option<&'a str>,
}

/// A handle to the server. Clones share one connection, which is opened on first use and reopened when it is
/// lost. Dropping the future of a call cancels the call.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    http: Http,
    call_timeout: Duration,
    max_result_bytes: usize,
    /// `None`: every call goes through rmcp.
    direct: Option<Direct>,
    connection: Mutex<Option<Arc<Connection<ToolsOnlyHandler>>>>,
    /// Held while connecting, so that concurrent callers wait for one handshake. Only by tasks of their own:
    /// a caller that is not polled for a while would keep all others waiting.
    connecting: tokio::sync::Mutex<()>,
    connects: TaskTracker,
}

impl Client {
    /// Creates the client without connecting. Fails if the options are invalid.
    pub fn new(options: Options) -> Result<Self, Error> {
        let max_body =
            options.max_result_bytes.saturating_mul(BODY_BYTES_PER_RESULT_BYTE).max(MIN_BODY_BYTES);
        let http = Http::new(&options.url, options.token_file, options.connect_timeout, max_body)?;
        let http = match &options.profile {
            Some(profile) => http.with_profile(profile)?,
            None => http,
        };
        let direct = || Direct::new(http.clone(), ToolsOnlyHandler.get_info(), TaskTracker::new());
        Ok(Self(Arc::new(Inner {
            direct: options.fast_path.then(direct),
            http,
            call_timeout: options.call_timeout,
            max_result_bytes: options.max_result_bytes,
            connection: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            connects: TaskTracker::new(),
        })))
    }

    /// Fetches the current list of tools from the server.
    pub async fn tools(&self) -> Result<Vec<Tool>, Error> {
        self.tools_under(None).await
    }

    /// Fetches the list of tools that the server serves under a lease.
    pub async fn tools_under(&self, lease: Option<&str>) -> Result<Vec<Tool>, Error> {
        let list = |connection: Arc<Connection<ToolsOnlyHandler>>| async move {
            self.0.list(&connection, lease).await
        };
        let listed = self.with_timeout(self.0.with_retry(true, list)).await?;
        Ok(listed.into_iter().map(Tool::from).collect())
    }

    /// Calls a tool and returns its result, truncated to `max_result_bytes`.
    pub async fn call(&self, call: Call<'_>) -> Result<Reply, Error> {
        let may_repeat = call.idempotency_key.is_some();
        let request = request(call);
        let send = |connection: Arc<Connection<ToolsOnlyHandler>>| {
            let request = &request;
            async move { self.0.send(&connection, request).await }
        };
        let result = self.with_timeout(self.0.with_retry(may_repeat, send)).await?;
        Ok(Reply::from_result(result, self.0.max_result_bytes))
    }

    async fn with_timeout<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        // Boxed, since rmcp's futures are large and would make every calling future large.
        timeout(self.0.call_timeout, Box::pin(work)).await.unwrap_or(Err(Error::TimedOut))
    }
}

impl Inner {
    /// Runs `work`, and runs it a second time if that is safe and may succeed.
    async fn with_retry<T, F: Future<Output = Result<T, Failure>>>(
        self: &Arc<Self>,
        may_repeat: bool,
        work: impl Fn(Arc<Connection<ToolsOnlyHandler>>) -> F,
    ) -> Result<T, Error> {
        let connection = self.get_or_connect().await?;
        let Failure { error, fate, retry } = match work(connection.clone()).await {
            Ok(done) => return Ok(done),
            Err(failure) => failure,
        };
        match retry {
            Retry::Never => return Err(error),
            Retry::AfterListing => {
                // From the listing, rmcp learns which arguments go into headers. It knows this per
                // connection.
                Box::pin(connection.tools()).await.map_err(|failure| failure.error)?;
            }
            Retry::OnNewConnection => {
                self.discard(&connection);
                if fate == Fate::Unknown && !may_repeat {
                    return Err(error);
                }
            }
        }
        debug!(%error, ?fate, "Retrying the MCP request.");
        let second = match self.get_or_connect().await {
            Ok(connection) => {
                let second = work(connection.clone()).await;
                if let Err(Failure { retry: Retry::OnNewConnection, .. }) = second {
                    self.discard(&connection);
                }
                second.map_err(|failure| failure.error)
            }
            Err(error) => Err(error),
        };
        // The first try may have reached the server; that the second did not says nothing about it.
        second.map_err(|second| if fate == Fate::Unknown && second.is_unsent() { error } else { second })
    }

    async fn list(
        &self,
        connection: &Connection<ToolsOnlyHandler>,
        lease: Option<&str>,
    ) -> Result<Vec<rmcp::model::Tool>, Failure> {
        let tools = connection.tools_under(lease).await?;
        if let Some(direct) = &self.direct {
            direct.learn(tools.iter().map(|tool| (&*tool.name, &*tool.input_schema)));
        }
        Ok(tools)
    }

    /// Sends a call directly if possible, else through rmcp.
    async fn send(
        &self,
        connection: &Connection<ToolsOnlyHandler>,
        request: &CallToolRequestParams,
    ) -> Result<CallToolResult, Failure> {
        let direct = self.direct.as_ref();
        if let Some(call) = direct.and_then(|direct| direct.prepare(connection.is_newer(), &request.name)) {
            match call.call(request).await? {
                ServerResult::CallToolResult(result) => return Ok(result),
                // The tool has not run yet and requires input first. rmcp implements that, starting from the
                // first request.
                ServerResult::InputRequiredResult(_) => {}
                _ => return Err(ServiceError::UnexpectedResponse.into()),
            }
        }
        Box::pin(connection.call(request.clone())).await
    }

    async fn get_or_connect(self: &Arc<Self>) -> Result<Arc<Connection<ToolsOnlyHandler>>, Error> {
        if let Some(connection) = self.open_connection() {
            return Ok(connection);
        }
        let inner = Arc::clone(self);
        let connected = self.connects.spawn(async move { inner.connect().await }).await;
        connected.unwrap_or_else(|panicked| Err(Error::Unavailable(Box::new(panicked))))
    }

    async fn connect(&self) -> Result<Arc<Connection<ToolsOnlyHandler>>, Error> {
        let _connecting = self.connecting.lock().await;
        // Another caller may have connected while this one was waiting.
        if let Some(connection) = self.open_connection() {
            return Ok(connection);
        }
        let opened = timeout(HANDSHAKE_TIMEOUT, Connection::over_http(ToolsOnlyHandler, &self.http)).await;
        let opened = opened.map_err(|late| Error::Unavailable(Box::new(late)))?;
        let connection = Arc::new(opened.map_err(|failure| failure.error)?);
        *self.connection() = Some(connection.clone());
        Ok(connection)
    }

    fn open_connection(&self) -> Option<Arc<Connection<ToolsOnlyHandler>>> {
        self.connection().as_ref().filter(|connection| !connection.is_closed()).cloned()
    }

    /// Removes a lost connection. Keeps the current one if another caller has already replaced it.
    fn discard(&self, lost: &Arc<Connection<ToolsOnlyHandler>>) {
        let mut current = self.connection();
        if current.as_ref().is_some_and(|connection| Arc::ptr_eq(connection, lost)) {
            *current = None;
        }
    }

    fn connection(&self) -> MutexGuard<'_, Option<Arc<Connection<ToolsOnlyHandler>>>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn request(call: Call<'_>) -> CallToolRequestParams {
    let mut meta = lease::meta(call.lease);
    for (name, value) in [(IDEMPOTENCY_KEY, call.idempotency_key), (TRACEPARENT, call.traceparent)] {
        if let Some(value) = value {
            meta.0.0.insert(name.to_owned(), value.into());
        }
    }
    let mut request = CallToolRequestParams::new(call.name.to_owned()).with_arguments(call.arguments);
    request.meta = Some(meta);
    request
}

impl From<rmcp::model::Tool> for Tool {
    fn from(tool: rmcp::model::Tool) -> Self {
        let annotations = tool.annotations.unwrap_or_default();
        Self {
            name: tool.name.into_owned(),
            title: tool.title.or(annotations.title),
            description: tool.description.unwrap_or_default().into_owned(),
            input_schema: Arc::unwrap_or_clone(tool.input_schema),
            read_only: annotations.read_only_hint.unwrap_or(false),
        }
    }
}
