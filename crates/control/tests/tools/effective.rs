//! Effective preferences.

use serde_json::{Value, json};
use store::entity::{preference, project};

use crate::stage::{Stage, on_both};

on_both![narrowest_scope_wins, missing_scope_ids_follow_from_the_task, effective_preferences_are_paged];

const CONTEXT: &str = "agents.project_manager.additional_context";
const LOCAL: &str = "agents.project_analyst.model_routing.prefer_local";

type Entry = (&'static str, &'static str, &'static str, Value, &'static str);

/// P11, P12: the same resolution as in the worker.
async fn narrowest_scope_wins(stage: Stage) {
    // Each case: entries, the effective value, whether it is masked, the number of skipped entries.
    let cases: Vec<(Vec<Entry>, Option<Value>, bool, usize)> = vec![
        (vec![("system", "", "k", json!(1), "number")], Some(json!(1)), false, 0),
        (
            vec![
                ("system", "", "k", json!(1), "number"),
                ("group", "g-1", "k", json!(2), "number"),
                ("user", "u-1", "k", json!(3), "number"),
                ("project", "p-1", "k", json!(4), "number"),
                ("task", "t-1", "k", json!(5), "number"),
            ],
            Some(json!(5)),
            false,
            0,
        ),
        (
            vec![
                ("group", "g-1", "k", json!("first"), "string"),
                ("group", "g-2", "k", json!("last"), "string"),
            ],
            Some(json!("last")),
            false,
            0,
        ),
        (
            vec![
                ("group", "g-3", "k", json!("not ours"), "string"),
                ("system", "", "k", json!("ours"), "string"),
            ],
            Some(json!("ours")),
            false,
            0,
        ),
        (
            vec![
                ("user", "u-2", "k", json!("not ours"), "string"),
                ("task", "t-2", "k", json!("nor"), "string"),
            ],
            None,
            false,
            0,
        ),
        (
            vec![("system", "", "k", json!(1), "number"), ("user", "u-1", "k", json!(null), "number")],
            None,
            true,
            0,
        ),
        (
            vec![
                ("system", "", "k", json!(1), "number"),
                ("user", "u-1", "k", json!(null), "number"),
                ("task", "t-1", "k", json!(2), "number"),
            ],
            Some(json!(2)),
            false,
            0,
        ),
        (
            vec![("user", "u-1", "k", json!(1), "number"), ("task", "t-1", "k", json!("x"), "number")],
            Some(json!(1)),
            false,
            1,
        ),
        (vec![("user", "u-1", "k", json!(1), "colour")], None, false, 1),
        (vec![("user", "u-1", "k", json!(null), "colour")], None, true, 0),
        (vec![("user", "u-1", "k", json!(1.5), "integer")], None, false, 1),
        (vec![("user", "u-1", "k", json!([1, "x"]), "json")], Some(json!([1, "x"])), false, 0),
        (
            vec![
                ("system", "", CONTEXT, json!("text"), "string"),
                ("user", "u-1", CONTEXT, json!(["a", 1]), "array"),
            ],
            Some(json!("text")),
            false,
            1,
        ),
        (vec![("user", "u-1", CONTEXT, json!(["a", "b"]), "array")], Some(json!(["a", "b"])), false, 0),
        (vec![("user", "u-1", LOCAL, json!("yes"), "string")], None, false, 1),
    ];
    for (number, (entries, held, masked, skipped)) in cases.into_iter().enumerate() {
        let key = entries[0].2;
        for (scope, id, key, value, value_type) in &entries {
            given(&stage, (scope, id, key), &value.to_string(), value_type).await;
        }
        let asked = json!({
            "user_id": "u-1", "group_ids": ["g-2", "g-1"], "project_id": "p-1", "task_id": "t-1",
        });
        let found = stage.ok("db.preference.effective", asked).await;
        let values: Vec<&Value> =
            found["preferences"].as_array().unwrap().iter().map(|it| &it["value"]).collect();
        assert_eq!(values, held.iter().collect::<Vec<_>>(), "case {number}");
        assert_eq!(found["masked"], if masked { json!([key]) } else { json!([]) }, "case {number}");
        assert_eq!(found["skipped"].as_array().unwrap().len(), skipped, "case {number}: {found}");
        clear(&stage).await;
    }
    // A value that is not JSON is skipped too.
    given(&stage, ("system", "", "k"), "{", "json").await;
    let found = stage.ok("db.preference.effective", json!({})).await;
    assert_eq!(found["skipped"][0]["why"], "the value is not JSON");
}

/// Stores a preference directly, as another program may have written it.
async fn given(stage: &Stage, (scope, id, key): (&str, &str, &str), value: &str, value_type: &str) {
    stage
        .given(preference::Model {
            id: format!("{scope}-{id}-{key}"),
            scope_type: scope.to_owned(),
            scope_id: id.to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
            value_type: value_type.to_owned(),
            version: 1,
            deleted: false,
            updated_at: 1,
            updated_by: "admin:tok".to_owned(),
        })
        .await;
}

async fn clear(stage: &Stage) {
    use sea_orm::EntityTrait;
    preference::Entity::delete_many().exec(stage.store.read()).await.unwrap();
}

async fn missing_scope_ids_follow_from_the_task(stage: Stage) {
    stage
        .given(project::Model {
            id: "p-1".to_owned(),
            name: "p-1".to_owned(),
            title: "P".to_owned(),
            description: String::new(),
            user_id: None,
            created_at: 1,
            updated_at: 1,
        })
        .await;
    let task = json!({ "title": "one", "project_id": "p-1", "user_id": "u-1" });
    let task = stage.ok("db.task.create", task).await["task_id"].clone();
    given(&stage, ("project", "p-1", "a"), "1", "number").await;
    given(&stage, ("user", "u-1", "b"), "2", "number").await;
    let found = stage.ok("db.preference.effective", json!({ "task_id": task })).await;
    assert_eq!(found["preferences"].as_array().unwrap().len(), 2, "{found}");
    let found = stage.ok("db.preference.effective", json!({ "task_id": task, "user_id": "u-2" })).await;
    assert_eq!(found["preferences"].as_array().unwrap().len(), 1, "explicit ids take precedence");
    let found = stage.ok("db.preference.effective", json!({ "task_id": "t-0" })).await;
    assert_eq!(found["preferences"], json!([]));
}

async fn effective_preferences_are_paged(stage: Stage) {
    for number in 0..5 {
        given(&stage, ("system", "", &format!("a.{number}")), "1", "number").await;
    }
    given(&stage, ("system", "", "b"), "1", "number").await;
    let first = stage.ok("db.preference.effective", json!({ "limit": 4, "key_prefix": "a." })).await;
    assert_eq!(first["preferences"].as_array().unwrap().len(), 4);
    let rest = json!({ "limit": 4, "key_prefix": "a.", "cursor": first["next_cursor"] });
    let rest = stage.ok("db.preference.effective", rest).await;
    assert_eq!(rest["preferences"].as_array().unwrap().len(), 1);
    assert!(rest.get("next_cursor").is_none());
}
