//! Two runners on one workflow: the first is frozen or cut off past the end of its lease, and comes back.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Link, NodeProcess, RunnerProcess, Worker, eventually};

use crate::stage::{Stage, effects, events, job};

const LEASE_LOST: &str = "Lease lost; workflow left to others.";
const STOPS_WITHIN: Duration = Duration::from_secs(30);

/// A workflow that the first runner began and the second has taken over. No node is there yet, so that it
/// waits for its first job.
struct Overtaken {
    stage: Stage,
    task: String,
    first: RunnerProcess,
    second: RunnerProcess,
    _manager: Worker,
}

impl Overtaken {
    /// Starts both runners. `lose` makes the first one silent when it has begun the job, and the second one
    /// takes over when the lease has ended.
    async fn by_second(stage: Stage, first: RunnerProcess, lose: impl AsyncFnOnce(&RunnerProcess)) -> Self {
        let manager = stage.manager_worker().await.start().await;
        let mut made = job("a", "echo made >> a.txt", &[]);
        made["outputs"] = json!(["a.txt"]);
        let task = stage.begin("Make a file", json!([made, job("b", "echo b", &["a"])])).await;
        stage.until(&task, "the job is begun", |it| it["effects"] != json!([])).await;
        lose(&first).await;
        let second = stage.start_runner("second").await;
        let taken = stage.until(&task, "the second has it", |it| it["holder"] == "second").await;
        assert_eq!(taken["epoch"], 2, "{taken}");
        Self { stage, task, first, second, _manager: manager }
    }

    async fn by_freezing() -> Self {
        let stage = Stage::start().await;
        let first = stage.start_runner("first").await;
        Self::by_second(stage, first, async |first| first.process.freeze()).await
    }

    /// Starts a node, and waits until the second runner has done everything: each job and each review once.
    async fn finish(&self) -> (NodeProcess, Value) {
        let node = self.stage.node("node-1").await.start().await;
        let done = self.stage.ended(&self.task).await;
        assert_eq!((&done["status"], &done["epoch"]), (&json!("done"), &json!(2)), "{done}");
        assert!(done["holder"].is_null() && done["lease_expires_at"].is_null(), "{done}");
        let begun = [("job", "a"), ("job", "b"), ("review", "a"), ("review", "b")];
        assert_eq!(effects(&done), begun.map(|(kind, step)| (kind.to_owned(), step.to_owned())), "{done}");
        for effect in done["effects"].as_array().unwrap() {
            let is_first = effect["kind"] == "job" && effect["step"] == "a";
            assert_eq!(effect["epoch"], if is_first { 1 } else { 2 }, "{effect}");
            assert_eq!(effect["outcome"], "completed", "{effect}");
        }
        assert_eq!(self.stage.jobs(&self.task).await.len(), 2);
        assert_eq!(self.stage.artifact(&self.task, "a.txt").await, "made\n");
        assert_eq!(self.stage.task_status(&self.task).await, "completed");
        let told = done["events"].as_array().unwrap();
        let runners = told.iter().filter(|event| event["node"] == "runner");
        let text = |it: &Value| it.as_str().unwrap().to_owned();
        let runners =
            runners.map(|it| format!("{} {} {}", text(&it["outcome"]), it["epoch"], text(&it["detail"])));
        let runners: Vec<String> = runners.collect();
        let expected = ["started 1 held by first", "lease_lost 1 held by first", "started 2 held by second"];
        assert_eq!(runners, expected, "{done}");
        self.stage.wait_until_settled().await;
        (node, done)
    }

    /// Returns what the first runner called for the task after the second had taken it, in order. The two
    /// have tokens of their own.
    async fn late_calls(&self) -> Vec<Value> {
        let mut rows =
            self.stage.gateway.audit(&format!("agent=workflow&task_id={}&limit=500", self.task)).await;
        rows.reverse();
        let is_taking = |row: &&Value| row["tool"] == "workflow.lease.acquire" && row["status"] == "success";
        let taken: Vec<Value> = rows.iter().filter(is_taking).cloned().collect();
        assert_eq!(taken.len(), 2, "{rows:?}");
        let (first, since) = (&taken[0]["subject"], taken[1]["seq"].as_i64().unwrap());
        assert_ne!(first, &taken[1]["subject"]);
        rows.retain(|row| row["subject"] == *first && row["seq"].as_i64().unwrap() > since);
        rows
    }

