//! The `db.task.*` tools.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use serde_json::{Value, json};
use store::entity::project;

use crate::stage::{Stage, analyst, each, on_both};

on_both![
    task_names_are_numbered_in_their_scope,
    twenty_concurrent_creates_get_twenty_names,
    task_is_created_as_the_worker_sends_it,
    named_ids_must_exist_and_belong_together,
    only_valid_status_transitions_are_accepted,
    task_cannot_start_before_its_dependencies,
    canceling_reaches_every_dependent_once,
    dependency_cycles_are_refused,
    dependency_cycles_closed_from_both_sides_are_refused,
    dependencies_are_added_and_removed,
    stale_version_is_refused,
    lists_are_ordered_filtered_and_paged,
    bound_caller_sees_only_its_own_task,
    text_sizes_are_limited,
];

async fn project(stage: &Stage, id: &str) {
    stage
        .given(project::Model {
            id: id.to_owned(),
            name: id.to_owned(),
            title: id.to_owned(),
            description: String::new(),
            user_id: Some("u-1".to_owned()),
            created_at: 1,
            updated_at: 1,
        })
        .await;
}

async fn create(stage: &Stage, arguments: Value) -> String {
    let task = stage.ok("db.task.create", arguments).await;
    task["task_id"].as_str().unwrap().to_owned()
}

async fn named(stage: &Stage, name: &str, after: &[&str]) -> String {
    create(stage, json!({ "name": name, "user_id": "u-1", "depends_on": after })).await
}

async fn status_of(stage: &Stage, id: &str) -> String {
    stage.ok("db.task.get", json!({ "task_id": id })).await["status"].as_str().unwrap().to_owned()
}

async fn becomes(stage: &Stage, id: &str, status: &str) -> Value {
    stage.ok("db.task.update_status", json!({ "task_id": id, "status": status })).await
}

async fn task_names_are_numbered_in_their_scope(stage: Stage) {
    project(&stage, "p-1").await;
    let name_for = async |arguments: Value| stage.ok("db.task.create", arguments).await["name"].clone();
    let by_title = json!({ "title": "Deploy docs!", "project_id": "p-1" });
    assert_eq!(name_for(by_title.clone()).await, "deploy-docs");
    assert_eq!(name_for(by_title.clone()).await, "deploy-docs-2");
    assert_eq!(name_for(json!({ "name": "deploy-docs-3", "project_id": "p-1" })).await, "deploy-docs-3");
    assert_eq!(name_for(by_title).await, "deploy-docs-4");
    assert_eq!(name_for(json!({ "name": "Not A Name", "project_id": "p-1" })).await, "not-a-name");
    assert_eq!(name_for(json!({ "title": "Deploy docs", "user_id": "u-1" })).await, "deploy-docs");
    assert_eq!(name_for(json!({ "title": "Deploy docs", "user_id": "u-2" })).await, "deploy-docs");
    assert_eq!(name_for(json!({ "title": "Écrire les notes" })).await, "écrire-les-notes");
    // A task can be found by its name as long as the name is unique.
    let found = stage.ok("db.task.get", json!({ "task_id": "deploy-docs-3" })).await;
    assert_eq!(found["title"], "deploy-docs-3");
    let (code, _) = stage.fails("db.task.get", json!({ "task_id": "deploy-docs" })).await;
    assert_eq!(code, "conflict");
}

async fn twenty_concurrent_creates_get_twenty_names(stage: Stage) {
    let creates = (0..20).map(|_| stage.ok("db.task.create", json!({ "title": "Same", "user_id": "u" })));
    let tasks = join_all(creates).await;
    let names: BTreeSet<&str> = tasks.iter().map(|task| task["name"].as_str().unwrap()).collect();
    let expected: BTreeSet<String> =
        (1..=20).map(|n| if n == 1 { "same".to_owned() } else { format!("same-{n}") }).collect();
    assert_eq!(names, expected.iter().map(String::as_str).collect());
}

