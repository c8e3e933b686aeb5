//! Runs `cynode-gateway` as a process.

mod raw_calls;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use reqwest::{Method, header::CONTENT_TYPE, redirect};
use serde_json::{Map, Value};
use tempfile::TempDir;

use crate::{
    Process, binary,
    logs::{field, lines_with},
};

const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// A gateway process with its own data folder and ports. Killed when it is dropped.
#[derive(Debug)]
pub struct GatewayProcess {
    pub process: Process,
    folder: TempDir,
    settings: Vec<String>,
    variables: Vec<(String, String)>,
    address: String,
    admin_address: String,
    http: reqwest::Client,
}

/// A response of the admin API: status, and JSON body or null.
#[derive(Clone, Debug)]
pub struct AdminResponse {
    pub status: u16,
    pub body: Value,
}

impl GatewayProcess {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts with additional settings, such as `("audit.seal_every", "100ms")`.
    pub async fn start_with(settings: &[(&str, &str)]) -> Self {
        Self::start_with_variables(settings, &[]).await
    }

    /// Starts with additional settings and environment variables, such as that of a
    /// [`TestClock`](crate::TestClock).
    pub async fn start_with_variables(settings: &[(&str, &str)], variables: &[(String, String)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the gateway");
        // Tests call faster than agents do.
        let fast = ("calls.per_second", "100000");
        let settings = std::iter::once(&fast).chain(settings);
        let settings: Vec<String> = settings.map(|(key, value)| format!("{key}={value}")).collect();
        let any = "127.0.0.1:0";
        let process = spawn(folder.path(), &settings, variables, any, any);
        // Fails if another thread installed a provider first, which is fine.
        drop(rustls::crypto::ring::default_provider().install_default());
        let http = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .build()
            .expect("an HTTP client");
        let (address, admin_address) = (String::new(), String::new());
        let variables = variables.to_vec();
        let mut gateway = Self { process, folder, settings, variables, address, admin_address, http };
        gateway.wait_until_ready(1).await;
        gateway
    }

    /// Returns the URL at which agents call tools.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Returns the base URL of the admin API.
    pub fn admin_url(&self) -> String {
        format!("http://{}", self.admin_address)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("gateway.log")).unwrap_or_default()
    }

    pub fn store_url(&self) -> String {
        format!("sqlite://{}", self.folder.path().join("gateway.db").display())
    }

    pub fn admin_token_file(&self) -> PathBuf {
        self.folder.path().join("admin.token")
    }

    pub fn admin_token(&self) -> String {
        fs::read_to_string(self.admin_token_file()).expect("the gateway made it").trim().to_owned()
    }

