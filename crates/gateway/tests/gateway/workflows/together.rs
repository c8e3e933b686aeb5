//! Gateways that share a PostgreSQL database: what is done at once is done once.

use futures_util::future::join_all;
use serde_json::{Value, json};
use subjects::streams::{self, Layout, Sizing};
use testkit::{GatewayProcess, Nats, Postgres, eventually};

use super::support::ok;
use crate::{administration::support::manager, instances::support::gateways};

struct Pair {
    gateways: Vec<GatewayProcess>,
    managers: Vec<mcp::Client>,
    runners: Vec<mcp::Client>,
    jetstream: async_nats::jetstream::Context,
    _nats: Nats,
    _postgres: Postgres,
}

impl Pair {
    async fn start() -> Self {
        let (nats, postgres) = (Nats::start(), Postgres::start());
        let gateways = gateways(2, &postgres.database(), &[("nats.url", &nats.url())]).await;
        let (mut managers, mut runners) = (Vec::new(), Vec::new());
        for gateway in &gateways {
            managers.push(manager(gateway).await);
            runners.push(gateway.agent(&gateway.unbound("workflow").await));
        }
        let jetstream = async_nats::jetstream::new(nats.client().await);
        let second = std::time::Duration::from_secs(1);
        let sizing = Sizing { replicas: 1, ack_wait: 30 * second, dedupe_window: 120 * second };
        for config in Layout::default().all(sizing) {
            jetstream.get_or_create_stream(config).await.expect("a stream");
        }
        Self { gateways, managers, runners, jetstream, _nats: nats, _postgres: postgres }
    }

    async fn manage(&self, number: usize, tool: &str, arguments: Value) -> Value {
        let at = number % 2;
        ok(&self.gateways[at], &self.managers[at], tool, arguments).await
    }

    async fn run(&self, number: usize, tool: &str, arguments: Value) -> Value {
        let at = number % 2;
        ok(&self.gateways[at], &self.runners[at], tool, arguments).await
    }

    async fn task(&self, task: Value) -> String {
        let created = self.manage(0, "db.task.create", task).await;
        created["task_id"].as_str().expect("an id").to_owned()
    }

    async fn count(&self, stream: &str, subject: &str) -> usize {
        let found = broker::read_batch(&self.jetstream, stream, subject, 1, 1_000).await;
        found.expect("the stream").len()
    }

    async fn until_all_sent(&self) {
        eventually("all messages are published", async || {
            (self.gateways[0].must("GET", "/api/v1/outbox", None).await == json!([])).then_some(())
        })
        .await;
    }
}

/// W2: twenty starts at once at two gateways are one workflow and one message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starts_at_two_gateways_coalesce_on_postgres() {
    let pair = Pair::start().await;
    let task = pair.task(json!({ "title": "build", "user_id": "ada" })).await;
    let start = |number| pair.manage(number, "workflow.start", json!({ "task_id": task }));
    let started = join_all((0..20).map(start)).await;
    assert_eq!(started.iter().filter(|it| it.get("already_active").is_none()).count(), 1, "{started:?}");
    pair.until_all_sent().await;
    assert_eq!(pair.count(streams::WORKFLOWS, "workflow.run").await, 1);
}

/// The same key at two gateways at once is one job and one handoff.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn same_key_at_two_gateways_joins_on_postgres() {
    let pair = Pair::start().await;
    let task = pair.task(json!({ "title": "build", "user_id": "ada" })).await;
    pair.manage(0, "workflow.start", json!({ "task_id": task })).await;
    let acquire = json!({ "task_id": task, "run": 1, "holder": "r", "ttl_seconds": 60 });
    let epoch = pair.run(0, "workflow.lease.acquire", acquire).await["epoch"].clone();
    let job =
        json!({ "task_id": task, "epoch": epoch, "key": "j", "step": "s", "run": { "command": ["true"] } });
    let jobs = join_all((0..10).map(|number| pair.run(number, "workflow.job", job.clone()))).await;
    assert_eq!(jobs.iter().filter(|it| it["began"] == true).count(), 1, "{jobs:?}");
    assert!(jobs.iter().all(|it| it["job"]["job_id"] == jobs[0]["job"]["job_id"]), "{jobs:?}");
    let plan =
        json!({ "task_id": task, "epoch": epoch, "key": "p", "kind": "plan", "payload": { "goal": "go" } });
    let plans = join_all((0..10).map(|number| pair.run(number, "workflow.handoff", plan.clone()))).await;
    assert_eq!(plans.iter().filter(|it| it["began"] == true).count(), 1, "{plans:?}");
    assert!(plans.iter().all(|it| it["handoff_id"] == plans[0]["handoff_id"]), "{plans:?}");
    pair.until_all_sent().await;
    assert_eq!(pair.count(streams::HANDOFFS, "pma.handoff.plan").await, 1);
    assert_eq!(pair.count(streams::JOBS, "jobs.class.*").await, 1);
}

/// Of two runners at two gateways one gets the workflow, and of two dependencies that are completed at once
/// the later one sends the next task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_and_dependencies_hold_at_two_gateways_on_postgres() {
    let pair = Pair::start().await;
    for round in 0..5 {
        let mut first = Vec::new();
        for name in ["a", "b"] {
            let task = pair.task(json!({ "name": format!("{name}{round}"), "user_id": "ada" })).await;
            pair.manage(0, "workflow.start", json!({ "task_id": task })).await;
            first.push(task);
        }
        let next = json!({ "name": format!("c{round}"), "user_id": "ada", "depends_on": first });
        let next = pair.task(next).await;
        pair.manage(1, "workflow.start", json!({ "task_id": next })).await;
        let mut epochs = Vec::new();
        for task in &first {
            let acquire = json!({ "task_id": task, "run": 1, "holder": "r", "ttl_seconds": 60 });
            let tries = (0..4).map(|number| {
                let (at, acquire) = (number % 2, acquire.clone());
                pair.gateways[at].call(&pair.runners[at], "workflow.lease.acquire", acquire)
            });
            let tries: Vec<mcp::Reply> =
                join_all(tries).await.into_iter().map(|tried| tried.expect("a reply")).collect();
            let taken: Vec<&mcp::Reply> = tries.iter().filter(|reply| !reply.is_error).collect();
            assert_eq!(taken.len(), 1, "{tries:?}");
            epochs.push(taken[0].structured.as_ref().expect("a result")["epoch"].clone());
        }
        let release = |number: usize| {
            let done = json!({ "done": { "summary": "" } });
            let wanted = json!({ "task_id": first[number], "epoch": epochs[number], "outcome": done });
            pair.run(number, "workflow.lease.release", wanted)
        };
        tokio::join!(release(0), release(1));
        let found = pair.manage(0, "workflow.get", json!({ "task_id": next })).await;
        assert_eq!(found["waiting_because"], "waits for a runner", "{found}");
    }
    pair.until_all_sent().await;
    assert_eq!(pair.count(streams::WORKFLOWS, "workflow.run").await, 15, "each was sent once");
}
