//! `workflow.start`: once for each task, sent once, and refused with what to do.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::support::World;

fn step(name: &str, after: &[&str]) -> Value {
    json!({ "name": name, "kind": "job", "script": "true", "criteria": ["it runs"], "depends_on": after })
}

/// W2: an active workflow is joined, however many calls start it at once, and its message is sent once.
#[tokio::test]
async fn starts_of_one_task_coalesce() {
    let world = World::new().await;
    let task = world.task("build").await;
    let start = json!({ "task_id": task });
    let started = join_all((0..20).map(|_| world.ok("workflow.start", start.clone()))).await;
    let first: Vec<&Value> = started.iter().filter(|it| it.get("already_active").is_none()).collect();
    assert_eq!(first.len(), 1, "{started:?}");
    assert_eq!(
        (&first[0]["status"], &first[0]["run"], &first[0]["epoch"]),
        (&json!("queued"), &json!(1), &json!(0))
    );
    assert_eq!(first[0]["waiting_because"], "waits for a runner");
    world.until_sent(&task, &[1]).await;
    world.until_all_sent().await;
    assert_eq!(world.sent(&task).await, [1], "sent once");
    let events = world.get(&task).await["events"].as_array().expect("events").len();
    assert_eq!(events, 1, "started once");
    // Waiting or running, it is active too.
    world.acquire(&task, 1).await;
    assert_eq!(world.ok("workflow.start", start).await["already_active"], true);
}

/// A task by its name, of its user, with steps and policy, and the run of a schedule.
#[tokio::test]
async fn start_takes_steps_policy_and_run() {
    let world = World::new().await;
    let task = world.task_with(json!({ "name": "ship-it", "user_id": "ada", "run_id": "run-7" })).await;
    let start = json!({
        "task_id": task, "run_id": "run-7", "steps": [step("build", &[]), step("test", &["build"])],
        "policy": { "max_attempts": 2, "step_seconds": 60 },
    });
    let started = world.ok("workflow.start", start).await;
    assert_eq!(started["task_id"], *task);
    let again = world.ok("workflow.start", json!({ "task_id": "ship-it" })).await;
    assert_eq!((&again["task_id"], &again["already_active"]), (&json!(task), &json!(true)), "by its name");
    assert_eq!(started["policy"], json!({ "max_attempts": 2, "max_reviews": 3, "step_seconds": 60 }));
    let taken = world.acquire(&task, 1).await;
    let names: Vec<&str> =
        taken["steps"].as_array().expect("steps").iter().filter_map(|step| step["name"].as_str()).collect();
    assert_eq!(names, ["build", "test"]);
    assert_eq!(taken["task"]["status"], "running");
}

#[tokio::test]
async fn bad_starts_are_refused_with_what_to_do() {
    let world = World::new().await;
    let task = world.task("build").await;
    let many: Vec<Value> = (0..51).map(|number| step(&format!("s{number}"), &[])).collect();
    for (more, expected) in [
        (json!({ "steps": [step("a", &["b"])] }), "not a step"),
        (json!({ "steps": [step("a", &["b"]), step("b", &["a"])] }), "circle"),
        (json!({ "steps": [step("a", &[]), step("a", &[])] }), "unique"),
        (json!({ "steps": many }), "50"),
        (json!({ "steps": [{ "name": "a", "kind": "job", "script": "true\u{0}" }] }), "NUL"),
        (
            json!({ "steps": [{ "name": "a", "kind": "job", "scirpt": "true" }] }),
            "step `a`: unknown field `scirpt`, expected one of `name`, `description`, `kind`, `script`",
        ),
        (
            json!({ "steps": [{ "name": "a", "kind": "job", "script": "true",
                                "files": [{ "path": "x", "txt": "y" }] }] }),
            "step `a`: files: unknown field `txt`, expected one of `path`, `text`",
        ),
        (
            json!({ "steps": [{ "name": "a", "kind": "manager", "description": "do", "needs_approval": true,
                                "criteria": vec!["c".repeat(16_000); 25] }] }),
            "`steps`: step `a` needs approval and has",
        ),
        (json!({ "policy": { "max_attempts": 0 } }), "max_attempts"),
        (json!({ "policy": { "max_reviews": 21 } }), "max_reviews"),
        (json!({ "policy": { "step_seconds": 0 } }), "step_seconds"),
        (json!({ "policy": { "queue_seconds": 600_000 } }), "`policy.queue_seconds` must be 1 to 518400"),
        (json!({ "policy": { "tries": 1 } }), "unknown field `tries`"),
        (json!({ "stepps": [] }), "unknown field `stepps`"),
    ] {
        let mut start = more.clone();
        start["task_id"] = json!(task);
        let error = world.fails("workflow.start", start).await;
        assert_eq!(error["code"], "invalid_arguments", "{more}: {error}");
        assert!(error["message"].as_str().expect("a text").contains(expected), "{more}: {error}");
    }
    assert_eq!(world.fails("workflow.start", json!({ "task_id": "none" })).await["code"], "not_found");
    let ownerless = world.task_with(json!({ "title": "ownerless" })).await;
    let error = world.fails("workflow.start", json!({ "task_id": ownerless })).await;
    assert!(error["message"].as_str().expect("a text").contains("belongs to no user"), "{error}");
    assert_eq!(world.fails("workflow.get", json!({ "task_id": task })).await["reason"], "not_found");
}

