//! Schedules over REST and with cynodectl.

use serde_json::{Value, json};
use testkit::{Finished, GatewayProcess, TestClock};

use super::support::{bare_ctl, ctl, parsed, user};

const SCHEDULES: &str = "/api/v1/schedules";
const FAILED: i32 = 1;
const USAGE: i32 = 64;

fn daily(name: &str) -> Value {
    json!({
        "name": name,
        "timing": { "type": "cron", "expression": "30 2 * * *", "time_zone": "europe/berlin" },
        "payload": { "type": "prompt", "prompt": "Write the report." },
    })
}

/// Starts a gateway in the night before clocks go back.
async fn start() -> (GatewayProcess, TestClock) {
    let clock = TestClock::at("2026-10-24T12:00:00Z");
    (GatewayProcess::start_with_variables(&[], &[clock.variable()]).await, clock)
}

#[tokio::test]
async fn user_manages_own_schedules_and_an_administrator_those_of_all() {
    let (gateway, clock) = start().await;
    let (ada, eve) = (user(&gateway, "ada").await, user(&gateway, "eve").await);
    let made = gateway.ask_as(&ada, "POST", SCHEDULES, Some(daily("report"))).await;
    assert_eq!(made.status, 200, "{made:?}");
    let id = made.body["schedule_id"].as_str().unwrap().to_owned();
    assert_eq!((&made.body["user_id"], &made.body["version"]), (&json!("ada"), &json!(1)));
    assert_eq!(made.body["next_at"], "2026-10-25T00:30:00Z");
    assert_eq!(made.body["timing"]["time_zone"], "Europe/Berlin");

    // For others it does not exist, and nobody has one for another.
    let path = format!("{SCHEDULES}/{id}");
    for (method, path, body) in [
        ("GET", path.clone(), None),
        ("PATCH", path.clone(), Some(json!({ "enabled": false }))),
        ("DELETE", path.clone(), None),
        ("POST", format!("{path}/run"), None),
        ("GET", format!("{path}/runs"), None),
    ] {
        let answer = gateway.ask_as(&eve, method, &path, body).await;
        assert_eq!(answer.status, 404, "{method} {path}: {answer:?}");
    }
    let theirs = gateway.ask_as(&eve, "POST", &format!("{SCHEDULES}?user_id=ada"), Some(daily("x"))).await;
    assert_eq!(theirs.status, 403, "{theirs:?}");
    for (token, filter, expected) in [(&eve, "", 0), (&eve, "?user_id=ada", 0), (&ada, "", 1)] {
        let listed = gateway.ask_as(token, "GET", &format!("{SCHEDULES}{filter}"), None).await;
        assert_eq!(listed.body.as_array().unwrap().len(), expected, "{filter}");
    }
    gateway.ask_as(&eve, "POST", SCHEDULES, Some(daily("report"))).await;
    assert_eq!(gateway.must("GET", SCHEDULES, None).await.as_array().unwrap().len(), 2);
    let of_ada = gateway.must("GET", &format!("{SCHEDULES}?user_id=ada"), None).await;
    assert_eq!(of_ada[0]["schedule_id"], id);
    let unowned = gateway.ask("POST", SCHEDULES, Some(daily("admin"))).await;
    assert_eq!((unowned.status, &unowned.body["error"]["field"]), (422, &json!("user_id")));
    let bob = gateway.must("POST", &format!("{SCHEDULES}?user_id=bob"), Some(daily("report"))).await;
    assert_eq!(bob["user_id"], "bob");

    let change = json!({ "concurrency": "forbid", "expected_version": 1 });
    let changed = gateway.ask_as(&ada, "PATCH", &path, Some(change.clone())).await;
    assert_eq!((changed.status, &changed.body["version"]), (200, &json!(2)));
    assert_eq!(gateway.ask_as(&ada, "PATCH", &path, Some(change)).await.status, 409);
    let run = gateway.ask_as(&ada, "POST", &format!("{path}/run"), None).await;
    assert_eq!((run.status, &run.body["state"]), (200, &json!("pending")), "{run:?}");
    clock.set("2026-10-24T12:00:01Z");
    let again = gateway.ask_as(&ada, "POST", &format!("{path}/run"), None).await;
    assert_eq!(again.status, 409, "a run is open: {again:?}");
    let runs = gateway.must("GET", &format!("{path}/runs"), None).await;
    assert_eq!((&runs[0]["run_id"], &runs[0]["trigger"]), (&run.body["run_id"], &json!("manual")));
    assert_eq!(gateway.ask("DELETE", &format!("{path}?version=1"), None).await.status, 409);
    let deleted = gateway.must("DELETE", &format!("{path}?version=2"), None).await;
    assert_eq!(deleted["open_runs"], json!([run.body["run_id"]]));
    assert_eq!(gateway.ask_as(&ada, "GET", &path, None).await.status, 404);

    let rows = gateway.audit("tool=admin.schedule.*&user_id=ada&limit=100").await;
    let outcome =
        |row: &Value| format!("{} {}", row["tool"].as_str().unwrap(), row["decision"].as_str().unwrap());
    let outcomes: Vec<String> = rows.iter().map(outcome).collect();
    let expected = ["admin.schedule.run allow", "admin.schedule.update allow", "admin.schedule.create allow"];
    assert_eq!(outcomes, expected, "what is refused changes nothing and needs no row");
    let denied = gateway.audit("tool=admin.schedule.create&decision=deny").await;
    assert_eq!((denied.len(), &denied[0]["user_id"]), (1, &json!("eve")));
}

