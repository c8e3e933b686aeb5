//! `cynode-gateway` as a process.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Process, binary, eventually};

/// A gateway with a folder and ports of its own, gone when it goes out of scope.
#[derive(Debug)]
pub struct GatewayProcess {
    process: Process,
    folder: TempDir,
    arguments: Vec<String>,
    address: String,
    admin_address: String,
    http: Client,
}

impl GatewayProcess {
    /// On SQLite, as it comes.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// With more arguments, as in `["--set", "calls.per_second=5"]`.
    pub async fn start_with(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the gateway");
        let mut all = vec!["--data".to_owned(), folder.path().display().to_string()];
        // Tests are faster than agents.
        all.extend(["--set", "calls.per_second=100000"].map(str::to_owned));
        all.extend(arguments.iter().map(|&argument| argument.to_owned()));
        // Lost against another thread is fine: then there is one.
        drop(rustls::crypto::ring::default_provider().install_default());
        let http = Client::builder().no_proxy().timeout(Duration::from_secs(30)).build().expect("a client");
        let process = start(&all, "127.0.0.1:0", "127.0.0.1:0", folder.path());
        let (address, admin_address) = ready(folder.path()).await;
        Self { process, folder, arguments: all, address, admin_address, http }
    }

    /// Where agents call.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn admin_url(&self) -> String {
        format!("http://{}", self.admin_address)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn database(&self) -> PathBuf {
        self.folder.path().join("gateway.db")
    }

    pub fn admin_token_file(&self) -> PathBuf {
        self.folder.path().join("admin.token")
    }

    pub fn admin_token(&self) -> String {
        fs::read_to_string(self.admin_token_file()).expect("the gateway made it").trim().to_owned()
    }

    /// Everything it said, over all its lives.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// On the same ports, with the same store.
    pub async fn start_again(&mut self) {
        self.process.kill();
        let log = self.folder.path().join("log");
        fs::rename(&log, self.folder.path().join("log.before")).expect("its log can be moved");
        self.process = start(&self.arguments, &self.address, &self.admin_address, self.folder.path());
        ready(self.folder.path()).await;
    }

    /// What an administrator asks for over REST: status and body.
    pub async fn admin(&self, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        self.admin_as(&self.admin_token(), method, path, body).await
    }

    pub async fn admin_as(
        &self,
        token: &str,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        let mut request =
            self.http.request(method, format!("{}/api/v1{path}", self.admin_url())).bearer_auth(token);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let response = request.send().await.expect("the gateway answers");
        let status = response.status();
        let text = response.text().await.expect("a body");
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// As [`Self::admin`], for what must be well.
    pub async fn manage(&self, method: Method, path: &str, body: Value) -> Value {
        let body = (!body.is_null()).then_some(body);
        let (status, answer) = self.admin(method.clone(), path, body).await;
        assert!(status.is_success(), "{method} {path}: {status} {answer}");
        answer
    }

    /// A manager's token.
    pub async fn manager(&self) -> String {
        self.issue(json!({ "label": "test", "agent": "project_manager" })).await
    }

    /// A token for an analyst or a sandbox.
    pub async fn bound(&self, agent: &str, user: &str, task: &str) -> String {
        self.issue(json!({ "label": "test", "agent": agent, "user_id": user, "task_id": task })).await
    }

    pub async fn issue(&self, new: Value) -> String {
        let issued = self.manage(Method::POST, "/tokens", new).await;
        issued["secret"].as_str().expect("a secret").to_owned()
    }

    /// A server behind it, all of whose tools are served.
    pub async fn install(&self, namespace: &str, url: &str) {
        let new = json!({
            "namespace": namespace, "transport": { "http": { "url": url } }, "trust_first": true, "call_timeout": "2s",
            "concurrency": 64,
        });
        let added = self.manage(Method::POST, "/upstreams", new).await;
        assert!(added["problem"].is_null(), "{added}");
    }

    /// One call by hand, in the older era, as raw as it gets: HTTP status and body.
    pub async fn post(&self, token: Option<&str>, body: impl Into<String>) -> (StatusCode, Value) {
        let mut request = self
            .http
            .post(self.url())
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let response = request.body(body.into()).send().await.expect("the gateway answers");
        let status = response.status();
        let text = response.text().await.expect("a body");
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub async fn call(&self, token: &str, tool: &str, arguments: Value) -> (StatusCode, Value) {
        let params = json!({ "name": tool, "arguments": arguments });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        self.post(Some(token), body.to_string()).await
    }

    /// The names of the tools that an agent sees.
    pub async fn tools(&self, token: &str) -> Vec<String> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} });
        let (_, answer) = self.post(Some(token), body.to_string()).await;
        let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
        tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// Audit rows that match, as in `tool=db.task.get&limit=10`; the newest first.
    pub async fn audit(&self, filter: &str) -> Vec<Value> {
        let answer = self.manage(Method::GET, &format!("/audit?{filter}"), Value::Null).await;
        answer["rows"].as_array().or_else(|| answer.as_array()).unwrap_or_else(|| panic!("{answer}")).clone()
    }

    pub fn http(&self) -> &Client {
        &self.http
    }
}

fn start(arguments: &[String], listen: &str, admin_listen: &str, folder: &Path) -> Process {
    let mut all = arguments.to_vec();
    all.extend(["--listen", listen, "--admin-listen", admin_listen].map(str::to_owned));
    Process::start(&binary("cynode-gateway"), &all, &[], &folder.join("log"))
}

async fn ready(folder: &Path) -> (String, String) {
    eventually("the gateway is ready", async || {
        let said = fs::read_to_string(folder.join("log")).unwrap_or_default();
        assert!(!said.contains("cynode-gateway: "), "{said}");
        let ready = said.lines().find(|line| line.contains("\"Ready.\""))?.to_owned();
        let ready: Value = serde_json::from_str(&ready).ok()?;
        Some((ready["address"].as_str()?.to_owned(), ready["admin_address"].as_str()?.to_owned()))
    })
    .await
}
