//! Every argument of `sandbox.run` that is refused has a message of its own.

use policy::Agent;
use serde_json::{Value, json};
use store::entity::allowed_image;

use super::{task, under_lease};
use crate::stage::{Stage, on_both};

on_both![
    bad_arguments_are_refused_by_name,
    images_are_allowed_by_digest,
    tools_stay_within_the_callers_lease
];

const DIGEST: &str = "sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a";

/// Arguments, and a part of what is said about them.
fn bad() -> Vec<(Value, &'static str)> {
    let file = |path: &str| json!({ "files": [{ "path": path, "text": "x" }] });
    let long = "x".repeat(600);
    vec![
        (json!({ "command": [] }), "`command` or `script`"),
        (json!({ "command": ["true"], "script": "true" }), "not both"),
        (json!({ "command": [""] }), "program"),
        (json!({ "command": ["a\0b"] }), "NUL"),
        (json!({ "command": vec!["x"; 300] }), "300 arguments"),
        (json!({ "command": [], "script": "  " }), "script is empty"),
        (json!({ "limits": { "memory_mb": 0 } }), "sandbox.limits.memory_mb.max"),
        (json!({ "limits": { "memory_mb": 99_999_999 } }), "4 to 4096"),
        (json!({ "limits": { "cpu": 0 } }), "limits.cpu"),
        (json!({ "limits": { "cpu": 64 } }), "0.01 to 4"),
        (json!({ "limits": { "pids": -1 } }), "-1"),
        (json!({ "limits": { "seconds": 1e9 } }), "1000000000"),
        (json!({ "limits": { "disk_mb": 0 } }), "disk_mb"),
        (json!({ "limits": { "output_kb": 0 } }), "output_kb"),
        (json!({ "limits": { "gpus": 1 } }), "gpus"),
        (file("/etc/passwd"), "must be relative"),
        (file("../up"), "`..`"),
        (file(""), "is empty"),
        (file("a\0b"), "invisible"),
        (file(&long), "512"),
        (json!({ "files": [{ "path": "a", "text": "" }, { "path": "a", "text": "" }] }), "twice"),
        (json!({ "files": [{ "path": "a", "text": "" }, { "path": "a/b", "text": "" }] }), "folder of"),
        (json!({ "files": [{ "path": "a" }] }), "exactly one"),
        (json!({ "files": [{ "path": "a", "text": "", "base64": "" }] }), "exactly one"),
        (json!({ "files": [{ "path": "a", "base64": "?" }] }), "not base64"),
        (json!({ "files": [{ "path": "a", "text": "x".repeat(600_000) }] }), "artifact.put"),
        (json!({ "files": [{ "path": "a", "artifact_id": "a-1" }] }), "artifact a-1 not found"),
        (json!({ "files": [{ "path": "a", "artifact_path": "none" }] }), "artifact none not found"),
        (json!({ "env": { "1A": "x" } }), "\"1A\""),
        (json!({ "env": { "A=B": "x" } }), "A=B"),
        (json!({ "env": { "": "x" } }), "`env`"),
        (json!({ "env": { "A": "x\0" } }), "NUL"),
        (json!({ "network": ["https://pypi.org"] }), "https://pypi.org"),
        (json!({ "network": ["*"] }), "\"*\""),
        (json!({ "network": ["pypi.org", "1.2"] }), "\"1.2\": resolvers may take this number for an IPv4"),
        (json!({ "network": ["0x7f.1"] }), "four decimal numbers"),
        (json!({ "network": ["127.1:80"] }), "\"127.1:80\""),
        (json!({ "network": ["2130706433"] }), "2130706433"),
        (json!({ "network": ["::1"] }), "in brackets"),
        (json!({ "network": ["pypi.org:0"] }), "1 to 65535"),
        (json!({ "outputs": ["../x"] }), "`outputs`"),
        (json!({ "outputs": ["/x"] }), "must be relative"),
        (json!({ "outputs": ["[a"] }), "not a pattern"),
        (json!({ "tools": ["web.*"] }), "patterns are not taken"),
        (json!({ "tools": ["db.task.create"] }), "a job may not call"),
        (json!({ "tools": ["sandbox.job.store"] }), "a job may not call"),
        (json!({ "tools": vec!["web.fetch"; 2] }), "twice"),
        (json!({ "tools": (0..17).map(|n| format!("web.t{n}")).collect::<Vec<_>>() }), "17 tools"),
        (json!({ "image": "alpine:3.20" }), "no digest"),
        (json!({ "image": "alpine@sha256:12" }), "digest"),
        (json!({ "image": format!("alpine@{DIGEST}") }), "not allowed"),
        (json!({ "engine": "container" }), "name an `image`"),
        (json!({ "engine": "rocket" }), "rocket"),
        (json!({ "node_id": "none" }), "node none not found"),
        (json!({ "node_id": "NO/DE" }), "a node is named"),
        (json!({ "node_id": "one", "pool": "default" }), "name a `node_id`, or"),
        (json!({ "labels": { "gpu": "yes" } }), "no node with the labels gpu=yes"),
        (json!({ "pool": "a.b" }), "a pool is named"),
        (json!({ "wait_seconds": 61 }), "at most 60"),
        (json!({ "repeat": "often" }), "often"),
        (json!({ "task_id": "t-0" }), "task t-0 not found"),
        (json!({ "colour": "red" }), "colour"),
    ]
}

