//! A fake gateway: a real MCP server over HTTP whose tools are defined by a test.

mod server;

use std::{
    collections::HashMap,
    fmt,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use serde_json::{Map, Value};
use tokio::runtime::{self, Runtime};

type Handler = Box<dyn Fn(&Map<String, Value>) -> Answer + Send + Sync>;

/// A tool and its handler.
pub struct Tool {
    name: String,
    description: String,
    schema: Map<String, Value>,
    read_only: bool,
    handler: Handler,
}

impl Tool {
    pub fn new(
        name: &str,
        description: &str,
        schema: Value,
        handler: impl Fn(&Map<String, Value>) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let Value::Object(schema) = schema else { panic!("the schema of {name} is not an object") };
        let (name, description) = (name.to_owned(), description.to_owned());
        Self { name, description, schema, read_only: false, handler: Box::new(handler) }
    }

    /// Annotates the tool as read-only.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The answer of a tool.
#[derive(Clone, Debug)]
pub enum Answer {
    Text(String),
    Structured(Value),
    /// A result with `isError`.
    Error(String),
    /// A JSON-RPC error.
    Rejected(i32, String),
    /// Never answers.
    Hang,
    /// Answers after a delay.
    After(Duration, Box<Answer>),
}

impl Answer {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub fn structured(value: Value) -> Self {
        Self::Structured(value)
    }

    /// Answers with a task, as `db.task.get`, `db.task.create` and `db.task.update` do.
    pub fn task(id: &str, name: &str, acceptance_criteria: &[&str]) -> Self {
        let time = "2026-01-01T00:00:00Z".to_owned();
        let task = contract::task::Task {
            task_id: id.to_owned(),
            name: name.to_owned(),
            title: name.to_owned(),
            description: String::new(),
            acceptance_criteria: acceptance_criteria.iter().map(|&text| text.to_owned()).collect(),
            status: contract::task::Status::Pending,
            project_id: None,
            user_id: None,
            parent_task_id: None,
            schedule_id: None,
            run_id: None,
            order: 0,
            version: 1,
            created_at: time.clone(),
            updated_at: time,
        };
        Self::Structured(serde_json::to_value(task).unwrap())
    }

    pub fn error(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }

    pub fn rejected(code: i32, message: impl Into<String>) -> Self {
        Self::Rejected(code, message.into())
    }

    pub fn hang() -> Self {
        Self::Hang
    }

    pub fn after(time: Duration, answer: Self) -> Self {
        Self::After(time, Box::new(answer))
    }
}

/// A call that the gateway received.
#[derive(Clone, Debug)]
pub struct RecordedCall {
    pub name: String,
    pub arguments: Map<String, Value>,
    pub idempotency_key: Option<String>,
    pub traceparent: Option<String>,
    /// The memory profile of the caller, from its header.
    pub profile: Option<String>,
    /// The unmodified `Authorization` header.
    pub authorization: Option<String>,
    pub at: Instant,
    /// Whether the idempotency key was seen before, so that the tool did not run again.
    pub repeated: bool,
    /// The protocol version of the caller.
    pub version: Option<String>,
    /// The session id, in the older era.
    pub session: Option<String>,
}

/// Serves both eras of the protocol on its own port until it is dropped.
#[derive(Debug)]
pub struct Gateway {
    address: SocketAddr,
    state: Arc<State>,
    /// A separate runtime, so that `kill` ends all connections at once, like killing a process.
    runtime: Option<Runtime>,
}

#[derive(Debug)]
struct State {
    tools: Vec<Tool>,
    legacy: bool,
    calls: Mutex<Vec<RecordedCall>>,
    /// The answer to each idempotency key, and when it becomes available.
    answered: Mutex<HashMap<String, (Answer, Instant)>>,
    token: Mutex<Option<String>>,
    failing: Mutex<Option<u16>>,
    dropped: Mutex<usize>,
}

impl Gateway {
    pub async fn start(tools: Vec<Tool>) -> Self {
        Self::start_as(tools, false)
    }

    /// Supports only the older era (2025-11-25 and before), with sessions.
    pub async fn start_legacy(tools: Vec<Tool>) -> Self {
        Self::start_as(tools, true)
    }

    fn start_as(tools: Vec<Tool>, legacy: bool) -> Self {
        let state = Arc::new(State {
            tools,
            legacy,
            calls: Mutex::default(),
            answered: Mutex::default(),
            token: Mutex::default(),
            failing: Mutex::default(),
            dropped: Mutex::default(),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let runtime = serve(listener, &state);
        Self { address, state, runtime: Some(runtime) }
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn calls(&self) -> Vec<RecordedCall> {
        self.state.calls.lock().unwrap().clone()
    }

    /// Returns the number of calls that were cancelled before their tool answered.
    pub fn cancelled_calls(&self) -> usize {
        *self.state.dropped.lock().unwrap()
    }

    /// From now on answers 401 to requests without this token.
    pub fn require_token(&self, token: &str) {
        *self.state.token.lock().unwrap() = Some(token.to_owned());
    }

    /// Answers every request with this status from now on; `None` ends that.
    pub fn fail_with(&self, status: Option<u16>) {
        *self.state.failing.lock().unwrap() = status;
    }

    /// Ends all connections at once. Keeps the answers by idempotency key, as a database would.
    pub fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// Restarts on the same port.
    pub fn start_again(&mut self) {
        self.kill();
        let until = Instant::now() + Duration::from_secs(10);
        let listener = loop {
            match TcpListener::bind(self.address) {
                Ok(listener) => break listener,
                Err(error) => assert!(Instant::now() < until, "{}: {error}", self.address),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        self.runtime = Some(serve(listener, &self.state));
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.kill();
    }
}

fn serve(listener: TcpListener, state: &Arc<State>) -> Runtime {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    listener.set_nonblocking(true).unwrap();
    runtime.spawn(server::serve(listener, state.clone()));
    runtime
}
