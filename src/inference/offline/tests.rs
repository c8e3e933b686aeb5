use serde_json::json;
use subjects::Project;

use super::*;
use crate::{
    context::{Layers, Preamble},
    inference::{Function, Hint, Purpose},
};

struct NullListener;

impl Listener for NullListener {
    fn on_try(&self, _: u32) {}
    fn on_text(&self, _: &str) {}
}

fn request<'m>(messages: &'m [Message], tools: &[&str]) -> Request<'m> {
    let parameters =
        json!({ "properties": { "name": {}, "description": {}, "project_id": {}, "task_id": {} } });
    let function = |name: &&str| Function::new(name, "", &parameters);
    let project =
        Project { id: "p-1".parse().unwrap(), name: "docs".to_owned(), slug: None, description: None };
    let layers = Layers { project: Some(project), ..Layers::default() };
    Request {
        purpose: Purpose::Turn(0),
        system: layers.compose(&Preamble::empty()),
        messages,
        tools: tools.iter().map(|name| std::sync::Arc::new(function(name))).collect(),
        may_call: true,
        output_schema: None,
        temperature: 0.0,
        is_default_temperature: false,
        max_tokens: None,
        hint: Hint::Usual,
        lease: None,
    }
}

async fn answer(asked: &str, tools: &[&str]) -> Reply {
    Offline::new(Duration::ZERO).answer(&request(&[Message::user(asked)], tools), &NullListener).await
}

/// G2: the same question gets the same bytes.
#[tokio::test]
async fn same_question_gets_the_same_reply() {
    let (once, twice) = (answer("what  now?", &[]).await, answer("what now?", &[]).await);
    assert_eq!(once, twice);
    assert!(once.content.contains("“what now?”"), "{}", once.content);
}

#[tokio::test]
async fn command_becomes_a_call_and_its_result_is_reported() {
    let tools = ["db__task__create", "db__task__list", "ask_user", "request_verification"];
    let reply = answer("Create a task: write the release notes", &tools).await;
    let [call] = &reply.calls[..] else { panic!("one call: {reply:?}") };
    let arguments: serde_json::Value = serde_json::from_str(&call.arguments).unwrap();
    assert_eq!(call.name, "db__task__create");
    assert_eq!(
        (arguments["name"].as_str(), arguments["project_id"].as_str()),
        (Some("write-the-release-notes"), Some("p-1"))
    );
    assert_eq!(answer("create a task", &tools).await.calls[0].name, "ask_user");
    assert_eq!(answer("Which tasks are open?", &tools).await.calls[0].name, "db__task__list");
    assert!(answer("verify `t-9`", &tools).await.calls[0].arguments.contains("\"t-9\""));
    // Tools that are not offered are not called, and a longer word that begins like a command is none.
    assert!(answer("list nodes", &tools).await.calls.is_empty());
    assert!(answer("verifying is hard", &tools).await.calls.is_empty());

    let planned = answer("Plan the tasks: write the texts, publish the site", &tools).await.calls;
    assert!(planned.len() == 2 && planned[1].arguments.contains("publish-the-site"), "{planned:?}");
    assert_eq!(answer("plan", &tools).await.calls[0].name, "ask_user");

    let calls = answer("list tasks", &tools).await.calls;
    let mut messages = [
        Message::user("list tasks"),
        Message::Assistant { content: String::new(), calls },
        Message::Tool {
            call_id: "call_0".into(),
            name: "db__task__list".into(),
            content: "two tasks".into(),
        },
    ];
    let report = Offline::new(Duration::ZERO).answer(&request(&messages, &tools), &NullListener).await;
    assert!(
        report.content.contains("`db.task.list`:\ntwo tasks") && report.calls.is_empty(),
        "{}",
        report.content
    );
    let [Message::User { .. }, Message::Assistant { .. }, Message::Tool { content, .. }] = &mut messages
    else {
        panic!("as written above")
    };
    *content = r#"{"items":[{"name":"docs","status":"pending","title":"Write the docs"}]}"#.into();
    let report = Offline::new(Duration::ZERO).answer(&request(&messages, &tools), &NullListener).await;
    assert!(report.content.ends_with("- `docs`: pending, Write the docs"), "{}", report.content);
}

#[test]
fn a_long_question_is_cut() {
    let text = excerpt(&"word ".repeat(1_000), 240);
    assert!(text.len() < 250 && text.ends_with("word…"), "{text}");
    let text = excerpt(&"☂".repeat(1_000), 240);
    assert!(text.len() < 250 && text.ends_with("☂…"), "{text}");
}

#[tokio::test]
async fn a_tool_can_be_named() {
    let reply = answer("Use words.count_words: paint it blue", &["words__count_words", "help__list"]).await;
    assert_eq!(reply.calls[0].name, "words__count_words");
    assert!(answer("Use words.other: paint it", &["words__count_words"]).await.calls.is_empty());
    assert!(answer("Used words.count_words", &["words__count_words"]).await.calls.is_empty());
}
