use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use rmcp::{
    ClientHandler,
    model::{CallToolRequestParams, CallToolResult, ClientConfig, RequestMetaObject, ServerResult},
};
use serde_json::{Map, Value};
use tokio::{sync::Mutex, time::timeout};
use tokio_util::task::TaskTracker;
use tracing::debug;

use crate::{
    Error, IDEMPOTENCY_KEY, Reply,
    connection::{Caller, Connection},
    direct::{Direct, FIRST_DIRECT, can_be_named},
    exchange::Http,
    failure::{Again, Failure, Fate, Told},
    indirect::Indirect,
};

const TRACEPARENT: &str = "traceparent";
/// JSON may write a letter as six bytes, and a result holds its content both as text and as structure.
const BODY_PER_RESULT: usize = 12;
const MIN_BODY: usize = 16 * 1024 * 1024;

#[derive(Clone, Debug)]
pub struct Options {
    pub url: String,
    /// The file that holds the bearer token; without one we call without.
    pub token_file: Option<PathBuf>,
    /// How long one TCP and TLS connection may take.
    pub connect_timeout: Duration,
    /// How long one call or one listing may take, from the first byte sent to the last received, with handshakes.
    pub call_timeout: Duration,
    pub max_result_bytes: usize,
}

/// A tool as the server lists it. All of this is the server's word: nothing here may decide what is allowed.
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
    /// With a key, a call whose fate is unknown is sent once more. The server must take both for one.
    pub idempotency_key: Option<&'a str>,
    pub traceparent: Option<&'a str>,
}

/// A handle on the server. Clones share one connection, which is made when it is first needed and again whenever it
/// is lost. A call that is dropped is cancelled.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    http: Http,
    call_timeout: Duration,
    max_result_bytes: usize,
    /// As what we present ourselves.
    us: ClientConfig,
    indirect: Indirect,
    next_direct: AtomicI64,
    tasks: TaskTracker,
    /// Locked while connecting, so that everyone waits for the one handshake.
    connection: Mutex<Option<Arc<Connection<Caller>>>>,
}

impl Client {
    /// Connects to nothing yet.
    pub fn new(options: Options) -> Result<Self, Error> {
        let max_body = options.max_result_bytes.saturating_mul(BODY_PER_RESULT).max(MIN_BODY);
        let http = Http::new(&options.url, options.token_file, options.connect_timeout, max_body)?;
        Ok(Self(Arc::new(Inner {
            http,
            call_timeout: options.call_timeout,
            max_result_bytes: options.max_result_bytes,
            us: Caller.get_info(),
            indirect: Indirect::default(),
            next_direct: AtomicI64::new(FIRST_DIRECT),
            tasks: TaskTracker::new(),
            connection: Mutex::new(None),
        })))
    }

    /// Every tool that the server offers us, as it says now.
    pub async fn tools(&self) -> Result<Vec<Tool>, Error> {
        let list = |connection: Arc<Connection<Caller>>| async move { self.0.list(&connection).await };
        let listed = self.in_time(self.0.repeat(true, None, list)).await?;
        Ok(listed.into_iter().map(Tool::from).collect())
    }

    pub async fn call(&self, call: Call<'_>) -> Result<Reply, Error> {
        let may_repeat = call.idempotency_key.is_some();
        let request = request(call);
        let send = |connection: Arc<Connection<Caller>>| {
            let request = &request;
            async move { self.0.send(&connection, request).await }
        };
        let result = self.in_time(self.0.repeat(may_repeat, Some(&request.name), send)).await?;
        Reply::read(result, self.0.max_result_bytes)
    }

    async fn in_time<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        // Boxed: rmcp's futures are large, and so would be every future that calls a tool.
        timeout(self.0.call_timeout, Box::pin(work)).await.unwrap_or(Err(Error::TimedOut))
    }
}

impl Inner {
    /// Does `work`, and does it a second time where that cannot do harm and may help.
    async fn repeat<T, F: Future<Output = Result<T, Failure>>>(
        &self,
        may_repeat: bool,
        tool: Option<&str>,
        work: impl Fn(Arc<Connection<Caller>>) -> F,
    ) -> Result<T, Error> {
        let connection = self.connected().await?;
        let Failure { error, fate, again } = match work(connection.clone()).await {
            Ok(done) => return Ok(done),
            Err(failure) => failure,
        };
        match again {
            Again::Never => return Err(error),
            Again::AfterListing => {
                // Listing tells rmcp which arguments go into headers. It forgets with the connection.
                Box::pin(self.list(&connection)).await.map_err(|failure| failure.error)?;
                if let Some(tool) = tool {
                    self.indirect.also(tool);
                }
            }
            Again::OnNewConnection => {
                self.forget(&connection).await;
                if fate == Fate::Unknown && !may_repeat {
                    return Err(error);
                }
            }
        }
        debug!(%error, ?fate, "Retrying the MCP request.");
        let connection = self.connected().await?;
        let again = work(connection.clone()).await;
        if let Err(Failure { again: Again::OnNewConnection, .. }) = again {
            self.forget(&connection).await;
        }
        again.map_err(|failure| failure.error)
    }

    async fn list(&self, connection: &Connection<Caller>) -> Result<Vec<rmcp::model::Tool>, Failure> {
        let tools = connection.tools().await?;
        self.indirect.learn(tools.iter().map(|tool| (&*tool.name, &*tool.input_schema)));
        Ok(tools)
    }

    /// Without rmcp between where that does the same: its tasks pass a call on, each at the price of a wake-up.
    async fn send(
        &self,
        connection: &Connection<Caller>,
        request: &CallToolRequestParams,
    ) -> Result<CallToolResult, Failure> {
        if !connection.is_newer() || !can_be_named(&request.name) || self.indirect.has(&request.name) {
            return Box::pin(connection.call(request.clone())).await;
        }
        let id = self.next_direct.fetch_add(1, Ordering::Relaxed);
        let direct = Direct { http: &self.http, us: &self.us, id, tasks: &self.tasks };
        match direct.call(request).await? {
            ServerResult::CallToolResult(result) => Ok(result),
            // It has not run yet, and wants to be asked in rounds: rmcp knows how that is done, from the beginning.
            ServerResult::InputRequiredResult(_) => {
                self.indirect.also(&request.name);
                Box::pin(connection.call(request.clone())).await
            }
            _ => Err(Failure::protocol(Told("what came is no result of a tool".to_owned()))),
        }
    }

    async fn connected(&self) -> Result<Arc<Connection<Caller>>, Error> {
        let mut current = self.connection.lock().await;
        if let Some(connection) = current.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        // Boxed, as all that is rare: or every call would carry the room for it.
        let opened = Box::pin(Connection::over_http(Caller, &self.http)).await;
        let connection = Arc::new(opened.map_err(|failure| failure.error)?);
        *current = Some(connection.clone());
        Ok(connection)
    }

    /// Others may have found out before us and connected anew: that connection stays.
    async fn forget(&self, lost: &Arc<Connection<Caller>>) {
        let mut current = self.connection.lock().await;
        if current.as_ref().is_some_and(|connection| Arc::ptr_eq(connection, lost)) {
            *current = None;
        }
    }
}

fn request(call: Call<'_>) -> CallToolRequestParams {
    let mut meta = RequestMetaObject::new();
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
