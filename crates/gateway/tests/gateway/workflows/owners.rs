//! Whose workflow it is: no user steers or ends what acts for another.

use serde_json::{Value, json};

use super::support::World;

/// Returns the lease of a manager for a user.
async fn lease(world: &World, user: &str) -> String {
    world.gateway.lease(json!({ "agent": "project_manager", "user_id": user })).await.1
}

/// Calls a tool under a lease. Returns the result, or why there is none.
async fn call(world: &World, lease: &str, tool: &str, arguments: Value) -> Result<Value, String> {
    match world.gateway.call_under(&world.manager, Some(lease), tool, arguments).await {
        Ok(reply) if !reply.is_error => Ok(reply.structured.expect("a result")),
        Ok(reply) => Err(reply.text),
        Err(error) => Err(error.to_string()),
    }
}

/// A task without an owner belongs to the user for whom its workflow is started: the leases of its handoffs
/// reach it, and strangers do not answer for that user.
#[tokio::test]
async fn task_without_an_owner_belongs_to_whom_its_workflow_acts_for() {
    let world = World::new().await;
    let (ada, bob) = (lease(&world, "ada").await, lease(&world, "bob").await);
    let task = world.task_with(json!({ "title": "ownerless" })).await;
    let named = json!({ "task_id": task });
    call(&world, &ada, "workflow.start", named.clone()).await.expect("started");
    let found = call(&world, &ada, "db.task.get", named.clone()).await.expect("hers");
    assert_eq!(found["user_id"], "ada", "{found}");
    let epoch = world.acquire(&task, 1).await["epoch"].as_i64().expect("an epoch");
    let waiting = json!({ "for": "approval", "question": "May it run?", "interrupt_id": "i-1" });
    world.release(&task, epoch, json!({ "waiting": waiting })).await;
    let answer = json!({ "task_id": task, "input": "yes", "question_id": "i-1" });
    call(&world, &bob, "workflow.resume", answer.clone()).await.expect_err("another's");
    call(&world, &bob, "workflow.get", named).await.expect_err("another's");
    call(&world, &ada, "workflow.resume", answer).await.expect("answered");
    // What a manager of its handoffs reads: user and task belong together.
    let (_, of_handoff) =
        world.gateway.lease(json!({ "agent": "project_manager", "user_id": "ada", "task_id": task })).await;
    let wanted = json!({ "user_id": "ada", "task_id": task });
    call(&world, &of_handoff, "db.preference.list", wanted).await.expect("within its lease");
}

/// Cancelling a task cancels what depends on it, but never a task of another user.
#[tokio::test]
async fn tasks_of_other_users_are_not_canceled_with_one_that_they_depend_on() {
    let world = World::new().await;
    let ada = lease(&world, "ada").await;
    let project = "shared";
    let named = json!({ "name": project, "title": "For all" });
    world.gateway.must("PUT", "/api/v1/projects/shared", Some(named)).await;
    let shared = world.task_with(json!({ "title": "shared", "project_id": project })).await;
    let others = json!({
        "title": "secret plans", "project_id": project, "user_id": "bob", "depends_on": [shared],
    });
    let others = world.task_with(others).await;
    world.ok("workflow.start", json!({ "task_id": others })).await;
    let cancel = json!({ "task_id": shared, "status": "canceled" });
    let why = call(&world, &ada, "db.task.update_status", cancel.clone()).await.expect_err("not hers");
    assert!(why.contains("tasks of other users") && !why.contains("secret plans"), "{why}");
    assert_eq!(world.status(&others).await.0, "queued");
    // Also by its workflow.
    call(&world, &ada, "workflow.start", json!({ "task_id": shared })).await.expect("started");
    let why =
        call(&world, &ada, "workflow.cancel", json!({ "task_id": shared })).await.expect_err("not hers");
    assert!(why.contains("tasks of other users"), "{why}");
    assert_eq!(world.status(&others).await.0, "queued");
    // A caller that acts for all users may.
    world.ok("workflow.cancel", json!({ "task_id": shared })).await;
    assert_eq!(world.status(&others).await.0, "cancelled");
}

/// A retry that is paused and resumed is still one: what was cancelled before is begun anew.
#[tokio::test]
async fn paused_retry_is_still_a_retry() {
    let world = World::new().await;
    let (task, _) = world.taken("build").await;
    let named = json!({ "task_id": task });
    for tool in ["workflow.cancel", "workflow.retry", "workflow.pause", "workflow.resume"] {
        world.ok(tool, named.clone()).await;
    }
    let acquired = world.acquire(&task, 3).await;
    assert_eq!(acquired["workflow"]["trigger"], "retry", "{acquired}");
    world.ok("workflow.pause", named.clone()).await;
    world.ok("workflow.resume", named).await;
    assert_eq!(world.get(&task).await["trigger"], "retry");
}
