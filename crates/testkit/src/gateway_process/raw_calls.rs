//! Raw HTTP requests to a gateway process, and shortcuts for tokens, upstreams and the audit.

use std::path::PathBuf;

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

use super::GatewayProcess;

impl GatewayProcess {
    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn database(&self) -> PathBuf {
        self.folder.path().join("gateway.db")
    }

    pub fn http(&self) -> &Client {
        &self.http
    }

    /// Issues a token for a project manager and returns its secret.
    pub async fn manager(&self) -> String {
        self.issue(json!({ "label": "test", "agent": "project_manager" })).await.1
    }

    /// Issues a token that is bound to nothing and returns its secret.
    pub async fn unbound(&self, agent: &str) -> String {
        self.issue(json!({ "label": "test", "agent": agent })).await.1
    }

    /// Issues a token for a node, and returns its secret.
    pub async fn node_token(&self, node: &str) -> String {
        self.issue(json!({ "label": "test", "agent": "node", "node": node })).await.1
    }

    /// Issues a token for an analyst or a sandbox, bound to a user and a task, and returns its secret.
    pub async fn bound(&self, agent: &str, user: &str, task: &str) -> String {
        let new = json!({ "label": "test", "agent": agent, "user_id": user, "task_id": task });
        self.issue(new).await.1
    }

    /// Installs an upstream and serves all its tools, with a call timeout of two seconds.
    pub async fn install(&self, namespace: &str, url: &str) {
        self.install_within(namespace, url, "2s").await;
    }

    /// Installs an upstream with this call timeout.
    pub async fn install_within(&self, namespace: &str, url: &str, call_timeout: &str) {
        let new = json!({
            "namespace": namespace, "transport": { "http": { "url": url } }, "trust_first": true,
            "call_timeout": call_timeout, "concurrency": 64,
        });
        let added = self.must("POST", "/api/v1/upstreams", Some(new)).await;
        assert!(added["problem"].is_null(), "{added}");
    }

    /// Sends one request in the older era and returns the HTTP status and body.
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

    pub async fn post_call(&self, token: &str, tool: &str, arguments: Value) -> (StatusCode, Value) {
        let params = json!({ "name": tool, "arguments": arguments });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        self.post(Some(token), body.to_string()).await
    }

    /// Returns the names of the tools that the holder of a token can list.
    pub async fn tools(&self, token: &str) -> Vec<String> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} });
        let (_, answer) = self.post(Some(token), body.to_string()).await;
        let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
        tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// Returns the audit rows that match a filter such as `tool=db.task.get&limit=10`, newest first.
    pub async fn audit(&self, filter: &str) -> Vec<Value> {
        let answer = self.must("GET", &format!("/api/v1/audit?{filter}"), None).await;
        answer.as_array().unwrap_or_else(|| panic!("{answer}")).clone()
    }
}
