//! Who may call what: a manager cannot act as a runner, and a runner can do nothing else (W5).

use serde_json::json;

use super::support::{World, runner_calls};

#[tokio::test]
async fn manager_cannot_act_as_a_runner() {
    let world = World::new().await;
    let (task, epoch) = world.taken("build").await;
    let acquire = json!({ "task_id": task, "run": 1, "holder": "pm", "ttl_seconds": 30 });
    let before = world.get(&task).await;
    let calls = runner_calls(&task, epoch).into_iter().chain([("workflow.lease.acquire", acquire)]);
    for (tool, arguments) in calls {
        let denied = world.gateway.call(&world.manager, tool, arguments).await;
        assert!(denied.is_err(), "{tool}: {denied:?}");
    }
    assert_eq!(world.get(&task).await, before);
}

/// A token of this type is offered its own tools and help, and nothing else, with and without a lease.
#[tokio::test]
async fn runner_can_call_nothing_else() {
    let world = World::new().await;
    let (task, _) = world.taken("build").await;
    let token = world.gateway.unbound("workflow").await;
    let offered = world.gateway.tools(&token).await;
    let runner = ["workflow.lease.", "workflow.checkpoint.", "workflow.job", "workflow.handoff", "help."];
    assert_eq!(offered.len(), 12, "{offered:?}");
    assert!(offered.iter().all(|tool| runner.iter().any(|prefix| tool.starts_with(prefix))), "{offered:?}");
    for (tool, arguments) in [
        ("db.task.get", json!({ "task_id": task })),
        ("db.task.update_status", json!({ "task_id": task, "status": "completed" })),
        ("sandbox.run", json!({ "task_id": task, "command": ["true"] })),
        ("workflow.get", json!({ "task_id": task })),
        ("workflow.cancel", json!({ "task_id": task })),
        ("workflow.resume", json!({ "task_id": task })),
        ("artifact.put", json!({ "task_id": task, "path": "a", "content": "b" })),
        ("lease.issue", json!({ "agent": "project_manager", "user_id": "ada" })),
    ] {
        let denied = world.gateway.call(&world.runner, tool, arguments).await;
        assert!(denied.is_err(), "{tool}: {denied:?}");
    }
    let help = world.gateway.call(&world.runner, "help.list", json!({})).await.expect("help");
    assert!(help.text.contains("workflows"), "{}", help.text);
}

/// The token is bound to nothing, and no lease is issued for its type.
#[tokio::test]
async fn token_of_a_runner_is_bound_to_nothing() {
    let world = World::new().await;
    let bound = json!({ "label": "r", "agent": "workflow", "user_id": "ada", "task_id": "t" });
    let refused = world.gateway.ask("POST", "/api/v1/tokens", Some(bound)).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    let lease = json!({ "agent": "workflow", "user_id": "ada" });
    let refused = world.gateway.ask("POST", "/api/v1/leases", Some(lease)).await;
    assert!(refused.status >= 400, "{refused:?}");
}