async fn task_is_created_as_the_worker_sends_it(stage: Stage) {
    project(&stage, "p-1").await;
    let parent = create(&stage, json!({ "title": "Docs", "project_id": "p-1" })).await;
    let first = create(&stage, json!({ "title": "Build docs", "project_id": "p-1" })).await;
    let arguments = json!({
        "name": "publish-docs", "title": "publish-docs", "description": "Publish them.",
        "acceptance_criteria": ["The site answers"], "order": 2, "depends_on": [first], "project_id": "p-1",
        "user_id": "u-1", "parent_task_id": parent, "schedule_id": "s-1", "run_id": "r-1",
    });
    let task = stage.ok("db.task.create", arguments).await;
    assert_eq!((&task["status"], &task["version"]), (&json!("pending"), &json!(1)));
    let got = stage.ok("db.task.get", json!({ "task_id": task["task_id"] })).await;
    assert_eq!(got, task);
    assert_eq!(got["acceptance_criteria"], json!(["The site answers"]));
    let read: subjects::Task = serde_json::from_value(json!({
        "id": got["task_id"], "name": got["name"], "status": got["status"],
        "description": got["description"], "acceptance_criteria": got["acceptance_criteria"],
    }))
    .unwrap();
    assert_eq!(read.name, "publish-docs");
    let waits = stage.ok("db.task.dependency.list", json!({ "task_id": task["task_id"] })).await;
    assert_eq!(each(&waits, "items", "name"), ["build-docs"]);
    // A subtask inherits the project and the user of its task.
    let part = stage.ok("db.task.create", json!({ "title": "Part", "parent_task_id": parent })).await;
    assert_eq!((&part["project_id"], &part["user_id"]), (&json!("p-1"), &json!("u-1")));
}

async fn named_ids_must_exist_and_belong_together(stage: Stage) {
    project(&stage, "p-1").await;
    project(&stage, "p-2").await;
    let other = create(&stage, json!({ "title": "Other", "project_id": "p-2" })).await;
    for (arguments, code) in [
        (json!({ "title": "a", "project_id": "p-3" }), "not_found"),
        (json!({ "title": "a", "parent_task_id": "t-0" }), "not_found"),
        (json!({ "title": "a", "project_id": "p-1", "parent_task_id": other }), "invalid_arguments"),
        (json!({ "title": "a", "project_id": "p-1", "depends_on": [other] }), "not_found"),
        (json!({ "title": "a", "project_id": "p-1", "depends_on": ["other"] }), "not_found"),
        (json!({ "description": "no title" }), "invalid_arguments"),
        (json!({ "title": "a", "colour": "red" }), "invalid_arguments"),
        (json!({ "title": "a", "user_id": "u 1" }), "invalid_arguments"),
        (json!({ "title": "a\u{0}b" }), "invalid_arguments"),
    ] {
        let shown = arguments.to_string();
        assert_eq!(stage.fails("db.task.create", arguments).await.0, code, "{shown}");
    }
    let left = stage.ok("db.task.list", json!({ "project_id": "p-1" })).await;
    assert_eq!(left["items"], json!([]), "failed calls store nothing");
}

