//! How runners take workflows, hold them and give them back.

use std::time::Duration;

use async_nats::jetstream::consumer::pull;
use serde_json::{Value, json};
use subjects::streams;
use testkit::{TestClock, eventually};

use super::support::World;

fn wanted(task: &str, run: i64, holder: &str) -> Value {
    json!({ "task_id": task, "run": run, "holder": holder, "ttl_seconds": 30 })
}

fn put(task: &str, epoch: i64, checkpoint: &str) -> Value {
    json!({ "task_id": task, "epoch": epoch, "checkpoint_id": checkpoint, "kind": "j", "data": "" })
}

/// However often a message comes back, such as while `workflow.lease.acquire` is denied, its workflow is
/// taken in the end. The consumer of an earlier release gave messages up.
#[tokio::test]
async fn messages_of_workflows_are_delivered_without_limit() {
    let mut world = World::new().await;
    let queue = eventually("the queue is created", async || {
        world.jetstream.get_stream(streams::WORKFLOWS).await.ok()
    })
    .await;
    let consumer = async || {
        let info = queue.consumer_info(streams::WORKFLOW_RUNNERS).await.ok()?;
        Some((info.config.max_deliver, info.config.ack_wait))
    };
    let created = eventually("the consumer is created", async || consumer().await).await;
    assert_eq!(created.0, -1);
    let edited = Duration::from_secs(40);
    let older = pull::Config { max_deliver: 10_000, ..streams::workflow_runners(edited) };
    queue.update_consumer(older).await.expect("updated");
    world.gateway.start_again().await;
    eventually("the limit is lifted, and nothing else is changed", async || {
        (consumer().await == Some((-1, edited))).then_some(())
    })
    .await;
}

/// W8: a runner gets the task with its criteria, preferences, files and dependencies.
#[tokio::test]
async fn runner_gets_what_it_needs() {
    let world = World::new().await;
    let first = world.task("fetch").await;
    for status in ["running", "completed"] {
        world.ok("db.task.update_status", json!({ "task_id": first, "status": status })).await;
    }
    let task = world
        .task_with(json!({
            "title": "build", "user_id": "ada", "acceptance_criteria": ["it runs"], "depends_on": [first],
        }))
        .await;
    let file = json!({ "task_id": task, "path": "in.csv", "content": "a,b" });
    world.ok("artifact.put", file).await;
    let preference = json!({ "scope": "user", "scope_id": "ada", "key": "code.language", "value": "rust" });
    world.ok("db.preference.create", preference).await;
    world.ok("workflow.start", json!({ "task_id": task })).await;
    let taken = world.acquire(&task, 1).await;
    assert_eq!((&taken["epoch"], &taken["workflow"]["status"]), (&json!(1), &json!("running")));
    assert_eq!(taken["workflow"]["holder"], "runner-1");
    assert_eq!(taken["task"]["acceptance_criteria"], json!(["it runs"]));
    assert_eq!(taken["dependencies"][0]["name"], "fetch");
    assert_eq!(taken["artifacts"][0]["path"], "in.csv");
    assert_eq!(taken["preferences_effective"][0]["key"], "code.language");
    assert_eq!((taken.get("state"), taken.get("input")), (None, None));
    assert_eq!(world.status(&task).await, ("running".to_owned(), "running".to_owned()));
    // The audit names whom the workflow is for.
    let row = &world.gateway.audit("tool=workflow.lease.acquire").await[0];
    assert_eq!(
        (&row["agent"], &row["user_id"], &row["task_id"]),
        (&json!("workflow"), &json!("ada"), &json!(task))
    );
}