    /// Sends a request to the admin API with `token`.
    pub async fn ask_as(&self, token: &str, method: &str, path: &str, body: Option<Value>) -> AdminResponse {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let mut request = self.http.request(method, format!("{}{path}", self.admin_url())).bearer_auth(token);
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        }
        let response = request.send().await.expect("the gateway answers");
        let status = response.status().as_u16();
        let text = response.text().await.expect("the answer comes whole");
        AdminResponse { status, body: serde_json::from_str(&text).unwrap_or(Value::Null) }
    }

    /// Sends a request to the admin API as the first administrator.
    pub async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> AdminResponse {
        self.ask_as(&self.admin_token(), method, path, body).await
    }

    /// The text that a scraper reads.
    pub async fn metrics(&self) -> String {
        let asked = self.http.get(format!("{}/metrics", self.admin_url())).send().await;
        asked.expect("the gateway answers").text().await.expect("the answer comes whole")
    }

    /// As `ask`, and it has to be done.
    #[track_caller]
    pub fn must(&self, method: &str, path: &str, body: Option<Value>) -> impl Future<Output = Value> {
        let (caller, what) = (std::panic::Location::caller(), format!("{method} {path}"));
        async move {
            let answered = self.ask(method, path, body).await;
            assert!(answered.status < 300, "{caller}: {what}: {answered:?}");
            answered.body
        }
    }

    /// Issues a token and returns its id and secret.
    pub async fn issue(&self, new: Value) -> (String, String) {
        let issued = self.must("POST", "/api/v1/tokens", Some(new)).await;
        let text = |member: &str| issued[member].as_str().expect("a text").to_owned();
        (text("id"), text("secret"))
    }

    /// Returns an MCP client that calls tools with this token.
    pub fn agent(&self, secret: &str) -> mcp::Client {
        self.agent_with_profile(secret, None)
    }

    /// Returns an MCP client that calls tools with this token and under this memory profile.
    pub fn agent_with_profile(&self, secret: &str, profile: Option<&str>) -> mcp::Client {
        let file = tempfile::Builder::new().prefix("token-").tempfile_in(self.folder.path()).expect("a file");
        fs::write(file.path(), secret).expect("the token can be written");
        let (_, path) = file.keep().expect("the file stays");
        mcp::Client::new(mcp::Options {
            url: self.url(),
            token_file: Some(path),
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(20),
            max_result_bytes: 1 << 20,
            fast_path: true,
            profile: profile.map(str::to_owned),
        })
        .expect("a client")
    }

    /// Calls a tool once, without an idempotency key.
    pub async fn call(
        &self,
        agent: &mcp::Client,
        tool: &str,
        arguments: Value,
    ) -> Result<mcp::Reply, mcp::Error> {
        self.call_under(agent, None, tool, arguments).await
    }

    /// Calls a tool once under a lease, without an idempotency key.
    pub async fn call_under(
        &self,
        agent: &mcp::Client,
        lease: Option<&str>,
        tool: &str,
        arguments: Value,
    ) -> Result<mcp::Reply, mcp::Error> {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        let arguments: Map<String, Value> = arguments;
        agent.call(mcp::Call { name: tool, arguments, idempotency_key: None, traceparent: None, lease }).await
    }

    /// Issues a lease and returns its id and its signed text.
    pub async fn lease(&self, new: Value) -> (String, String) {
        let issued = self.must("POST", "/api/v1/leases", Some(new)).await;
        let text = |member: &str| issued[member].as_str().expect("a text").to_owned();
        (text("id"), text("signed"))
    }

    /// Sends SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Restarts with the same data folder and ports.
    pub async fn start_again(&mut self) {
        self.process.kill();
        let before = ready_lines(&self.log()).len();
        let (folder, variables) = (self.folder.path(), &self.variables);
        self.process = spawn(folder, &self.settings, variables, &self.address, &self.admin_address);
        self.wait_until_ready(before + 1).await;
    }

    async fn wait_until_ready(&mut self, times: usize) {
        let until = tokio::time::Instant::now() + READY_TIMEOUT;
        loop {
            let log = self.log();
            if let Some((address, admin_address)) = ready_lines(&log).into_iter().nth(times - 1) {
                (self.address, self.admin_address) = (address, admin_address);
                return;
            }
            assert!(self.process.is_running(), "the gateway ended:\n{log}");
            assert!(tokio::time::Instant::now() < until, "the gateway is not ready:\n{log}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Returns the two addresses in each `Ready.` line of a log.
fn ready_lines(log: &str) -> Vec<(String, String)> {
    let ready = lines_with(log, "Ready.");
    ready.filter_map(|line| Some((field(line, "address")?, field(line, "admin_address")?))).collect()
}

fn spawn(
    folder: &Path,
    settings: &[String],
    variables: &[(String, String)],
    listen: &str,
    admin_listen: &str,
) -> Process {
    let mut arguments: Vec<String> =
        ["--listen", listen, "--admin-listen", admin_listen, "--data"].map(str::to_owned).into();
    arguments.push(folder.display().to_string());
    for setting in settings {
        arguments.extend(["--set".to_owned(), setting.clone()]);
    }
    Process::start(&binary("cynode-gateway"), &arguments, variables, &folder.join("gateway.log"))
}