    async fn assert_first_had_no_effect(&self) {
        let late = self.late_calls().await;
        assert!(late.iter().all(|row| row["status"] == "failure"), "{late:?}");
    }

    /// The second runner stops, and the first one does another task.
    async fn assert_first_goes_on(mut self) {
        self.second.process.terminate();
        assert!(self.second.process.wait(STOPS_WITHIN).success(), "{}", self.second.log());
        let task = self.stage.begin("Another", json!([job("c", "echo c", &[])])).await;
        let done = self.stage.ended(&task).await;
        assert_eq!((&done["status"], &done["epoch"]), (&json!("done"), &json!(1)), "{done}");
        let taken = events(&done).into_iter().find(|[node, ..]| node == "runner").unwrap();
        assert_eq!(taken, ["runner", "", "started", "held by first"], "{done}");
        assert!(self.first.process.is_running());
    }
}

/// The first runner is thawed while the second one waits for the job.
#[tokio::test]
async fn frozen_workflow_runner_comes_back_while_another_works_and_has_no_effect() {
    let overtaken = Overtaken::by_freezing().await;
    overtaken.first.process.thaw();
    overtaken.first.wait_for_log(LEASE_LOST).await;
    let held = overtaken.stage.workflow(&overtaken.task).await;
    assert_eq!((&held["holder"], &held["epoch"]), (&json!("second"), &json!(2)), "{held}");
    let (_node, _) = overtaken.finish().await;
    overtaken.assert_first_had_no_effect().await;
    overtaken.assert_first_goes_on().await;
}

/// The first runner is thawed after the second one has ended the workflow.
#[tokio::test]
async fn frozen_workflow_runner_comes_back_after_the_end_and_has_no_effect() {
    let overtaken = Overtaken::by_freezing().await;
    let (_node, done) = overtaken.finish().await;
    overtaken.first.process.thaw();
    overtaken.first.wait_for_log(LEASE_LOST).await;
    overtaken.assert_first_had_no_effect().await;
    assert_eq!(overtaken.stage.workflow(&overtaken.task).await, done, "nothing changed");
    overtaken.assert_first_goes_on().await;
}

/// The first runner sends a call, which arrives after the second one has taken the workflow. The gateway
/// refuses it.
#[tokio::test]
async fn write_of_a_workflow_runner_that_arrives_late_is_refused() {
    let stage = Stage::start().await;
    let link = Link::to(stage.gateway.address()).await;
    let first = stage.runner("first").await.set("gateway.url", format!("http://{}/mcp", link.address()));
    let first = first.start().await;
    let overtaken = Overtaken::by_second(stage, first, async |first| {
        link.cut();
        // The body of a call, which is sent in one piece.
        link.wait_until_holding("jsonrpc").await;
        first.process.freeze();
    });
    let overtaken = overtaken.await;
    link.mend();
    // It waits for a job, so this is the renewal of its lease, or else the last call before the wait.
    let is_refused = |row: &Value| row["error_type"] == "conflict";
    eventually("a late call is refused", || async {
        overtaken.late_calls().await.iter().any(is_refused).then_some(())
    })
    .await;
    overtaken.first.process.thaw();
    overtaken.first.wait_for_log(LEASE_LOST).await;
    let (_node, _) = overtaken.finish().await;
    overtaken.assert_first_had_no_effect().await;
    overtaken.assert_first_goes_on().await;
}

/// A runner that does not reach the gateway, but NATS, leaves its workflow and takes no message until the
/// gateway answers again.
#[tokio::test]
async fn workflow_runner_that_is_cut_off_from_the_gateway_leaves_work_to_others() {
    let stage = Stage::start().await;
    let link = Link::to(stage.gateway.address()).await;
    let first = stage.runner("first").await.set("gateway.url", format!("http://{}/mcp", link.address()));
    let first = first.start().await;
    let overtaken = Overtaken::by_second(stage, first, async |_| link.cut()).await;
    overtaken.first.wait_for_log(LEASE_LOST).await;
    let (_node, _) = overtaken.finish().await;
    link.mend();
    overtaken.assert_first_had_no_effect().await;
    overtaken.assert_first_goes_on().await;
}