/// Each refusal has a word by which the runner knows what to do with its message.
#[tokio::test]
async fn refusals_say_what_to_do_with_the_message() {
    let world = World::new().await;
    let acquire = async |task: &str, run: i64| {
        world.refused("workflow.lease.acquire", wanted(task, run, "runner-2")).await
    };
    let error = acquire("none", 1).await;
    assert_eq!((&error["code"], &error["reason"]), (&json!("not_found"), &json!("not_found")));
    let task = world.task("build").await;
    assert_eq!(acquire(&task, 1).await["reason"], "not_found", "a task without a workflow");
    world.ok("workflow.start", json!({ "task_id": task })).await;
    for run in [0, 2] {
        assert_eq!(acquire(&task, run).await["reason"], "old_run");
    }
    let epoch = world.acquire(&task, 1).await["epoch"].as_i64().expect("an epoch");
    let error = acquire(&task, 1).await;
    assert_eq!((&error["code"], &error["reason"]), (&json!("conflict"), &json!("held")));
    let after = error["retry_after_ms"].as_u64().expect("a delay");
    assert!((25_000..=30_000).contains(&after), "{error}");
    // The same runner may get its message again while it works: it is not to begin twice.
    let again = world.refused("workflow.lease.acquire", wanted(&task, 1, "runner-1")).await;
    assert_eq!(again["reason"], "held");
    let question = json!({ "waiting": { "for": "question", "question": "Which?", "interrupt_id": "i-1" } });
    world.release(&task, epoch, question).await;
    assert_eq!(acquire(&task, 1).await["reason"], "not_active", "it waits");
    world.ok("workflow.cancel", json!({ "task_id": task })).await;
    assert_eq!(acquire(&task, 1).await["reason"], "not_active", "it has ended");
}

/// A lease that is not renewed in time is lost to the next runner; one that is renewed is not.
#[tokio::test]
async fn expired_lease_is_taken_over() {
    let clock = TestClock::at("2026-11-18T10:00:00Z");
    let world = World::with(&[], &[clock.variable()]).await;
    let (task, epoch) = world.taken("build").await;
    clock.set("2026-11-18T10:00:20Z");
    let renew = json!({ "task_id": task, "epoch": epoch, "ttl_seconds": 30 });
    let renewed = world.runs("workflow.lease.renew", renew.clone()).await;
    assert_eq!(renewed["expires_at"], "2026-11-18T10:00:50Z");
    clock.set("2026-11-18T10:00:49Z");
    let error = world.refused("workflow.lease.acquire", wanted(&task, 1, "runner-2")).await;
    assert_eq!((&error["reason"], &error["retry_after_ms"]), (&json!("held"), &json!(1000)));
    clock.set("2026-11-18T10:00:51Z");
    // Until another one takes it, the late runner may still go on.
    world.runs("workflow.lease.renew", renew.clone()).await;
    clock.set("2026-11-18T10:02:00Z");
    let taken = world.runs("workflow.lease.acquire", wanted(&task, 1, "runner-2")).await;
    assert_eq!(taken["epoch"], epoch + 1);
    assert_eq!(world.refused("workflow.lease.renew", renew).await["reason"], "stale_epoch");
    let events = world.get(&task).await["events"].clone();
    let outcomes: Vec<&str> =
        events.as_array().expect("events").iter().filter_map(|event| event["outcome"].as_str()).collect();
    assert_eq!(outcomes, ["started", "started", "lease_lost", "started"], "{events}");
}

/// Each outcome sets workflow and task, and ends the runner's authority.
#[tokio::test]
async fn release_sets_workflow_and_task() {
    let world = World::new().await;
    for (outcome, workflow, of_task) in [
        (json!({ "done": { "summary": "built" } }), "done", "completed"),
        (json!({ "failed": { "error": "no disk" } }), "failed", "failed"),
        (
            json!({ "waiting": { "for": "approval", "question": "Deploy?", "interrupt_id": "i-1" } }),
            "waiting",
            "blocked",
        ),
        (json!({ "handed_back": {} }), "queued", "running"),
    ] {
        let (task, epoch) = world.taken("build").await;
        let released = world.release(&task, epoch, outcome.clone()).await;
        assert_eq!(released["status"], workflow, "{outcome}");
        assert_eq!(world.status(&task).await, (workflow.to_owned(), of_task.to_owned()), "{outcome}");
        let found = world.get(&task).await;
        assert_eq!((found.get("holder"), found.get("lease_expires_at")), (None, None));
        match workflow {
            "done" => assert_eq!(found["summary"], "built"),
            "failed" => assert_eq!(found["error"], "no disk"),
            "waiting" => {
                assert_eq!(
                    (&found["question"], &found["waiting_for"]),
                    (&json!("Deploy?"), &json!("approval"))
                );
            }
            _ => {
                // Handed back: the same message is good for the next runner.
                assert_eq!(world.acquire(&task, 1).await["epoch"], epoch + 1);
                assert_eq!(world.sent(&task).await, [1]);
            }
        }
        let again = json!({ "task_id": task, "epoch": epoch, "outcome": outcome });
        assert_eq!(world.refused("workflow.lease.release", again).await["reason"], "stale_epoch");
    }
}

