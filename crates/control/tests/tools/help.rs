//! The `help.*` tools.

use serde_json::{Value, json};

use crate::stage::{Stage, analyst, each, on_both};

on_both![
    help_lists_only_callable_tools,
    help_explains_tools_and_topics,
    help_has_the_topics_of_the_instructions
];

async fn help_lists_only_callable_tools(stage: Stage) {
    let listed = stage.ok("help.list", json!({})).await;
    let names = each(&listed, "items", "name");
    assert!(names.contains(&"db.task.create") && names.contains(&"preferences"), "{names:?}");
    assert!(listed["items"].as_array().unwrap().iter().all(|line| line["about"].as_str().unwrap().len() > 5));
    let family = stage.ok("help.list", json!({ "family": "db.task" })).await;
    assert!(each(&family, "items", "name").iter().all(|name| name.starts_with("db.task.")));
    assert_eq!(stage.ok("help.list", json!({ "family": "db.tas" })).await["items"], json!([]));
    let piece = stage.ok("help.list", json!({ "limit": 2, "cursor": "1" })).await;
    assert_eq!((each(&piece, "items", "name").len(), &piece["next_cursor"]), (2, &json!("3")));

    let listed = stage.call(&analyst("u-1", "t-1"), "help.list", json!({})).await.unwrap();
    let names = each(&listed, "items", "name");
    assert!(names.contains(&"db.task.get"), "{names:?}");
    for hidden in ["db.task.create", "skills.create", "node.list", "artifact.put"] {
        assert!(!names.contains(&hidden), "{hidden}");
    }
}

async fn help_explains_tools_and_topics(stage: Stage) {
    let tool = stage.ok("help.get", json!({ "name": "db.task.create" })).await;
    assert_eq!(tool["kind"], "tool");
    assert!(tool["input_schema"]["properties"]["title"].is_object());
    for topic in ["tasks", "preferences", "versions", "lists", "artifacts", "errors"] {
        let topic = stage.ok("help.get", json!({ "name": topic })).await;
        assert_eq!((&topic["kind"], &topic["input_schema"]), (&json!("topic"), &Value::Null));
    }
    assert_eq!(stage.fails("help.get", json!({ "name": "nothing" })).await.0, "not_found");
    let analyst = analyst("u-1", "t-1");
    let hidden = stage.fails_for(&analyst, "help.get", json!({ "name": "db.task.create" })).await;
    assert_eq!(hidden.0, "not_found", "a tool that may not be called reads like one that does not exist");
}

/// Agents are told to ask for these topics.
async fn help_has_the_topics_of_the_instructions(stage: Stage) {
    for role in ["project_manager", "project_analyst"] {
        let file = testkit::workspace().join("instructions").join(role).join("30-references.md");
        let text = std::fs::read_to_string(file).unwrap();
        let (_, named) = text.split_once("a topic:").unwrap();
        let (named, _) = named.split_once('.').unwrap();
        let topics: Vec<&str> = named.split('`').skip(1).step_by(2).collect();
        assert!(topics.len() >= 2, "{topics:?}");
        for topic in topics {
            assert_eq!(stage.ok("help.get", json!({ "name": topic })).await["kind"], "topic", "{topic}");
        }
    }
}
