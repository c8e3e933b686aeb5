//! Nodes over NATS: reports and orders, what administrators do, and jobs of nodes that are gone.

use futures_util::future::join_all;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use subjects::{
    Timestamp,
    node::{NodeOrders, NodeState, NodeStatus},
    streams,
};
use testkit::{GatewayProcess, Nats, Postgres, TestClock, eventually};

use super::support::{TestNode, World, ok};
use crate::administration::support::{ctl, manager};

#[tokio::test]
async fn node_is_told_to_take_no_jobs_and_to_take_them_again() {
    let world = World::new().await;
    let node = world.node("one").await;
    let status = node.status("i-1");
    assert_eq!(node.report(&status).await, NodeOrders::default());
    let listed = world.ok("node.list", json!({})).await;
    assert_eq!(
        (&listed["items"][0]["node_id"], &listed["items"][0]["state"]),
        (&json!("one"), &json!("ready"))
    );
    let cordoned = world.gateway.must("POST", "/api/v1/nodes/one/cordon", None).await;
    assert_eq!((&cordoned["state"], &cordoned["cordoned"]), (&json!("cordoned"), &json!(true)));
    assert!(node.report(&status).await.cordoned);
    let drain = world.gateway.must("POST", "/api/v1/nodes/one/drain", Some(json!({ "seconds": 60 }))).await;
    assert!(drain["drain_by"].is_string(), "{drain}");
    let orders = node.report(&status).await;
    assert!(orders.cordoned && orders.drain_by.is_some_and(|by| by.at() > Timestamp::now().at()));
    world.gateway.must("POST", "/api/v1/nodes/one/uncordon", None).await;
    assert_eq!(node.report(&status).await, NodeOrders::default());
    // Another process under the same id started before it.
    let other = NodeStatus { started_at: Timestamp::epoch(), ..node.status("i-2") };
    assert!(node.report(&other).await.duplicate);
    assert!(!node.report(&status).await.duplicate);
    for (path, code) in [("cordon", 404), ("uncordon", 404)] {
        let asked = world.gateway.ask("POST", &format!("/api/v1/nodes/none/{path}"), None).await;
        assert_eq!(asked.status, code);
    }
    let long =
        world.gateway.ask("POST", "/api/v1/nodes/one/drain", Some(json!({ "seconds": 1_000_000 }))).await;
    assert_eq!(long.status, 422);
    let shown = world.gateway.audit("tool=admin.node.cordon").await;
    assert_eq!(shown.len(), 1, "every change is in the audit");
}

#[tokio::test]
async fn jobs_of_a_removed_node_go_to_others() {
    let clock = TestClock::at("2026-11-18T10:00:00Z");
    let nats = Nats::start();
    let url = nats.url();
    let mut gateway = GatewayProcess::start_with_variables(&[("nats.url", &url)], &[clock.variable()]).await;
    let agent = manager(&gateway).await;
    let task = ok(&gateway, &agent, "db.task.create", json!({ "title": "t", "user_id": "ada" })).await;
    let (gone, other) =
        (TestNode::new("gone", &nats, &gateway).await, TestNode::new("other", &nats, &gateway).await);
    let with_label = |node: &TestNode| {
        let mut status = node.status("i-1");
        status.labels.insert("gpu".to_owned(), "yes".to_owned());
        status
    };
    gone.report(&with_label(&gone)).await;
    let run = |place: Value| {
        let mut arguments = json!({ "task_id": task["task_id"], "command": ["true"] });
        arguments.as_object_mut().expect("an object").extend(place.as_object().expect("an object").clone());
        arguments
    };
    let labelled = ok(&gateway, &agent, "sandbox.run", run(json!({ "labels": { "gpu": "yes" } }))).await;
    let named = ok(&gateway, &agent, "sandbox.run", run(json!({ "node_id": "gone" }))).await;
    let queued = gone.newest(streams::JOBS, "jobs.node.gone").await;
    assert_eq!(gateway.ask("DELETE", "/api/v1/nodes/gone", None).await.status, 409, "it is present");
    clock.set("2026-11-18T10:00:20Z");
    other.report(&with_label(&other)).await;
    let waiting = ok(&gateway, &agent, "sandbox.job.get", json!({ "job_id": named["job_id"] })).await;
    assert!(waiting["waiting_because"].as_str().expect("why").contains("gone is away"), "{waiting}");
    let removed = gateway.must("DELETE", "/api/v1/nodes/gone", None).await;
    assert_eq!(removed["moved"], json!([labelled["job_id"]]), "{removed}");
    assert_eq!(removed["lost"], json!([named["job_id"]]), "{removed}");
    let message = other.queued("jobs.node.other").await;
    assert_eq!(json!(message.job_id), labelled["job_id"]);
    eventually("the named job is lost", async || {
        let job = ok(&gateway, &agent, "sandbox.job.get", json!({ "job_id": named["job_id"] })).await;
        (job["end"]["how"] == "node_lost").then_some(())
    })
    .await;
    let left = broker::last_on(&gone.jetstream, streams::JOBS, &"jobs.node.gone").await.expect("a stream");
    assert!(left.is_none(), "nothing waits for a node that is gone");

    // As if a message could not be removed with its node.
    gone.client.publish("jobs.node.gone", queued.payload).await.expect("published");
    gone.newest(streams::JOBS, "jobs.node.gone").await;
    gateway.start_again().await;
    eventually("what is left is removed", async || {
        let left = broker::last_on(&gone.jetstream, streams::JOBS, &"jobs.node.gone").await;
        left.expect("a stream").is_none().then_some(())
    })
    .await;
}

