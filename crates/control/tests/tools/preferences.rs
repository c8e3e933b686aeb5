//! The `db.preference.*` tools.

use futures_util::future::join_all;
use serde_json::{Value, json};
use store::entity::preference;

use crate::stage::{Stage, analyst, each, on_both};

on_both![
    preference_has_versions_and_a_history,
    deleted_preference_continues_from_its_version,
    one_of_several_concurrent_creates_succeeds,
    invalid_preferences_are_refused,
    list_has_the_format_that_the_worker_reads,
    bound_caller_reads_only_its_own_scopes,
    governing_value_of_an_agent_has_no_effect,
];

async fn set(stage: &Stage, scope: &str, id: Option<&str>, key: &str, value: Value) {
    let arguments = json!({ "scope": scope, "scope_id": id, "key": key, "value": value });
    stage.ok("db.preference.create", arguments).await;
}

/// Sets a preference that only an administrator may set.
async fn given(stage: &Stage, scope: &str, id: Option<&str>, key: &str, value: Value) {
    given_by(stage, (scope, id, key), value, "admin:tok").await;
}

async fn given_by(stage: &Stage, (scope, id, key): (&str, Option<&str>, &str), value: Value, author: &str) {
    stage
        .given(preference::Model {
            id: format!("{scope}-{}-{key}", id.unwrap_or_default()),
            scope_type: scope.to_owned(),
            scope_id: id.unwrap_or_default().to_owned(),
            key: key.to_owned(),
            value: value.to_string(),
            value_type: "json".to_owned(),
            version: 1,
            deleted: false,
            updated_at: 1,
            updated_by: author.to_owned(),
        })
        .await;
}

