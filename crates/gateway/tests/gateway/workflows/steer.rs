//! Cancel, pause, resume and retry, at every status (W10).

use serde_json::{Value, json};
use subjects::{job::End, streams};

use super::support::{World, on_both};
use crate::jobs::support::TestNode;

on_both!(
    every_operation_at_every_status,
    answer_reaches_the_next_runner,
    approval_names_the_question_that_was_shown,
    pause_leaves_jobs_and_cancel_ends_them,
    pause_does_not_repeat_a_retry,
    job_that_ended_with_its_workflow_is_known_by_its_reason,
    retry_goes_on_or_begins_anew
);

const QUESTION: &str = "Which one?";

/// Brings a new workflow into a status. Returns its task, its newest run and its epoch.
async fn workflow_in(world: &World, status: &str) -> (String, i64, i64) {
    if status == "queued" {
        return (world.started("build").await, 1, 0);
    }
    let (task, epoch) = world.taken("build").await;
    let waiting =
        |r#for: &str| json!({ "waiting": { "for": r#for, "question": QUESTION, "interrupt_id": "i-1" } });
    match status {
        "running" => {}
        "question" | "approval" => drop(world.release(&task, epoch, waiting(status)).await),
        "pause" => drop(world.ok("workflow.pause", json!({ "task_id": task })).await),
        "done" => drop(world.release(&task, epoch, json!({ "done": { "summary": "built" } })).await),
        "failed" => drop(world.release(&task, epoch, json!({ "failed": { "error": "no disk" } })).await),
        "cancelled" => drop(world.ok("workflow.cancel", json!({ "task_id": task })).await),
        other => panic!("{other}"),
    }
    let epoch = world.get(&task).await["epoch"].as_i64().expect("an epoch");
    (task, 1, epoch)
}

/// Every operation at every status: what becomes of workflow and task, or that it is a conflict that says
/// what to do.
async fn every_operation_at_every_status(world: World) {
    // Status, operation, and the statuses of workflow and task afterwards; none for a conflict.
    for (status, operation, expected) in [
        ("queued", "cancel", Some(("cancelled", "canceled"))),
        ("running", "cancel", Some(("cancelled", "canceled"))),
        ("question", "cancel", Some(("cancelled", "canceled"))),
        ("approval", "cancel", Some(("cancelled", "canceled"))),
        ("pause", "cancel", Some(("cancelled", "canceled"))),
        ("done", "cancel", None),
        ("failed", "cancel", None),
        ("cancelled", "cancel", Some(("cancelled", "canceled"))),
        ("queued", "pause", Some(("waiting", "pending"))),
        ("running", "pause", Some(("waiting", "running"))),
        ("question", "pause", None),
        ("approval", "pause", None),
        ("pause", "pause", Some(("waiting", "running"))),
        ("done", "pause", None),
        ("failed", "pause", None),
        ("cancelled", "pause", None),
        ("queued", "resume", None),
        ("running", "resume", None),
        ("question", "resume", Some(("queued", "ready"))),
        ("approval", "resume", Some(("queued", "ready"))),
        ("pause", "resume", Some(("queued", "running"))),
        ("done", "resume", None),
        ("failed", "resume", None),
        ("cancelled", "resume", None),
        ("queued", "retry", None),
        ("running", "retry", None),
        ("question", "retry", None),
        ("approval", "retry", None),
        ("pause", "retry", None),
        ("done", "retry", None),
        ("failed", "retry", Some(("queued", "running"))),
        ("cancelled", "retry", Some(("queued", "running"))),
    ] {
        let (task, run, epoch) = workflow_in(&world, status).await;
        let mut wanted = json!({ "task_id": task });
        if operation == "resume" && matches!(status, "question" | "approval") {
            wanted["input"] = json!("Yes!");
            wanted["question_id"] = json!("i-1");
        }
        let tool = format!("workflow.{operation}");
        let case = format!("{operation} of {status}");
        let Some((workflow, of_task)) = expected else {
            let before = world.get(&task).await;
            let error = world.fails(&tool, wanted).await;
            assert_eq!(error["code"], "conflict", "{case}: {error}");
            assert!(error["message"].as_str().expect("a text").contains(": "), "{case}: {error}");
            assert_eq!(world.get(&task).await, before, "{case} changed something");
            continue;
        };
        let changed = world.ok(&tool, wanted).await;
        assert_eq!(world.status(&task).await, (workflow.to_owned(), of_task.to_owned()), "{case}");
        let is_same =
            (status == "pause" && operation == "pause") || (status == "cancelled" && operation == "cancel");
        let raises = matches!(operation, "pause" | "cancel" | "retry") && !is_same;
        assert_eq!(changed["epoch"], epoch + i64::from(raises), "{case}");
        let runs: Vec<i64> = if matches!(operation, "resume" | "retry") { vec![1, 2] } else { vec![1] };
        world.until_sent(&task, &runs).await;
        assert_eq!(changed["run"], *runs.last().expect("a run"), "{case}");
        // An older message is of no use from then on.
        let old = json!({ "task_id": task, "run": run, "holder": "late", "ttl_seconds": 30 });
        let reason = world.refused("workflow.lease.acquire", old).await["reason"].clone();
        assert_eq!(reason, if runs.len() == 2 { "old_run" } else { "not_active" }, "{case}");
        assert!(changed.get("holder").is_none(), "{case}");
    }
}

