//! `schedule.fire`, `schedule.run_now` and `schedule.run.*`: how slots become runs, and how these end.

mod given_up;

use contract::schedule::DueRun;
use serde_json::{Value, json};

use crate::{
    schedules::{cron, every},
    stage::{Stage, each, on_both},
};

on_both!(
    due_slot_becomes_one_run,
    run_is_published_until_it_is_marked,
    sent_run_without_an_answer_is_given_again,
    missed_slots_are_recorded,
    open_run_forbids_the_next,
    person_starts_a_run,
    started_run_outlives_its_schedule,
    job_specification_becomes_a_job_and_no_handoff,
    job_of_a_closed_task_fails,
    job_after_the_end_of_the_schedules_own_task_is_for_the_next_one,
    answers_are_kept_once_and_without_secrets,
    many_large_runs_come_in_several_results,
    old_runs_are_forgotten,
    old_runs_are_forgotten_when_a_person_starts_one,
    schedule_that_cannot_be_read_stops_no_other,
    run_without_a_lease_fails,
);

impl Stage {
    async fn fire(&self) -> Value {
        self.schedule("fire", json!({})).await
    }

    async fn states(&self, name: &str) -> Vec<String> {
        let runs = self.runs(name).await;
        each(&runs, "items", "state").into_iter().map(str::to_owned).collect()
    }
}

fn handoffs(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|run| run["handoff_id"].as_str().unwrap().to_owned()).collect()
}

/// W7: a prompt reaches managers as a schedule handoff.
async fn due_slot_becomes_one_run(stage: Stage) {
    stage.set_time("2026-10-24T12:00:00Z");
    let made = stage.scheduled("night", cron("30 2 * * *", "Europe/Berlin"), json!({})).await;
    stage.set_time("2026-10-25T00:29:59Z");
    assert_eq!(stage.fire().await["next_at"], "2026-10-25T00:30:00Z");
    stage.set_time("2026-10-25T00:30:01Z");
    let fired = stage.fire().await;
    assert_eq!((&fired["next_at"], &fired["has_more"]), (&json!("2026-10-26T01:30:00Z"), &json!(false)));
    let [run] = fired["runs"].as_array().unwrap().as_slice() else { panic!("{fired}") };
    let due: DueRun = serde_json::from_value(run.clone()).unwrap();
    let handoff = due.to_handoff();
    assert_eq!(handoff, due.to_handoff());
    let encoded: Value = serde_json::from_slice(&handoff.encode(subjects::Encoding::Json).unwrap()).unwrap();
    assert_eq!(encoded["handoff_id"], run["handoff_id"]);
    assert_eq!(encoded["issued_at"], "2026-10-25T00:30:01Z");
    assert_eq!(encoded["deadline"], "2026-10-26T00:30:01Z");
    assert_eq!(encoded["scope"]["user_id"], "u-1");
    assert_eq!(
        encoded["payload"],
        json!({
            "schedule_id": made["schedule_id"], "run_id": run["handoff_id"],
            "fired_at": "2026-10-25T00:30:00Z", "payload_type": "prompt", "payload": "Say hello.",
        })
    );
    let lease = policy::Lease::read(&due.lease).unwrap();
    assert_eq!((lease.user_id.as_str(), lease.agent), ("u-1", policy::AgentKind::ProjectManager));
    assert_eq!(lease.handoff_id, Some(due.handoff_id.to_string()));
    // The clock shows 02:30 again an hour later.
    stage.set_time("2026-10-25T01:30:01Z");
    assert_eq!(stage.fire().await["runs"], json!([]));
    assert_eq!(stage.states("night").await, ["pending"]);
}

