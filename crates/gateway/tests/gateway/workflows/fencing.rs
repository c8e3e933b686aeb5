//! A stale runner has no effect whatsoever (W2, W3).

use std::time::{Duration, Instant};

use serde_json::json;

use super::support::{World, on_both, runner_calls};

on_both!(stale_epoch_is_refused_on_every_tool, waiting_call_ends_when_the_workflow_is_taken_away);

/// What a workflow looks like, without what a failed call may not change either.
async fn picture(world: &World, task: &str) -> (serde_json::Value, serde_json::Value, Vec<i64>) {
    let jobs = world.ok("sandbox.job.list", json!({ "task_id": task })).await;
    (world.get(task).await, jobs, world.sent(task).await)
}

/// Every call of a runner is refused by its epoch: too old, too new, and after each way to lose a workflow.
async fn stale_epoch_is_refused_on_every_tool(world: World) {
    world.create_handoff_streams().await;
    for way in ["takes_over", "pause", "cancel", "release", "too_new"] {
        let (task, epoch) = world.taken("build").await;
        match way {
            "pause" | "cancel" => {
                world.ok(&format!("workflow.{way}"), json!({ "task_id": task })).await;
            }
            "takes_over" => {
                world.release(&task, epoch, json!({ "handed_back": {} })).await;
                world.acquire(&task, 1).await;
            }
            "release" => {
                world.release(&task, epoch, json!({ "failed": { "error": "no disk" } })).await;
            }
            _ => {}
        }
        let stale = if way == "too_new" { epoch + 1 } else { epoch };
        world.until_all_sent().await;
        let before = picture(&world, &task).await;
        for (tool, arguments) in runner_calls(&task, stale) {
            let error = world.refused(tool, arguments).await;
            assert_eq!(
                (&error["code"], &error["reason"]),
                (&json!("conflict"), &json!("stale_epoch")),
                "{way} {tool}"
            );
        }
        world.until_all_sent().await;
        assert_eq!(picture(&world, &task).await, before, "{way}");
    }
    let queued = broker::read_batch(&world.jetstream, "CYNODE_HANDOFFS", "pma.handoff.plan", 1, 10).await;
    assert_eq!(queued.expect("the stream").len(), 0, "no handoff was published");
    let row = &world.gateway.audit("tool=workflow.job").await[0];
    assert_eq!((&row["error_type"], &row["user_id"]), (&json!("conflict"), &json!("ada")));
}

/// A runner that waits for a job or an answer is told at once when it loses the workflow.
async fn waiting_call_ends_when_the_workflow_is_taken_away(world: World) {
    world.create_handoff_streams().await;
    for tool in ["workflow.job", "workflow.handoff"] {
        let (task, epoch) = world.taken("build").await;
        let (_, mut call) =
            runner_calls(&task, epoch).into_iter().find(|(name, _)| *name == tool).expect("a call");
        call["wait_seconds"] = json!(15);
        let pause = async {
            testkit::eventually("it was begun", async || {
                (world.get(&task).await["effects"].as_array()?.len() == 1).then_some(())
            })
            .await;
            world.ok("workflow.pause", json!({ "task_id": task })).await;
            Instant::now()
        };
        let (error, paused) = tokio::join!(world.refused(tool, call), pause);
        assert_eq!(error["reason"], "stale_epoch", "{tool}: {error}");
        assert!(paused.elapsed() < Duration::from_secs(5), "{tool} waited {:?}", paused.elapsed());
        // What it began goes on.
        assert_eq!(world.get(&task).await["effects"][0].get("ended_at"), None);
    }
}
