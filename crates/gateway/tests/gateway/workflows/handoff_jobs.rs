//! Jobs that the managers of a workflow's handoffs began: they end with what they were begun for.

use futures_util::future::join_all;
use sea_orm::{ConnectionTrait, Database};
use serde_json::{Value, json};
use testkit::eventually;

use super::support::{World, on_both};

on_both!(
    jobs_of_handoffs_end_with_the_cancel_of_their_workflow,
    jobs_of_a_handoff_end_when_it_is_given_up,
    jobs_of_a_handoff_end_when_it_fails,
    jobs_of_handoffs_end_with_the_task_and_with_the_workflow,
    no_job_is_left_that_begins_during_the_cancel,
);

fn chat(task: &str, epoch: i64, key: &str) -> Value {
    json!({
        "task_id": task, "epoch": epoch, "key": key, "kind": "chat", "step": "s",
        "payload": { "messages": [{ "role": "user", "content": "Do it." }] },
    })
}

/// Begins a handoff. Returns its id and its lease.
async fn begun(world: &World, task: &str, epoch: i64, key: &str) -> (String, String) {
    let begun = world.runs("workflow.handoff", chat(task, epoch, key)).await;
    let id = begun["handoff_id"].as_str().expect("an id").to_owned();
    let message = world.published("chat", &id).await;
    (id, message.headers.get("Cynode-Lease").expect("a lease").to_string())
}

/// Begins a job as the manager that has a lease, or as one without.
async fn job(world: &World, task: &str, lease: Option<&str>) -> String {
    let run = json!({ "task_id": task, "command": ["make"] });
    let reply = world.gateway.call_under(&world.manager, lease, "sandbox.run", run).await.expect("a reply");
    reply.structured.expect("a job")["job_id"].as_str().expect("an id").to_owned()
}

async fn status(world: &World, job: &str) -> String {
    let found = world.ok("sandbox.job.get", json!({ "job_id": job })).await;
    found["status"].as_str().expect("a status").to_owned()
}

async fn until_canceled(world: &World, job: &str) {
    eventually("the job is canceled", async || (status(world, job).await == "canceled").then_some(())).await;
}

/// Also that of a handoff whose manager has answered, but not one that another manager began.
async fn jobs_of_handoffs_end_with_the_cancel_of_their_workflow(world: World) {
    world.create_handoff_streams().await;
    let (task, epoch) = world.taken("build").await;
    let (_, open) = begun(&world, &task, epoch, "open").await;
    let (id, answered) = begun(&world, &task, epoch, "answered").await;
    let of_open = job(&world, &task, Some(&open)).await;
    let of_answered = job(&world, &task, Some(&answered)).await;
    let others = job(&world, &task, None).await;
    world.answer("chat", &id, "it runs").await;
    let told = world.runs("workflow.handoff", chat(&task, epoch, "answered")).await;
    assert_eq!(told["answer"]["message"]["content"], "it runs", "{told}");
    world.ok("workflow.cancel", json!({ "task_id": task })).await;
    for job in [&of_open, &of_answered] {
        until_canceled(&world, job).await;
    }
    assert_eq!(status(&world, &others).await, "queued");
}

/// The workflow hands off anew, and the next manager may begin the same jobs.
async fn jobs_of_a_handoff_end_when_it_fails(world: World) {
    world.create_handoff_streams().await;
    let (task, epoch) = world.taken("build").await;
    let (id, failing) = begun(&world, &task, epoch, "failing").await;
    let (_, open) = begun(&world, &task, epoch, "open").await;
    let of_failing = job(&world, &task, Some(&failing)).await;
    let of_open = job(&world, &task, Some(&open)).await;
    world.answer_failed("chat", &id).await;
    let told = world.runs("workflow.handoff", chat(&task, epoch, "failing")).await;
    assert_eq!(told["answer"]["status"], "failed", "{told}");
    until_canceled(&world, &of_failing).await;
    assert_eq!(status(&world, &of_open).await, "queued");
}

