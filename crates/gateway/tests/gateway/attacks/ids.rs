//! Ids that do not belong together.

use serde_json::{Value, json};
use testkit::{Answer, Gateway, GatewayProcess, Tool};

struct World {
    gateway: GatewayProcess,
    server: Gateway,
    manager: String,
}

impl World {
    async fn start() -> Self {
        let anything = json!({ "type": "object" });
        let of_run = json!({
            "type": "object", "properties": { "run_id": { "type": "string" } }, "required": ["run_id"],
        });
        let server = Gateway::start(vec![
            Tool::new("note", "Takes notes.", anything, |_| Answer::text("noted")),
            Tool::new("log", "Takes notes of a run.", of_run, |_| Answer::text("noted")),
        ])
        .await;
        let gateway = GatewayProcess::start().await;
        gateway.install("pad", &server.url()).await;
        for id in ["apollo", "gemini"] {
            let project = json!({ "name": id, "title": id });
            gateway.must("PUT", &format!("/api/v1/projects/{id}"), Some(project)).await;
        }
        let manager = gateway.manager().await;
        Self { gateway, server, manager }
    }

    async fn own(&self, tool: &str, arguments: Value) -> Value {
        let (_, answer) = self.gateway.post_call(&self.manager, tool, arguments).await;
        assert_eq!(answer["result"]["isError"], false, "{tool}: {answer}");
        answer["result"]["structuredContent"].clone()
    }

    async fn task(&self, name: &str, more: Value) -> String {
        let mut arguments = json!({ "name": name });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.own("db.task.create", arguments).await["task_id"].as_str().unwrap().to_owned()
    }

    /// Reason why a call of an upstream tool is denied; empty if it is not.
    async fn denied(&self, token: &str, tool: &str, arguments: &Value) -> String {
        let (_, answer) = self.gateway.post_call(token, tool, arguments.clone()).await;
        assert!(answer["error"].is_object() || answer["result"]["content"][0]["text"] == "noted", "{answer}");
        answer["error"]["data"]["reason"].as_str().unwrap_or_default().to_owned()
    }
}

/// M106, M117: on upstream tools, an id that the store does not know, or that does not belong to the others,
/// is denied for every agent.
#[tokio::test]
async fn unknown_id_is_denied_for_every_agent() {
    let world = World::start().await;
    let first =
        world.task("one", json!({ "project_id": "apollo", "user_id": "ada", "run_id": "run-1" })).await;
    let second =
        world.task("two", json!({ "project_id": "gemini", "user_id": "eve", "run_id": "run-2" })).await;
    let loose = world.task("three", json!({})).await;
    let job =
        world.own("db.job.create", json!({ "task_id": first, "kind": "build", "run_id": "run-1" })).await;
    let job = job["job_id"].as_str().unwrap().to_owned();
    let sandbox = world.gateway.bound("sandbox", "ada", &first).await;
    let (task, user, project, run) = ("task_id", "user_id", "project_id", "run_id");
    let of = |pairs: &[(&str, &str)]| {
        Value::Object(pairs.iter().map(|(name, id)| ((*name).to_owned(), json!(id))).collect())
    };
    for (arguments, manager_may, sandbox_may) in [
        (of(&[]), true, true),
        (of(&[(task, &first)]), true, true),
        (
            of(&[(task, &first), (user, "ada"), (project, "apollo"), (run, "run-1"), ("job_id", &job)]),
            true,
            true,
        ),
        (of(&[(task, &second)]), true, false),
        (of(&[(task, "nowhere")]), false, false),
        (of(&[(run, "run-1")]), true, true),
        (of(&[(run, "run-404")]), false, false),
        (of(&[("job_id", &job)]), true, true),
        (of(&[("job_id", "job-404")]), false, false),
        (of(&[(project, "apollo")]), true, true),
        (of(&[(project, "nowhere")]), false, false),
        (of(&[(user, "ada")]), true, true),
        // Ids that do not belong together.
        (of(&[(task, &first), (project, "gemini")]), false, false),
        (of(&[(task, &first), (user, "eve")]), false, false),
        (of(&[(task, &first), (run, "run-2")]), false, false),
        (of(&[(task, &second), ("job_id", &job)]), false, false),
        (of(&[("job_id", &job), (run, "run-2")]), false, false),
        (of(&[("job_id", &job), (project, "gemini")]), false, false),
        (of(&[("job_id", &job), (user, "eve")]), false, false),
        (of(&[(run, "run-1"), (user, "eve")]), false, false),
        (of(&[(run, "run-1"), (project, "gemini")]), false, false),
        // A task without user and project belongs to none that is named.
        (of(&[(task, &loose)]), true, false),
        (of(&[(task, &loose), (user, "ada")]), false, false),
        (of(&[(task, &loose), (project, "apollo")]), false, false),
    ] {
        for (who, token, may) in
            [("manager", &world.manager, manager_may), ("sandbox", &sandbox, sandbox_may)]
        {
            let expected = if may { "" } else { "mismatched_id" };
            assert_eq!(world.denied(token, "pad.note", &arguments).await, expected, "{who} {arguments}");
        }
    }
    let calls = world.server.calls().len();
    assert_eq!(calls, 16, "only permitted calls were made");
}

