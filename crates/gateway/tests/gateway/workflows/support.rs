//! A gateway with NATS, a runner that a test plays, and what it takes and finds.

use async_nats::jetstream::{self, message::StreamMessage};
use serde_json::{Value, json};
use subjects::{
    HandoffId, Subject,
    streams::{self, Layout, Sizing},
};
use testkit::{GatewayProcess, Nats, Postgres, eventually};

use crate::administration::support::manager;

/// Text that would do something if it were not escaped.
pub(super) const EVIL: &str = "<script>alert(1)</script>\u{1b}[2J";

/// Runs every test on SQLite and on PostgreSQL.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test] async fn $name() {
                super::$name(crate::workflows::support::World::new().await).await;
            })*
        }
        mod postgres {
            $(#[tokio::test] async fn $name() {
                super::$name(crate::workflows::support::World::on_postgres().await).await;
            })*
        }
    };
}
pub(super) use on_both;

pub(super) struct World {
    pub(super) nats: Nats,
    pub(super) gateway: GatewayProcess,
    pub(super) manager: mcp::Client,
    pub(super) runner: mcp::Client,
    pub(super) client: async_nats::Client,
    pub(super) jetstream: jetstream::Context,
    pub(super) store_url: String,
    /// Outlives the gateway.
    _postgres: Option<Postgres>,
}

impl World {
    pub(super) async fn new() -> Self {
        Self::with(&[], &[]).await
    }

    pub(super) async fn on_postgres() -> Self {
        Self::on_postgres_with(&[]).await
    }

    pub(super) async fn on_postgres_with(variables: &[(String, String)]) -> Self {
        let postgres = Postgres::start();
        let url = postgres.database();
        let settings = [("store.url", &*url), ("store.max_connections", "4"), ("store.patience", "30s")];
        let world = Self::with(&settings, variables).await;
        Self { _postgres: Some(postgres), ..world }
    }

    pub(super) async fn with(settings: &[(&str, &str)], variables: &[(String, String)]) -> Self {
        let nats = Nats::start();
        let url = nats.url();
        let settings: Vec<(&str, &str)> =
            [("nats.url", &*url)].into_iter().chain(settings.iter().copied()).collect();
        let gateway = GatewayProcess::start_with_variables(&settings, variables).await;
        let (manager, runner) = (manager(&gateway).await, gateway.agent(&gateway.unbound("workflow").await));
        let client = nats.client().await;
        let jetstream = jetstream::new(client.clone());
        let store_url = settings.iter().find(|(key, _)| *key == "store.url");
        let store_url = store_url.map_or_else(|| gateway.store_url(), |(_, url)| (*url).to_owned());
        Self { nats, gateway, manager, runner, client, jetstream, store_url, _postgres: None }
    }

    /// Creates the streams of handoffs and answers, as workers do.
    pub(super) async fn create_handoff_streams(&self) {
        let sizing = Sizing {
            replicas: 1,
            ack_wait: std::time::Duration::from_secs(30),
            dedupe_window: std::time::Duration::from_secs(120),
        };
        for config in Layout::default().all(sizing) {
            self.jetstream.get_or_create_stream(config).await.expect("a stream");
        }
    }

    pub(super) async fn task(&self, title: &str) -> String {
        self.task_with(json!({ "title": title, "user_id": "ada" })).await
    }

    pub(super) async fn task_with(&self, task: Value) -> String {
        let task = self.ok("db.task.create", task).await;
        task["task_id"].as_str().expect("an id").to_owned()
    }

    /// Creates a task and starts its workflow.
    pub(super) async fn started(&self, title: &str) -> String {
        let task = self.task(title).await;
        self.ok("workflow.start", json!({ "task_id": task })).await;
        task
    }

    /// Creates a task and takes its workflow. Returns the task and the epoch.
    pub(super) async fn taken(&self, title: &str) -> (String, i64) {
        let task = self.started(title).await;
        let epoch = self.acquire(&task, 1).await["epoch"].as_i64().expect("an epoch");
        (task, epoch)
    }

    pub(super) async fn acquire(&self, task: &str, run: i64) -> Value {
        let wanted = json!({ "task_id": task, "run": run, "holder": "runner-1", "ttl_seconds": 30 });
        self.runs("workflow.lease.acquire", wanted).await
    }

    /// A call of the manager that succeeds.
    pub(super) async fn ok(&self, tool: &str, arguments: Value) -> Value {
        ok(&self.gateway, &self.manager, tool, arguments).await
    }

