//! Calls of an orchestrator.

use serde_json::{Value, json};
use testkit::GatewayProcess;

/// An orchestrator at one gateway.
pub(crate) struct Caller<'g> {
    pub(crate) gateway: &'g GatewayProcess,
    agent: mcp::Client,
}

impl<'g> Caller<'g> {
    /// Returns an orchestrator with a token that any gateway on the same store knows.
    pub(crate) fn new(gateway: &'g GatewayProcess, secret: &str) -> Self {
        Self { gateway, agent: gateway.agent(secret) }
    }

    /// Calls `schedule.<tool>`. `Err` has the message of a failure, or why there is no answer.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Result<Value, String> {
        let reply = self.gateway.call(&self.agent, &format!("schedule.{tool}"), arguments).await;
        match reply {
            Ok(reply) if reply.is_error => Err(reply.text),
            Ok(reply) => Ok(reply.structured.expect("a result")),
            Err(error) => Err(error.to_string()),
        }
    }

    pub(crate) async fn must(&self, tool: &str, arguments: Value) -> Value {
        self.call(tool, arguments).await.unwrap_or_else(|why| panic!("schedule.{tool}: {why}"))
    }

    /// Fires until nothing more is due, and returns the runs. Ends where the gateway does.
    pub(crate) async fn fire_all(&self) -> Vec<Value> {
        let mut runs = Vec::new();
        while let Ok(fired) = self.call("fire", json!({})).await {
            runs.extend(fired["runs"].as_array().expect("a list").clone());
            if fired["has_more"] == false {
                break;
            }
        }
        runs
    }

    /// All runs of a schedule, the latest first.
    pub(crate) async fn history(&self, user: &str, schedule: &str) -> Vec<Value> {
        let (mut runs, mut cursor) = (Vec::new(), Value::Null);
        loop {
            let page = json!({ "user_id": user, "schedule": schedule, "limit": 200, "cursor": cursor });
            let page = self.must("runs", page).await;
            runs.extend(page["items"].as_array().expect("a list").clone());
            cursor = page["next_cursor"].clone();
            if cursor.is_null() {
                return runs;
            }
        }
    }
}

/// Issues a token of an orchestrator.
pub(crate) async fn orchestrator(gateway: &GatewayProcess) -> String {
    gateway.unbound("orchestrator").await
}

pub(crate) fn prompt(name: &str, timing: &Value) -> Value {
    json!({ "name": name, "timing": timing, "payload": { "type": "prompt", "prompt": "Say hello." } })
}