#[tokio::test]
async fn bad_schedules_are_refused_with_the_field_to_blame() {
    let (gateway, _clock) = start().await;
    let with = |member: &str, value: Value| {
        let mut new = daily("bad");
        new[member] = value;
        new
    };
    let cron =
        |expression: &str, zone: &str| json!({ "type": "cron", "expression": expression, "time_zone": zone });
    for (new, status, field, said) in [
        (with("timing", cron("61 * * * *", "UTC")), 422, "timing", "cron expression"),
        (with("timing", cron("* * * *", "UTC")), 422, "timing", "this one has 4"),
        (with("timing", cron("0 9 * * *", "Europe/Atlantis")), 422, "timing", "Europe/Atlantis"),
        (with("timing", cron("0 9 30 2 *", "UTC")), 422, "timing", "never comes"),
        (with("timing", json!({ "type": "interval", "every_seconds": 0 })), 422, "timing", "1 to"),
        (with("timing", json!({ "type": "once", "at": "2026-01-01T00:00:00Z" })), 422, "timing", "passed"),
        (with("timing", json!({ "type": "hourly" })), 400, "", "hourly"),
        (with("payload", json!({ "type": "prompt", "prompt": "" })), 422, "payload", "empty"),
        (
            with("payload", json!({ "type": "prompt", "prompt": "x".repeat(16 * 1024) })),
            422,
            "payload",
            "16384",
        ),
        (with("name", json!(" ")), 422, "schedule", "name"),
        (with("missed_limit", json!(101)), 422, "schedule", "1 to 100"),
        (with("project_id", json!("nowhere")), 404, "", "nowhere"),
        (with("colour", json!("red")), 400, "", "colour"),
    ] {
        let refused = gateway.ask("POST", &format!("{SCHEDULES}?user_id=ada"), Some(new)).await;
        let error = &refused.body["error"];
        assert_eq!((refused.status, error["field"].as_str().unwrap_or("")), (status, field), "{refused:?}");
        assert!(error["message"].as_str().unwrap().contains(said), "{refused:?}");
    }
    let preview = json!({ "timing": cron("30 2 * * *", "Europe/Berlin"), "count": 2 });
    let seen = gateway.must("POST", &format!("{SCHEDULES}/preview"), Some(preview)).await;
    assert_eq!(seen["firings"][0]["note"], "first");
    assert_eq!(seen["firings"].as_array().unwrap().len(), 2);
    assert_eq!(gateway.must("GET", SCHEDULES, None).await, json!([]));
}

