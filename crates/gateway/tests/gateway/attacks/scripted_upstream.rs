//! An upstream whose tools and answers a test can change at any time.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use testkit::{GatewayProcess, ScriptedServer};

/// An upstream whose tools and answers a test can change at any time.
pub(crate) struct ScriptedUpstream {
    pub(crate) server: ScriptedServer,
    pub(crate) tools: Arc<Mutex<Value>>,
    pub(crate) result: Arc<Mutex<Value>>,
}

pub(crate) fn tool(name: &str) -> Value {
    json!({ "name": name, "description": "Does something.", "inputSchema": { "type": "object" } })
}

pub(crate) fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }], "resultType": "complete" })
}

impl ScriptedUpstream {
    pub(crate) async fn start(tools: Value) -> Self {
        let (tools, result) = (Arc::new(Mutex::new(tools)), Arc::new(Mutex::new(text("done"))));
        let (listed, answered) = (tools.clone(), result.clone());
        let server = ScriptedServer::start(false, move |request| match request["method"].as_str() {
            Some("tools/list") => json!({
                "tools": *listed.lock().unwrap(), "resultType": "complete", "ttlMs": 0,
                "cacheScope": "private",
            }),
            Some("tools/call") => answered.lock().unwrap().clone(),
            // Other requests to the upstream are irrelevant here.
            _ => json!({ "resultType": "complete" }),
        })
        .await;
        Self { server, tools, result }
    }

    pub(crate) fn offer(&self, tools: Value) {
        *self.tools.lock().unwrap() = tools;
    }

    pub(crate) fn answer(&self, result: Value) {
        *self.result.lock().unwrap() = result;
    }

    pub(crate) fn calls(&self) -> Vec<Value> {
        self.server.seen().into_iter().filter(|message| message["method"] == "tools/call").collect()
    }
}

/// Makes the gateway refresh the tools of an upstream.
pub(crate) async fn refresh(gateway: &GatewayProcess, namespace: &str) -> Value {
    gateway.must("POST", &format!("/api/v1/upstreams/{namespace}/refresh"), None).await
}

/// Quarantined tools, as `name: reason`.
pub(crate) async fn quarantine(gateway: &GatewayProcess) -> Vec<String> {
    let waiting = gateway.must("GET", "/api/v1/quarantine", None).await;
    let line =
        |tool: &Value| format!("{}: {}", tool["name"].as_str().unwrap(), tool["reason"].as_str().unwrap());
    waiting.as_array().unwrap().iter().map(line).collect()
}
