//! Jobs that are cancelled: before a node has them, while one has them, and in between.

use serde_json::json;
use subjects::{
    Subject,
    job::{End, JobCancel, JobResult, Record},
    streams,
};
use testkit::{TestClock, eventually};

use super::support::World;

#[tokio::test]
async fn queued_job_is_cancelled_at_once_and_no_node_can_take_it() {
    let world = World::new().await;
    let node = world.node("one").await;
    let job = world.run(json!({})).await;
    world.ok("sandbox.job.cancel", json!({ "job_id": job })).await;
    let ended = world.until(job, "canceled").await;
    assert_eq!((&ended["end"]["how"], ended.get("node_id")), (&json!("cancelled"), None));
    let request = node.newest(streams::JOB_RUNS, &Subject::JobCancel(job).to_string()).await;
    let result = node.newest(streams::JOB_RUNS, &format!("job.{job}.gateway.result")).await;
    assert!(request.sequence < result.sequence, "the request is stored before the result");
    let request: JobCancel = serde_json::from_slice(&request.payload).expect("a request");
    assert!(request.by.starts_with("project_manager:"), "{request:?}");
    assert_eq!(JobResult::decode(&result.payload).expect("a result").end, End::Cancelled);
    assert!(node.claim(job, 1, 0).await.is_err());
}

#[tokio::test]
async fn running_job_is_ended_by_its_node() {
    let world = World::new().await;
    let node = world.node("one").await;
    node.report(&node.status("i-1")).await;
    let job = world.run(json!({})).await;
    let claimed = node.claim(job, 1, 0).await.expect("claimed");
    world.until(job, "running").await;
    world.ok("sandbox.job.cancel", json!({ "job_id": job })).await;
    node.newest(streams::JOB_RUNS, &Subject::JobCancel(job).to_string()).await;
    eventually("the gateway leaves it to the node", async || {
        (world.gateway.must("GET", "/api/v1/outbox", None).await == json!([])).then_some(())
    })
    .await;
    let running = world.get(job).await;
    assert_eq!(running["status"], "running");
    assert!(running["cancel_requested_at"].is_string());
    node.end(&node.result(job, End::Cancelled), claimed).await.expect("the chain is the node's own");
    assert_eq!(world.until(job, "canceled").await["node_id"], "one");
}

/// A node handed the job back: no node has it, so it ends at once.
#[tokio::test]
async fn job_that_was_handed_back_is_cancelled_at_once() {
    let world = World::new().await;
    let node = world.node("one").await;
    let job = world.run(json!({})).await;
    let claimed = node.claim(job, 1, 0).await.expect("claimed");
    let released = node.record(job, Record::Released { why: None }, claimed).await.expect("released");
    world.ok("sandbox.job.cancel", json!({ "job_id": job })).await;
    world.until(job, "canceled").await;
    assert!(node.claim(job, 2, released).await.is_err());
}

/// A node that dies after it was asked never ends the job, and nobody asks again: the gateway does.
#[tokio::test]
async fn job_of_a_node_that_is_gone_ends_although_nobody_asks_again() {
    let clock = TestClock::at("2026-11-18T10:00:00Z");
    let mut world = World::with_variables(&[], &[clock.variable()]).await;
    let node = world.node("one").await;
    node.report(&node.status("i-1")).await;
    let (asked, other) = (world.run(json!({})).await, world.run(json!({})).await);
    for job in [asked, other] {
        node.claim(job, 1, 0).await.expect("claimed");
        world.until(job, "running").await;
    }
    world.ok("sandbox.job.cancel", json!({ "job_id": asked })).await;
    node.newest(streams::JOB_RUNS, &Subject::JobCancel(asked).to_string()).await;
    clock.set("2026-11-18T10:06:00Z");
    // It looks at its start, and then every minute.
    world.gateway.start_again().await;
    assert_eq!(world.until(asked, "canceled").await["end"]["how"], "cancelled");
    assert_eq!(world.get(other).await["status"], "running");
}

/// Nobody else can end it: its node will not report again.
#[tokio::test]
async fn job_of_a_removed_node_ends_when_it_is_cancelled_again() {
    let clock = TestClock::at("2026-11-18T10:00:00Z");
    let world = World::with_variables(&[], &[clock.variable()]).await;
    let node = world.node("one").await;
    node.report(&node.status("i-1")).await;
    let job = world.run(json!({})).await;
    let claimed = node.claim(job, 1, 0).await.expect("claimed");
    node.record(job, Record::Started, claimed).await.expect("started");
    world.until(job, "running").await;
    world.ok("sandbox.job.cancel", json!({ "job_id": job })).await;
    eventually("the gateway leaves it to the node", async || {
        (world.gateway.must("GET", "/api/v1/outbox", None).await == json!([])).then_some(())
    })
    .await;
    assert_eq!(world.get(job).await["status"], "running");
    clock.set("2026-11-18T10:00:20Z");
    world.gateway.must("DELETE", "/api/v1/nodes/one", None).await;
    world.ok("sandbox.job.cancel", json!({ "job_id": job })).await;
    assert_eq!(world.until(job, "canceled").await["end"]["how"], "cancelled");
}
