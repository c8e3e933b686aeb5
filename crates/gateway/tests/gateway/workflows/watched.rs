//! What operators see of workflows as a whole: metrics, and `cynodectl status`.

use serde_json::json;
use testkit::{TestClock, eventually};

use super::support::{World, on_both};
use crate::administration::support::{ctl, parsed};

on_both!(metrics_count_workflows_and_what_happens_to_them);

fn taken_by(task: &str, run: i64, holder: &str) -> serde_json::Value {
    json!({ "task_id": task, "run": run, "holder": holder, "ttl_seconds": 5 })
}

/// The value of a metric, such as `gateway_workflows{status="queued"}`.
fn value(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name} is missing in\n{text}"))
}

/// Workflows by status, starts, ends by outcome, and leases that were taken over, whichever way they came.
async fn metrics_count_workflows_and_what_happens_to_them(world: World) {
    let before = world.gateway.metrics().await;
    let changed = |text: &str, outcome: &str| {
        value(text, &format!("gateway_workflow_changes_total{{outcome=\"{outcome}\"}}"))
    };
    let of = |text: &str, status: &str| value(text, &format!("gateway_workflows{{status=\"{status}\"}}"));
    assert_eq!((changed(&before, "started"), of(&before, "queued")), (0.0, 0.0));

    let (done, epoch) = world.taken("done").await;
    world.release(&done, epoch, json!({ "done": { "summary": "built" } })).await;
    let (failed, epoch) = world.taken("failed").await;
    world.release(&failed, epoch, json!({ "failed": { "error": "no disk" } })).await;
    let (asks, epoch) = world.taken("asks").await;
    let question = json!({ "waiting": { "for": "question", "question": "Which?", "interrupt_id": "i-1" } });
    world.release(&asks, epoch, question).await;
    world.taken("runs").await;
    world.started("waits").await;
    let cancelled = world.started("cancelled").await;
    world.ok("workflow.cancel", json!({ "task_id": cancelled })).await;
    eventually("all is counted", async || {
        let text = world.gateway.metrics().await;
        let changes =
            ["started", "ended", "failed", "cancelled", "waiting"].map(|outcome| changed(&text, outcome));
        let active = ["queued", "running", "waiting"].map(|status| of(&text, status));
        (changes == [6.0, 1.0, 1.0, 1.0, 1.0] && active == [1.0, 1.0, 1.0]).then_some(())
    })
    .await;
    assert_eq!(changed(&world.gateway.metrics().await, "lease_lost"), 0.0);
}

/// A lease that was taken over is counted, and so is the time that a workflow waits for a runner.
#[tokio::test]
async fn metrics_tell_of_lost_leases_and_of_workflows_that_no_runner_takes() {
    let clock = TestClock::at("2026-11-18T10:00:00Z");
    let world = World::with(&[], &[clock.variable()]).await;
    let task = world.started("build").await;
    world.runs("workflow.lease.acquire", taken_by(&task, 1, "runner-1")).await;
    world.started("waits").await;
    // One whose task waits for others waits for no runner.
    let after = world.task_with(json!({ "title": "later", "user_id": "ada", "depends_on": [task] })).await;
    world.ok("workflow.start", json!({ "task_id": after })).await;
    clock.set("2026-11-18T10:20:00Z");
    world.runs("workflow.lease.acquire", taken_by(&task, 1, "runner-2")).await;
    eventually("both are counted", async || {
        let text = world.gateway.metrics().await;
        let lost = value(&text, "gateway_workflow_changes_total{outcome=\"lease_lost\"}");
        let waits = value(&text, "gateway_workflow_oldest_wait_seconds");
        (lost == 1.0 && waits == 1_200.0).then_some(())
    })
    .await;
    let queued = value(&world.gateway.metrics().await, "gateway_workflows{status=\"queued\"}");
    assert_eq!(queued, 2.0, "one waits for a runner, one for another task");
}

/// `cynodectl status` shows how many workflows wait for a runner and how many jobs for a node.
#[tokio::test]
async fn status_shows_what_waits_for_runners_and_nodes() {
    let world = World::new().await;
    world.create_handoff_streams().await;
    let task = world.started("build").await;
    world.until_sent(&task, &[1]).await;
    let job = json!({ "task_id": task, "script": "make" });
    for _ in 0..2 {
        world.ok("sandbox.run", job.clone()).await;
    }
    world.until_all_sent().await;
    let status = async |more: &[&str]| {
        let url = world.nats.url();
        ctl(&world.gateway, &[&["--server", &*url][..], more].concat()).await
    };
    let found = parsed(&status(&["status", "--json"]).await);
    let queue = json!({ "waiting": 1, "in_flight": 0, "redelivered": 0, "pulls_waiting": 0 });
    assert_eq!(found["workflows"], queue, "{found}");
    assert_eq!(found["jobs"], json!({ "waiting": 2, "in_flight": 0, "redelivered": 0 }), "{found}");
    let shown = status(&["status"]).await.stdout;
    let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    for row in [["workflow", "1", "0", "0", "0"], ["job", "2", "0", "0", "-"]] {
        assert!(rows.iter().any(|found| found[..] == row), "{row:?} is missing in\n{shown}");
    }
    for stream in ["CYNODE_WORKFLOWS", "CYNODE_JOBS"] {
        assert!(rows.iter().any(|found| found.first() == Some(&stream)), "{stream} is missing in\n{shown}");
    }
}