async fn run_is_published_until_it_is_marked(stage: Stage) {
    stage.set_time("2026-01-01T00:00:00Z");
    let task = json!({ "type": "task", "name": "Water the plants", "acceptance_criteria": ["They are wet"] });
    stage.scheduled("plants", every(60), json!({ "payload": task })).await;
    stage.set_time("2026-01-01T00:01:00Z");
    let fired = stage.fire().await;
    // The payload is that of the slot, also if the schedule is changed meanwhile.
    stage.update("plants", json!({ "payload": { "type": "prompt", "prompt": "Other" } })).await;
    let unsent = json!({ "older_than_seconds": 5, "limit": 50 });
    assert_eq!(stage.schedule("run.unsent", unsent.clone()).await["runs"], json!([]), "it is being sent");
    stage.set_time("2026-01-01T00:01:06Z");
    let again = stage.schedule("run.unsent", unsent.clone()).await;
    let composed = |run: &Value| serde_json::from_value::<DueRun>(run.clone()).unwrap().to_handoff();
    assert_eq!(composed(&again["runs"][0]), composed(&fired["runs"][0]));
    assert_eq!(again["runs"][0]["payload"], task);
    assert_eq!(stage.schedule("run.unsent", unsent.clone()).await["runs"], json!([]), "one at a time");
    let ids = handoffs(&fired["runs"]);
    let marked = stage.schedule("run.sent", json!({ "handoff_ids": ids })).await;
    assert_eq!(marked, json!({ "marked": 1, "cancels": [] }));
    assert_eq!(stage.schedule("run.sent", json!({ "handoff_ids": ids })).await["marked"], 0);
    stage.set_time("2026-01-01T00:01:59Z");
    assert_eq!(stage.schedule("run.unsent", unsent).await, json!({ "runs": [], "cancels": [] }));
    let run = &stage.runs("plants").await["items"][0];
    assert_eq!((&run["state"], &run["sent_at"]), (&json!("running"), &json!("2026-01-01T00:01:06Z")));
}

/// As after a restore of streams to a moment before the run was published.
async fn sent_run_without_an_answer_is_given_again(stage: Stage) {
    stage.set_time("2026-01-01T00:00:00Z");
    stage.scheduled("slow", every(3600), json!({ "concurrency": "replace" })).await;
    stage.set_time("2026-01-01T01:00:00Z");
    let fired = stage.fire().await;
    let ids = handoffs(&fired["runs"]);
    stage.schedule("run.sent", json!({ "handoff_ids": ids })).await;
    let composed = |run: &Value| serde_json::from_value::<DueRun>(run.clone()).unwrap().to_handoff();
    let unsent = json!({ "older_than_seconds": 5, "limit": 50 });
    for (time, is_given) in [
        ("01:04:59", false),
        ("01:05:00", true),
        ("01:05:10", false),
        ("01:09:59", false),
        ("01:10:00", true),
        ("01:19:59", false),
        ("01:20:00", true),
    ] {
        stage.set_time(&format!("2026-01-01T{time}Z"));
        let given = stage.schedule("run.unsent", unsent.clone()).await;
        assert_eq!(given["runs"].as_array().unwrap().len(), usize::from(is_given), "{time}");
        if is_given {
            assert_eq!(composed(&given["runs"][0]), composed(&fired["runs"][0]), "{time}");
            assert_eq!(given["runs"][0]["sent_at"], "2026-01-01T01:00:00Z");
        }
    }
    let marked = stage.schedule("run.sent", json!({ "handoff_ids": ids })).await;
    assert_eq!(marked, json!({ "marked": 0, "cancels": [] }));
    assert_eq!(stage.runs("slow").await["items"][0]["sent_at"], "2026-01-01T01:20:00Z");
    // One that was replaced while it was being published again is cancelled again.
    stage.set_time("2026-01-01T02:00:00Z");
    assert_eq!(stage.fire().await["cancels"], json!(ids));
    let marked = stage.schedule("run.sent", json!({ "handoff_ids": ids })).await;
    assert_eq!(marked, json!({ "marked": 0, "cancels": ids }));
}

async fn missed_slots_are_recorded(stage: Stage) {
    stage.set_time("2026-01-01T00:00:00Z");
    stage.scheduled("ten", every(600), json!({ "missed": "all", "missed_limit": 2 })).await;
    stage.set_time("2026-01-01T01:05:00Z");
    let fired = stage.fire().await;
    assert_eq!(each(&fired, "runs", "slot"), ["2026-01-01T00:50:00Z", "2026-01-01T01:00:00Z"]);
    let runs = stage.runs("ten").await;
    assert_eq!(each(&runs, "items", "state"), ["pending", "pending", "skipped"]);
    assert_eq!(
        runs["items"][2]["skipped"],
        json!({ "reason": "missed", "first_slot": "2026-01-01T00:10:00Z", "slots": 4 })
    );
    assert_eq!(runs["items"][2]["slot"], "2026-01-01T00:40:00Z");
    let got = stage.schedule("get", json!({ "user_id": "u-1", "schedule": "ten" })).await;
    assert_eq!(got["last_slot"], "2026-01-01T01:00:00Z");
    assert_eq!(got["version"], 1, "firing is no change");
}