async fn preference_has_versions_and_a_history(stage: Stage) {
    let at = json!({ "scope": "user", "scope_id": "u-1", "key": "editor.theme" });
    let with = |more: Value| {
        let mut all = at.clone();
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let made = stage.ok("db.preference.create", with(json!({ "value": "dark", "reason": "asked" }))).await;
    assert_eq!((&made["version"], &made["value_type"]), (&json!(1), &json!("string")));
    let (code, why) = stage.fails("db.preference.create", with(json!({ "value": "light" }))).await;
    assert_eq!(code, "conflict");
    assert!(why.contains("version 1"), "{why}");
    let second = with(json!({ "value": 3, "value_type": "integer", "expected_version": 1 }));
    assert_eq!(stage.ok("db.preference.update", second.clone()).await["version"], 2);
    let (code, why) = stage.fails("db.preference.update", second).await;
    assert_eq!(code, "conflict");
    assert!(why.contains("version 2"), "{why}");
    assert_eq!(stage.ok("db.preference.update", with(json!({ "value": null }))).await["value"], Value::Null);
    assert_eq!(
        stage.fails("db.preference.delete", with(json!({ "expected_version": 2 }))).await.0,
        "conflict"
    );
    let got = stage.ok("db.preference.get", with(json!({ "history": true }))).await;
    let history = got["history"].as_array().unwrap();
    let told: Vec<_> =
        history.iter().map(|it| (it["version"].as_i64().unwrap(), &it["change"], &it["value"])).collect();
    assert_eq!(
        told,
        [
            (3, &json!("updated"), &Value::Null),
            (2, &json!("updated"), &json!(3)),
            (1, &json!("created"), &json!("dark")),
        ]
    );
    assert_eq!(
        (&history[2]["reason"], &history[2]["updated_by"]),
        (&json!("asked"), &json!("project_manager:tok-manager"))
    );
    assert!(stage.ok("db.preference.get", at.clone()).await.get("history").is_none());
}

async fn deleted_preference_continues_from_its_version(stage: Stage) {
    let at = json!({ "scope": "project", "scope_id": "p-1", "key": "a" });
    set(&stage, "project", Some("p-1"), "a", json!(1)).await;
    let deleted = stage.ok("db.preference.delete", at.clone()).await;
    assert_eq!((&deleted["deleted"], &deleted["version"]), (&json!(true), &json!(2)));
    for tool in ["db.preference.get", "db.preference.delete"] {
        assert_eq!(stage.fails(tool, at.clone()).await.0, "not_found");
    }
    let update = json!({ "scope": "project", "scope_id": "p-1", "key": "a", "value": 2 });
    assert_eq!(stage.fails("db.preference.update", update.clone()).await.0, "not_found");
    assert_eq!(stage.ok("db.preference.list", json!({})).await["preferences"], json!([]));
    assert_eq!(stage.ok("db.preference.create", update).await["version"], 3);
    let mut asked = at;
    asked["history"] = json!(true);
    let got = stage.ok("db.preference.get", asked).await;
    assert_eq!(each(&got, "history", "change"), ["created", "deleted", "created"]);
}

async fn one_of_several_concurrent_creates_succeeds(stage: Stage) {
    let arguments = json!({ "scope": "system", "key": "a", "value": 1 });
    let tries = (0..10).map(|_| stage.call_as_manager("db.preference.create", arguments.clone()));
    let done = join_all(tries).await;
    assert_eq!(done.iter().filter(|result| result.is_ok()).count(), 1);
    assert!(done.iter().flat_map(|result| result.as_ref().err()).all(|error| error.code() == "conflict"));
    // Updates without an expected version are applied one after the other; none is lost.
    let update = json!({ "scope": "system", "key": "a", "value": 2 });
    join_all((0..10).map(|_| stage.ok("db.preference.update", update.clone()))).await;
    let got = stage.ok("db.preference.get", json!({ "scope": "system", "key": "a" })).await;
    assert_eq!(got["version"], 11);
}

async fn invalid_preferences_are_refused(stage: Stage) {
    for (arguments, code) in [
        (json!({ "scope": "user", "key": "a", "value": 1 }), "invalid_arguments"),
        (json!({ "scope": "system", "scope_id": "x", "key": "a", "value": 1 }), "invalid_arguments"),
        (json!({ "scope": "galaxy", "key": "a", "value": 1 }), "invalid_arguments"),
        (json!({ "scope": "system", "key": "A b", "value": 1 }), "invalid_arguments"),
        (json!({ "scope": "system", "key": "a..b", "value": 1 }), "invalid_arguments"),
        (json!({ "scope": "system", "key": "", "value": 1 }), "invalid_arguments"),
        (json!({ "scope": "system", "key": "a".repeat(129), "value": 1 }), "invalid_arguments"),
        (json!({ "scope": "system", "key": "a" }), "invalid_arguments"),
        (json!({ "scope": "system", "key": "a", "value": 1, "value_type": "string" }), "invalid_arguments"),
        (
            json!({ "scope": "system", "key": "a", "value": 1.5, "value_type": "integer" }),
            "invalid_arguments",
        ),
        (json!({ "scope": "system", "key": "a", "value": [], "value_type": "object" }), "invalid_arguments"),
        (json!({ "scope": "system", "key": "a", "value": 1, "value_type": "date" }), "invalid_arguments"),
        (json!({ "scope": "system", "key": "a", "value": "x".repeat(16 * 1024) }), "too_large"),
        (json!({ "scope": "system", "key": "a", "value": 1, "reason": "x".repeat(1025) }), "too_large"),
    ] {
        let shown = format!("{:.200}", arguments.to_string());
        assert_eq!(stage.fails("db.preference.create", arguments).await.0, code, "{shown}");
    }
    for (key, value, value_type) in [
        ("s", json!("x"), "string"),
        ("n", json!(1.5), "number"),
        ("i", json!(1), "integer"),
        ("b", json!(true), "boolean"),
        ("o", json!({}), "object"),
        ("l", json!([1]), "array"),
        ("j", json!("any"), "json"),
        ("m", json!(null), "string"),
    ] {
        let arguments = json!({ "scope": "system", "key": key, "value": value, "value_type": value_type });
        assert_eq!(stage.ok("db.preference.create", arguments).await["value_type"], value_type);
    }
    let system = json!({ "scope": "system", "key": "z", "value": 1 });
    assert_eq!(stage.fails_for(&analyst("u-1", "t-1"), "db.preference.create", system).await.0, "read_only");
}

async fn list_has_the_format_that_the_worker_reads(stage: Stage) {
    let key = "agents.project_manager.additional_context";
    given(&stage, "system", None, key, json!("a")).await;
    given(&stage, "group", Some("g-1"), key, json!("b")).await;
    given(&stage, "group", Some("g-2"), key, json!("c")).await;
    given(&stage, "user", Some("u-1"), key, json!("d")).await;
    given(&stage, "user", Some("u-2"), key, json!("e")).await;
    given(&stage, "project", Some("p-1"), "other_key", json!({ "x": 1 })).await;
    given(&stage, "task", Some("t-1"), key, json!(null)).await;
    let asked = json!({ "user_id": "u-1", "group_ids": ["g-2"], "project_id": "p-1", "task_id": "t-1" });
    let listed = stage.ok("db.preference.list", asked).await;
    let read: Vec<subjects::Preference> = serde_json::from_value(listed["preferences"].clone()).unwrap();
    let values: Vec<&Value> = read.iter().map(|entry| &entry.value).collect();
    assert_eq!(values, [&json!("c"), &json!("a"), &Value::Null, &json!("d"), &json!({ "x": 1 })]);
    let system = read.iter().find(|entry| entry.scope == subjects::PreferenceScope::System).unwrap();
    assert_eq!((&system.scope_id, system.version), (&None, 1));
    let count = async |arguments: Value| {
        stage.ok("db.preference.list", arguments).await["preferences"].as_array().unwrap().len()
    };
    assert_eq!(count(json!({})).await, 7);
    assert_eq!(count(json!({ "scope": "user" })).await, 2);
    assert_eq!(count(json!({ "key_prefix": "agents." })).await, 6);
    assert_eq!(count(json!({ "key_prefix": "other_" })).await, 1);
    assert_eq!(count(json!({ "key_prefix": "otherx" })).await, 0);
    let piece = stage.ok("db.preference.list", json!({ "limit": 5 })).await;
    let rest = json!({ "limit": 5, "cursor": piece["next_cursor"] });
    assert_eq!(count(rest).await, 2);
    // Pages stay small whatever was stored.
    for number in 0..10 {
        set(&stage, "user", Some("u-3"), &format!("large.{number}"), json!("x".repeat(8 * 1024))).await;
    }
    let listed = stage.ok("db.preference.list", json!({ "user_id": "u-3" })).await;
    assert!(listed.to_string().len() < 32 * 1024 && listed["next_cursor"].is_string());
}

async fn bound_caller_reads_only_its_own_scopes(stage: Stage) {
    let task = stage.ok("db.task.create", json!({ "title": "one", "user_id": "u-1" })).await;
    let task = task["task_id"].as_str().unwrap();
    set(&stage, "system", None, "k", json!("system")).await;
    set(&stage, "user", Some("u-1"), "k", json!("own")).await;
    set(&stage, "user", Some("u-2"), "k", json!("other")).await;
    set(&stage, "group", Some("g-1"), "k", json!("group")).await;
    set(&stage, "project", Some("p-1"), "k", json!("project")).await;
    set(&stage, "task", Some(task), "k", json!("task")).await;
    set(&stage, "task", Some("t-2"), "k", json!("other task")).await;
    let analyst = analyst("u-1", task);
    for arguments in [json!({}), json!({ "group_ids": ["g-1"], "scope": null })] {
        let listed = stage.call(&analyst, "db.preference.list", arguments).await.unwrap();
        assert_eq!(each(&listed, "preferences", "value"), ["system", "task", "own"]);
    }
    for (scope, id, is_seen) in [
        ("system", None, true),
        ("user", Some("u-1"), true),
        ("user", Some("u-2"), false),
        ("group", Some("g-1"), false),
        ("project", Some("p-1"), false),
        ("task", Some(task), true),
        ("task", Some("t-2"), false),
    ] {
        let asked = json!({ "scope": scope, "scope_id": id, "key": "k" });
        assert_eq!(stage.call(&analyst, "db.preference.get", asked).await.is_ok(), is_seen, "{scope} {id:?}");
    }
    let held =
        stage.call(&analyst, "db.preference.effective", json!({ "group_ids": ["g-1"] })).await.unwrap();
    assert_eq!(each(&held, "preferences", "value"), ["task"]);
}

/// What an agent of an earlier release wrote under a key that controls agents is neither listed for workers
/// nor resolved; all other keys are.
async fn governing_value_of_an_agent_has_no_effect(stage: Stage) {
    let agent = "project_manager:tok-manager";
    for key in policy::GOVERNING {
        for key in [key.to_owned(), format!("{key}.more")] {
            given_by(&stage, ("user", Some("u-1"), &key), json!("evil"), agent).await;
            given(&stage, "system", None, &key, json!("good")).await;
        }
    }
    for key in ["agents_more", "editor.agents", "profiles.more"] {
        given_by(&stage, ("user", Some("u-1"), key), json!("free"), agent).await;
    }
    let governed = 2 * policy::GOVERNING.len();
    let wanted = json!({ "user_id": "u-1" });
    let listed = stage.ok("db.preference.list", wanted.clone()).await;
    let resolved = stage.ok("db.preference.effective", wanted).await;
    for found in [&listed, &resolved] {
        let values = each(found, "preferences", "value");
        let count = |wanted: &str| values.iter().filter(|value| **value == wanted).count();
        assert_eq!((count("free"), count("good"), values.len()), (3, governed, 3 + governed), "{values:?}");
    }
    let skipped = each(&resolved, "skipped", "why");
    assert!(
        skipped.len() == governed && skipped.iter().all(|why| why.contains("administrator")),
        "{skipped:?}"
    );
}
