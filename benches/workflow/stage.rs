//! The programs that a workflow needs, and the calls of those who start and watch it.

use std::time::Duration;

use contract::workflow::Details;
use serde_json::{Value, json};
use testkit::{GatewayProcess, Nats, RunnerBuilder, Worker};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// The default of the runner's setting `runner.lease`.
pub(crate) const LEASE: Duration = Duration::from_secs(15);

/// A server, a gateway on SQLite and a project manager. There is no node.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) nats: Nats,
    pub(crate) gateway: GatewayProcess,
    pub(crate) runner: RunnerBuilder,
    agent: mcp::Client,
    _worker: Worker,
}

impl Stage {
    /// Starts all but the runner. The offline model answers after `thinking`.
    pub(crate) async fn start(thinking: Duration) -> Self {
        let nats = Nats::start();
        let gateway = GatewayProcess::start_with(&[("nats.url", &nats.url())]).await;
        let worker = Worker::manager(&nats).thinking(thinking).calling_process(&gateway).await.start().await;
        let runner = RunnerBuilder::new(&nats.url(), &gateway).await;
        let runner = runner.set("runner.lease", format!("{}s", LEASE.as_secs()));
        let agent = gateway.agent(&gateway.manager().await);
        Self { nats, gateway, runner, agent, _worker: worker }
    }

    /// Starts the workflow of a new task with these steps, and returns the id of the task.
    pub(crate) async fn begin(&self, steps: &[Value]) -> String {
        let task = self.call("db.task.create", json!({ "title": "Measure", "user_id": "ada" })).await;
        let task = task["task_id"].as_str().expect("an id").to_owned();
        self.call("workflow.start", json!({ "task_id": task, "steps": steps })).await;
        task
    }

    /// Returns a workflow with its effects and its latest events.
    pub(crate) async fn workflow(&self, task: &str) -> Details {
        let found = self.call("workflow.get", json!({ "task_id": task })).await;
        serde_json::from_value(found).expect("a workflow")
    }

    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let reply = self.gateway.call(&self.agent, tool, arguments).await.expect(tool);
        assert!(!reply.is_error, "{tool}: {}", reply.text);
        reply.structured.expect("a structured result")
    }
}

/// Returns steps that the manager does itself, each after the one before.
pub(crate) fn chain(steps: usize) -> Vec<Value> {
    let step = |number: usize| {
        let after: Vec<String> =
            number.checked_sub(1).map(|before| format!("step-{before}")).into_iter().collect();
        json!({ "name": format!("step-{number}"), "description": "Say hello.", "kind": "manager",
            "depends_on": after })
    };
    (0..steps).map(step).collect()
}

/// Reads a time as the gateway writes it.
pub(crate) fn time_of(text: &str) -> OffsetDateTime {
    OffsetDateTime::parse(text, &Rfc3339).expect("a time")
}

/// Returns the value that this share of the values does not exceed.
pub(crate) fn percentile(values: &[f64], share: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() * share / 100]
}