async fn open_run_forbids_the_next(stage: Stage) {
    stage.set_time("2026-01-01T00:00:00Z");
    stage.scheduled("alone", every(60), json!({ "concurrency": "forbid" })).await;
    stage.set_time("2026-01-01T00:01:00Z");
    let first = handoffs(&stage.fire().await["runs"]);
    stage.set_time("2026-01-01T00:02:00Z");
    let fired = stage.fire().await;
    assert_eq!((&fired["runs"], &fired["skipped"]), (&json!([]), &json!(1)));
    let (code, why) = stage.schedule_fails("run_now", json!({ "user_id": "u-1", "schedule": "alone" })).await;
    assert_eq!(code, "conflict");
    assert!(why.contains("alone"), "{why}");
    let end = json!({ "handoff_id": first[0], "outcome": "completed", "text": "Hello." });
    assert_eq!(stage.schedule("run.end", end).await["ended"], true);
    stage.set_time("2026-01-01T00:03:00Z");
    assert_eq!(stage.fire().await["runs"].as_array().unwrap().len(), 1);
    assert_eq!(stage.states("alone").await, ["pending", "skipped", "completed"]);
    assert_eq!(stage.runs("alone").await["items"][1]["skipped"]["reason"], "busy");
}

async fn person_starts_a_run(stage: Stage) {
    stage.set_time("2026-01-01T00:00:00Z");
    stage.scheduled("now", every(3600), json!({ "enabled": false, "concurrency": "replace" })).await;
    let now = json!({ "user_id": "u-1", "schedule": "now" });
    let run = stage.schedule("run_now", now.clone()).await;
    assert_eq!((&run["trigger"], &run["state"]), (&json!("manual"), &json!("pending")));
    assert_eq!(stage.schedule_fails("run_now", now.clone()).await.0, "conflict", "twice at one instant");
    let fired = stage.fire().await;
    assert_eq!(handoffs(&fired["runs"]), [run["run_id"].as_str().unwrap()]);
    assert_eq!(stage.fire().await["runs"], json!([]));
    stage.set_time("2026-01-01T00:00:10Z");
    let next = stage.schedule("run_now", now).await;
    assert_ne!(next["run_id"], run["run_id"]);
    assert_eq!(stage.states("now").await, ["pending", "replaced"]);
    stage.set_time("2026-01-01T00:00:20Z");
    let swept = stage.schedule("run.unsent", json!({ "older_than_seconds": 5, "limit": 50 })).await;
    assert_eq!(swept, json!({ "runs": [], "cancels": [run["run_id"]] }));
    let got = stage.schedule("get", json!({ "user_id": "u-1", "schedule": "now" })).await;
    assert_eq!(got["next_at"], "2026-01-01T01:00:00Z", "its slots stay as they are");
}

async fn started_run_outlives_its_schedule(stage: Stage) {
    stage.set_time("2026-01-01T00:00:00Z");
    stage.scheduled("now", every(3600), json!({})).await;
    let now = json!({ "user_id": "u-1", "schedule": "now" });
    let run = stage.schedule("run_now", now.clone()).await;
    let deleted = stage.schedule("delete", now.clone()).await;
    assert_eq!(deleted["open_runs"], json!([run["run_id"]]));
    let fired = stage.fire().await;
    assert_eq!(handoffs(&fired["runs"]), [run["run_id"].as_str().unwrap()]);
    let sent = stage.schedule("run.sent", json!({ "handoff_ids": [run["run_id"]] })).await;
    assert_eq!(sent["marked"], 1);
    let end = json!({ "handoff_id": run["run_id"], "outcome": "completed", "text": "Hello." });
    assert_eq!(stage.schedule("run.end", end.clone()).await["ended"], true);
    // What is left of it is deleted with the user's next schedule.
    stage.scheduled("now", every(3600), json!({})).await;
    stage.schedule("delete", now).await;
    assert_eq!(stage.schedule("run.end", end).await["ended"], false);
}

