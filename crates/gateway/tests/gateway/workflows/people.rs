//! Workflows for people: over REST and with cynodectl (W10).

use serde_json::{Value, json};
use testkit::{GatewayProcess, eventually};

use super::support::{EVIL, World};
use crate::administration::support::{ctl, parsed, user};

const FAILED: i32 = 1;
const WAITS: i32 = 2;
const USAGE: i32 = 64;
const UNAVAILABLE: i32 = 69;

fn path(task: &str, what: &str) -> String {
    format!("/api/v1/workflows/{task}/{what}")
}

#[tokio::test]
async fn rest_lists_starts_and_steers() {
    let world = World::new().await;
    let gateway = &world.gateway;
    assert_eq!(gateway.must("GET", "/api/v1/workflows", None).await, json!([]));
    let task = world.task_with(json!({ "name": "build", "user_id": "ada" })).await;
    let post = async |what: &str, body: Value| gateway.ask("POST", &path("build", what), Some(body)).await;
    assert_eq!(gateway.ask("GET", "/api/v1/workflows/build", None).await.status, 404, "it has none yet");
    assert_eq!(gateway.ask("GET", "/api/v1/workflows/nope", None).await.status, 404);
    for (body, status) in
        [(json!({ "stepps": [] }), 400), (json!({ "steps": [{ "name": "a", "kind": "job" }] }), 422)]
    {
        let refused = post("start", body.clone()).await;
        assert_eq!(refused.status, status, "{body}: {}", refused.body);
    }
    let typo = post("start", json!({ "steps": [{ "name": "a", "kind": "job", "scirpt": "make" }] })).await;
    let said = typo.body.to_string();
    assert_eq!(typo.status, 400, "{said}");
    assert!(said.contains("step `a`: unknown field `scirpt`, expected one of `name`"), "{said}");
    let step = json!({ "name": "make", "kind": "job", "script": "make" });
    let start = json!({ "steps": [step], "policy": { "max_attempts": 2 } });
    let started = post("start", start.clone()).await;
    assert_eq!((started.status, &started.body["task_id"]), (200, &json!(task)), "{}", started.body);
    assert_eq!(started.body["policy"]["max_attempts"], 2);
    assert_eq!(post("start", start).await.body["already_active"], true);
    world.until_sent(&task, &[1]).await;

    assert_eq!(post("pause", json!({})).await.body["waiting_for"], "pause");
    let refused = post("resume", json!({ "input": "yes" })).await;
    assert_eq!((refused.status, &refused.body["error"]["field"]), (422, &json!("input")), "{}", refused.body);
    assert_eq!(post("resume", json!({})).await.body["status"], "queued");
    let epoch = world.acquire(&task, 2).await["epoch"].as_i64().expect("an epoch");
    let question = json!({ "waiting": { "for": "question", "question": "Which?", "interrupt_id": "i-1" } });
    world.release(&task, epoch, question).await;
    assert_eq!(post("resume", json!({})).await.status, 422, "an answer is needed");
    assert_eq!(post("resume", json!({ "input": "the blue one" })).await.body["status"], "queued");
    assert_eq!(world.acquire(&task, 3).await["input"], "the blue one");
    assert_eq!(post("retry", json!({})).await.status, 409, "it has not failed");
    let cancelled = post("cancel", json!({ "reason": "no longer needed" })).await.body;
    assert_eq!(
        (&cancelled["status"], &cancelled["error"]),
        (&json!("cancelled"), &json!("no longer needed"))
    );
    assert_eq!(post("retry", json!({ "from_start": true })).await.body["run"], 4);
    world.until_sent(&task, &[1, 2, 3, 4]).await;

    let details = gateway.must("GET", "/api/v1/workflows/build", None).await;
    let outcomes: Vec<&str> = details["events"]
        .as_array()
        .expect("events")
        .iter()
        .filter_map(|event| event["outcome"].as_str())
        .collect();
    for expected in ["started", "paused", "resumed", "waiting", "answered", "cancelled", "retried"] {
        assert!(outcomes.contains(&expected), "{expected}: {outcomes:?}");
    }
    let listed = async |query: &str| {
        let found = gateway.must("GET", &format!("/api/v1/workflows?{query}"), None).await;
        found.as_array().expect("a list").len()
    };
    assert_eq!(listed("status=queued&user_id=ada").await, 1);
    assert_eq!(listed("status=done").await + listed("user_id=eve").await + listed("project_id=p").await, 0);
    for what in ["start", "pause", "resume", "cancel", "retry"] {
        let rows = gateway.audit(&format!("tool=admin.workflow.{what}")).await;
        assert!(!rows.is_empty(), "{what} is in the audit");
    }
}

