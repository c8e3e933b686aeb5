//! Runs that are replaced or take too long: their leases are revoked, and their cancels are due until they
//! are answered.

use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter};
use serde_json::{Value, json};
use store::entity::lease;

use super::handoffs;
use crate::{
    sandbox::{is_to_end, job_under},
    schedules::every,
    stage::{Stage, on_both},
};

on_both!(
    open_run_is_replaced_and_cancelled,
    given_up_run_has_no_lease_and_is_cancelled_until_it_is_answered,
    jobs_of_a_run_that_is_replaced_are_cancelled,
    answered_run_has_no_lease_unless_it_failed,
    cancel_of_a_run_is_due_for_a_week,
    run_that_takes_too_long_is_given_up,
);

async fn open_run_is_replaced_and_cancelled(stage: Stage) {
    stage.set_time("2026-01-01T00:00:00Z");
    stage.scheduled("latest", every(60), json!({ "concurrency": "replace" })).await;
    stage.set_time("2026-01-01T00:01:00Z");
    let first = handoffs(&stage.fire().await["runs"]);
    stage.set_time("2026-01-01T00:02:00Z");
    let fired = stage.fire().await;
    assert_eq!(fired["cancels"], json!(first));
    assert_eq!(stage.states("latest").await, ["pending", "replaced"]);
    // The orchestrator that fired it may have been slow to publish it: then it has to be cancelled again.
    let marked = stage.schedule("run.sent", json!({ "handoff_ids": first })).await;
    assert_eq!(marked, json!({ "marked": 1, "cancels": first }));
    stage.set_time("2026-01-01T00:02:30Z");
    let unsent = json!({ "older_than_seconds": 10, "limit": 50 });
    let swept = stage.schedule("run.unsent", unsent.clone()).await;
    assert_eq!(swept["cancels"], json!(first));
    assert_eq!(handoffs(&swept["runs"]), handoffs(&fired["runs"]), "nothing that was replaced is published");
    // An orchestrator of an earlier build says that a worker heard of it. That worker may die.
    stage.schedule("run.sent", json!({ "cancelled": first })).await;
    stage.set_time("2026-01-01T00:02:59Z");
    assert_eq!(stage.schedule("run.unsent", unsent).await["cancels"], json!(first));
    let late = json!({ "handoff_id": first[0], "outcome": "cancelled" });
    assert_eq!(stage.schedule("run.end", late).await["ended"], false);
    assert_eq!(stage.states("latest").await, ["pending", "replaced"]);
}

async fn valid_leases(stage: &Stage, handoff: &str) -> u64 {
    let of_handoff = lease::Entity::find().filter(lease::Column::HandoffId.eq(handoff));
    of_handoff.filter(lease::Column::RevokedAt.is_null()).count(stage.store.read()).await.unwrap()
}

/// Returns the handoffs whose cancels are to be published at a time.
async fn cancels_at(stage: &Stage, time: &str) -> Value {
    stage.set_time(&format!("2026-01-{time}Z"));
    let unsent = json!({ "older_than_seconds": 5, "limit": 50 });
    stage.schedule("run.unsent", unsent).await["cancels"].clone()
}

async fn given_up_run_has_no_lease_and_is_cancelled_until_it_is_answered(stage: Stage) {
    stage.set_time("2026-01-01T00:00:00Z");
    stage.scheduled("latest", every(60), json!({ "concurrency": "replace" })).await;
    stage.set_time("2026-01-01T00:01:00Z");
    let first = handoffs(&stage.fire().await["runs"]);
    stage.schedule("run.sent", json!({ "handoff_ids": first })).await;
    assert_eq!(valid_leases(&stage, &first[0]).await, 1);
    stage.set_time("2026-01-01T00:02:00Z");
    let second = handoffs(&stage.fire().await["runs"]);
    assert_eq!((valid_leases(&stage, &first[0]).await, valid_leases(&stage, &second[0]).await), (0, 1));
    for (time, is_due) in [
        ("00:02:00", true),
        ("00:02:04", false),
        ("00:02:05", true),
        ("00:02:09", false),
        // The pauses grow.
        ("00:04:00", true),
        ("00:04:07", false),
        ("00:04:08", true),
    ] {
        let expected = if is_due { json!(first) } else { json!([]) };
        assert_eq!(cancels_at(&stage, &format!("01T{time}")).await, expected, "{time}");
    }
    let late = json!({ "handoff_id": first[0], "outcome": "cancelled" });
    assert_eq!(stage.schedule("run.end", late).await["ended"], false);
    assert_eq!(cancels_at(&stage, "01T00:05:00").await, json!([]));
    // One that a person replaces.
    stage.schedule("run_now", json!({ "user_id": "u-1", "schedule": "latest" })).await;
    assert_eq!(valid_leases(&stage, &second[0]).await, 0);
    assert_eq!(cancels_at(&stage, "01T00:05:00").await, json!(second));
}

