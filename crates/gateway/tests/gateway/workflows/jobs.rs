//! `workflow.job`: a job for each key, as sandbox.run makes it.

use futures_util::future::join_all;
use serde_json::{Value, json};
use subjects::{JobId, job::End};
use testkit::TestClock;

use super::support::{World, on_both};
use crate::jobs::support::TestNode;

on_both!(same_key_joins_the_job, job_acts_for_the_user_of_the_workflow);

fn run(task: &str, epoch: i64, key: &str, wait: u64) -> Value {
    json!({
        "task_id": task, "epoch": epoch, "key": key, "step": "build", "wait_seconds": wait,
        "run": { "script": "make report", "outputs": ["report.txt"] },
    })
}

/// The same key joins the job, whatever else the call says, and it ends for all who wait.
async fn same_key_joins_the_job(world: World) {
    let node = TestNode::new("n-1", &world.nats, &world.gateway).await;
    let (task, epoch) = world.taken("build").await;
    let begun = join_all((0..8).map(|_| world.runs("workflow.job", run(&task, epoch, "k-1", 0)))).await;
    assert_eq!(begun.iter().filter(|it| it["began"] == true).count(), 1, "{begun:?}");
    let job = begun[0]["job"]["job_id"].as_str().expect("an id").to_owned();
    assert!(begun.iter().all(|it| it["job"]["job_id"] == *job), "{begun:?}");
    let mut other = run(&task, epoch, "k-1", 0);
    other["run"] = json!({ "command": ["something", "else"] });
    assert_eq!(world.runs("workflow.job", other).await["job"]["job_id"], *job);
    let second = world.runs("workflow.job", run(&task, epoch, "k-2", 0)).await;
    assert_ne!(second["job"]["job_id"], *job);

    let queued = node.queued("jobs.class.default_bwrap").await;
    assert_eq!(queued.task_id.as_str(), task);
    let id = job.parse().expect("an id");
    let end = async {
        let claimed = node.claim(id, 1, 0).await.expect("claimed");
        node.end(&node.result(id, End::Exited { code: 0 }), claimed).await.expect("ended");
    };
    let (ended, ()) = tokio::join!(world.runs("workflow.job", run(&task, epoch, "k-1", 20)), end);
    assert_eq!((&ended["job"]["status"], &ended["job"]["exit_code"]), (&json!("completed"), &json!(0)));
    assert_eq!(ended["began"], false);
    let effects = world.get(&task).await["effects"].clone();
    assert_eq!(effects.as_array().expect("effects").len(), 2);
    assert_eq!(
        (&effects[0]["kind"], &effects[0]["step"], &effects[0]["id"]),
        (&json!("job"), &json!("build"), &json!(job))
    );
    assert_eq!(effects[0]["outcome"], "completed", "{effects}");
    assert!(effects[0]["ended_at"].is_string(), "{effects}");
    // Another runner joins it too: the key is the workflow's, not the runner's.
    world.release(&task, epoch, json!({ "handed_back": {} })).await;
    let epoch = world.acquire(&task, 1).await["epoch"].as_i64().expect("an epoch");
    assert_eq!(world.runs("workflow.job", run(&task, epoch, "k-1", 0)).await["job"]["status"], "completed");
}

/// The job acts for the user of the workflow, also if the task has none.
async fn job_acts_for_the_user_of_the_workflow(world: World) {
    let task = world.task_with(json!({ "title": "ownerless" })).await;
    let (_, lease) = world.gateway.lease(json!({ "agent": "project_manager", "user_id": "ada" })).await;
    let start = json!({ "task_id": task });
    let started = world.gateway.call_under(&world.manager, Some(&lease), "workflow.start", start).await;
    assert_eq!(started.expect("started").structured.expect("a workflow")["user_id"], "ada");
    let epoch = world.acquire(&task, 1).await["epoch"].as_i64().expect("an epoch");
    let begun = world.runs("workflow.job", run(&task, epoch, "k-1", 0)).await;
    let leases = world.gateway.must("GET", "/api/v1/leases", None).await;
    let of_job = leases.as_array().expect("leases").iter().find(|it| it["job_id"] == begun["job"]["job_id"]);
    assert_eq!(of_job.expect("the lease of the job")["user_id"], "ada");
}