/// W7: a job specification needs no interpretation and never reaches a manager.
async fn job_specification_becomes_a_job_and_no_handoff(stage: Stage) {
    stage.set_time("2026-01-01T00:00:00Z");
    let payload = json!({
        "type": "job_spec", "kind": "build", "payload": { "target": "docs" }, "node_id": "n-1",
    });
    let more = json!({ "payload": payload, "concurrency": "replace" });
    stage.scheduled("build docs", every(60), more).await;
    stage.set_time("2026-01-01T00:01:00Z");
    let fired = stage.fire().await;
    assert_eq!((&fired["runs"], &fired["jobs"]), (&json!([]), &json!(1)));
    let run = stage.runs("build docs").await["items"][0].clone();
    assert_eq!(run["state"], "running");
    let job = stage.ok("db.job.get", json!({ "job_id": run["job_id"] })).await;
    assert_eq!(
        (&job["status"], &job["kind"], &job["node_id"]),
        (&json!("queued"), &json!("build"), &json!("n-1"))
    );
    assert_eq!((&job["payload"], &job["run_id"]), (&json!({ "target": "docs" }), &run["run_id"]));
    let task = stage.ok("db.task.get", json!({ "task_id": job["task_id"] })).await;
    assert_eq!((&task["name"], &task["user_id"]), (&json!("build-docs"), &json!("u-1")));
    assert_eq!(task["schedule_id"], run["schedule_id"]);
    let end = json!({ "handoff_id": run["run_id"], "outcome": "completed" });
    assert_eq!(stage.schedule("run.end", end).await["ended"], false, "its job ends it");
    // The next run replaces it: the job is cancelled, and there is no handoff to cancel.
    stage.set_time("2026-01-01T00:02:00Z");
    let fired = stage.fire().await;
    assert_eq!((&fired["cancels"], &fired["jobs"]), (&json!([]), &json!(1)));
    let replaced = stage.ok("db.job.get", json!({ "job_id": run["job_id"] })).await;
    assert_eq!((&replaced["status"], &replaced["version"]), (&json!("canceled"), &json!(2)));
    let second = stage.runs("build docs").await["items"][0].clone();
    let other = stage.ok("db.job.get", json!({ "job_id": second["job_id"] })).await;
    assert_eq!(other["task_id"], job["task_id"], "all jobs of a schedule are for one task");
    for status in ["running", "completed"] {
        stage.ok("db.job.update_status", json!({ "job_id": second["job_id"], "status": status })).await;
    }
    assert_eq!(stage.states("build docs").await, ["completed", "replaced"]);
    stage.set_time("2026-01-01T00:02:10Z");
    let manual = stage.schedule("run_now", json!({ "user_id": "u-1", "schedule": "build docs" })).await;
    assert_eq!((&manual["state"], manual["job_id"].is_string()), (&json!("running"), true));
    assert_eq!(stage.states("build docs").await, ["running", "completed", "replaced"], "it had ended");
    assert_eq!(stage.fire().await["runs"], json!([]));
}

async fn job_of_a_closed_task_fails(stage: Stage) {
    stage.set_time("2026-01-01T00:00:00Z");
    let task = stage.ok("db.task.create", json!({ "title": "Docs", "user_id": "u-1" })).await;
    let other = stage.ok("db.task.create", json!({ "title": "Docs", "user_id": "u-2" })).await;
    let spec = |id: &Value| json!({ "payload": { "type": "job_spec", "kind": "build", "task_id": id } });
    stage.scheduled("own", every(60), spec(&task["task_id"])).await;
    stage.scheduled("other", every(60), spec(&other["task_id"])).await;
    stage.set_time("2026-01-01T00:01:00Z");
    assert_eq!(stage.fire().await["jobs"], 1);
    assert_eq!(stage.states("own").await, ["running"]);
    let failed = stage.runs("other").await["items"][0].clone();
    assert_eq!((&failed["state"], &failed["error_code"]), (&json!("failed"), &json!("task_closed")));
    assert!(failed["text"].as_str().unwrap().ends_with("not found"), "another user's task: {failed}");
    stage.ok("db.task.update_status", json!({ "task_id": task["task_id"], "status": "canceled" })).await;
    stage.set_time("2026-01-01T00:02:00Z");
    assert_eq!(stage.fire().await["jobs"], 0);
    let failed = stage.runs("own").await["items"][0].clone();
    assert_eq!(failed["text"], "the task docs is canceled");
}