#[tokio::test]
async fn users_and_gateways_without_nats_cannot_steer_workflows() {
    let world = World::new().await;
    let task = world.started("build").await;
    let ada = user(&world.gateway, "ada").await;
    for (method, path) in [
        ("GET", "/api/v1/workflows".to_owned()),
        ("GET", format!("/api/v1/workflows/{task}")),
        ("POST", path(&task, "cancel")),
        ("POST", path(&task, "retry")),
    ] {
        let body = (method == "POST").then(|| json!({}));
        assert_eq!(world.gateway.ask_as(&ada, method, &path, body).await.status, 403, "{method} {path}");
    }
    assert_eq!(world.status(&task).await.0, "queued");

    let alone = GatewayProcess::start().await;
    let manager = alone.agent(&alone.manager().await);
    let task = json!({ "name": "build", "user_id": "ada" });
    alone.call(&manager, "db.task.create", task).await.expect("a task");
    let refused = ctl(&alone, &["workflows", "start", "build"]).await;
    assert_eq!(refused.code, UNAVAILABLE, "{refused:?}");
    assert!(refused.stderr.contains("nats.url"), "{refused:?}");
    assert!(ctl(&alone, &["workflows", "ls"]).await.stdout.contains("cynodectl workflows start TASK"));
}

#[tokio::test]
async fn cynodectl_starts_shows_and_steers() {
    let world = World::new().await;
    let gateway = &world.gateway;
    let run = async |line: &[&str]| ctl(gateway, &[&["workflows"], line].concat()).await;
    assert!(run(&["ls"]).await.stdout.contains("no workflows; `cynodectl workflows start TASK`"));
    assert!(run(&["ls", "--status", "failed"]).await.stdout.contains("no such workflows"));
    let task = world.task_with(json!({ "name": "build", "title": EVIL, "user_id": "ada" })).await;
    let none = run(&["show", "build"]).await;
    assert_eq!(none.code, FAILED);
    assert!(
        none.stderr.contains("has no workflow; start one with `cynodectl workflows start build`"),
        "{none:?}"
    );
    let missing = run(&["start", "nope"]).await;
    assert!(missing.code == FAILED && missing.stderr.contains("`nope` not found"), "{missing:?}");

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("steps.json");
    let name = file.display().to_string();
    for (text, expected) in [
        ("{", "does not contain steps"),
        (r#"[{ "name": "a", "kind": "job" }]"#, "a job needs a script"),
        (
            r#"[{ "name": "a", "kind": "job", "scirpt": "x" }]"#,
            "unknown field `scirpt`, expected one of `name`",
        ),
        (r#"[{ "name": "a", "kind": "job", "script": "x", "depends_on": ["b"] }]"#, "not a step"),
    ] {
        std::fs::write(&file, text).expect("written");
        let refused = run(&["start", "build", "--steps", &name]).await;
        assert_eq!(refused.code, USAGE, "{text}: {refused:?}");
        assert!(refused.stderr.contains(expected), "{text}: {refused:?}");
    }
    std::fs::write(&file, r#"[{ "name": "make", "kind": "job", "script": "make" }]"#).expect("written");
    let started = run(&["start", "build", "--steps", &name]).await;
    assert!(started.stdout.contains("is started; it waits for a runner"), "{started:?}");
    assert!(started.stderr.contains("show build --follow"), "{started:?}");
    assert!(run(&["start", &task]).await.stdout.contains("is active already"));
    let refused = run(&["retry", "build"]).await;
    assert_eq!(refused.code, FAILED);
    assert!(refused.stderr.contains("`cynodectl workflows pause`"), "a command, not a tool: {refused:?}");

    let epoch = world.acquire(&task, 1).await["epoch"].as_i64().expect("an epoch");
    world.put_plan(&task, epoch).await;
    let shown = run(&["show", "build"]).await;
    for expected in ["dispatch_step", "convert", "2 of 3", "pass", "fetch", "runner-1"] {
        assert!(shown.stdout.contains(expected), "{expected}: {shown:?}");
    }
    assert!(!shown.stdout.contains('\u{1b}'), "{shown:?}");
    let shown = ctl(gateway, &["tasks", "show", "build"]).await;
    assert!(shown.stdout.contains("running") && shown.stdout.contains("convert"), "{shown:?}");

    assert!(run(&["pause", "build"]).await.stdout.contains("is paused"));
    assert!(run(&["resume", "build"]).await.stdout.contains("goes on"));
    let cancelled = run(&["cancel", "build", "--reason", "not now"]).await;
    assert!(cancelled.stdout.contains("is cancelled"), "{cancelled:?}");
    assert!(run(&["retry", "build", "--from-start"]).await.stdout.contains("starts over"));
    let listed = parsed(&ctl(gateway, &["--json", "workflows", "ls", "--user", "ada"]).await);
    assert_eq!((&listed["task_id"], &listed["status"]), (&json!(task), &json!("queued")));
}

/// Following ends with the workflow or with its question, and tells which by its exit code.
#[tokio::test]
async fn cynodectl_follows_until_the_end_or_a_question() {
    let world = World::new().await;
    let gateway = &world.gateway;
    let task = world.task_with(json!({ "name": "build", "user_id": "ada" })).await;
    world.ok("workflow.start", json!({ "task_id": task })).await;
    let follow = async |json: bool| {
        let line = ["workflows", "show", "build", "--follow"];
        if json { ctl(gateway, &[&["--json"], &line[..]].concat()).await } else { ctl(gateway, &line).await }
    };
    let question = json!({ "waiting": { "for": "approval", "question": "Deploy it?", "interrupt_id": "i" } });
    let asks = async {
        let epoch = world.acquire(&task, 1).await["epoch"].as_i64().expect("an epoch");
        world.put_plan(&task, epoch).await;
        world.release(&task, epoch, question).await;
    };
    let (waiting, ()) = tokio::join!(follow(false), asks);
    assert_eq!(waiting.code, WAITS, "{waiting:?}");
    let lines = &waiting.stdout;
    assert!(lines.find("runner started") < lines.find("plan_steps ended"), "{lines}");
    assert!(lines.contains("dispatch_step convert retried: attempt 2"), "{lines}");
    assert!(!lines.contains("decide_next"), "routing is not told: {lines}");
    assert!(
        lines.contains("Deploy it?") && lines.contains("workflows resume build \"yes\" --question i"),
        "{lines}"
    );
    let shown = ctl(gateway, &["tasks", "show", "build"]).await;
    assert!(shown.stdout.contains("Deploy it?") && shown.stdout.contains("waiting"), "{shown:?}");

    let unnamed = ctl(gateway, &["workflows", "resume", "build", "Yes!"]).await;
    assert!(unnamed.code == FAILED && unnamed.stderr.contains("`--question` i if"), "{unnamed:?}");
    let answered = ctl(gateway, &["workflows", "resume", "build", "Yes!", "--question", "i"]).await;
    assert!(answered.stdout.contains("is answered and goes on"), "{answered:?}");
    let ends = async {
        let taken = world.acquire(&task, 2).await;
        assert_eq!(taken["input"], "yes");
        let epoch = taken["epoch"].as_i64().expect("an epoch");
        world.release(&task, epoch, json!({ "done": { "summary": "It is deployed." } })).await;
    };
    let (done, ()) = tokio::join!(follow(true), ends);
    assert_eq!(done.code, 0, "{done:?}");
    let last: Value = serde_json::from_str(done.stdout.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&last["status"], &last["summary"]), (&json!("done"), &json!("It is deployed.")));
    assert!(done.stdout.lines().count() > 8, "{done:?}");

    let (failing, epoch) = world.taken("fails").await;
    world.release(&failing, epoch, json!({ "failed": { "error": "no disk" } })).await;
    let failed = ctl(gateway, &["workflows", "show", &failing, "--follow"]).await;
    assert_eq!(failed.code, FAILED);
    assert!(failed.stdout.contains("failed: no disk"), "{failed:?}");
    eventually("all is sent", async || {
        (gateway.must("GET", "/api/v1/outbox", None).await == json!([])).then_some(())
    })
    .await;
}
