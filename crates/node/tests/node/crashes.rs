//! A node killed at any point: its job has one result, and nothing is left on the machine.

use serde_json::json;

use crate::{host::wait_until_clean, stage::Stage};

const POINTS: [&str; 9] = [
    "Delivered",
    "Claimed",
    "BeforeProcess",
    "ProcessStarted",
    "ProcessEnded",
    "FileStored",
    "FilesStored",
    "ResultStored",
    "Acknowledged",
];

#[tokio::test(flavor = "multi_thread")]
async fn node_killed_at_any_point_leaves_one_result_and_nothing_on_the_machine() {
    let stage = Stage::start().await;
    for point in POINTS {
        let builder = stage.node(&format!("dies-{}", point.to_lowercase())).await;
        let mut dying = builder.clone().stopping_at(&format!("{point}#1")).start().await;
        let script = "echo once; echo whole > out.txt";
        let id = stage.script(script, json!({ "outputs": ["out.txt"] })).await;
        dying.wait_until_stopped().await;
        dying.process.kill();
        let again = builder.start().await;
        let job = stage.ended(&id).await;
        assert_eq!(job["exit_code"], 0, "{point}: {job}");
        assert_eq!(job["files"].as_array().map(Vec::len), Some(1), "{point}: {job}");
        assert_eq!(stage.artifact("out.txt").await, "whole\n", "{point}");
        assert_eq!(stage.results(&id).await, 1, "{point}");
        wait_until_clean(&builder.data(), &[id]).await;
        drop(again);
    }
}

#[tokio::test]
async fn job_that_must_not_repeat_runs_at_most_once_wherever_its_node_dies() {
    let stage = Stage::start().await;
    for point in ["Claimed", "BeforeProcess", "ProcessStarted", "ProcessEnded", "FilesStored"] {
        let builder = stage.node(&format!("dies-{}", point.to_lowercase())).await;
        let mut dying = builder.clone().stopping_at(&format!("{point}#1")).start().await;
        let id = stage.script("echo once", json!({ "repeat": "never" })).await;
        dying.wait_until_stopped().await;
        dying.process.kill();
        let again = builder.start().await;
        let job = stage.ended(&id).await;
        let how = if point == "Claimed" { "exited" } else { "node_lost" };
        assert_eq!(job["end"]["how"], how, "{point}: {job}");
        assert_eq!(stage.results(&id).await, 1, "{point}");
        drop(again);
    }
}

/// All files become artifacts or none: also if the request comes between two of them, and the node dies then.
#[tokio::test(flavor = "multi_thread")]
async fn job_cancelled_while_its_files_are_stored_keeps_none() {
    let stage = Stage::start().await;
    let script = "for n in 1 2 3; do echo $n > $n.txt; done";
    for dies in [false, true] {
        let builder = stage.node(&format!("stores-{dies}")).await;
        let mut node = builder.clone().stopping_at("FileStored#2").start().await;
        let id = stage.script(script, json!({ "outputs": ["*.txt"] })).await;
        node.wait_until_stopped().await;
        if dies {
            node.process.kill();
        }
        stage.call("sandbox.job.cancel", json!({ "job_id": id })).await;
        let again = if dies { Some(builder.start().await) } else { None };
        let job = stage.ended(&id).await;
        assert_eq!((&job["status"], &job["end"]["how"]), (&json!("canceled"), &json!("cancelled")), "{job}");
        assert!(job["files"].as_array().is_none_or(Vec::is_empty), "{job}");
        let kept = stage.call("artifact.list", json!({ "task_id": stage.task })).await;
        assert_eq!(kept["items"], json!([]), "{kept}");
        let problems = job["problems"].to_string();
        assert!(dies || problems.contains("the process had ended with exit code 0"), "{problems}");
        assert_eq!(stage.results(&id).await, 1);
        wait_until_clean(&builder.data(), &[id]).await;
        drop((node, again));
    }
    // It came too late: all files are there.
    let builder = stage.node("stored").await;
    let node = builder.clone().stopping_at("ResultStored#1").start().await;
    let id = stage.script(script, json!({ "outputs": ["*.txt"] })).await;
    node.wait_until_stopped().await;
    stage.call("sandbox.job.cancel", json!({ "job_id": id })).await;
    let job = stage.ended(&id).await;
    assert_eq!(
        (&job["status"], job["files"].as_array().map(Vec::len)),
        (&json!("completed"), Some(3)),
        "{job}"
    );
}