    /// A call of the runner that succeeds.
    pub(super) async fn runs(&self, tool: &str, arguments: Value) -> Value {
        ok(&self.gateway, &self.runner, tool, arguments).await
    }

    /// A call of the manager that fails; returns the structured error.
    pub(super) async fn fails(&self, tool: &str, arguments: Value) -> Value {
        fails(&self.gateway, &self.manager, tool, arguments).await
    }

    /// A call of the runner that fails; returns the structured error.
    pub(super) async fn refused(&self, tool: &str, arguments: Value) -> Value {
        fails(&self.gateway, &self.runner, tool, arguments).await
    }

    pub(super) async fn get(&self, task: &str) -> Value {
        self.ok("workflow.get", json!({ "task_id": task })).await
    }

    pub(super) async fn status(&self, task: &str) -> (String, String) {
        let workflow = self.get(task).await;
        let task = self.ok("db.task.get", json!({ "task_id": task })).await;
        let text = |value: &Value| value["status"].as_str().expect("a status").to_owned();
        (text(&workflow), text(&task))
    }

    pub(super) async fn release(&self, task: &str, epoch: i64, outcome: Value) -> Value {
        let wanted = json!({ "task_id": task, "epoch": epoch, "outcome": outcome });
        self.runs("workflow.lease.release", wanted).await
    }

    /// Stores the state of a runner that planned three steps: one is done, one runs, one waits.
    pub(super) async fn put_plan(&self, task: &str, epoch: i64) {
        let step = |name: &str, status: &str, after: &[&str]| {
            json!({ "name": name, "description": EVIL, "kind": "job", "script": "true", "status": status,
                    "depends_on": after, "needs_approval": name == "test" })
        };
        let state = json!({
            "plan": [step("fetch", "done", &[]), step("convert", "running", &["fetch"]),
                     step("test", "pending", &["convert"])],
            "attempts_by_step": { "fetch": 1, "convert": 2 },
            "results": { "fetch": { "outcome": "succeeded", "exit_code": 0, "output_tail": EVIL,
                                    "artifacts": ["in.csv"] } },
            "verification": { "fetch": { "iteration": 1, "decision": "pass", "reasons": [EVIL], "issues": [
                { "severity": "minor", "problem": EVIL, "fix": "none" }] } },
        });
        let events = json!([
            { "node": "load_task_context", "outcome": "ended" },
            { "node": "plan_steps", "outcome": "ended", "detail": "3 steps" },
            { "node": "dispatch_step", "step": "convert", "outcome": "retried", "detail": "attempt 2" },
            { "node": "decide_next", "outcome": "ended" },
        ]);
        let put = json!({
            "task_id": task, "epoch": epoch, "checkpoint_id": "1f", "kind": "msgpack", "data": "AAEC",
            "state": state, "events": events, "last_node": "decide_next",
        });
        self.runs("workflow.checkpoint.put", put).await;
    }

    /// The messages for runners of a task, in order: their runs.
    pub(super) async fn sent(&self, task: &str) -> Vec<i64> {
        let batch = broker::read_batch(&self.jetstream, streams::WORKFLOWS, "workflow.run", 1, 1_000).await;
        let runs = batch.unwrap_or_default().into_iter().filter_map(|message| {
            let body: Value = serde_json::from_slice(&message.payload).expect("JSON");
            assert_eq!(body["v"], 1, "{body}");
            let id = message.headers.get("Nats-Msg-Id").expect("an id").to_string();
            assert_eq!(id, format!("{}.{}", body["task_id"].as_str().expect("a task"), body["run"]));
            (body["task_id"] == task).then(|| body["run"].as_i64().expect("a run"))
        });
        runs.collect()
    }

    pub(super) async fn until_sent(&self, task: &str, runs: &[i64]) {
        eventually(&format!("runs {runs:?} are sent"), async || {
            (self.sent(task).await == runs).then_some(())
        })
        .await;
    }

    /// Waits until nothing waits in the outbox.
    pub(super) async fn until_all_sent(&self) {
        eventually("all messages are published", async || {
            (self.gateway.must("GET", "/api/v1/outbox", None).await == json!([])).then_some(())
        })
        .await;
    }

