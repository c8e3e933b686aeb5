//! A stage with NATS and a gateway, builders for all that works on workflows, and shortcuts for tasks.

use std::time::Duration;

use async_nats::jetstream;
use serde_json::{Value, json};
use subjects::streams;
use testkit::{
    GatewayProcess, Nats, NodeBuilder, Postgres, RunnerBuilder, RunnerProcess, Worker, WorkerBuilder,
    eventually_within,
};

/// How long a workflow may take from one state to another, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);
/// How soon the work of a dead process is taken over: the shortest lease of runners.
pub(crate) const ACK_WAIT: &str = "5s";

pub(crate) struct Stage {
    pub(crate) nats: Nats,
    pub(crate) gateway: GatewayProcess,
    /// Calls tools with the token of a project manager.
    pub(crate) manager: mcp::Client,
    /// Outlives the gateway.
    _postgres: Option<Postgres>,
}

impl Stage {
    pub(crate) async fn start() -> Self {
        Self::with(&[], &[]).await
    }

    /// Starts a gateway that stores in PostgreSQL.
    pub(crate) async fn on_postgres() -> Self {
        let postgres = Postgres::start();
        let url = postgres.database();
        let settings = [("store.url", &*url), ("store.max_connections", "4"), ("store.patience", "30s")];
        let stage = Self::with(&settings, &[]).await;
        Self { _postgres: Some(postgres), ..stage }
    }

    /// Starts with additional settings and environment variables of the gateway, such as that of a
    /// [`testkit::TestClock`].
    pub(crate) async fn with(settings: &[(&str, &str)], variables: &[(String, String)]) -> Self {
        let nats = Nats::start();
        let url = nats.url();
        let ours = [("nats.url", &*url), ("workflows.ack_wait", ACK_WAIT)];
        let settings: Vec<(&str, &str)> = ours.into_iter().chain(settings.iter().copied()).collect();
        let gateway = GatewayProcess::start_with_variables(&settings, variables).await;
        let manager = gateway.agent(&gateway.manager().await);
        Self { nats, gateway, manager, _postgres: None }
    }

    /// Configures a project manager with the offline model that tasks analysts; `asking` gives it another
    /// model.
    pub(crate) async fn manager_worker(&self) -> WorkerBuilder {
        let worker = Worker::manager(&self.nats).set("worker.ack_wait", ACK_WAIT);
        worker.set("analysts.enabled", "true").calling_process(&self.gateway).await
    }

    /// Configures a project analyst with the offline model.
    pub(crate) async fn analyst_worker(&self) -> WorkerBuilder {
        let worker = Worker::analyst(&self.nats).set("worker.ack_wait", ACK_WAIT);
        worker.calling_process(&self.gateway).await
    }

    /// Configures a node.
    pub(crate) async fn node(&self, id: &str) -> NodeBuilder {
        NodeBuilder::new(id, &self.nats, &self.gateway).await
    }

    /// Configures a runner.
    pub(crate) async fn runner(&self, id: &str) -> RunnerBuilder {
        let runner = RunnerBuilder::new(&self.nats.url(), &self.gateway).await;
        runner.set("runner.id", id).set("nats.ack_wait", ACK_WAIT)
    }

    /// Starts a runner.
    pub(crate) async fn start_runner(&self, id: &str) -> RunnerProcess {
        self.runner(id).await.start().await
    }