#[tokio::test]
async fn schedules_are_managed_with_cynodectl() {
    let (gateway, clock) = start().await;
    let ada = user(&gateway, "ada").await;
    let token_file = gateway.folder().join("ada.token");
    std::fs::write(&token_file, &ada).unwrap();
    let as_ada = async |line: &[&str]| -> Finished {
        let mut arguments =
            vec!["--gateway".to_owned(), gateway.admin_url(), "--admin-token-file".to_owned()];
        arguments.push(token_file.display().to_string());
        arguments.extend(line.iter().map(|&word| word.to_owned()));
        bare_ctl(arguments).await
    };
    let preview =
        as_ada(&["schedules", "preview", "--cron", "30 2 * * *", "--time-zone", "Europe/Berlin"]).await;
    for text in
        ["2026-10-25T02:30:00+02:00", "the first of two", "2026-11-03T02:30:00+01:00", "(Europe/Berlin)"]
    {
        assert!(preview.stdout.contains(text), "{text}: {preview:?}");
    }
    let create = ["schedules", "create", "report", "--cron", "0 9 * * MON-FRI", "--prompt", "Write it."];
    let unconfirmed = as_ada(&create).await;
    assert_eq!(unconfirmed.code, FAILED, "{unconfirmed:?}");
    assert!(
        unconfirmed.stderr.contains("--yes") && unconfirmed.stdout.contains("2026-10-26T09:00:00"),
        "shown first"
    );
    let of_nobody = ctl(&gateway, &[&create[..], &["--yes"]].concat()).await;
    assert_eq!(
        (of_nobody.code, of_nobody.stdout.as_str()),
        (USAGE, ""),
        "before anything else: {of_nobody:?}"
    );
    assert!(of_nobody.stderr.contains("pass --user ID"), "{of_nobody:?}");
    let created = as_ada(&[&create[..], &["--yes", "--missed", "all", "--missed-limit", "5"]].concat()).await;
    assert!(created.stdout.contains("created"), "{created:?}");
    let job =
        ["schedules", "create", "build", "--every", "2h", "--job", "build", "--job-payload", r#"{"a":1}"#];
    let job = [&job[..], &["--user", "bob", "--yes", "--concurrency", "replace", "--timeout", "1h"]].concat();
    assert_eq!(as_ada(&job).await.code, FAILED, "not for another user");
    let job = parsed(&ctl(&gateway, &[&["--json"][..], &job].concat()).await);
    assert_eq!((&job["payload"]["payload"], &job["timeout_seconds"]), (&json!({ "a": 1 }), &json!(3600)));

    let listed = as_ada(&["schedules", "ls"]).await;
    assert!(listed.stdout.contains("report") && !listed.stdout.contains("build"), "{listed:?}");
    let listed = ctl(&gateway, &["schedules", "ls", "--user", "bob"]).await;
    assert!(listed.stdout.contains("every 2h") && !listed.stdout.contains("report"), "{listed:?}");
    let shown = as_ada(&["schedules", "show", "report"]).await;
    for text in ["Write it.", "0 9 * * MON-FRI (UTC)", "active", "2026-10-26T09:00:00Z"] {
        assert!(shown.stdout.contains(text), "{text}: {shown:?}");
    }
    assert!(as_ada(&["schedules", "suspend", "report"]).await.stdout.contains("suspended"));
    assert!(as_ada(&["schedules", "show", "report"]).await.stdout.contains("suspended"));
    assert!(as_ada(&["schedules", "resume", "report"]).await.stdout.contains("resumed"));
    let update =
        ["schedules", "update", "report", "--task", "Write it", "--criterion", "It is short", "--name", "r"];
    assert!(as_ada(&update).await.stdout.contains("version 4"));
    let moved =
        ["--json", "schedules", "update", "r", "--once", "2026-10-25T02:30", "--time-zone", "Europe/Berlin"];
    assert_eq!(as_ada(&moved).await.code, FAILED, "a new timing is confirmed");
    let moved = parsed(&as_ada(&[&moved[..], &["--yes"]].concat()).await);
    assert_eq!(
        (&moved["next_at"], &moved["payload"]["type"]),
        (&json!("2026-10-25T00:30:00Z"), &json!("task"))
    );

    clock.set("2026-10-24T12:00:05Z");
    assert!(as_ada(&["schedules", "run", "r"]).await.stdout.contains("started"));
    let ran = ctl(&gateway, &["schedules", "run", "build", "--user", "bob"]).await;
    assert!(ran.stdout.contains("queued"), "{ran:?}");
    let history = as_ada(&["schedules", "history", "r"]).await;
    assert!(
        history.stdout.contains("pending") && history.stdout.contains("2026-10-24T12:00:05Z"),
        "{history:?}"
    );
    for (line, code, said) in [
        (&["schedules", "create", "x", "--prompt", "y"][..], USAGE, "--cron"),
        (&["schedules", "create", "x", "--every", "1h"], USAGE, "--prompt"),
        (&["schedules", "create", "x", "--every", "1h", "--cron", "* * * * *"], USAGE, "cannot be used"),
        (&["schedules", "preview", "--cron", "* * * *"], USAGE, "5 fields"),
        (&["schedules", "preview"], USAGE, "--cron"),
        (&["schedules", "show", "nothing"], FAILED, "not found"),
        (&["schedules", "update", "r"], USAGE, "nothing to change"),
        (&["schedules", "update", "r", "--name", "s", "--version", "1"], FAILED, "version"),
        (&["schedules", "rm", "r"], FAILED, "--yes"),
    ] {
        let finished = as_ada(line).await;
        assert_eq!(finished.code, code, "{line:?}: {finished:?}");
        assert!(finished.stderr.contains(said), "{line:?}: {finished:?}");
    }
    // An administrator names a schedule of another user, and says whose it is if several have the name.
    let history = ctl(&gateway, &["schedules", "history", "build"]).await;
    assert!(history.stdout.contains("2026-10-24T12:00:05Z"), "{history:?}");
    assert!(
        as_ada(&["schedules", "create", "build", "--every", "3h", "--prompt", "x", "--yes"]).await.code == 0
    );
    for line in [["schedules", "run", "build"], ["schedules", "history", "build"]] {
        let refused = ctl(&gateway, &line).await;
        assert_eq!(refused.code, FAILED, "{refused:?}");
        assert!(refused.stderr.contains("several users have a schedule build; use its id"), "{refused:?}");
    }
    assert!(
        ctl(&gateway, &["schedules", "show", "build", "--user", "ada"]).await.stdout.contains("every 3h")
    );
    // A name of another user's schedule is not taken for one of this user.
    let missing = ctl(&gateway, &["schedules", "run", "r", "--user", "bob"]).await;
    assert_eq!(missing.code, FAILED, "{missing:?}");
    assert!(missing.stderr.contains("bob has no schedule `r`"), "{missing:?}");
    assert!(as_ada(&["schedules", "rm", "build", "--yes"]).await.stdout.contains("deleted"));
    assert!(as_ada(&["schedules", "rm", "r", "--yes"]).await.stdout.contains("deleted"));
    assert!(as_ada(&["schedules", "ls"]).await.stdout.contains("no schedules"));
}