async fn jobs_of_a_run_that_is_replaced_are_cancelled(stage: Stage) {
    stage.set_time("2026-01-01T00:00:00Z");
    stage.scheduled("latest", every(60), json!({ "concurrency": "replace" })).await;
    let mut jobs = Vec::new();
    for time in ["00:01:00", "00:02:00"] {
        stage.set_time(&format!("2026-01-01T{time}Z"));
        let fired = stage.fire().await;
        jobs.push(job_under(&stage, fired["runs"][0]["lease"].as_str().unwrap()).await);
    }
    assert_eq!((is_to_end(&stage, &jobs[0]).await, is_to_end(&stage, &jobs[1]).await), (true, false));
}

async fn answered_run_has_no_lease_unless_it_failed(stage: Stage) {
    stage.set_time("2026-01-01T00:00:00Z");
    stage.scheduled("hello", every(60), json!({})).await;
    for (time, outcome, leases) in [("00:01:00", "completed", 0), ("00:02:00", "failed", 1)] {
        stage.set_time(&format!("2026-01-01T{time}Z"));
        let run = handoffs(&stage.fire().await["runs"]).remove(0);
        assert_eq!(valid_leases(&stage, &run).await, 1);
        let end = json!({ "handoff_id": run, "outcome": outcome });
        assert_eq!(stage.schedule("run.end", end).await["ended"], true);
        assert_eq!(valid_leases(&stage, &run).await, leases, "{outcome}");
    }
}

/// Afterwards the handoff is refused, and no answer to it is kept.
async fn cancel_of_a_run_is_due_for_a_week(stage: Stage) {
    stage.set_time("2026-01-01T00:00:00Z");
    stage.scheduled("latest", every(60), json!({ "concurrency": "replace" })).await;
    stage.set_time("2026-01-01T00:01:00Z");
    let first = handoffs(&stage.fire().await["runs"]);
    stage.set_time("2026-01-01T00:02:00Z");
    stage.fire().await;
    assert_eq!(cancels_at(&stage, "08T00:01:59").await, json!(first));
    assert_eq!(cancels_at(&stage, "08T00:20:00").await, json!([]));
    // It is forgotten, whatever the clock says.
    assert_eq!(cancels_at(&stage, "02T00:00:00").await, json!([]));
}

async fn run_that_takes_too_long_is_given_up(stage: Stage) {
    stage.set_time("2026-01-01T00:00:00Z");
    let more = json!({ "timeout_seconds": 300, "concurrency": "forbid" });
    stage.scheduled("slow", every(60), more.clone()).await;
    let job = json!({ "payload": { "type": "job_spec", "kind": "build" }, "timeout_seconds": 300 });
    stage.scheduled("job", every(86_400), job).await;
    stage.schedule("run_now", json!({ "user_id": "u-1", "schedule": "job" })).await;
    stage.set_time("2026-01-01T00:01:00Z");
    let first = handoffs(&stage.fire().await["runs"]);
    stage.schedule("run.sent", json!({ "handoff_ids": first })).await;
    // A minute longer than its deadline, since the answer to it has a way to go.
    stage.set_time("2026-01-01T00:06:59Z");
    assert_eq!(stage.fire().await["runs"], json!([]));
    stage.set_time("2026-01-01T00:07:00Z");
    let fired = stage.fire().await;
    assert_eq!(fired["cancels"], json!(first));
    assert_eq!(fired["runs"].as_array().unwrap().len(), 1, "it blocks the schedule no longer");
    assert_eq!(stage.states("slow").await.last().unwrap(), "timed_out");
    assert_eq!(valid_leases(&stage, &first[0]).await, 0);
    let run = stage.runs("job").await["items"][0].clone();
    assert_eq!(run["state"], "timed_out");
    assert_eq!(stage.ok("db.job.get", json!({ "job_id": run["job_id"] })).await["status"], "canceled");
}
