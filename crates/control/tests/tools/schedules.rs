//! `schedule.*`: what people do with schedules.

use serde_json::{Value, json};

use crate::stage::{Stage, each, on_both, orchestrator};

on_both!(
    schedule_is_created_changed_and_deleted,
    schedules_of_other_users_are_not_found,
    name_is_unique_among_those_of_a_user,
    limits_hold,
    payloads_are_checked,
    preview_stores_nothing,
    versions_protect_changes,
    resumed_schedule_decides_about_what_was_due,
    new_timing_drops_what_was_due,
    lists_come_in_pages,
);

/// What orchestrators call.
impl Stage {
    pub(crate) async fn schedule(&self, tool: &str, arguments: Value) -> Value {
        let shown = arguments.to_string();
        let called = self.call(&orchestrator(), &format!("schedule.{tool}"), arguments).await;
        called.unwrap_or_else(|error| panic!("{tool} {shown:.300}: {error:?}"))
    }

    pub(crate) async fn schedule_fails(&self, tool: &str, arguments: Value) -> (String, String) {
        self.fails_for(&orchestrator(), &format!("schedule.{tool}"), arguments).await
    }

    /// Creates a schedule of `u-1` with a prompt.
    pub(crate) async fn scheduled(&self, name: &str, timing: Value, more: Value) -> Value {
        let mut new = json!({
            "name": name, "timing": timing, "payload": { "type": "prompt", "prompt": "Say hello." },
        });
        for (key, value) in more.as_object().unwrap() {
            new[key] = value.clone();
        }
        self.schedule("create", json!({ "user_id": "u-1", "new": new })).await
    }

    pub(crate) async fn update(&self, name: &str, change: Value) -> Value {
        self.schedule("update", json!({ "user_id": "u-1", "schedule": name, "change": change })).await
    }

    /// Runs of a schedule of `u-1`, the latest first.
    pub(crate) async fn runs(&self, name: &str) -> Value {
        self.schedule("runs", json!({ "user_id": "u-1", "schedule": name })).await
    }
}

pub(crate) fn cron(expression: &str, zone: &str) -> Value {
    json!({ "type": "cron", "expression": expression, "time_zone": zone })
}

pub(crate) fn every(seconds: u64) -> Value {
    json!({ "type": "interval", "every_seconds": seconds })
}

async fn schedule_is_created_changed_and_deleted(stage: Stage) {
    stage.set_time("2026-10-24T12:00:00Z");
    let made = stage.scheduled("morning", cron("30 2 * * *", "europe/berlin"), json!({})).await;
    assert_eq!(made["timing"]["time_zone"], "Europe/Berlin");
    assert_eq!(made["next_at"], "2026-10-25T00:30:00Z");
    let defaults = json!(["once", 10, "allow", true, 86_400, 1, "prompt"]);
    let fields = "missed missed_limit concurrency enabled timeout_seconds version payload_type";
    let fields: Vec<&Value> = fields.split(' ').map(|field| &made[field]).collect();
    assert_eq!(json!(fields), defaults);
    for reference in ["morning", made["schedule_id"].as_str().unwrap()] {
        let got = stage.schedule("get", json!({ "user_id": "u-1", "schedule": reference })).await;
        assert_eq!(got, made);
    }
    let change = json!({
        "name": "evening", "timing": cron("0 18 * * *", "America/New_York"), "missed": "all",
        "missed_limit": 3, "concurrency": "replace", "timeout_seconds": 60, "enabled": false,
        "payload": { "type": "task", "name": "Close the shop" },
    });
    let changed = stage.update("morning", change.clone()).await;
    assert_eq!((&changed["version"], &changed["next_at"]), (&json!(2), &json!("2026-10-24T22:00:00Z")));
    for (key, value) in change.as_object().unwrap() {
        assert_eq!(&changed[key], value, "{key}");
    }
    assert_eq!(changed["updated_by"], "orchestrator:tok-orchestrator");
    let deleted = stage.schedule("delete", json!({ "user_id": "u-1", "schedule": "evening" })).await;
    assert_eq!(deleted["open_runs"], json!([]));
    let gone = json!({ "user_id": "u-1", "schedule": "evening" });
    assert_eq!(stage.schedule_fails("get", gone).await.0, "not_found");
}

async fn schedules_of_other_users_are_not_found(stage: Stage) {
    let made = stage.scheduled("mine", every(60), json!({})).await;
    for reference in [&made["schedule_id"], &made["name"]] {
        for (tool, more) in [
            ("get", json!({})),
            ("runs", json!({})),
            ("run_now", json!({})),
            ("delete", json!({})),
            ("update", json!({ "change": { "enabled": false } })),
        ] {
            let mut arguments = json!({ "user_id": "u-2", "schedule": reference });
            for (key, value) in more.as_object().unwrap() {
                arguments[key] = value.clone();
            }
            let (code, why) = stage.schedule_fails(tool, arguments).await;
            assert_eq!(code, "not_found", "{tool}");
            assert_eq!(why, format!("schedule {} not found", reference.as_str().unwrap()));
        }
    }
    assert_eq!(stage.schedule("list", json!({ "user_id": "u-2" })).await["items"], json!([]));
    assert_eq!(each(&stage.schedule("list", json!({ "user_id": "u-1" })).await, "items", "name"), ["mine"]);
}

