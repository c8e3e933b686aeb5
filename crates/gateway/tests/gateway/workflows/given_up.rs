//! Handoffs that are ended before they are answered, and what their managers can still do: nothing.

use serde_json::{Value, json};
use testkit::eventually;

use super::support::{World, on_both};

on_both!(
    handoff_that_is_given_up_permits_nothing,
    handoff_that_failed_permits_nothing,
    answer_that_came_in_time_counts,
    handoff_stays_given_up_for_the_next_runner,
    cancelled_handoff_is_not_given_up_afterwards,
    cancelled_handoff_is_begun_anew_after_a_retry,
    work_that_was_done_before_the_cancel_counts,
    end_of_a_workflow_ends_its_handoffs,
    handoff_does_not_steer_its_own_workflow,
    handoff_does_not_cancel_what_its_own_workflow_waits_for,
    answer_to_another_question_is_refused
);

fn chat(task: &str, epoch: i64, key: &str, wait: u64) -> Value {
    json!({
        "task_id": task, "epoch": epoch, "key": key, "kind": "chat", "step": "s", "wait_seconds": wait,
        "payload": { "messages": [{ "role": "user", "content": "Do it." }] },
    })
}

fn giving_up(task: &str, epoch: i64, wait: u64) -> Value {
    let mut call = chat(task, epoch, "k", wait);
    call["give_up"] = json!(true);
    call
}

/// The status of an answer, and the code of its error.
fn said(found: &Value) -> Value {
    json!([found["answer"]["status"], found["answer"]["error"]["code"]])
}

/// Begins a handoff. Returns its id and its lease.
async fn begun(world: &World, task: &str, epoch: i64) -> (String, String) {
    let begun = world.runs("workflow.handoff", chat(task, epoch, "k", 0)).await;
    let id = begun["handoff_id"].as_str().expect("an id").to_owned();
    let message = world.published("chat", &id).await;
    (id, message.headers.get("Cynode-Lease").expect("a lease").to_string())
}

async fn may_work(world: &World, lease: &str, task: &str) -> bool {
    let read = json!({ "task_id": task });
    world.gateway.call_under(&world.manager, Some(lease), "db.task.get", read).await.is_ok()
}

/// A manager that is late can do nothing for the step any more, and its late answer changes nothing.
async fn handoff_that_is_given_up_permits_nothing(world: World) {
    world.create_handoff_streams().await;
    let (task, epoch) = world.taken("build").await;
    let nothing = world.refused("workflow.handoff", giving_up(&task, epoch, 0)).await;
    assert_eq!(nothing["code"], "not_found", "{nothing}");
    let (id, lease) = begun(&world, &task, epoch).await;
    assert!(may_work(&world, &lease, &task).await);
    let given_up = world.runs("workflow.handoff", giving_up(&task, epoch, 1)).await;
    let late = json!(["failed", "deadline_exceeded"]);
    assert_eq!(said(&given_up), late, "{given_up}");
    assert!(!may_work(&world, &lease, &task).await);
    world.answer("chat", &id, "late").await;
    assert_eq!(said(&world.runs("workflow.handoff", chat(&task, epoch, "k", 0)).await), late);
    assert_eq!(said(&world.runs("workflow.handoff", giving_up(&task, epoch, 0)).await), late);
}

/// The workflow decides what follows a failed answer, and hands off anew. A replay of the dead letter, which
/// goes on under the lease of the failed handoff, would do the same a second time.
async fn handoff_that_failed_permits_nothing(world: World) {
    world.create_handoff_streams().await;
    let (task, epoch) = world.taken("build").await;
    let (id, lease) = begun(&world, &task, epoch).await;
    world.answer_failed("chat", &id).await;
    assert!(may_work(&world, &lease, &task).await);
    let failed = world.runs("workflow.handoff", chat(&task, epoch, "k", 20)).await;
    assert_eq!(said(&failed), json!(["failed", "inference_unavailable"]), "{failed}");
    assert!(!may_work(&world, &lease, &task).await);
}