/// G10: over two gateways on one store, concurrently, the counts differ by one at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_chosen_in_turn_over_two_gateways() {
    const JOBS: usize = 40;
    let (nats, postgres) = (Nats::start(), Postgres::start());
    let (url, database) = (nats.url(), postgres.database());
    let settings = [("nats.url", &*url), ("store.url", &*database), ("store.max_connections", "6")];
    let gateways = [GatewayProcess::start_with(&settings).await, GatewayProcess::start_with(&settings).await];
    let secret = gateways[0].issue(json!({ "label": "pm", "agent": "project_manager" })).await.1;
    let agents = gateways.each_ref().map(|gateway| gateway.agent(&secret));
    let task = json!({ "title": "t", "user_id": "ada" });
    let task = ok(&gateways[0], &agents[0], "db.task.create", task).await;
    for id in ["one", "two", "three"] {
        let node = TestNode::new(id, &nats, &gateways[0]).await;
        let mut status = node.status("i-1");
        status.labels.insert("gpu".to_owned(), "yes".to_owned());
        node.report(&status).await;
    }
    let run = json!({ "task_id": task["task_id"], "command": ["true"], "labels": { "gpu": "yes" } });
    let calls = (0..JOBS).map(|n| ok(&gateways[n % 2], &agents[n % 2], "sandbox.run", run.clone()));
    let mut chosen: BTreeMap<String, usize> = BTreeMap::new();
    for job in join_all(calls).await {
        *chosen.entry(job["queue"].as_str().expect("a queue").to_owned()).or_default() += 1;
    }
    let counts: Vec<usize> = chosen.values().copied().collect();
    assert_eq!(counts.len(), 3, "{chosen:?}");
    assert!(counts.iter().max().expect("some") - counts.iter().min().expect("some") <= 1, "{chosen:?}");
}

#[tokio::test]
async fn operators_manage_nodes_and_jobs_from_the_command_line() {
    let world = World::new().await;
    let empty = ctl(&world.gateway, &["nodes", "ls"]).await;
    assert!(empty.stdout.contains("no nodes"), "{empty:?}");
    let empty = ctl(&world.gateway, &["jobs", "ls"]).await;
    assert!(empty.stdout.contains("no jobs"), "{empty:?}");
    let node = world.node("one").await;
    node.report(&node.status("i-1")).await;
    let job = world.run(json!({})).await;
    let listed = ctl(&world.gateway, &["nodes", "ls"]).await;
    assert!(listed.stdout.contains("one") && listed.stdout.contains("ready"), "{listed:?}");
    let shown = ctl(&world.gateway, &["nodes", "show", "one"]).await;
    assert!(shown.stdout.contains("bwrap"), "{shown:?}");
    for (command, expected) in [("cordon", "cordoned"), ("drain", "drain"), ("uncordon", "again")] {
        let ran = ctl(&world.gateway, &["nodes", command, "one"]).await;
        assert!(ran.stdout.contains(expected), "{command}: {ran:?}");
    }
    let unknown = ctl(&world.gateway, &["nodes", "show", "none"]).await;
    assert!(unknown.code != 0 && unknown.stderr.contains("not found"), "{unknown:?}");
    let present = ctl(&world.gateway, &["nodes", "remove", "one", "--yes"]).await;
    assert!(present.stderr.contains("stop its program"), "{present:?}");
    let listed = ctl(&world.gateway, &["jobs", "ls", "--status", "queued"]).await;
    assert!(listed.stdout.contains(&job.to_string()) && listed.stdout.contains("make report"), "{listed:?}");
    node.queued("jobs.class.default_bwrap").await;
    let claimed = node.claim(job, 1, 0).await.expect("claimed");
    node.log(job, 1, b"bytes \x00\x1b[1m ").await;
    node.log(job, 2, b"more").await;
    let mut result = node.result(job, subjects::job::End::Exited { code: 3 });
    result.log = subjects::job::LogExtent { chunks: 2, bytes: 15 };
    node.end(&result, claimed).await.expect("ended");
    world.until(job, "failed").await;
    let id = job.to_string();
    let log = ctl(&world.gateway, &["jobs", "logs", &id, "--follow"]).await;
    assert_eq!(log.stdout, String::from_utf8_lossy(b"bytes \x00\x1b[1m more"), "{log:?}");
    let shown = ctl(&world.gateway, &["jobs", "show", &id]).await;
    assert!(shown.stdout.contains("exited with code 3"), "{shown:?}");
    let cancelled = ctl(&world.gateway, &["jobs", "cancel", &id]).await;
    assert!(cancelled.stdout.contains("has ended"), "{cancelled:?}");
    let second = world.run(json!({})).await;
    let claimed = node.claim(second, 1, 0).await.expect("claimed");
    ctl(&world.gateway, &["jobs", "cancel", &second.to_string()]).await;
    let shown = ctl(&world.gateway, &["jobs", "show", &second.to_string()]).await;
    assert!(shown.stdout.contains("cancel requested at 20"), "{shown:?}");
    node.end(&node.result(second, subjects::job::End::Cancelled), claimed).await.expect("ended");
    let as_json = ctl(&world.gateway, &["--json", "jobs", "show", &id]).await;
    assert!(as_json.stdout.contains("\"exit_code\":3"), "{as_json:?}");
    // A node that stops may be removed.
    node.report(&NodeStatus { state: NodeState::Stopping, ..node.status("i-1") }).await;
    let removed = ctl(&world.gateway, &["nodes", "remove", "one", "--yes"]).await;
    assert!(removed.stdout.contains("removed"), "{removed:?}");
}