/// The command that was printed with an earlier question does not approve what is asked now.
async fn approval_names_the_question_that_was_shown(world: World) {
    let (task, _, _) = workflow_in(&world, "approval").await;
    let before = world.get(&task).await;
    assert_eq!(before["question_id"], "i-1");
    let mut answer = json!({ "task_id": task, "input": "yes" });
    let error = world.fails("workflow.resume", answer.clone()).await;
    assert_eq!(error["code"], "conflict", "{error}");
    let message = error["message"].as_str().expect("a text");
    assert!(message.contains("i-1") && message.contains(QUESTION), "{error}");
    assert_eq!(world.get(&task).await, before);
    answer["question_id"] = json!("i-1");
    world.ok("workflow.resume", answer).await;
    assert_eq!(world.acquire(&task, 2).await["input"], "yes");
}

/// A person's answer reaches the next runner with the id of the interrupt, until the workflow is given back.
async fn answer_reaches_the_next_runner(world: World) {
    let (task, _, _) = workflow_in(&world, "question").await;
    for (input, expected) in [(Value::Null, "waits for an answer"), (json!(" "), "waits for an answer")] {
        let mut wanted = json!({ "task_id": task });
        if !input.is_null() {
            wanted["input"] = input;
        }
        let error = world.fails("workflow.resume", wanted).await;
        assert!(error["message"].as_str().expect("a text").contains(expected), "{error}");
    }
    world.ok("workflow.resume", json!({ "task_id": task, "input": "the second" })).await;
    let taken = world.acquire(&task, 2).await;
    assert_eq!((&taken["input"], &taken["interrupt_id"]), (&json!("the second"), &json!("i-1")));
    assert_eq!(taken["workflow"]["trigger"], "resume");
    // A runner that dies before it took the answer loses nothing.
    world.release(&task, taken["epoch"].as_i64().expect("an epoch"), json!({ "handed_back": {} })).await;
    let taken = world.acquire(&task, 2).await;
    assert_eq!(taken["input"], "the second");
    let epoch = taken["epoch"].as_i64().expect("an epoch");
    let ask = json!({ "waiting": { "for": "approval", "question": "Deploy?", "interrupt_id": "i-2" } });
    world.release(&task, epoch, ask).await;
    let approval = json!({ "task_id": task, "input": "Go ahead.", "question_id": "i-2" });
    world.ok("workflow.resume", approval).await;
    let taken = world.acquire(&task, 3).await;
    assert_eq!((&taken["input"], &taken["interrupt_id"]), (&json!("yes"), &json!("i-2")));
    let error = {
        world.ok("workflow.pause", json!({ "task_id": task })).await;
        world.fails("workflow.resume", json!({ "task_id": task, "input": "yes" })).await
    };
    assert!(error["message"].as_str().expect("a text").contains("asks nothing"), "{error}");
}

fn job_of(task: &str, epoch: i64, key: &str) -> Value {
    json!({ "task_id": task, "epoch": epoch, "key": key, "step": "s", "run": { "command": ["true"] } })
}

fn plan_of(task: &str, epoch: i64) -> Value {
    json!({ "task_id": task, "epoch": epoch, "key": "k", "kind": "plan", "payload": { "goal": "build" } })
}

/// A paused workflow lets its jobs go on; a cancelled one ends them.
async fn pause_leaves_jobs_and_cancel_ends_them(world: World) {
    let node = TestNode::new("n-1", &world.nats, &world.gateway).await;
    let (task, epoch) = world.taken("build").await;
    let job = |epoch: i64, key: &str| job_of(&task, epoch, key);
    let mut ids = Vec::new();
    for key in ["ended", "open"] {
        let begun = world.runs("workflow.job", job(epoch, key)).await;
        ids.push(begun["job"]["job_id"].as_str().expect("an id").to_owned());
    }
    let ended = ids[0].parse().expect("an id");
    let claimed = node.claim(ended, 1, 0).await.expect("claimed");
    node.end(&node.result(ended, End::Exited { code: 0 }), claimed).await.expect("ended");
    world.ok("workflow.pause", json!({ "task_id": task })).await;
    let open = world.ok("sandbox.job.get", json!({ "job_id": ids[1] })).await;
    assert_eq!((&open["status"], open.get("cancel_requested_at")), (&json!("queued"), None));
    world.ok("workflow.resume", json!({ "task_id": task })).await;
    let epoch = world.acquire(&task, 2).await["epoch"].as_i64().expect("an epoch");
    // The node that runs again joins what it began.
    assert_eq!(world.runs("workflow.job", job(epoch, "open")).await["job"]["job_id"], *ids[1]);
    testkit::eventually("the first job has ended", async || {
        let job = world.ok("sandbox.job.get", json!({ "job_id": ids[0] })).await;
        (job["status"] == "completed").then_some(())
    })
    .await;
    world.ok("workflow.cancel", json!({ "task_id": task, "reason": "not needed" })).await;
    node.newest(streams::JOB_RUNS, &format!("jobs.cancel.{}", ids[1])).await;
    let found = world.get(&task).await;
    assert_eq!((&found["status"], &found["error"]), (&json!("cancelled"), &json!("not needed")));
    let ended = world.ok("sandbox.job.get", json!({ "job_id": ids[0] })).await;
    assert_eq!((&ended["status"], ended.get("cancel_requested_at")), (&json!("completed"), None));
}