/// What was answered before it was given up is the answer.
async fn answer_that_came_in_time_counts(world: World) {
    world.create_handoff_streams().await;
    let (task, epoch) = world.taken("build").await;
    let (id, _) = begun(&world, &task, epoch).await;
    world.answer("chat", &id, "in time").await;
    let given_up = world.runs("workflow.handoff", giving_up(&task, epoch, 0)).await;
    assert_eq!(given_up["answer"]["message"]["content"], "in time", "{given_up}");
}

/// The runner that gave it up may be gone before the last word: the next one is told the same, and does not
/// hand off anew.
async fn handoff_stays_given_up_for_the_next_runner(world: World) {
    world.create_handoff_streams().await;
    let (task, epoch) = world.taken("build").await;
    let (_, lease) = begun(&world, &task, epoch).await;
    let waits = world.refused("workflow.handoff", giving_up(&task, epoch, 30));
    let pause = async {
        eventually("the handoff is given up", async || {
            (!may_work(&world, &lease, &task).await).then_some(())
        })
        .await;
        world.ok("workflow.pause", json!({ "task_id": task })).await;
    };
    let (refused, ()) = tokio::join!(waits, pause);
    assert_eq!(refused["reason"], "stale_epoch", "{refused}");
    world.ok("workflow.resume", json!({ "task_id": task })).await;
    let epoch = world.acquire(&task, 2).await["epoch"].as_i64().expect("an epoch");
    let joined = world.runs("workflow.handoff", chat(&task, epoch, "k", 20)).await;
    assert_eq!(said(&joined), json!(["failed", "deadline_exceeded"]), "{joined}");
    assert_eq!(world.get(&task).await["effects"].as_array().map(Vec::len), Some(1));
}

/// What a handoff was ended for does not depend on the call that asks.
async fn cancelled_handoff_is_not_given_up_afterwards(world: World) {
    world.create_handoff_streams().await;
    let (task, epoch) = world.taken("build").await;
    begun(&world, &task, epoch).await;
    world.ok("workflow.cancel", json!({ "task_id": task })).await;
    world.ok("workflow.retry", json!({ "task_id": task })).await;
    let epoch = world.acquire(&task, 2).await["epoch"].as_i64().expect("an epoch");
    let given_up = world.runs("workflow.handoff", giving_up(&task, epoch, 1)).await;
    assert_eq!(said(&given_up), json!(["cancelled", null]), "{given_up}");
    assert_eq!(given_up["end_reason"], "cancelled", "{given_up}");
}

/// Cancelled while no manager was there to hear of it: the next run is told so, and hands off anew.
async fn cancelled_handoff_is_begun_anew_after_a_retry(world: World) {
    world.create_handoff_streams().await;
    let (task, epoch) = world.taken("build").await;
    let (_, lease) = begun(&world, &task, epoch).await;
    world.ok("workflow.cancel", json!({ "task_id": task })).await;
    assert!(!may_work(&world, &lease, &task).await);
    world.ok("workflow.retry", json!({ "task_id": task })).await;
    let epoch = world.acquire(&task, 2).await["epoch"].as_i64().expect("an epoch");
    let joined = world.runs("workflow.handoff", chat(&task, epoch, "k", 20)).await;
    assert_eq!((&joined["answer"]["status"], &joined["began"]), (&json!("cancelled"), &json!(false)));
    let anew = world.runs("workflow.handoff", chat(&task, epoch, "k/1", 0)).await;
    assert_eq!(anew["began"], true, "{anew}");
}

/// A manager that had answered when the workflow was cancelled is not asked again.
async fn work_that_was_done_before_the_cancel_counts(world: World) {
    world.create_handoff_streams().await;
    let (task, epoch) = world.taken("build").await;
    let (id, _) = begun(&world, &task, epoch).await;
    world.answer("chat", &id, "done").await;
    world.ok("workflow.cancel", json!({ "task_id": task })).await;
    world.ok("workflow.retry", json!({ "task_id": task })).await;
    let epoch = world.acquire(&task, 2).await["epoch"].as_i64().expect("an epoch");
    let joined = world.runs("workflow.handoff", chat(&task, epoch, "k", 0)).await;
    assert_eq!(joined["answer"]["message"]["content"], "done", "{joined}");
}