/// What was begun is not answered with an error: the step would be begun a second time.
#[tokio::test]
async fn changed_workflow_is_returned_whatever_the_result_limit() {
    let world = World::with(&[("calls.max_result_bytes", "8192")], &[]).await;
    let (task, epoch) = world.taken("build").await;
    let mut long = run(&task, epoch, "k-1", 0);
    long["run"]["script"] = json!(format!(": {}", "x".repeat(32 * 1024)));
    let begun = world.runs("workflow.job", long).await;
    assert_eq!(begun["began"], true, "{begun}");
    let error = json!({ "failed": { "error": "x".repeat(12 * 1024) } });
    let released = world.release(&task, epoch, error).await;
    assert_eq!(released["status"], "failed", "{released}");
    let retried = world.ok("workflow.retry", json!({ "task_id": task })).await;
    assert_eq!(retried["status"], "queued", "{retried}");
}

/// Begins a job of a workflow that lets jobs wait for a minute, at ten o'clock.
async fn begun_at_ten(clock: &TestClock) -> (World, String, i64, JobId) {
    let world = World::with(&[], &[clock.variable()]).await;
    let task = world.task("build").await;
    let start = json!({ "task_id": task, "policy": { "queue_seconds": 60 } });
    world.ok("workflow.start", start).await;
    let epoch = world.acquire(&task, 1).await["epoch"].as_i64().expect("an epoch");
    let begun = world.runs("workflow.job", run(&task, epoch, "k-1", 0)).await;
    let id = begun["job"]["job_id"].as_str().expect("an id").parse().expect("an id");
    (world, task, epoch, id)
}

/// A job that no node takes ends after the time of the policy, with the reason, and never runs.
#[tokio::test]
async fn job_that_no_node_takes_in_time_ends() {
    let clock = TestClock::at("2026-11-18T10:00:00Z");
    let (world, task, epoch, id) = begun_at_ten(&clock).await;
    clock.set("2026-11-18T10:00:59Z");
    let waiting = world.runs("workflow.job", run(&task, epoch, "k-1", 1)).await;
    assert_eq!(waiting["job"]["status"], "queued", "{waiting}");
    clock.set("2026-11-18T10:01:00Z");
    let ended = world.runs("workflow.job", run(&task, epoch, "k-1", 20)).await["job"].clone();
    assert_eq!((&ended["status"], &ended["end"]["how"]), (&json!("failed"), &json!("engine_failed")));
    let why = ended["end"]["why"].as_str().expect("a reason");
    assert!(why.starts_with("no node took it within 60 s: no node of the pool `default`"), "{why}");
    let node = TestNode::new("n-1", &world.nats, &world.gateway).await;
    node.claim(id, 1, 0).await.expect_err("a job that has ended cannot be taken");
    let again = world.runs("workflow.job", run(&task, epoch, "k-1", 0)).await;
    assert_eq!(again["job"]["end"], ended["end"], "it stays so");
    // The cancel of the workflow did not end it.
    world.ok("workflow.cancel", json!({ "task_id": task })).await;
    world.ok("workflow.retry", json!({ "task_id": task })).await;
    let epoch = world.acquire(&task, 2).await["epoch"].as_i64().expect("an epoch");
    let after = world.runs("workflow.job", run(&task, epoch, "k-1", 0)).await;
    assert_eq!((&after["job"]["end"], after.get("end_reason")), (&ended["end"], None));
}

/// A job that a node has runs on, however long it waited; without its node it ends after the same time.
#[tokio::test]
async fn job_of_a_lost_node_ends_in_time_too() {
    let clock = TestClock::at("2026-11-18T10:00:00Z");
    let (world, task, epoch, id) = begun_at_ten(&clock).await;
    let node = TestNode::new("n-1", &world.nats, &world.gateway).await;
    clock.set("2026-11-18T10:00:50Z");
    node.claim(id, 1, 0).await.expect("claimed");
    testkit::eventually("the job is running", async || {
        let found = world.runs("workflow.job", run(&task, epoch, "k-1", 0)).await;
        (found["job"]["status"] == "running").then_some(())
    })
    .await;
    clock.set("2026-11-18T10:01:45Z");
    let running = world.runs("workflow.job", run(&task, epoch, "k-1", 1)).await;
    assert_eq!(running["job"]["status"], "running", "{running}");
    clock.set("2026-11-18T10:01:51Z");
    // Its times may be old because the gateway was stopped: for some seconds the node may still report.
    let silent = world.runs("workflow.job", run(&task, epoch, "k-1", 1)).await;
    assert_eq!(silent["job"]["status"], "running", "{silent}");
    let ended = testkit::eventually("the job has ended", async || {
        let found = world.runs("workflow.job", run(&task, epoch, "k-1", 1)).await["job"].clone();
        (found["status"] != "running").then_some(found)
    })
    .await;
    assert_eq!((&ended["status"], &ended["end"]["how"]), (&json!("failed"), &json!("node_lost")));
    let why = ended["end"]["why"].as_str().expect("a reason");
    assert!(why.contains("node n-1 has not reported for 60 s"), "{why}");
}
