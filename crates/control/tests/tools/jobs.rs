//! Jobs and findings.

use serde_json::json;

use crate::stage::{Stage, analyst, each, on_both};

on_both![
    job_moves_through_its_statuses,
    job_belongs_to_its_task,
    findings_are_recorded_as_the_analyst_sends_them,
    findings_are_listed_newest_first_in_pages,
];

async fn task(stage: &Stage) -> String {
    let task = stage.ok("db.task.create", json!({ "title": "one", "user_id": "u-1" })).await;
    task["task_id"].as_str().unwrap().to_owned()
}

async fn job_moves_through_its_statuses(stage: Stage) {
    let task = task(&stage).await;
    let arguments =
        json!({ "task_id": task, "kind": "build", "payload": { "target": "docs" }, "run_id": "r-1" });
    let job = stage.ok("db.job.create", arguments).await;
    assert_eq!((&job["status"], &job["version"]), (&json!("queued"), &json!(1)));
    let id = &job["job_id"];
    assert_eq!(stage.ok("db.job.get", json!({ "job_id": id })).await, job);
    let becomes = |status: &str| json!({ "job_id": id, "status": status });
    assert_eq!(stage.fails("db.job.update_status", becomes("completed")).await.0, "conflict");
    let mut starts = becomes("running");
    starts["node_id"] = json!("n-1");
    starts["expected_version"] = json!(1);
    let running = stage.ok("db.job.update_status", starts.clone()).await;
    assert_eq!((&running["node_id"], &running["version"]), (&json!("n-1"), &json!(2)));
    let (code, why) = stage.fails("db.job.update_status", starts).await;
    assert_eq!(code, "conflict");
    assert!(why.contains("version 2"), "{why}");
    let mut ends = becomes("completed");
    ends["result"] = json!({ "exit": 0, "log": "\u{0}fine" });
    let done = stage.ok("db.job.update_status", ends).await;
    assert_eq!(done["result"], json!({ "exit": 0, "log": "\u{0}fine" }));
    assert_eq!(
        stage.fails("db.job.update_status", becomes("running")).await.0,
        "conflict",
        "the job has ended"
    );
    assert_eq!(stage.fails("db.job.update_status", becomes("completed")).await.0, "conflict");
}

async fn job_belongs_to_its_task(stage: Stage) {
    let (one, other) = (task(&stage).await, task(&stage).await);
    let job = stage.ok("db.job.create", json!({ "task_id": one, "kind": "build" })).await;
    let id = &job["job_id"];
    stage.ok("db.job.get", json!({ "job_id": id, "task_id": one })).await;
    assert_eq!(stage.fails("db.job.get", json!({ "job_id": id, "task_id": other })).await.0, "not_found");
    let elsewhere = json!({ "job_id": id, "task_id": other, "status": "running" });
    assert_eq!(stage.fails("db.job.update_status", elsewhere).await.0, "not_found");
    assert_eq!(
        stage.fails("db.job.create", json!({ "task_id": "t-0", "kind": "build" })).await.0,
        "not_found"
    );
    let large = json!({ "task_id": one, "kind": "build", "payload": { "x": "x".repeat(8 * 1024) } });
    assert_eq!(stage.fails("db.job.create", large).await.0, "too_large");
    let large = json!({ "job_id": id, "status": "running", "result": "x".repeat(16 * 1024) });
    assert_eq!(stage.fails("db.job.update_status", large).await.0, "too_large");
    stage.ok("db.task.update_status", json!({ "task_id": one, "status": "canceled" })).await;
    assert_eq!(stage.fails("db.job.create", json!({ "task_id": one, "kind": "build" })).await.0, "conflict");
}

async fn findings_are_recorded_as_the_analyst_sends_them(stage: Stage) {
    let task = task(&stage).await;
    let arguments = json!({
        "task_id": task, "criterion": "The site answers", "verdict": "not_met", "severity": "critical",
        "evidence": "It does not.", "location": "docs/index.md:3",
    });
    let analyst = analyst("u-1", &task);
    let finding = stage.call(&analyst, "db.finding.create", arguments).await.unwrap();
    assert_eq!(finding["created_by"], "project_analyst:tok-analyst");
    let least =
        json!({ "task_id": task, "criterion": "It is fast", "verdict": "unclear", "severity": "info" });
    stage.call(&analyst, "db.finding.create", least).await.unwrap();
    let listed = stage.call(&analyst, "db.finding.list", json!({ "task_id": task })).await.unwrap();
    assert_eq!(each(&listed, "items", "verdict"), ["unclear", "not_met"]);
    for (name, value, code) in [
        ("verdict", json!("maybe"), "invalid_arguments"),
        ("severity", json!("huge"), "invalid_arguments"),
        ("task_id", json!("t-0"), "not_found"),
        ("criterion", json!(" "), "invalid_arguments"),
        ("criterion", json!("x".repeat(4097)), "too_large"),
        ("evidence", json!("x".repeat(16 * 1024 + 1)), "too_large"),
        ("location", json!("x".repeat(1025)), "too_large"),
    ] {
        let mut wrong = json!({ "task_id": task, "criterion": "c", "verdict": "met", "severity": "minor" });
        wrong[name] = value;
        assert_eq!(stage.fails("db.finding.create", wrong).await.0, code, "{name}");
    }
}

async fn findings_are_listed_newest_first_in_pages(stage: Stage) {
    let task = task(&stage).await;
    for number in 0..5 {
        let verdict = if number % 2 == 0 { "met" } else { "not_met" };
        let arguments = json!({
            "task_id": task, "criterion": number.to_string(), "verdict": verdict, "severity": "minor",
            "run_id": "r-1",
        });
        stage.ok("db.finding.create", arguments).await;
    }
    let first = stage.ok("db.finding.list", json!({ "task_id": task, "limit": 3 })).await;
    assert_eq!(each(&first, "items", "criterion"), ["4", "3", "2"]);
    let rest = json!({ "task_id": task, "limit": 3, "cursor": first["next_cursor"] });
    let rest = stage.ok("db.finding.list", rest).await;
    assert_eq!(each(&rest, "items", "criterion"), ["1", "0"]);
    assert!(rest.get("next_cursor").is_none());
    let some = stage.ok("db.finding.list", json!({ "task_id": task, "verdict": "not_met" })).await;
    assert_eq!(each(&some, "items", "criterion"), ["3", "1"]);
    let none = stage.ok("db.finding.list", json!({ "task_id": task, "run_id": "r-2" })).await;
    assert_eq!(none["items"], json!([]));
}