    /// The message of a handoff, as soon as it is published.
    pub(super) async fn published(&self, kind: &str, id: &str) -> StreamMessage {
        let subject = format!("pma.handoff.{kind}");
        eventually("the handoff is published", async || {
            let batch =
                broker::read_batch(&self.jetstream, streams::HANDOFFS, &subject, 1, 1_000).await.ok()?;
            let is_it = |message: &StreamMessage| {
                message.headers.get("Nats-Msg-Id").is_some_and(|found| found.as_str() == id)
            };
            let mut found: Vec<StreamMessage> = batch.into_iter().filter(is_it).collect();
            assert!(found.len() < 2, "published twice");
            found.pop()
        })
        .await
    }

    /// Stores the answer of a manager.
    pub(super) async fn answer(&self, kind: &str, id: &str, text: &str) {
        let message = json!({ "role": "assistant", "content": text });
        let said = json!({ "status": "completed", "message": message, "error": null });
        self.store_answer(kind, id, &said).await;
    }

    /// Stores the answer of a worker whose model was away for too long.
    pub(super) async fn answer_failed(&self, kind: &str, id: &str) {
        let error = json!({ "code": "inference_unavailable", "message": "no model", "retryable": true });
        let said = json!({ "status": "failed", "message": null, "error": error });
        self.store_answer(kind, id, &said).await;
    }

    async fn store_answer(&self, kind: &str, id: &str, said: &Value) {
        let id: HandoffId = id.parse().expect("an id");
        let mut completion = json!({
            "schema_version": 1, "handoff_id": id, "kind": kind, "finish_reason": "stop", "tasks": [],
            "usage": { "prompt_tokens": 3, "completion_tokens": 4, "model_calls": 1, "tool_calls": 0,
                       "cost_usd": 0.25 },
            "trace": { "trace_id": "t", "steps": [], "stop": "goal_met" },
            "attempts": 1, "instance": "pm-1", "from_the_future": { "a": [1] },
        });
        for (name, value) in said.as_object().expect("an object") {
            completion[name] = value.clone();
        }
        let subject = Subject::Completion(id).to_string();
        let stored = self.jetstream.publish(subject, completion.to_string().into()).await.expect("published");
        stored.await.expect("stored");
    }
}

pub(super) async fn ok(gateway: &GatewayProcess, agent: &mcp::Client, tool: &str, arguments: Value) -> Value {
    let shown = arguments.to_string();
    match gateway.call(agent, tool, arguments).await {
        Ok(reply) if !reply.is_error => reply.structured.expect("a result"),
        Ok(reply) => panic!("{tool} {shown:.300}: {}", reply.text),
        Err(error) => panic!("{tool} {shown:.300}: {error}"),
    }
}

pub(super) async fn fails(
    gateway: &GatewayProcess,
    agent: &mcp::Client,
    tool: &str,
    arguments: Value,
) -> Value {
    let shown = arguments.to_string();
    match gateway.call(agent, tool, arguments).await {
        Ok(reply) if reply.is_error => reply.structured.expect("a structured error"),
        Ok(reply) => panic!("{tool} {shown:.300} succeeded: {}", reply.text),
        Err(error) => panic!("{tool} {shown:.300}: {error}"),
    }
}

/// The calls of a runner that write or begin something, each with good arguments for a task and an epoch.
pub(super) fn runner_calls(task: &str, epoch: i64) -> Vec<(&'static str, Value)> {
    let with = |more: Value| {
        let mut arguments = json!({ "task_id": task, "epoch": epoch });
        for (name, value) in more.as_object().expect("an object") {
            arguments[name] = value.clone();
        }
        arguments
    };
    vec![
        ("workflow.lease.renew", with(json!({ "ttl_seconds": 30 }))),
        (
            "workflow.checkpoint.put",
            with(
                json!({ "checkpoint_id": "1f", "kind": "msgpack", "data": "AAEC", "state": { "stale": 1 } }),
            ),
        ),
        (
            "workflow.checkpoint.put_writes",
            with(json!({
                "checkpoint_id": "1f", "write_task_id": "t-1",
                "writes": [{ "idx": 0, "channel": "plan", "kind": "msgpack", "data": "AAEC" }],
            })),
        ),
        ("workflow.checkpoint.get", with(json!({}))),
        ("workflow.checkpoint.list", with(json!({}))),
        ("workflow.checkpoint.delete", with(json!({}))),
        ("workflow.job", with(json!({ "key": "stale", "step": "build", "run": { "command": ["true"] } }))),
        (
            "workflow.handoff",
            with(json!({ "key": "stale-plan", "kind": "plan", "payload": { "goal": "build it" } })),
        ),
        ("workflow.lease.release", with(json!({ "outcome": { "done": { "summary": "stale" } } }))),
    ]
}
