//! Tasks that wait for others, and what the status of a task means for its workflow.

use serde_json::{Value, json};

use super::support::{World, on_both};

on_both!(
    completing_the_last_dependency_queues_the_workflow,
    failed_dependency_is_named_and_can_be_removed,
    status_of_a_task_and_its_workflow_agree,
    policy_starts_what_becomes_ready
);

async fn waiting_task(world: &World, title: &str, after: &[&str]) -> String {
    let task = world.task_with(json!({ "title": title, "user_id": "ada", "depends_on": after })).await;
    let started = world.ok("workflow.start", json!({ "task_id": task })).await;
    assert_eq!(started["status"], "queued", "{started}");
    task
}

/// A workflow is sent when the last task that it waits for is completed, by hand or by its workflow.
async fn completing_the_last_dependency_queues_the_workflow(world: World) {
    let (first, epoch) = world.taken("first").await;
    let second = world.task("second").await;
    let third = waiting_task(&world, "third", &[&first, &second]).await;
    let found = world.get(&third).await;
    assert_eq!(found["waiting_because"], "waits for first, second", "{found}");
    assert_eq!(world.sent(&third).await, [0; 0]);
    let acquire = json!({ "task_id": third, "run": 1, "holder": "early", "ttl_seconds": 30 });
    assert_eq!(world.refused("workflow.lease.acquire", acquire).await["reason"], "not_active");
    world.release(&first, epoch, json!({ "done": { "summary": "" } })).await;
    assert_eq!(world.get(&third).await["waiting_because"], "waits for second");
    for status in ["running", "completed"] {
        world.ok("db.task.update_status", json!({ "task_id": second, "status": status })).await;
    }
    world.until_sent(&third, &[1]).await;
    assert_eq!(world.get(&third).await["waiting_because"], "waits for a runner");
    world.acquire(&third, 1).await;
}

/// A dependency that failed or was cancelled is named; once it is removed, the task begins.
async fn failed_dependency_is_named_and_can_be_removed(world: World) {
    let (first, epoch) = world.taken("first").await;
    let next = waiting_task(&world, "next", &[&first]).await;
    world.release(&first, epoch, json!({ "failed": { "error": "no disk" } })).await;
    let why = world.get(&next).await["waiting_because"].as_str().expect("a text").to_owned();
    assert!(why.contains("first failed") && why.contains("workflow.retry"), "{why}");
    // After a retry it is a plain wait again.
    world.ok("workflow.retry", json!({ "task_id": first })).await;
    assert_eq!(world.get(&next).await["waiting_because"], "waits for first");
    let epoch = world.acquire(&first, 2).await["epoch"].as_i64().expect("an epoch");
    world.release(&first, epoch, json!({ "failed": { "error": "no disk" } })).await;
    let edge = json!({ "task_id": next, "depends_on": first });
    assert_eq!(world.ok("db.task.dependency.remove", edge.clone()).await["changed"], true);
    world.until_sent(&next, &[1]).await;
    let error = world.fails("db.task.dependency.add", edge).await;
    assert!(error["message"].as_str().expect("a text").contains("has begun"), "{error}");
}

/// A task with an active workflow is ended by it, or cancelled with it and what depends on it.
async fn status_of_a_task_and_its_workflow_agree(world: World) {
    let (task, epoch) = world.taken("build").await;
    let next = waiting_task(&world, "next", &[&task]).await;
    for status in ["completed", "failed"] {
        let error = world.fails("db.task.update_status", json!({ "task_id": task, "status": status })).await;
        assert_eq!(error["code"], "conflict");
        assert!(error["message"].as_str().expect("a text").contains("workflow.cancel"), "{error}");
    }
    let canceled = world.ok("db.task.update_status", json!({ "task_id": task, "status": "canceled" })).await;
    assert_eq!(canceled["also_canceled_count"], 1);
    for id in [&task, &next] {
        assert_eq!(world.status(id).await, ("cancelled".to_owned(), "canceled".to_owned()));
    }
    let renew = json!({ "task_id": task, "epoch": epoch, "ttl_seconds": 30 });
    assert_eq!(world.refused("workflow.lease.renew", renew).await["reason"], "stale_epoch");
    // The other way round: a cancelled workflow cancels tasks and workflows that depend on it.
    let (task, _) = world.taken("build").await;
    let next = waiting_task(&world, "next", &[&task]).await;
    let last = waiting_task(&world, "last", &[&next]).await;
    world.ok("workflow.cancel", json!({ "task_id": task })).await;
    for id in [&task, &next, &last] {
        assert_eq!(world.status(id).await, ("cancelled".to_owned(), "canceled".to_owned()));
    }
    world.until_all_sent().await;
    assert_eq!(world.sent(&last).await, [0; 0]);
}

/// W7: with the system's policy, tasks that become ready are started without a call.
async fn policy_starts_what_becomes_ready(world: World) {
    let setting = json!({ "value": true });
    world.gateway.must("PUT", "/api/v1/settings/workflow.start_when_ready", Some(setting)).await;
    let create = async |more: Value| {
        let mut task = json!({ "title": "task", "user_id": "ada" });
        for (name, value) in more.as_object().expect("an object") {
            task[name] = value.clone();
        }
        world.task_with(task).await
    };
    let vague = create(json!({})).await;
    assert_eq!(world.fails("workflow.get", json!({ "task_id": vague })).await["reason"], "not_found");
    let first = create(json!({ "acceptance_criteria": ["it runs"] })).await;
    let next = create(json!({ "depends_on": [first] })).await;
    world.until_sent(&first, &[1]).await;
    assert_eq!(world.get(&next).await["waiting_because"], "waits for task-2");
    let epoch = world.acquire(&first, 1).await["epoch"].as_i64().expect("an epoch");
    world.release(&first, epoch, json!({ "done": { "summary": "built" } })).await;
    world.until_sent(&next, &[1]).await;
    // A dependency that is added later counts too.
    let late = create(json!({})).await;
    world.ok("db.task.dependency.add", json!({ "task_id": late, "depends_on": vague })).await;
    for status in ["running", "completed"] {
        world.ok("db.task.update_status", json!({ "task_id": vague, "status": status })).await;
    }
    world.until_sent(&late, &[1]).await;
}