async fn job_after_the_end_of_the_schedules_own_task_is_for_the_next_one(stage: Stage) {
    stage.set_time("2026-01-01T00:00:00Z");
    let more = json!({ "payload": { "type": "job_spec", "kind": "build" } });
    stage.scheduled("backup", every(60), more).await;
    let mut tasks = Vec::new();
    for minute in 1..=8 {
        stage.set_time(&format!("2026-01-01T00:{minute:02}:00Z"));
        assert_eq!(stage.fire().await["jobs"], 1, "{minute}");
        let run = stage.runs("backup").await["items"][0].clone();
        let job = stage.ok("db.job.get", json!({ "job_id": run["job_id"] })).await;
        for status in ["running", "completed"] {
            stage.ok("db.job.update_status", json!({ "job_id": run["job_id"], "status": status })).await;
        }
        // The third task has two jobs.
        if minute != 3 {
            let end = json!({ "task_id": job["task_id"], "status": "canceled" });
            stage.ok("db.task.update_status", end).await;
        }
        tasks.push(job["task_id"].as_str().unwrap().to_owned());
    }
    assert_eq!(tasks[2], tasks[3]);
    tasks.dedup();
    assert_eq!(tasks.len(), 7);
    tasks.sort_unstable();
    tasks.dedup();
    assert_eq!(tasks.len(), 7, "no task that has ended is used again");
    assert_eq!(stage.states("backup").await, ["completed"; 8]);
}

async fn answers_are_kept_once_and_without_secrets(stage: Stage) {
    stage.set_time("2026-01-01T00:00:00Z");
    stage.scheduled("talk", every(60), json!({})).await;
    stage.set_time("2026-01-01T00:01:00Z");
    let ids = handoffs(&stage.fire().await["runs"]);
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2");
    let text = format!("It is {token}. {}", "é".repeat(4096));
    let end = json!({ "handoff_id": ids[0], "outcome": "failed", "text": text, "error_code": "tool_failed" });
    assert_eq!(stage.schedule("run.end", end).await["ended"], true);
    let again = json!({ "handoff_id": ids[0], "outcome": "completed", "text": "Done." });
    assert_eq!(stage.schedule("run.end", again).await["ended"], false);
    let run = stage.runs("talk").await["items"][0].clone();
    assert_eq!((&run["state"], &run["error_code"]), (&json!("failed"), &json!("tool_failed")));
    let kept = run["text"].as_str().unwrap();
    assert!(kept.len() <= 4096 && !kept.contains(&token) && kept.starts_with("It is "), "{kept:.80}");
    assert_eq!(run["sent_at"], run["ended_at"], "an answered handoff was published");
    let unknown = json!({ "handoff_id": "018f0000-0000-7000-8000-000000000000", "outcome": "completed" });
    assert_eq!(stage.schedule("run.end", unknown).await["ended"], false);
}

async fn many_large_runs_come_in_several_results(stage: Stage) {
    stage.set_time("2026-01-01T00:00:00Z");
    let payload = json!({ "type": "prompt", "prompt": "x".repeat(16_000) });
    let more = json!({ "payload": payload, "missed": "all", "missed_limit": 9 });
    stage.scheduled("large", every(60), more).await;
    stage.scheduled("small", every(60), json!({ "missed": "all", "missed_limit": 30 })).await;
    stage.set_time("2026-01-01T00:30:00Z");
    let (mut slots, mut calls) = (Vec::new(), 0);
    loop {
        let fired = stage.fire().await;
        assert!(fired.to_string().len() < 150_000, "{}", fired.to_string().len());
        let named = |run: &Value| format!("{} {}", run["schedule_id"], run["slot"]);
        slots.extend(fired["runs"].as_array().unwrap().iter().map(named));
        calls += 1;
        if fired["has_more"] == false {
            break;
        }
    }
    assert!(calls > 1, "{calls}");
    assert_eq!(slots.len(), 39);
    slots.sort();
    slots.dedup();
    assert_eq!(slots.len(), 39, "no slot came twice");
    let limited = stage.schedule("fire", json!({ "limit": 1 })).await;
    assert_eq!((&limited["runs"], &limited["has_more"]), (&json!([]), &json!(false)));
}

/// Fires the schedule `busy` for the first time and gives it older runs, so many that only the latest are
/// kept. Returns the oldest, which is open; the others have ended.
async fn busy_with_old_runs(stage: &Stage) -> String {
    use sea_orm::EntityTrait;
    use store::entity::schedule_run;
    stage.set_time("2026-01-01T00:00:00Z");
    stage.scheduled("busy", every(60), json!({})).await;
    stage.set_time("2026-01-01T00:01:00Z");
    let first = handoffs(&stage.fire().await["runs"]);
    let row = schedule_run::Entity::find_by_id(&first[0]).one(stage.store.read()).await.unwrap().unwrap();
    let older = (1..=600).map(|number| schedule_run::Model {
        id: subjects::HandoffId::for_scheduled_run("busy", "slot", number).to_string(),
        slot: row.slot - (601 - number) * 60_000_000,
        state: if number == 1 { "running" } else { "completed" }.to_owned(),
        ended_at: (number > 1).then_some(row.fired_at),
        ..row.clone()
    });
    let older: Vec<schedule_run::ActiveModel> = older.map(schedule_run::ActiveModel::from).collect();
    let open = older[0].id.clone().unwrap();
    schedule_run::Entity::insert_many(older).exec_without_returning(stage.store.read()).await.unwrap();
    open
}