    /// Calls a tool as the project manager, and it has to succeed.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        let reply = self.gateway.call(&self.manager, tool, arguments.clone()).await;
        let reply = reply.unwrap_or_else(|error| panic!("{tool} {arguments}: {error}"));
        assert!(!reply.is_error, "{tool} {arguments}: {}", reply.text);
        reply.structured.unwrap()
    }

    /// Creates a task of the user `ada`, with further members if given, and returns its id.
    pub(crate) async fn task(&self, title: &str, more: Value) -> String {
        let mut task = json!({ "title": title, "user_id": "ada" });
        task.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        let task = self.call("db.task.create", task).await;
        task["task_id"].as_str().unwrap().to_owned()
    }

    /// Creates a task, starts its workflow with these steps, and returns its id. Without steps (`json!([])`)
    /// the manager plans them.
    pub(crate) async fn begin(&self, title: &str, steps: Value) -> String {
        self.begin_with(title, steps, json!({})).await
    }

    /// As `begin`, with a policy such as `{ "max_attempts": 2 }`.
    pub(crate) async fn begin_with(&self, title: &str, steps: Value, policy: Value) -> String {
        let task = self.task(title, json!({})).await;
        self.start_workflow(&task, steps, policy).await;
        task
    }

    pub(crate) async fn start_workflow(&self, task: &str, steps: Value, policy: Value) {
        let mut start = json!({ "task_id": task, "policy": policy });
        if steps.as_array().is_some_and(|steps| !steps.is_empty()) {
            start["steps"] = steps;
        }
        self.call("workflow.start", start).await;
    }

    /// Returns a workflow with its state, effects and events.
    pub(crate) async fn workflow(&self, task: &str) -> Value {
        self.call("workflow.get", json!({ "task_id": task })).await
    }

    /// Waits until a workflow is as it should be, and returns it.
    pub(crate) async fn until(&self, task: &str, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                last = self.workflow(task).await;
                if is_so(&last) {
                    return last.clone();
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        found.await.unwrap_or_else(|_| panic!("still not after {PATIENCE:?}: {what}: {last}"))
    }

    /// Waits until a workflow is done, failed or cancelled, and returns it.
    pub(crate) async fn ended(&self, task: &str) -> Value {
        self.until(task, "the workflow has ended", |workflow| !workflow["ended_at"].is_null()).await
    }

    /// Waits until a workflow asks a person, and returns it.
    pub(crate) async fn asked(&self, task: &str) -> Value {
        let is_asking =
            |workflow: &Value| workflow["status"] == "waiting" && workflow["waiting_for"] != "pause";
        self.until(task, "the workflow asks a person", is_asking).await
    }

    /// Answers the question of a workflow.
    pub(crate) async fn answer(&self, task: &str, text: &str) {
        let asked = self.workflow(task).await["question_id"].clone();
        let answer = json!({ "task_id": task, "input": text, "question_id": asked });
        self.call("workflow.resume", answer).await;
    }

    pub(crate) async fn task_status(&self, task: &str) -> String {
        let task = self.call("db.task.get", json!({ "task_id": task })).await;
        task["status"].as_str().unwrap().to_owned()
    }

    /// Returns all jobs of a task, the newest first.
    pub(crate) async fn jobs(&self, task: &str) -> Vec<Value> {
        self.items("sandbox.job.list", json!({ "task_id": task, "limit": 100 })).await
    }

    /// Returns all findings on a task, the newest first.
    pub(crate) async fn findings(&self, task: &str) -> Vec<Value> {
        self.items("db.finding.list", json!({ "task_id": task, "limit": 100 })).await
    }

    /// Returns the content of a file of a task.
    pub(crate) async fn artifact(&self, task: &str, path: &str) -> String {
        let read = self.call("artifact.get", json!({ "task_id": task, "path": path })).await;
        read["content"].as_str().unwrap().to_owned()
    }

    async fn items(&self, tool: &str, arguments: Value) -> Vec<Value> {
        let page = self.call(tool, arguments).await;
        assert!(page["next_cursor"].is_null(), "one page has all: {page}");
        page["items"].as_array().unwrap_or_else(|| panic!("{page}")).clone()
    }

    /// Returns how many messages the queue of workflows has, taken or not.
    pub(crate) async fn queued(&self) -> u64 {
        let jetstream = jetstream::new(self.nats.client().await);
        let stream = jetstream.get_stream(streams::WORKFLOWS).await.unwrap();
        stream.cached_info().state.messages
    }

    /// Waits until the queue of workflows is empty: a runner settles a message after it released the
    /// workflow.
    pub(crate) async fn wait_until_settled(&self) {
        eventually_within(PATIENCE, "the queue of workflows is empty", || async {
            (self.queued().await == 0).then_some(())
        })
        .await;
    }
}

/// Returns a step that runs a script after others.
pub(crate) fn job(name: &str, script: &str, after: &[&str]) -> Value {
    json!({ "name": name, "description": "", "kind": "job", "script": script, "depends_on": after })
}

/// Returns what a workflow began, sorted: kind and step of each.
pub(crate) fn effects(workflow: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let effects = workflow["effects"].as_array().unwrap_or_else(|| panic!("{workflow}"));
    let mut found: Vec<_> = effects.iter().map(|it| (text(&it["kind"]), text(&it["step"]))).collect();
    found.sort();
    found
}

/// Returns events of a workflow, the oldest first: node, step, outcome and detail of each.
pub(crate) fn events(workflow: &Value) -> Vec<[String; 4]> {
    let events = workflow["events"].as_array().unwrap_or_else(|| panic!("{workflow}"));
    let text = |event: &Value, name: &str| event[name].as_str().unwrap_or_default().to_owned();
    let parts = |event| ["node", "step", "outcome", "detail"].map(|name| text(event, name));
    events.iter().map(parts).collect()
}