/// A workflow whose runner is lost is queued again, even if the queue lost its message.
#[tokio::test]
async fn lost_message_is_sent_again() {
    let clock = TestClock::at("2026-11-18T10:00:00Z");
    let mut world = World::with(&[], &[clock.variable()]).await;
    let (task, epoch) = world.taken("build").await;
    world.until_sent(&task, &[1]).await;
    let queue = world.jetstream.get_stream("CYNODE_WORKFLOWS").await.expect("the stream");
    queue.purge().await.expect("purged");
    clock.set("2026-11-18T10:06:00Z");
    // It looks at its start, and then every minute.
    world.gateway.start_again().await;
    world.until_sent(&task, &[2]).await;
    let renew = json!({ "task_id": task, "epoch": epoch, "ttl_seconds": 30 });
    assert_eq!(world.refused("workflow.lease.renew", renew).await["reason"], "stale_epoch");
    assert_eq!(world.acquire(&task, 2).await["epoch"], epoch + 2);
}

/// A queue that is lost with its messages: what waits in it for the database is sent again.
#[tokio::test]
async fn lost_queue_is_filled_again() {
    let clock = TestClock::at("2026-11-18T10:00:00Z");
    let mut world = World::with(&[], &[clock.variable()]).await;
    let task = world.started("build").await;
    world.until_sent(&task, &[1]).await;
    let queue = world.jetstream.get_stream("CYNODE_WORKFLOWS").await.expect("the stream");
    // A full queue is none that lost something.
    clock.set("2026-11-18T10:06:00Z");
    world.gateway.start_again().await;
    let other = world.started("test").await;
    world.until_sent(&other, &[1]).await;
    assert_eq!(world.sent(&task).await, [1]);

    queue.purge().await.expect("purged");
    clock.set("2026-11-18T10:12:00Z");
    world.gateway.start_again().await;
    world.until_sent(&task, &[2]).await;
    world.until_sent(&other, &[2]).await;
    assert_eq!(world.acquire(&task, 2).await["epoch"], 2);
}

/// A retry that the queue lost is still one, until its runner has stored something of it.
#[tokio::test]
async fn lost_retry_is_still_a_retry_until_something_of_it_is_stored() {
    let clock = TestClock::at("2026-11-18T10:00:00Z");
    let mut world = World::with(&[], &[clock.variable()]).await;
    let (task, epoch) = world.taken("build").await;
    world.runs("workflow.checkpoint.put", put(&task, epoch, "a1")).await;
    world.release(&task, epoch, json!({ "failed": { "error": "no disk" } })).await;
    world.ok("workflow.retry", json!({ "task_id": task })).await;
    world.until_sent(&task, &[1, 2]).await;
    // No runner takes run 2. That of run 3 is lost before it stores anything, that of run 4 afterwards.
    for (run, at, trigger) in [
        (3, "2026-11-18T10:06:00Z", "retry"),
        (4, "2026-11-18T10:12:00Z", "retry"),
        (5, "2026-11-18T10:18:00Z", "resume"),
    ] {
        let queue = world.jetstream.get_stream("CYNODE_WORKFLOWS").await.expect("the stream");
        queue.purge().await.expect("purged");
        clock.set(at);
        world.gateway.start_again().await;
        world.until_sent(&task, &[run]).await;
        let taken = world.acquire(&task, run).await;
        assert_eq!(taken["workflow"]["trigger"], trigger, "run {run}");
        if run == 4 {
            let epoch = taken["epoch"].as_i64().expect("an epoch");
            world.runs("workflow.checkpoint.put", put(&task, epoch, "a2")).await;
        }
    }
}

/// A user with very many preferences has workflows too: a runner gets the first of them.
#[tokio::test]
async fn many_preferences_keep_no_workflow_from_a_runner() {
    let world = World::new().await;
    let (scope, value) = (json!({ "scope": "user", "scope_id": "ada" }), "x".repeat(15_000));
    for number in 0..20 {
        let mut entry = json!({ "key": format!("k.{number:02}"), "value": value, "value_type": "string" });
        entry.as_object_mut().unwrap().extend(scope.as_object().unwrap().clone());
        world.ok("db.preference.create", entry).await;
    }
    let task = world.started("build").await;
    let taken = world.acquire(&task, 1).await;
    let keys: Vec<&str> = taken["preferences_effective"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["k.00", "k.01", "k.02", "k.03"]);
}
