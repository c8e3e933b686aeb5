//! What nodes are told: cordon, drain, stop; and nodes that share an id.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::eventually_within;

use crate::{host::wait_until_clean, stage::Stage};

const PATIENCE: Duration = Duration::from_secs(30);

async fn wait_for_state(stage: &Stage, node: &str, state: &str) {
    eventually_within(PATIENCE, &format!("{node} to be {state}"), || async {
        let reply = stage.gateway.call(&stage.manager, "node.get", json!({ "node_id": node })).await.unwrap();
        let shown: Value = reply.structured.unwrap_or_default();
        (shown["status"] == state || shown["state"] == state).then_some(())
    })
    .await;
}

async fn order(stage: &Stage, path: &str, body: Option<Value>) {
    stage.gateway.must("POST", path, body).await;
}

#[tokio::test]
async fn cordoned_node_takes_no_jobs_until_it_is_uncordoned() {
    let stage = Stage::start().await;
    let node = stage.node("n1").await.start().await;
    wait_for_state(&stage, "n1", "ready").await;
    order(&stage, "/api/v1/nodes/n1/cordon", None).await;
    wait_for_state(&stage, "n1", "cordoned").await;
    node.wait_for_log("Node cordoned").await;
    let id = stage.script("true", json!({})).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(stage.job(&id).await["status"], "queued");
    order(&stage, "/api/v1/nodes/n1/uncordon", None).await;
    assert_eq!(stage.ended(&id).await["exit_code"], 0);
}

#[tokio::test]
async fn drained_node_hands_back_what_still_runs_at_the_deadline() {
    let stage = Stage::start().await;
    let builders = [stage.node("n1").await, stage.node("n2").await];
    let _nodes = [builders[0].start().await, builders[1].start().await];
    let id = stage.script("echo started; sleep 3", json!({})).await;
    stage.wait_for_log(&id, "started").await;
    let first = stage.running_on(&id).await;
    order(&stage, &format!("/api/v1/nodes/{first}/drain"), Some(json!({ "seconds": 1 }))).await;
    let job = stage.ended(&id).await;
    assert_eq!(job["exit_code"], 0, "{job}");
    assert_ne!(job["node_id"], first.as_str(), "{job}");
    for builder in &builders {
        wait_until_clean(&builder.data(), std::slice::from_ref(&id)).await;
    }
}

#[tokio::test]
async fn stopped_node_lets_short_jobs_finish_and_hands_long_ones_back() {
    let stage = Stage::start().await;
    let builder = stage.node("n1").await.set("node.grace", "3s");
    let mut node = builder.start().await;
    let short = stage.script("echo started; sleep 1", json!({})).await;
    let long = stage.script("echo started; sleep 20", json!({})).await;
    for id in [&short, &long] {
        stage.wait_for_log(id, "started").await;
    }
    node.process.terminate();
    assert!(node.process.wait(PATIENCE).success());
    assert_eq!(stage.ended(&short).await["attempt"], 1);
    assert!(stage.job(&long).await["end"].is_null());
    wait_until_clean(&builder.data(), &[short, long.clone()]).await;
    let _second = stage.node("n2").await.start().await;
    assert_eq!(stage.running_on(&long).await, "n2");
}

/// The one that was started later is the node, as after a restart.
#[tokio::test]
async fn of_two_processes_with_one_id_the_first_takes_no_more_jobs() {
    let stage = Stage::start().await;
    let first = stage.node("n1").await.start().await;
    wait_for_state(&stage, "n1", "ready").await;
    let second = stage.node("n1").await.start().await;
    first.wait_for_log("another process reports as node n1").await;
    let id = stage.script("true", json!({})).await;
    assert_eq!(stage.ended(&id).await["exit_code"], 0);
    assert!(second.log().contains("Job ended.") && !first.log().contains("Job ended."), "{}", first.log());
}

/// It knows its orders before it takes the first job.
#[tokio::test]
async fn cordoned_node_that_is_started_again_takes_no_jobs() {
    let stage = Stage::start().await;
    let builder = stage.node("n1").await;
    let mut node = builder.start().await;
    wait_for_state(&stage, "n1", "ready").await;
    order(&stage, "/api/v1/nodes/n1/cordon", None).await;
    node.process.kill();
    let id = stage.script("true", json!({})).await;
    let again = builder.start().await;
    again.wait_for_log("Node cordoned").await;
    assert_eq!(stage.job(&id).await["status"], "queued");
    order(&stage, "/api/v1/nodes/n1/uncordon", None).await;
    assert_eq!(stage.ended(&id).await["exit_code"], 0);
}

/// It begins with the orders that it was given last, and does not begin without any.
#[tokio::test]
async fn cordoned_node_that_is_started_again_while_the_gateway_is_away_takes_no_jobs() {
    let mut stage = Stage::start().await;
    let builder = stage.node("n1").await;
    let mut node = builder.start().await;
    wait_for_state(&stage, "n1", "ready").await;
    order(&stage, "/api/v1/nodes/n1/cordon", None).await;
    node.wait_for_log("Node cordoned").await;
    let id = stage.script("true", json!({})).await;
    stage.wait_until_queued(&id).await;
    stage.gateway.kill();
    node.process.kill();

    let again = builder.start().await;
    again.wait_for_log("Node cordoned").await;
    // So long that a node without orders would have begun.
    again.wait_for_log("the last orders stay in force").await;
    assert!(again.readiness().await.contains("cordoned"), "{}", again.log());
    assert_eq!(stage.queued(&id).await, 1);
    assert!(!again.log().contains("Job claimed"), "{}", again.log());

    stage.gateway.start_again().await;
    wait_for_state(&stage, "n1", "cordoned").await;
    assert_eq!(stage.job(&id).await["status"], "queued");
    order(&stage, "/api/v1/nodes/n1/uncordon", None).await;
    assert_eq!(stage.ended(&id).await["exit_code"], 0);
}

