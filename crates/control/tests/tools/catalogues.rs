//! Personas, models and allowed images.

use serde_json::json;
use store::entity::{model, persona};

use crate::stage::{Stage, each, on_both};

on_both![personas_are_listed_and_read, models_are_listed_and_read, image_is_added_once];

async fn personas_are_listed_and_read(stage: Stage) {
    for name in ["reviewer", "planner"] {
        stage
            .given(persona::Model {
                id: format!("id-{name}"),
                name: name.to_owned(),
                description: format!("A {name}."),
                content: "Be one.".to_owned(),
                updated_at: 1,
            })
            .await;
    }
    let listed = stage.ok("persona.list", json!({ "limit": 1 })).await;
    assert_eq!((each(&listed, "items", "name"), &listed["next_cursor"]), (vec!["planner"], &json!("1")));
    assert!(listed["items"][0].get("content").is_none());
    let some = stage.ok("persona.list", json!({ "text": "REVIEW" })).await;
    assert_eq!(each(&some, "items", "name"), ["reviewer"]);
    for asked in ["id-planner", "planner"] {
        let got = stage.ok("persona.get", json!({ "persona_id": asked })).await;
        assert_eq!((&got["name"], &got["content"]), (&json!("planner"), &json!("Be one.")));
    }
    assert_eq!(stage.fails("persona.get", json!({ "persona_id": "none" })).await.0, "not_found");
}

async fn models_are_listed_and_read(stage: Stage) {
    for (name, provider) in [("small", "local"), ("large", "elsewhere")] {
        stage
            .given(model::Model {
                id: format!("id-{name}"),
                name: name.to_owned(),
                provider: provider.to_owned(),
                capabilities: r#"["tools"]"#.to_owned(),
                context_tokens: 8192,
                updated_at: 1,
            })
            .await;
    }
    let local = stage.ok("model.list", json!({ "provider": "local" })).await;
    assert_eq!(each(&local, "items", "name"), ["small"]);
    let got = stage.ok("model.get", json!({ "model_id": "id-large" })).await;
    assert_eq!((&got["context_tokens"], &got["capabilities"]), (&json!(8192), &json!(["tools"])));
    assert_eq!(stage.fails("model.get", json!({ "model_id": "none" })).await.0, "not_found");
}

async fn image_is_added_once(stage: Stage) {
    let image = "registry.example.com:5000/team/app:1.2";
    let add = json!({ "image": image, "note": "for builds" });
    assert_eq!(stage.ok("sandbox.allowed_images.add", add.clone()).await["added"], true);
    assert_eq!(stage.ok("sandbox.allowed_images.add", add).await["added"], false);
    stage.ok("sandbox.allowed_images.add", json!({ "image": "alpine:3.20" })).await;
    let listed = stage.ok("sandbox.allowed_images.list", json!({})).await;
    assert_eq!(each(&listed, "items", "image"), ["alpine:3.20", image]);
    let some = stage.ok("sandbox.allowed_images.list", json!({ "text": "BUILDS" })).await;
    assert_eq!(each(&some, "items", "image"), [image]);
    for bad in ["", "Alpine", "a b", "alpine:3.20; rm -rf /", "https://example.com/a"] {
        let arguments = json!({ "image": bad });
        assert_eq!(stage.fails("sandbox.allowed_images.add", arguments).await.0, "invalid_arguments");
    }
}