async fn bad_arguments_are_refused_by_name(stage: Stage) {
    let task = task(&stage).await;
    for (wrong, expected) in bad() {
        let mut arguments = json!({ "task_id": task });
        if wrong.get("command").is_none() && wrong.get("script").is_none() {
            arguments["command"] = json!(["true"]);
        }
        for (name, value) in wrong.as_object().unwrap() {
            arguments[name] = value.clone();
        }
        let (code, why) = stage.fails("sandbox.run", arguments).await;
        assert!(why.contains(expected), "{expected}: {code}: {why:.300}");
    }
    let closed = json!({ "task_id": task, "status": "canceled" });
    stage.ok("db.task.update_status", closed).await;
    let run = json!({ "task_id": task, "command": ["true"] });
    assert_eq!(stage.fails("sandbox.run", run).await.0, "conflict");
    let ownerless = stage.ok("db.task.create", json!({ "title": "ownerless" })).await;
    let run = json!({ "task_id": ownerless["task_id"], "command": ["true"] });
    assert!(stage.fails("sandbox.run", run).await.1.contains("belongs to no user"));
    assert_eq!(stage.ok("sandbox.job.list", json!({})).await["items"], json!([]), "nothing was created");
}

async fn images_are_allowed_by_digest(stage: Stage) {
    let task = task(&stage).await;
    let allowed = |image: String| allowed_image::Model {
        image,
        note: String::new(),
        created_at: 1,
        created_by: "admin:tok".to_owned(),
    };
    let image = format!("docker.io/library/alpine@{DIGEST}");
    let run = json!({ "task_id": task, "command": ["true"], "image": image });
    // A tag can mean another image tomorrow.
    stage.given(allowed("docker.io/library/alpine".to_owned())).await;
    assert!(stage.fails("sandbox.run", run.clone()).await.1.contains("not allowed"));
    stage.given(allowed(format!("docker.io/library/alpine:3.20@{DIGEST}"))).await;
    let created = stage.ok("sandbox.run", run).await;
    assert_eq!(created["engine"], "container");
    let sent = super::messages(&stage, super::id_of(&created)).await;
    assert_eq!(sent[0].subject, "jobs.class.default_container_0a0a0a0a0a0a0a0a");
}

async fn tools_stay_within_the_callers_lease(stage: Stage) {
    let task = task(&stage).await;
    let ada = under_lease(Agent::Manager, "ada", Some(&task), None);
    let run = |tool: &str| json!({ "task_id": task, "command": ["true"], "tools": [tool] });
    stage.call(&ada, "sandbox.run", run("web.fetch")).await.unwrap();
    let (_, why) = stage.fails_for(&ada, "sandbox.run", run("artifact.put")).await;
    assert!(why.contains("beyond the caller's own lease"), "{why}");
}