/// Those of the other handoffs go on.
async fn jobs_of_a_handoff_end_when_it_is_given_up(world: World) {
    world.create_handoff_streams().await;
    let (task, epoch) = world.taken("build").await;
    let (_, late) = begun(&world, &task, epoch, "late").await;
    let (_, open) = begun(&world, &task, epoch, "open").await;
    let (of_late, of_open) = (job(&world, &task, Some(&late)).await, job(&world, &task, Some(&open)).await);
    let mut give_up = chat(&task, epoch, "late");
    give_up["give_up"] = json!(true);
    world.runs("workflow.handoff", give_up).await;
    until_canceled(&world, &of_late).await;
    assert_eq!(status(&world, &of_open).await, "queued");
}

async fn jobs_of_handoffs_end_with_the_task_and_with_the_workflow(world: World) {
    world.create_handoff_streams().await;
    for ends_by_task in [true, false] {
        let (task, epoch) = world.taken("build").await;
        let (_, lease) = begun(&world, &task, epoch, "k").await;
        let job = job(&world, &task, Some(&lease)).await;
        if ends_by_task {
            world.ok("db.task.update_status", json!({ "task_id": task, "status": "canceled" })).await;
        } else {
            world.release(&task, epoch, json!({ "failed": { "error": "no disk" } })).await;
        }
        until_canceled(&world, &job).await;
    }
}

/// A job that begins at the same time is found, or does not begin.
async fn no_job_is_left_that_begins_during_the_cancel(world: World) {
    world.create_handoff_streams().await;
    let (task, epoch) = world.taken("build").await;
    let (_, lease) = begun(&world, &task, epoch, "k").await;
    let run = json!({ "task_id": task, "command": ["make"] });
    let runs = join_all((0..24).map(async |number| {
        tokio::time::sleep(std::time::Duration::from_millis(number * 2)).await;
        let begun = world.gateway.call_under(&world.manager, Some(&lease), "sandbox.run", run.clone()).await;
        begun.is_ok_and(|reply| !reply.is_error)
    }));
    let cancel = async {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        world.ok("workflow.cancel", json!({ "task_id": task })).await;
    };
    let (began, ()) = tokio::join!(runs, cancel);
    let began = began.into_iter().filter(|began| *began).count();
    eventually("all jobs are canceled", async || {
        let jobs = world.ok("sandbox.job.list", json!({ "task_id": task, "limit": 100 })).await;
        let jobs = jobs["items"].as_array().expect("jobs").clone();
        assert_eq!(jobs.len(), began);
        jobs.iter().all(|job| job["status"] == "canceled").then_some(())
    })
    .await;
}

/// The gateway is killed when the cancel is stored and nothing of it is published.
#[tokio::test]
async fn cancel_reaches_the_jobs_of_handoffs_after_a_kill() {
    let mut world = World::new().await;
    world.create_handoff_streams().await;
    let (task, epoch) = world.taken("build").await;
    let (_, lease) = begun(&world, &task, epoch, "k").await;
    let job = job(&world, &task, Some(&lease)).await;
    world.until_all_sent().await;
    world.nats.kill();
    world.ok("workflow.cancel", json!({ "task_id": task })).await;
    world.gateway.kill();
    world.nats.start_again();
    world.gateway.start_again().await;
    until_canceled(&world, &job).await;
}

/// A store of the release before: its jobs stay, and those that begin from then on end with their handoffs.
#[tokio::test]
async fn store_of_before_is_upgraded() {
    let mut world = World::new().await;
    world.create_handoff_streams().await;
    let (task, epoch) = world.taken("build").await;
    let (_, lease) = begun(&world, &task, epoch, "k").await;
    let old = job(&world, &task, None).await;
    world.gateway.kill();
    let store = Database::connect(world.gateway.store_url()).await.expect("the store opens");
    for statement in [
        "DROP INDEX job_by_handoff_id",
        "ALTER TABLE job DROP COLUMN handoff_id",
        "DELETE FROM seaql_migrations WHERE version = 'm0017_job_handoffs'",
    ] {
        store.execute_unprepared(statement).await.expect(statement);
    }
    store.close().await.expect("closed");
    world.gateway.start_again().await;
    let new = job(&world, &task, Some(&lease)).await;
    world.ok("workflow.cancel", json!({ "task_id": task })).await;
    until_canceled(&world, &new).await;
    assert_eq!(status(&world, &old).await, "queued");
}