/// A workflow that has ended leaves nothing behind that goes on.
async fn end_of_a_workflow_ends_its_handoffs(world: World) {
    world.create_handoff_streams().await;
    let (task, epoch) = world.taken("build").await;
    let (_, lease) = begun(&world, &task, epoch).await;
    world.release(&task, epoch, json!({ "failed": { "error": "a person stopped it" } })).await;
    assert!(!may_work(&world, &lease, &task).await);
}

/// A step's own manager neither answers the question of its workflow nor ends it.
async fn handoff_does_not_steer_its_own_workflow(world: World) {
    world.create_handoff_streams().await;
    let (task, epoch) = world.taken("build").await;
    let (_, lease) = begun(&world, &task, epoch).await;
    let cancels_task = json!({ "task_id": task, "status": "canceled" });
    may_not_steer(&world, &lease, "db.task.update_status", cancels_task.clone()).await;
    assert_eq!(world.status(&task).await, ("running".to_owned(), "running".to_owned()));
    world.release(&task, epoch, question()).await;
    for (tool, arguments) in [
        ("workflow.resume", json!({ "task_id": task, "input": "this one" })),
        ("workflow.cancel", json!({ "task_id": task })),
        ("db.task.update_status", cancels_task.clone()),
    ] {
        may_not_steer(&world, &lease, tool, arguments).await;
    }
    assert_eq!(world.status(&task).await, ("waiting".to_owned(), "blocked".to_owned()));
    // A manager that is no part of the workflow may.
    world.ok("db.task.update_status", cancels_task).await;
    assert_eq!(world.status(&task).await, ("cancelled".to_owned(), "canceled".to_owned()));
}

/// A workflow also ends with a task that its own task depends on.
async fn handoff_does_not_cancel_what_its_own_workflow_waits_for(world: World) {
    world.create_handoff_streams().await;
    let first = world.task("first").await;
    let (task, epoch) = world.taken("build").await;
    let (id, _) = begun(&world, &task, epoch).await;
    world.release(&task, epoch, question()).await;
    world.ok("db.task.dependency.add", json!({ "task_id": task, "depends_on": first })).await;
    // That of the handoff is for its own task alone.
    let lease = json!({ "agent": "project_manager", "user_id": "ada", "handoff_id": id });
    let (_, lease) = world.gateway.lease(lease).await;
    let canceled = json!({ "task_id": first, "status": "canceled" });
    may_not_steer(&world, &lease, "db.task.update_status", canceled.clone()).await;
    assert_eq!(world.get(&task).await["status"], "waiting");
    world.ok("db.task.update_status", canceled).await;
    assert_eq!(world.status(&task).await, ("cancelled".to_owned(), "canceled".to_owned()));
}

fn question() -> Value {
    json!({ "waiting": { "for": "question", "question": "Which?", "interrupt_id": "q-1" } })
}

/// A call under the lease of a handoff is refused, since it would steer the handoff's own workflow.
async fn may_not_steer(world: &World, lease: &str, tool: &str, arguments: Value) {
    let reply = world.gateway.call_under(&world.manager, Some(lease), tool, arguments).await;
    let reply = reply.expect("a reply");
    assert!(reply.is_error && reply.text.contains("cannot steer it"), "{tool}: {}", reply.text);
}

/// Of two people who answer the same question, the later one does not answer the next question with it.
async fn answer_to_another_question_is_refused(world: World) {
    let (task, epoch) = world.taken("build").await;
    let ask = |id: &str| json!({ "waiting": { "for": "question", "question": id, "interrupt_id": id } });
    let answer = |id: &str| json!({ "task_id": task, "input": "yes", "question_id": id });
    world.release(&task, epoch, ask("q-1")).await;
    assert_eq!(world.get(&task).await["question_id"], "q-1");
    world.ok("workflow.resume", answer("q-1")).await;
    assert_eq!(world.fails("workflow.resume", answer("q-1")).await["code"], "conflict");
    let epoch = world.acquire(&task, 2).await["epoch"].as_i64().expect("an epoch");
    world.release(&task, epoch, ask("q-2")).await;
    let error = world.fails("workflow.resume", answer("q-1")).await;
    assert!(error["message"].as_str().expect("a text").contains("another question"), "{error}");
    world.ok("workflow.resume", answer("q-2")).await;
}