async fn only_valid_status_transitions_are_accepted(stage: Stage) {
    let all = ["pending", "ready", "running", "blocked", "completed", "failed", "canceled"];
    let ways: [(&[&str], &[&str]); 7] = [
        (&[], &["ready", "running", "blocked", "canceled"]),
        (&["ready"], &["pending", "running", "blocked", "canceled"]),
        (&["running"], &["ready", "blocked", "completed", "failed", "canceled"]),
        (&["blocked"], &["pending", "ready", "running", "failed", "canceled"]),
        (&["running", "completed"], &[]),
        (&["running", "failed"], &[]),
        (&["canceled"], &[]),
    ];
    for (way, next) in ways {
        for wanted in all {
            let id = create(&stage, json!({ "title": "one" })).await;
            for status in way {
                becomes(&stage, &id, status).await;
            }
            let now = way.last().copied().unwrap_or("pending");
            let arguments = json!({ "task_id": id, "status": wanted });
            if wanted == now {
                let same = stage.ok("db.task.update_status", arguments).await;
                assert_eq!(same["task"]["version"], way.len() + 1, "setting the same status changes nothing");
            } else if next.contains(&wanted) {
                let task = &stage.ok("db.task.update_status", arguments).await["task"];
                assert_eq!((&task["status"], &task["version"]), (&json!(wanted), &json!(way.len() + 2)));
            } else {
                let (code, why) = stage.fails("db.task.update_status", arguments).await;
                assert_eq!(code, "conflict", "{now} to {wanted}: {why}");
                assert_eq!(status_of(&stage, &id).await, now);
            }
        }
    }
    let (code, _) =
        stage.fails("db.task.update_status", json!({ "task_id": "x", "status": "cancelled" })).await;
    assert_eq!(code, "invalid_arguments");
}

async fn task_cannot_start_before_its_dependencies(stage: Stage) {
    let first = named(&stage, "first", &[]).await;
    let second = named(&stage, "second", &["first"]).await;
    for status in ["ready", "running"] {
        let arguments = json!({ "task_id": second, "status": status });
        let (code, why) = stage.fails("db.task.update_status", arguments).await;
        assert_eq!(code, "conflict");
        assert!(why.contains("first"), "{why}");
    }
    becomes(&stage, &first, "running").await;
    becomes(&stage, &first, "completed").await;
    becomes(&stage, &second, "running").await;
}

/// A diamond with a tail: left and right depend on top, bottom on both, tail on bottom.
async fn canceling_reaches_every_dependent_once(stage: Stage) {
    let top = named(&stage, "top", &[]).await;
    let left = named(&stage, "left", &["top"]).await;
    let right = named(&stage, "right", &[&top]).await;
    let bottom = named(&stage, "bottom", &["left", "right"]).await;
    let tail = named(&stage, "tail", &["bottom"]).await;
    let aside = named(&stage, "aside", &[]).await;
    let before = named(&stage, "before", &[]).await;
    stage.ok("db.task.dependency.add", json!({ "task_id": top, "depends_on": before })).await;
    // A final status stays; tasks that depend on it are cancelled too.
    stage.ok("db.task.dependency.remove", json!({ "task_id": left, "depends_on": top })).await;
    becomes(&stage, &left, "running").await;
    becomes(&stage, &left, "completed").await;

    let done = becomes(&stage, &top, "canceled").await;
    assert_eq!(done["task"]["status"], "canceled");
    assert_eq!(each(&done, "also_canceled", "name"), ["bottom", "right", "tail"]);
    assert_eq!(done["also_canceled_count"], 3);
    for (id, status) in [
        (&top, "canceled"),
        (&left, "completed"),
        (&right, "canceled"),
        (&bottom, "canceled"),
        (&tail, "canceled"),
        (&aside, "pending"),
        (&before, "pending"),
    ] {
        assert_eq!(status_of(&stage, id).await, status);
    }
    let bottom = stage.ok("db.task.get", json!({ "task_id": bottom })).await;
    assert_eq!(bottom["version"], 2, "cancelled once, although two paths lead there");
    let (code, _) =
        stage.fails("db.task.create", json!({ "title": "a", "user_id": "u-1", "depends_on": ["top"] })).await;
    assert_eq!(code, "conflict", "a cancelled task cannot be a dependency");
}

async fn dependency_cycles_are_refused(stage: Stage) {
    let a = named(&stage, "a", &[]).await;
    named(&stage, "b", &["a"]).await;
    named(&stage, "c", &["b"]).await;
    for end in ["a", "b", "c"] {
        let (code, _) =
            stage.fails("db.task.dependency.add", json!({ "task_id": a, "depends_on": end })).await;
        assert_eq!(code, "invalid_arguments", "a depends on {end}");
    }
}

