//! The `db.system_setting.*` tools.

use sea_orm::EntityTrait;
use serde_json::{Value, json};
use store::entity::revision;

use crate::stage::{Stage, analyst, each, on_both};

on_both![setting_has_versions, settings_are_only_for_managers, settings_are_listed_by_key];

async fn revision(stage: &Stage) -> i64 {
    revision::Entity::find_by_id(1).one(stage.store.read()).await.unwrap().unwrap().value
}

async fn setting_has_versions(stage: Stage) {
    let key = "limits.tasks";
    let before = revision(&stage).await;
    let made = stage.ok("db.system_setting.create", json!({ "key": key, "value": true })).await;
    assert_eq!((&made["version"], &made["value_type"]), (&json!(1), &json!("boolean")));
    assert_eq!(
        stage.fails("db.system_setting.create", json!({ "key": key, "value": 1 })).await.0,
        "conflict"
    );
    let update = json!({ "key": key, "value": false, "expected_version": 1 });
    assert_eq!(stage.ok("db.system_setting.update", update.clone()).await["version"], 2);
    let (code, why) = stage.fails("db.system_setting.update", update).await;
    assert_eq!(code, "conflict");
    assert!(why.contains("version 2"), "{why}");
    assert_eq!(stage.ok("db.system_setting.get", json!({ "key": key })).await["value"], false);
    let stale = json!({ "key": key, "expected_version": 1 });
    assert_eq!(stage.fails("db.system_setting.delete", stale).await.0, "conflict");
    stage.ok("db.system_setting.delete", json!({ "key": key })).await;
    for tool in ["db.system_setting.get", "db.system_setting.delete"] {
        assert_eq!(stage.fails(tool, json!({ "key": key })).await.0, "not_found");
    }
    assert_eq!(revision(&stage).await, before + 3, "a change invalidates cached decisions");
    let wrong = json!({ "key": "a", "value": 1, "value_type": "string" });
    assert_eq!(stage.fails("db.system_setting.create", wrong).await.0, "invalid_arguments");
    let large = json!({ "key": "a", "value": "x".repeat(16 * 1024) });
    assert_eq!(stage.fails("db.system_setting.create", large).await.0, "too_large");
}

async fn settings_are_only_for_managers(stage: Stage) {
    stage.ok("db.system_setting.create", json!({ "key": "a", "value": 1 })).await;
    let analyst = analyst("u-1", "t-1");
    let found = stage.fails_for(&analyst, "db.system_setting.get", json!({ "key": "a" })).await;
    assert_eq!(found.0, "not_found");
    let listed = stage.call(&analyst, "db.system_setting.list", json!({})).await.unwrap();
    assert_eq!(listed["items"], json!([]));
    for (tool, arguments) in [
        ("db.system_setting.create", json!({ "key": "b", "value": 1 })),
        ("db.system_setting.update", json!({ "key": "a", "value": 1 })),
        ("db.system_setting.delete", json!({ "key": "a" })),
    ] {
        assert_eq!(stage.fails_for(&analyst, tool, arguments).await.0, "read_only");
    }
}

async fn settings_are_listed_by_key(stage: Stage) {
    for key in ["b.two", "a_x.one", "ab.one", "b.one"] {
        stage.ok("db.system_setting.create", json!({ "key": key, "value": key })).await;
    }
    let keys = async |arguments: Value| {
        let listed = stage.ok("db.system_setting.list", arguments).await;
        each(&listed, "items", "key").into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(keys(json!({ "key_prefix": "b." })).await, ["b.one", "b.two"]);
    assert_eq!(keys(json!({ "key_prefix": "a_" })).await, ["a_x.one"], "_ is not a wildcard");
    assert_eq!(keys(json!({ "limit": 1, "cursor": "3" })).await, ["b.two"]);
    assert_eq!(keys(json!({})).await.len(), 4);
}