/// Only what was last ordered counts: a node that was uncordoned before begins to work without the gateway.
#[tokio::test]
async fn uncordoned_node_that_is_started_again_while_the_gateway_is_away_takes_jobs() {
    let mut stage = Stage::start().await;
    let builder = stage.node("n1").await;
    let mut node = builder.start().await;
    wait_for_state(&stage, "n1", "ready").await;
    order(&stage, "/api/v1/nodes/n1/drain", Some(json!({ "seconds": 60 }))).await;
    node.wait_for_log("Node cordoned").await;
    order(&stage, "/api/v1/nodes/n1/uncordon", None).await;
    node.wait_for_log("Node uncordoned").await;
    node.process.kill();
    let id = stage.script("true", json!({})).await;
    stage.wait_until_queued(&id).await;
    stage.gateway.kill();
    let _again = builder.start().await;
    eventually_within(PATIENCE, "the job to end", || async { (stage.results(&id).await == 1).then_some(()) })
        .await;
}

/// What cannot be read may have been an order to take no jobs.
#[tokio::test]
async fn node_with_unreadable_orders_takes_no_jobs_until_the_gateway_answers() {
    let mut stage = Stage::start().await;
    let builder = stage.node("n1").await;
    let mut node = builder.start().await;
    wait_for_state(&stage, "n1", "ready").await;
    node.process.kill();
    stage.gateway.kill();
    std::fs::write(builder.data().join("orders.json"), "{").unwrap();
    let again = builder.start().await;
    again.wait_for_log("Orders file unreadable").await;
    again.wait_for_log("the last orders stay in force").await;
    assert!(again.readiness().await.contains("cordoned"), "{}", again.log());
    stage.gateway.start_again().await;
    again.wait_for_log("Node uncordoned").await;
    let id = stage.script("true", json!({})).await;
    assert_eq!(stage.ended(&id).await["exit_code"], 0);
}

/// A job that waits for a removed node alone ends if no other node can be given its lease.
#[tokio::test]
async fn job_of_a_removed_node_whose_lease_was_revoked_ends_as_lost() {
    let stage = Stage::start().await;
    let builder = stage.node("n1").await.set("node.labels", r#"["zone=a"]"#).set("node.grace", "1s");
    let mut node = builder.start().await;
    wait_for_state(&stage, "n1", "ready").await;
    let on_n1 = json!({ "labels": { "zone": "a" } });
    let (revoked, valid) = (
        stage.script("echo started; sleep 300", on_n1.clone()).await,
        stage.script("echo started; sleep 300", on_n1).await,
    );
    for id in [&revoked, &valid] {
        stage.wait_for_log(id, "started").await;
    }
    node.process.terminate();
    assert!(node.process.wait(PATIENCE).success());
    wait_for_state(&stage, "n1", "stopping").await;
    let leases = stage.gateway.must("GET", "/api/v1/leases", None).await;
    let of_job = |lease: &&Value| lease["job_id"] == revoked.as_str();
    let lease = leases.as_array().unwrap().iter().find(of_job).expect("a lease of the job");
    let path = format!("/api/v1/leases/{}", lease["id"].as_str().unwrap());
    stage.gateway.must("DELETE", &path, None).await;
    let removed = stage.gateway.must("DELETE", "/api/v1/nodes/n1", None).await;
    assert_eq!((&removed["lost"], &removed["moved"]), (&json!([revoked]), &json!([valid])), "{removed}");
    let job = stage.ended(&revoked).await;
    assert_eq!((&job["status"], &job["end"]["how"]), (&json!("failed"), &json!("node_lost")), "{job}");
    let why = job["end"]["why"].as_str().unwrap();
    assert!(why.contains("n1 was removed") && why.contains("lease was revoked"), "{why}");
    assert_eq!(stage.results(&revoked).await, 1);
    // The other one waits in the pool.
    let _next = stage.node("n2").await.start().await;
    assert_eq!(stage.running_on(&valid).await, "n2");
}

#[tokio::test]
async fn stopping_node_is_removed_only_when_its_jobs_have_ended_or_were_handed_back() {
    let stage = Stage::start().await;
    let mut node = stage.node("n1").await.set("node.grace", "5m").start().await;
    wait_for_state(&stage, "n1", "ready").await;
    let id = stage.script("echo started; sleep 300", json!({})).await;
    stage.wait_for_log(&id, "started").await;
    node.process.terminate();
    wait_for_state(&stage, "n1", "stopping").await;
    let refused = stage.gateway.ask("DELETE", "/api/v1/nodes/n1", None).await;
    assert_eq!(refused.status, 409, "{refused:?}");
    let why = refused.body.to_string();
    for part in ["still runs 1 job", "wait", "cynodectl nodes drain n1 --within 0s"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    order(&stage, "/api/v1/nodes/n1/drain", Some(json!({ "seconds": 0 }))).await;
    assert!(node.process.wait(PATIENCE).success());
    assert_eq!(stage.job(&id).await["end"], Value::Null, "it was handed back");
    eventually_within(PATIENCE, "the node to have reported that it runs nothing", || async {
        (stage.gateway.ask("DELETE", "/api/v1/nodes/n1", None).await.status == 200).then_some(())
    })
    .await;
    let _next = stage.node("n2").await.start().await;
    assert_eq!(stage.running_on(&id).await, "n2");
}