async fn name_is_unique_among_those_of_a_user(stage: Stage) {
    stage.scheduled("twice", every(60), json!({})).await;
    stage.scheduled("other", every(60), json!({})).await;
    let new = json!({ "name": "twice", "timing": every(60), "payload": { "type": "prompt", "prompt": "x" } });
    let (code, _) = stage.schedule_fails("create", json!({ "user_id": "u-1", "new": new })).await;
    assert_eq!(code, "conflict");
    let change = json!({ "user_id": "u-1", "schedule": "other", "change": { "name": "twice" } });
    assert_eq!(stage.schedule_fails("update", change).await.0, "conflict");
    stage.schedule("create", json!({ "user_id": "u-2", "new": new })).await;
}

async fn limits_hold(stage: Stage) {
    for (what, code) in [
        (json!({ "name": "" }), "invalid_arguments"),
        (json!({ "name": " a" }), "invalid_arguments"),
        (json!({ "name": "a\nb" }), "invalid_arguments"),
        (json!({ "name": "a\u{202e}b" }), "invalid_arguments"),
        (json!({ "name": "x".repeat(129) }), "too_large"),
        (json!({ "missed_limit": 0 }), "invalid_arguments"),
        (json!({ "missed_limit": 101 }), "invalid_arguments"),
        (json!({ "timeout_seconds": 0 }), "invalid_arguments"),
        (json!({ "timeout_seconds": 7 * 86_400 + 1 }), "invalid_arguments"),
        (json!({ "timing": every(0) }), "invalid_arguments"),
        (json!({ "timing": cron("* * *", "UTC") }), "invalid_arguments"),
        (json!({ "timing": cron("* * * * *", "Nowhere") }), "invalid_arguments"),
        (json!({ "timing": cron("0 0 30 2 *", "UTC") }), "invalid_arguments"),
        (json!({ "timing": { "type": "once", "at": "2020-01-01T00:00:00Z" } }), "invalid_arguments"),
        (json!({ "timing": { "type": "weekly" } }), "invalid_arguments"),
        (json!({ "project_id": "p-0" }), "not_found"),
        (json!({ "unknown": 1 }), "invalid_arguments"),
    ] {
        let mut new =
            json!({ "name": "n", "timing": every(60), "payload": { "type": "prompt", "prompt": "x" } });
        for (key, value) in what.as_object().unwrap() {
            new[key] = value.clone();
        }
        let (found, why) = stage.schedule_fails("create", json!({ "user_id": "u-1", "new": new })).await;
        assert_eq!(found, code, "{what}: {why}");
    }
    for number in 0..200 {
        stage.scheduled(&format!("s-{number}"), every(60), json!({})).await;
    }
    let new = json!({ "name": "n", "timing": every(60), "payload": { "type": "prompt", "prompt": "x" } });
    let (code, why) = stage.schedule_fails("create", json!({ "user_id": "u-1", "new": new })).await;
    assert_eq!(code, "conflict");
    assert!(why.contains("200 schedules"), "{why}");
    stage.schedule("create", json!({ "user_id": "u-2", "new": new })).await;
}

async fn payloads_are_checked(stage: Stage) {
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2");
    for (payload, code) in [
        (json!({ "type": "prompt", "prompt": " " }), "invalid_arguments"),
        (json!({ "type": "prompt", "prompt": "x".repeat(16 * 1024) }), "too_large"),
        (json!({ "type": "prompt", "prompt": format!("Use {token}.") }), "invalid_arguments"),
        (
            json!({ "type": "prompt", "prompt": "Log in with password=kX92hdJs82hdkQp1." }),
            "invalid_arguments",
        ),
        (
            json!({ "type": "job_spec", "kind": "x", "payload": { "api_key": "kX92hdJs82hdkQp1z" } }),
            "invalid_arguments",
        ),
        (json!({ "type": "prompt", "prompt": "x", "name": "y" }), "invalid_arguments"),
        (json!({ "type": "task", "name": "" }), "invalid_arguments"),
        (json!({ "type": "task", "name": "x".repeat(301) }), "too_large"),
        (json!({ "type": "task", "name": "x", "acceptance_criteria": [" "] }), "invalid_arguments"),
        (json!({ "type": "job_spec", "kind": "" }), "invalid_arguments"),
        (json!({ "type": "job_spec", "kind": "x", "payload": { "x": "x".repeat(8192) } }), "too_large"),
        (json!({ "type": "job_spec", "kind": "x", "task_id": "a b" }), "invalid_arguments"),
        (json!({ "type": "order" }), "invalid_arguments"),
    ] {
        let new = json!({ "name": "n", "timing": every(60), "payload": payload });
        let (found, why) = stage.schedule_fails("create", json!({ "user_id": "u-1", "new": new })).await;
        assert_eq!(found, code, "{payload:.100}: {why}");
        assert!(!why.contains(&token), "{why}");
    }
}