/// a → b and c → d are added concurrently while b → c and d → a exist: each alone is valid, both together
/// form a cycle.
async fn dependency_cycles_closed_from_both_sides_are_refused(stage: Stage) {
    for round in 0..5 {
        let mut ids = Vec::new();
        for letter in ["a", "b", "c", "d"] {
            ids.push(named(&stage, &format!("{letter}-{round}"), &[]).await);
        }
        let add = |from: usize, to: usize| {
            let arguments = json!({ "task_id": ids[from], "depends_on": ids[to] });
            stage.call_as_manager("db.task.dependency.add", arguments)
        };
        add(1, 2).await.unwrap();
        add(3, 0).await.unwrap();
        let (one, other) = tokio::join!(add(0, 1), add(2, 3));
        assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
    }
}

async fn dependencies_are_added_and_removed(stage: Stage) {
    let a = named(&stage, "a", &[]).await;
    let b = named(&stage, "b", &[]).await;
    let edge = json!({ "task_id": a, "depends_on": "b" });
    let added = stage.ok("db.task.dependency.add", edge.clone()).await;
    assert_eq!(added, json!({ "task_id": a, "depends_on": b, "changed": true }));
    assert_eq!(stage.ok("db.task.dependency.add", edge.clone()).await["changed"], false);
    let listed = stage.ok("db.task.dependency.list", json!({ "task_id": a })).await;
    assert_eq!(each(&listed, "items", "task_id"), [b.as_str()]);
    assert_eq!(stage.ok("db.task.dependency.remove", edge.clone()).await["changed"], true);
    assert_eq!(stage.ok("db.task.dependency.remove", edge.clone()).await["changed"], false);
    becomes(&stage, &a, "running").await;
    assert_eq!(
        stage.fails("db.task.dependency.add", edge).await.0,
        "conflict",
        "the task is already running"
    );
}

async fn stale_version_is_refused(stage: Stage) {
    let id = create(&stage, json!({ "title": "one" })).await;
    let first = json!({ "task_id": id, "title": "two", "expected_version": 1 });
    let changed = stage.ok("db.task.update", first.clone()).await;
    assert_eq!((&changed["title"], &changed["version"]), (&json!("two"), &json!(2)));
    assert_eq!(changed["name"], "one", "the name does not change with the title");
    let (code, why) = stage.fails("db.task.update", first).await;
    assert_eq!(code, "conflict");
    assert!(why.contains("version 2"), "{why}");
    let late = json!({ "task_id": id, "status": "running", "expected_version": 1 });
    assert_eq!(stage.fails("db.task.update_status", late).await.0, "conflict");
    assert_eq!(stage.fails("db.task.update", json!({ "task_id": id })).await.0, "invalid_arguments");
    // Of several updates of the same version, one succeeds.
    let tries = (0..8).map(|n| {
        let arguments = json!({ "task_id": id, "order": n, "expected_version": 2 });
        stage.call_as_manager("db.task.update", arguments)
    });
    assert_eq!(join_all(tries).await.iter().filter(|result| result.is_ok()).count(), 1);
    // Without an expected version no update is refused or lost.
    let tries = (0..8).map(|n| stage.ok("db.task.update", json!({ "task_id": id, "order": n })));
    join_all(tries).await;
    assert_eq!(stage.ok("db.task.get", json!({ "task_id": id })).await["version"], 11);
}