/// M104, M106: a tool whose schema requires `run_id` is called for a run of the caller alone, and not without
/// one.
#[tokio::test]
async fn run_scoped_tool_needs_a_run_of_the_caller() {
    const TOOL: &str = "pad.log";
    let world = World::start().await;
    let first = world.task("one", json!({ "user_id": "ada", "run_id": "run-1" })).await;
    world.task("two", json!({ "user_id": "ada", "run_id": "run-2" })).await;
    world.task("three", json!({ "user_id": "eve", "run_id": "run-9" })).await;
    let tool = world.gateway.must("GET", &format!("/api/v1/tools/{TOOL}"), None).await;
    assert_eq!(tool["needs"], json!(["run_id"]));
    let sandbox = world.gateway.bound("sandbox", "ada", &first).await;
    let (missing, foreign) = ("missing_id", "mismatched_id");
    for (arguments, of_manager, of_sandbox) in [
        (json!({}), missing, missing),
        (json!({ "run_id": null }), missing, missing),
        (json!({ "task_id": first }), missing, missing),
        (json!({ "run_id": "run-1" }), "", ""),
        (json!({ "run_id": "run-2" }), "", foreign),
        (json!({ "run_id": "run-9" }), "", foreign),
        (json!({ "run_id": "run-404" }), foreign, foreign),
        (json!({ "run_id": "run-2", "task_id": first }), foreign, foreign),
    ] {
        for (token, expected) in [(&world.manager, of_manager), (&sandbox, of_sandbox)] {
            assert_eq!(world.denied(token, TOOL, &arguments).await, expected, "{arguments}");
        }
    }
    // Under a lease a manager reaches the runs of its user, or the one run that the lease names.
    let manager = world.gateway.agent(&world.manager);
    for (run, reachable) in [(None, &["run-1", "run-2"][..]), (Some("run-1"), &["run-1"][..])] {
        let lease = json!({ "agent": "project_manager", "user_id": "ada", "run_id": run });
        let (_, lease) = world.gateway.lease(lease).await;
        for run in ["run-1", "run-2", "run-9", "run-404"] {
            let arguments = json!({ "run_id": run });
            let called = world.gateway.call_under(&manager, Some(&lease), TOOL, arguments).await;
            let is_reachable = reachable.contains(&run);
            assert_eq!(called.is_ok(), is_reachable, "{run}: {called:?}");
            let why = called.err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(why.contains("run_id is outside the scope"), !is_reachable, "{run}: {why}");
        }
    }
    let called: Vec<_> =
        world.server.calls().into_iter().map(|call| call.arguments["run_id"].clone()).collect();
    assert_eq!(called, ["run-1", "run-1", "run-2", "run-9", "run-1", "run-2", "run-1"]);
    // Every refusal is recorded, with the run of the lease or the one that the call named.
    let rows = world.gateway.audit(&format!("tool={TOOL}&decision=deny")).await;
    let of = |error_type: &str| rows.iter().filter(|row| row["error_type"] == error_type).count();
    assert_eq!((of(missing), of(foreign), rows.len()), (6, 11, 17));
    assert_eq!(rows.iter().filter(|row| row["run_id"] == "run-404").count(), 3);
}

/// Built-in tools answer `not_found` for an unknown id, and refuse ids that do not belong together.
#[tokio::test]
async fn built_in_tools_refuse_ids_that_do_not_belong_together() {
    let world = World::start().await;
    let first = world.task("one", json!({ "project_id": "apollo", "user_id": "ada" })).await;
    let call = async |tool: &str, arguments: Value| {
        let (_, answer) = world.gateway.post_call(&world.manager, tool, arguments).await;
        answer
    };
    let unknown = call("db.task.get", json!({ "task_id": "nowhere" })).await;
    assert_eq!(unknown["result"]["structuredContent"]["code"], "not_found", "{unknown}");
    for wrong in [json!({ "user_id": "eve" }), json!({ "project_id": "gemini" })] {
        let mut arguments = wrong.clone();
        arguments["task_id"] = json!(first);
        let answer = call("db.preference.list", arguments).await;
        assert_eq!(answer["error"]["data"]["reason"], "mismatched_id", "{wrong}: {answer}");
    }
    let right = json!({ "task_id": first, "user_id": "ada", "project_id": "apollo" });
    let answer = call("db.preference.list", right).await;
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    // A run may be named before anything belongs to it.
    let made = json!({ "task_id": first, "run_id": "run-new", "path": "a.txt", "content": "x" });
    assert_eq!(call("artifact.put", made).await["result"]["isError"], false);
}