async fn preview_stores_nothing(stage: Stage) {
    stage.set_time("2026-10-24T12:00:00Z");
    let seen = stage.schedule("preview", json!({ "timing": cron("30 2 * * *", "Europe/Berlin") })).await;
    assert_eq!(seen["firings"].as_array().unwrap().len(), 10);
    assert_eq!(
        seen["firings"][0],
        json!({ "at": "2026-10-25T00:30:00Z", "local": "2026-10-25T02:30:00+02:00", "note": "first" })
    );
    assert!(seen["description"].as_str().unwrap().ends_with("(Europe/Berlin)"), "{seen}");
    let later = json!({ "timing": every(3600), "count": 2, "after": "2026-10-24T13:30:00Z" });
    let seen = stage.schedule("preview", later).await;
    assert_eq!(each(&seen, "firings", "at"), ["2026-10-24T14:00:00Z", "2026-10-24T15:00:00Z"]);
    for wrong in [
        json!({ "timing": every(60), "count": 0 }),
        json!({ "timing": every(60), "count": 101 }),
        json!({ "timing": every(60), "after": "soon" }),
        json!({ "timing": { "type": "once", "at": "2026-10-24T11:59:00Z" } }),
    ] {
        assert_eq!(stage.schedule_fails("preview", wrong).await.0, "invalid_arguments");
    }
    assert_eq!(stage.schedule("fire", json!({})).await.get("next_at"), None);
}

async fn versions_protect_changes(stage: Stage) {
    stage.scheduled("one", every(60), json!({})).await;
    stage.update("one", json!({ "enabled": false, "expected_version": 1 })).await;
    let stale = json!({
        "user_id": "u-1", "schedule": "one", "change": { "enabled": true, "expected_version": 1 },
    });
    let (code, why) = stage.schedule_fails("update", stale).await;
    assert_eq!(code, "conflict");
    assert!(why.contains("version 2"), "{why}");
    let nothing = json!({ "user_id": "u-1", "schedule": "one", "change": { "expected_version": 2 } });
    assert_eq!(stage.schedule_fails("update", nothing).await.0, "invalid_arguments");
    let stale = json!({ "user_id": "u-1", "schedule": "one", "expected_version": 1 });
    assert_eq!(stage.schedule_fails("delete", stale).await.0, "conflict");
}

async fn resumed_schedule_decides_about_what_was_due(stage: Stage) {
    for (missed, runs, skipped) in [("skip", 0, 6), ("once", 1, 5), ("all", 2, 4)] {
        stage.set_time("2026-01-01T00:00:00Z");
        stage.scheduled(missed, every(600), json!({ "missed": missed, "missed_limit": 2 })).await;
        stage.update(missed, json!({ "enabled": false })).await;
        stage.set_time("2026-01-01T01:05:00Z");
        let idle = stage.schedule("fire", json!({})).await;
        assert_eq!((&idle["runs"], idle.get("next_at")), (&json!([]), None), "a suspended schedule rests");
        let resumed = stage.update(missed, json!({ "enabled": true })).await;
        assert_eq!(resumed["next_at"], "2026-01-01T00:10:00Z", "all of it is still to be decided");
        let fired = stage.schedule("fire", json!({})).await;
        assert_eq!(fired["runs"].as_array().unwrap().len(), runs, "{missed}");
        assert_eq!((&fired["skipped"], &fired["next_at"]), (&json!(skipped), &json!("2026-01-01T01:10:00Z")));
        stage.schedule("delete", json!({ "user_id": "u-1", "schedule": missed })).await;
    }
}

async fn new_timing_drops_what_was_due(stage: Stage) {
    stage.set_time("2026-01-01T00:00:00Z");
    stage.scheduled("one", every(600), json!({ "missed": "all" })).await;
    stage.set_time("2026-01-01T00:25:00Z");
    let changed = stage.update("one", json!({ "timing": every(60) })).await;
    assert_eq!(changed["next_at"], "2026-01-01T00:26:00Z");
    assert_eq!(stage.schedule("fire", json!({})).await["runs"], json!([]));
    // Also if the clock of another gateway is behind, no slot that was decided about comes again.
    stage.set_time("2026-01-01T00:26:00Z");
    assert_eq!(stage.schedule("fire", json!({})).await["runs"].as_array().unwrap().len(), 1);
    stage.set_time("2026-01-01T00:25:50Z");
    let again = json!({ "type": "interval", "every_seconds": 60, "starting_at": "2026-01-01T00:00:00Z" });
    let changed = stage.update("one", json!({ "timing": again })).await;
    assert_eq!(changed["next_at"], "2026-01-01T00:27:00Z");
}

async fn lists_come_in_pages(stage: Stage) {
    for name in ["d", "b", "a", "c"] {
        stage.scheduled(name, every(60), json!({})).await;
    }
    let first = stage.schedule("list", json!({ "user_id": "u-1", "limit": 3 })).await;
    assert_eq!(each(&first, "items", "name"), ["a", "b", "c"]);
    let rest = json!({ "user_id": "u-1", "limit": 3, "cursor": first["next_cursor"] });
    assert_eq!(each(&stage.schedule("list", rest).await, "items", "name"), ["d"]);
}