/// A task that has ended is not started again; each end says what to do instead.
#[tokio::test]
async fn ended_workflow_is_not_started_again() {
    let world = World::new().await;
    for (outcome, expected) in [
        (json!({ "done": { "summary": "all built" } }), "create a new task"),
        (json!({ "failed": { "error": "no disk" } }), "workflow.retry"),
    ] {
        let (task, epoch) = world.taken("build").await;
        world.release(&task, epoch, outcome).await;
        let error = world.fails("workflow.start", json!({ "task_id": task })).await;
        assert_eq!(error["code"], "conflict");
        assert!(error["message"].as_str().expect("a text").contains(expected), "{error}");
    }
    let task = world.task("by hand").await;
    for status in ["running", "completed"] {
        world.ok("db.task.update_status", json!({ "task_id": task, "status": status })).await;
    }
    let error = world.fails("workflow.start", json!({ "task_id": task })).await;
    assert!(error["message"].as_str().expect("a text").contains("create a new task"), "{error}");
}

/// Lists are filtered, and a lease confines what is seen.
#[tokio::test]
async fn lists_are_filtered_and_confined() {
    let world = World::new().await;
    let (own, _) = world.taken("build").await;
    let other = world.task_with(json!({ "title": "hers", "user_id": "eve" })).await;
    world.ok("workflow.start", json!({ "task_id": other })).await;
    let ids = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().expect("items");
        items.iter().map(|item| item["task_id"].as_str().expect("an id").to_owned()).collect()
    };
    assert_eq!(ids(&world.ok("workflow.list", json!({})).await).len(), 2);
    assert_eq!(
        ids(&world.ok("workflow.list", json!({ "status": "running" })).await),
        std::slice::from_ref(&own)
    );
    assert_eq!(
        ids(&world.ok("workflow.list", json!({ "user_id": "eve" })).await),
        std::slice::from_ref(&other)
    );
    let first = world.ok("workflow.list", json!({ "limit": 1 })).await;
    let second = world.ok("workflow.list", json!({ "limit": 1, "cursor": first["next_cursor"] })).await;
    assert_ne!(ids(&first), ids(&second));
    let (_, lease) = world.gateway.lease(json!({ "agent": "project_manager", "user_id": "ada" })).await;
    let under = async |tool: &str, arguments: Value| {
        world.gateway.call_under(&world.manager, Some(&lease), tool, arguments).await
    };
    let seen = under("workflow.list", json!({})).await.expect("a page").structured.expect("a page");
    assert_eq!(ids(&seen), [own]);
    for tool in ["workflow.get", "workflow.cancel", "workflow.pause", "workflow.start"] {
        assert!(under(tool, json!({ "task_id": other })).await.is_err(), "{tool} of another user's task");
    }
}