async fn lists_are_ordered_filtered_and_paged(stage: Stage) {
    project(&stage, "p-1").await;
    for (title, order) in [("Third", 3), ("First", 1), ("Second 100%", 2), ("Also second_x", 2)] {
        let description = "About GRÜN things";
        let arguments =
            json!({ "title": title, "order": order, "project_id": "p-1", "description": description });
        create(&stage, arguments).await;
    }
    create(&stage, json!({ "title": "Elsewhere", "user_id": "u-2" })).await;
    let titles = async |arguments: Value| {
        let listed = stage.ok("db.task.list", arguments).await;
        each(&listed, "items", "title").into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let all = ["First", "Second 100%", "Also second_x", "Third"];
    assert_eq!(titles(json!({ "project_id": "p-1" })).await, all);
    assert_eq!(titles(json!({ "user_id": "u-2" })).await, ["Elsewhere"]);
    assert_eq!(titles(json!({ "text": "SECOND" })).await, ["Second 100%", "Also second_x"]);
    assert_eq!(titles(json!({ "text": "GRÜN" })).await.len(), 4);
    assert_eq!(titles(json!({ "text": "0%" })).await, ["Second 100%"], "% is not a wildcard");
    assert_eq!(titles(json!({ "text": "d_x" })).await, ["Also second_x"], "_ is not a wildcard");
    assert_eq!(titles(json!({ "text": "!" })).await, Vec::<String>::new());
    assert_eq!(titles(json!({ "text": " " })).await.len(), 5, "a blank text does not filter");
    assert_eq!(titles(json!({ "status": "running" })).await, Vec::<String>::new());

    let (mut found, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let piece =
            stage.ok("db.task.list", json!({ "project_id": "p-1", "limit": 3, "cursor": cursor })).await;
        found.extend(each(&piece, "items", "title").into_iter().map(str::to_owned));
        cursor = piece["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(found, all);
    assert_eq!(stage.fails("db.task.list", json!({ "cursor": "x" })).await.0, "invalid_arguments");
    // A page stays small whatever limit is requested.
    for number in 0..100 {
        create(&stage, json!({ "title": format!("{number} {}", "long ".repeat(55)), "user_id": "u-3" }))
            .await;
    }
    let piece = stage.ok("db.task.list", json!({ "user_id": "u-3", "limit": 200 })).await;
    assert!(piece.to_string().len() < 32 * 1024);
    assert!(piece["next_cursor"].is_string());
}

async fn bound_caller_sees_only_its_own_task(stage: Stage) {
    let own = create(&stage, json!({ "title": "Own", "user_id": "u-1" })).await;
    let other = create(&stage, json!({ "title": "Other", "user_id": "u-1" })).await;
    let analyst = analyst("u-1", &own);
    let listed = stage.call(&analyst, "db.task.list", json!({})).await.unwrap();
    assert_eq!(each(&listed, "items", "task_id"), [own.as_str()]);
    let listed = stage.call(&analyst, "db.task.list", json!({ "parent_task_id": other })).await.unwrap();
    assert_eq!(listed["items"], json!([]));
    assert!(stage.call(&analyst, "db.task.get", json!({ "task_id": own })).await.is_ok());
    let (code, _) = stage.fails_for(&analyst, "db.task.get", json!({ "task_id": "other" })).await;
    assert_eq!(code, "not_found", "only managers may look up by name");
}

async fn text_sizes_are_limited(stage: Stage) {
    let long = |bytes: usize| "x".repeat(bytes);
    for arguments in [
        json!({ "title": long(301) }),
        json!({ "title": "a", "name": long(301) }),
        json!({ "title": "a", "description": long(16 * 1024 + 1) }),
        json!({ "title": "a", "acceptance_criteria": [long(2049)] }),
        json!({ "title": "a", "acceptance_criteria": vec![long(2000); 10] }),
    ] {
        assert_eq!(stage.fails("db.task.create", arguments).await.0, "too_large");
    }
    for arguments in [
        json!({ "title": "a", "acceptance_criteria": vec!["b"; 51] }),
        json!({ "title": "a", "acceptance_criteria": [" "] }),
        json!({ "title": "a", "depends_on": vec!["b"; 101] }),
    ] {
        assert_eq!(stage.fails("db.task.create", arguments).await.0, "invalid_arguments");
    }
    let id = create(&stage, json!({ "title": "a", "description": long(16 * 1024) })).await;
    let long = json!({ "task_id": id, "description": long(16 * 1024 + 1) });
    assert_eq!(stage.fails("db.task.update", long).await.0, "too_large");
}