/// A retry that is paused before anything of it was stored is still one. From then on, it is resumed: if it
/// failed again, no person asked for another one.
async fn pause_does_not_repeat_a_retry(world: World) {
    let (task, epoch) = world.taken("build").await;
    let put = async |epoch: i64, id: &str| {
        let checkpoint =
            json!({ "task_id": task, "epoch": epoch, "checkpoint_id": id, "kind": "j", "data": "" });
        world.runs("workflow.checkpoint.put", checkpoint).await;
    };
    put(epoch, "a1").await;
    world.release(&task, epoch, json!({ "failed": { "error": "no disk" } })).await;
    world.ok("workflow.retry", json!({ "task_id": task })).await;
    world.acquire(&task, 2).await;
    let paused = async |run: i64| {
        world.ok("workflow.pause", json!({ "task_id": task })).await;
        world.ok("workflow.resume", json!({ "task_id": task })).await;
        let taken = world.acquire(&task, run).await;
        let trigger = taken["workflow"]["trigger"].as_str().expect("a trigger").to_owned();
        (trigger, taken["epoch"].as_i64().expect("an epoch"))
    };
    let (trigger, epoch) = paused(3).await;
    assert_eq!(trigger, "retry");
    put(epoch, "a2").await;
    assert_eq!(paused(4).await.0, "resume");
}

/// A job is begun anew after a retry only if it ended with its workflow, not if a person cancelled it alone.
async fn job_that_ended_with_its_workflow_is_known_by_its_reason(world: World) {
    let (task, epoch) = world.taken("build").await;
    let (with_it, alone) = (job_of(&task, epoch, "with-it"), job_of(&task, epoch, "alone"));
    assert_eq!(world.runs("workflow.job", with_it).await.get("end_reason"), None);
    let alone = world.runs("workflow.job", alone).await["job"]["job_id"].clone();
    world.ok("sandbox.job.cancel", json!({ "job_id": alone })).await;
    world.ok("workflow.cancel", json!({ "task_id": task })).await;
    world.ok("workflow.retry", json!({ "task_id": task })).await;
    let epoch = world.acquire(&task, 2).await["epoch"].as_i64().expect("an epoch");
    for (key, reason) in [("with-it", Some(&json!("cancelled"))), ("alone", None)] {
        let mut wanted = job_of(&task, epoch, key);
        wanted["wait_seconds"] = json!(20);
        let joined = world.runs("workflow.job", wanted).await;
        assert_eq!(joined["began"], false, "{key}");
        assert_eq!(joined["job"]["status"], "canceled", "{key}");
        assert_eq!(joined.get("end_reason"), reason, "{key}");
    }
}

/// A retry goes on with what is stored, or begins anew: then keys are free and handoffs have other ids.
async fn retry_goes_on_or_begins_anew(world: World) {
    world.create_handoff_streams().await;
    let (task, mut epoch) = world.taken("build").await;
    let hand_off = |epoch: i64| plan_of(&task, epoch);
    let checkpoint = json!({
        "task_id": task, "epoch": epoch, "checkpoint_id": "a1", "kind": "j", "data": "", "state": { "n": 1 },
    });
    world.runs("workflow.checkpoint.put", checkpoint).await;
    let first = world.runs("workflow.handoff", hand_off(epoch)).await["handoff_id"].clone();
    for (run, from_start) in [(2, false), (3, true)] {
        world.release(&task, epoch, json!({ "failed": { "error": "no disk" } })).await;
        world.ok("workflow.retry", json!({ "task_id": task, "from_start": from_start })).await;
        let taken = world.acquire(&task, run).await;
        epoch = taken["epoch"].as_i64().expect("an epoch");
        assert_eq!(taken["workflow"]["trigger"], "retry");
        assert_eq!(taken.get("state").is_some(), !from_start);
        let again = world.runs("workflow.handoff", hand_off(epoch)).await;
        assert_eq!(again["began"], from_start);
        assert_eq!(again["handoff_id"] == first, !from_start);
    }
    let effects = world.get(&task).await["effects"].as_array().expect("effects").clone();
    let keys: Vec<&str> = effects.iter().filter_map(|effect| effect["key"].as_str()).collect();
    assert_eq!(keys, ["~1/k", "k"], "people see both");
    let row = &world.gateway.audit("tool=workflow.retry").await[0];
    assert_eq!((&row["decision"], &row["task_id"]), (&json!("allow"), &json!(task)));
}