/// Checks which runs of `busy` are kept, the latest of them from this slot.
async fn check_kept(stage: &Stage, latest: &str, open: &str) {
    let (mut kept, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let page = json!({ "user_id": "u-1", "schedule": "busy", "limit": 200, "cursor": cursor });
        let page = stage.schedule("runs", page).await;
        kept.extend(page["items"].as_array().unwrap().clone());
        cursor = page["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(kept.len(), 501, "500, and the one that is open");
    assert_eq!((&kept[0]["slot"], &kept[500]["run_id"]), (&json!(latest), &json!(open)));
}

async fn old_runs_are_forgotten(stage: Stage) {
    let open = busy_with_old_runs(&stage).await;
    stage.set_time("2026-01-01T00:02:00Z");
    assert_eq!(stage.fire().await["runs"].as_array().unwrap().len(), 1);
    check_kept(&stage, "2026-01-01T00:02:00Z", &open).await;
}

async fn old_runs_are_forgotten_when_a_person_starts_one(stage: Stage) {
    let open = busy_with_old_runs(&stage).await;
    stage.set_time("2026-01-01T00:01:30Z");
    stage.schedule("run_now", json!({ "user_id": "u-1", "schedule": "busy" })).await;
    check_kept(&stage, "2026-01-01T00:01:30Z", &open).await;
}

async fn schedule_that_cannot_be_read_stops_no_other(stage: Stage) {
    use sea_orm::{ActiveModelTrait, ActiveValue::Set};
    stage.set_time("2026-01-01T00:00:00Z");
    let made = stage.scheduled("broken", every(60), json!({})).await;
    stage.scheduled("whole", every(60), json!({})).await;
    // As after an upgrade whose database of time zones has no such zone any more.
    let timing = json!({ "type": "cron", "expression": "* * * * *", "time_zone": "Europe/Atlantis" });
    let change = store::entity::schedule::ActiveModel {
        id: Set(made["schedule_id"].as_str().unwrap().to_owned()),
        timing: Set(timing.to_string()),
        ..Default::default()
    };
    change.update(stage.store.read()).await.unwrap();
    stage.set_time("2026-01-01T00:01:00Z");
    assert_eq!(stage.fire().await["runs"].as_array().unwrap().len(), 1);
    let run = stage.runs("broken").await["items"][0].clone();
    assert_eq!((&run["state"], &run["error_code"]), (&json!("failed"), &json!("invalid_timing")));
    assert!(run["text"].as_str().unwrap().contains("Europe/Atlantis"), "{run}");
    let got = stage.schedule("get", json!({ "user_id": "u-1", "schedule": "broken" })).await;
    assert_eq!(got["enabled"], false);
    stage.update("broken", json!({ "timing": every(60), "enabled": true })).await;
    stage.set_time("2026-01-01T00:02:00Z");
    assert_eq!(stage.fire().await["runs"].as_array().unwrap().len(), 2);
}

async fn run_without_a_lease_fails(stage: Stage) {
    use sea_orm::{ActiveModelTrait, ActiveValue::Set};
    use store::entity::project;
    stage.set_time("2026-01-01T00:00:00Z");
    let row = project::Model {
        id: "p-1".to_owned(),
        name: "shop".to_owned(),
        title: "Shop".to_owned(),
        description: String::new(),
        user_id: Some("u-1".to_owned()),
        created_at: 0,
        updated_at: 0,
    };
    stage.given(row).await;
    stage.scheduled("sell", every(60), json!({ "project_id": "p-1" })).await;
    stage.scheduled("other", every(60), json!({})).await;
    let given_away = project::ActiveModel {
        id: Set("p-1".to_owned()),
        user_id: Set(Some("u-2".to_owned())),
        ..Default::default()
    };
    given_away.update(stage.store.read()).await.unwrap();
    stage.set_time("2026-01-01T00:01:00Z");
    let fired = stage.fire().await;
    assert_eq!(fired["runs"].as_array().unwrap().len(), 1, "{fired}");
    let run = stage.runs("sell").await["items"][0].clone();
    assert_eq!(run["state"], "failed");
    assert!(run["text"].as_str().unwrap().contains("a user other than"), "{run}");
}
