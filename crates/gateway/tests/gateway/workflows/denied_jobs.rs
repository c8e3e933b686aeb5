//! What administrators set for `sandbox.run` holds for the jobs of steps too: a workflow is no way around it.

use serde_json::{Value, json};

use super::support::World;

fn job(task: &str, epoch: i64, key: &str, command: &[&str]) -> Value {
    json!({ "task_id": task, "epoch": epoch, "key": key, "step": "build", "run": { "command": command } })
}

/// Calls `sandbox.run` as a manager for ada, and begins the same job as a step of her workflow. Returns why
/// each is denied; `None` if it is not.
async fn both_ways(
    world: &World,
    task: &str,
    epoch: i64,
    key: &str,
    command: &[&str],
) -> [Option<String>; 2] {
    let (_, lease) =
        world.gateway.lease(json!({ "agent": "project_manager", "user_id": "ada", "task_id": task })).await;
    let run = json!({ "task_id": task, "command": command });
    let by_manager = world.gateway.call_under(&world.manager, Some(&lease), "sandbox.run", run).await;
    let by_step = world.gateway.call(&world.runner, "workflow.job", job(task, epoch, key, command)).await;
    let by_step = by_step.expect("a reply");
    let structured = by_step.structured.unwrap_or_default();
    [
        by_manager.err().map(|error| error.to_string()),
        by_step.is_error.then(|| structured["code"].as_str().expect("a code").to_owned()),
    ]
}

/// A rule for the user, one for all managers, and one that limits the arguments.
#[tokio::test]
async fn access_rules_for_sandbox_run_hold_for_jobs_of_steps() {
    let world = World::new().await;
    let (task, epoch) = world.taken("build").await;
    let of_bob = world.task_with(json!({ "title": "test", "user_id": "bob" })).await;
    world.ok("workflow.start", json!({ "task_id": of_bob })).await;
    let epoch_of_bob = world.acquire(&of_bob, 1).await["epoch"].as_i64().expect("an epoch");
    for (number, rule) in [
        json!({ "effect": "deny", "tool": "sandbox.run", "user_id": "ada", "note": "" }),
        json!({ "effect": "deny", "tool": "sandbox.*", "agent": "project_manager" }),
        json!({ "effect": "deny", "tool": "sandbox.run", "argument": "/command", "matches": "*curl*" }),
    ]
    .into_iter()
    .enumerate()
    {
        let made = world.gateway.must("POST", "/api/v1/rules", Some(rule)).await;
        let id = made["id"].as_str().expect("an id");
        let key = format!("k-{number}");
        let [by_manager, by_step] = both_ways(&world, &task, epoch, &key, &["/usr/bin/curl"]).await;
        assert!(by_manager.is_some_and(|why| why.contains(id)), "rule {number}");
        assert_eq!(by_step.as_deref(), Some("rule"), "rule {number}");
        let error = world.refused("workflow.job", job(&task, epoch, &key, &["curl"])).await;
        assert!(error["message"].as_str().is_some_and(|why| why.contains(id)), "{error}");
        let row = &world.gateway.audit("tool=workflow.job&limit=1").await[0];
        assert_eq!(
            [&row["decision"], &row["status"], &row["error_type"], &row["user_id"], &row["task_id"]],
            [&json!("deny"), &json!("denied"), &json!("rule"), &json!("ada"), &json!(task)]
        );
        // What the rule is not about begins.
        if number != 1 {
            world.runs("workflow.job", job(&of_bob, epoch_of_bob, &key, &["true"])).await;
        }
        if number == 2 {
            let begun = both_ways(&world, &task, epoch, "other", &["true"]).await;
            assert_eq!(begun, [None, None]);
        }
        world.gateway.must("DELETE", &format!("/api/v1/rules/{id}"), None).await;
        assert_eq!(world.get(&task).await["effects"].as_array().map(Vec::len), Some(number / 2));
    }
    let jobs = world.ok("sandbox.job.list", json!({ "task_id": task })).await;
    assert_eq!(jobs["items"].as_array().map(Vec::len), Some(2), "that of the manager and that of the step");
    // A denied key is free; one that began something joins it, whatever is denied by then.
    assert_eq!(world.runs("workflow.job", job(&task, epoch, "k-0", &["curl"])).await["began"], true);
    let rule = json!({ "effect": "deny", "tool": "sandbox.run" });
    world.gateway.must("POST", "/api/v1/rules", Some(rule)).await;
    assert_eq!(world.runs("workflow.job", job(&task, epoch, "k-0", &["curl"])).await["began"], false);
}

/// The switch and the scope of the tool.
#[tokio::test]
async fn switches_of_sandbox_run_hold_for_jobs_of_steps() {
    let world = World::new().await;
    let (task, epoch) = world.taken("build").await;
    for (off, on, code) in [
        (json!({ "enabled": false }), json!({ "enabled": true }), "disabled"),
        (json!({ "scope": "sandbox" }), json!({ "scope": "pm" }), "out_of_scope"),
    ] {
        world.gateway.must("PATCH", "/api/v1/tools/sandbox.run", Some(off)).await;
        let [by_manager, by_step] = both_ways(&world, &task, epoch, code, &["true"]).await;
        assert!(by_manager.is_some(), "{code}");
        assert_eq!(by_step.as_deref(), Some(code));
        world.gateway.must("PATCH", "/api/v1/tools/sandbox.run", Some(on)).await;
        assert_eq!(both_ways(&world, &task, epoch, code, &["true"]).await, [None, None]);
    }
}
