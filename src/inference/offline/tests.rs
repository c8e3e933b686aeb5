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
        time_limit: None,
        max_tokens: None,
        hint: Hint::Usual,
        lease: None,
        permit: None,
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
    // A tool of the gateway is called even if others match the request better; without a gateway none is.
    assert_eq!(answer("show task t-9", &tools).await.calls[0].name, "db__task__get");
    assert_eq!(answer("show task t-9", &tools).await.calls[0].arguments, r#"{"task_id":"t-9"}"#);
    assert!(answer("list nodes", &["ask_user", "request_verification"]).await.calls.is_empty());
    // A longer word that begins like a command is none.
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

async fn continued(messages: &[Message], tools: &[&str]) -> ToolCall {
    let reply = Offline::new(Duration::ZERO).answer(&request(messages, tools), &NullListener).await;
    let [call] = &reply.calls[..] else { panic!("one call: {reply:?}") };
    call.clone()
}

fn question(call: &ToolCall) -> Message {
    assert_eq!(call.name, "ask_user", "{call:?}");
    let arguments: serde_json::Value = serde_json::from_str(&call.arguments).unwrap();
    Message::Assistant { content: arguments["question"].as_str().unwrap().to_owned(), calls: Vec::new() }
}

#[tokio::test]
async fn command_without_a_task_asks_for_one_and_is_carried_out_with_the_answer() {
    let tools = ["sandbox__run", "ask_user"];
    let parsed = |call: ToolCall| -> (String, serde_json::Value) {
        (call.name, serde_json::from_str(&call.arguments).unwrap())
    };
    let mut messages = vec![Message::user("run")];
    let asked = question(&continued(&messages, &tools).await);
    messages.extend([asked, Message::user("echo hi")]);
    let asked = question(&continued(&messages, &tools).await);
    assert!(asked.content().contains("“run in TASK: COMMAND”"), "{asked:?}");
    messages.push(asked);
    // The user may look for the task first.
    let listing = [&messages[..], &[Message::user("list tasks")]].concat();
    assert_eq!(continued(&listing, &tools).await.name, "db__task__list");
    messages.push(Message::user("`paint-it`"));
    let (name, arguments) = parsed(continued(&messages, &tools).await);
    assert_eq!((name.as_str(), &arguments["task_id"]), ("sandbox__run", &json!("paint-it")), "{arguments}");

    let parameters = json!({ "properties": { "task_id": {}, "script": {} } });
    let messages = [Message::user("run in paint-it: echo hi; echo 2: two")];
    let mut named = request(&messages, &[]);
    named.tools = [std::sync::Arc::new(Function::new("sandbox__run", "", &parameters))].into();
    let reply = Offline::new(Duration::ZERO).answer(&named, &NullListener).await;
    let (_, arguments) = parsed(reply.calls[0].clone());
    assert_eq!(arguments, json!({ "task_id": "paint-it", "script": "echo hi; echo 2: two" }));

    for (command, function, member) in [
        ("create a task", "db__task__create", "name"),
        ("plan", "db__task__create", "name"),
        ("show task", "db__task__get", "task_id"),
        ("verify", "request_verification", "task_id"),
    ] {
        let tools = [function, "ask_user"];
        let mut messages = vec![Message::user(command)];
        let asked = question(&continued(&messages, &tools).await);
        messages.extend([asked, Message::user("paint-it")]);
        let (name, arguments) = parsed(continued(&messages, &tools).await);
        assert_eq!((name.as_str(), &arguments[member]), (function, &json!("paint-it")), "{command}");
        // The answer may be the whole command.
        messages[2] = Message::user(format!("{command}: paint-it"));
        assert_eq!(parsed(continued(&messages, &tools).await), (name, arguments), "{command}");
    }
}

#[tokio::test]
async fn list_of_what_is_understood_is_complete_and_the_same_for_every_request() {
    let said = answer("hello", &["help__list", "ask_user"]).await.content;
    assert_eq!(said, answer("hello", &["db__task__list"]).await.content);
    assert!(said.len() < 480, "{said}");
    for command in [
        "create a task",
        "plan",
        "list tasks",
        "projects",
        "artifacts",
        "nodes",
        "models",
        "skills",
        "show task",
        "verify",
        "run in",
        "do: ",
        "start task",
        "answer",
        "run the tests",
        "use",
        "help",
    ] {
        assert!(said.contains(command), "{command}: {said}");
    }
}

#[tokio::test]
async fn goal_has_the_criteria_that_follow_it() {
    let created = async |text: &str| -> serde_json::Value {
        let reply = answer(text, &["db__task__create"]).await;
        serde_json::from_str(&reply.calls[0].arguments).unwrap()
    };
    let goal = created("Do: run `make site; echo a, so that b`, so that the site is up; it has pages.").await;
    assert_eq!(goal["description"], "run `make site; echo a, so that b`", "{goal}");
    assert_eq!(goal["acceptance_criteria"], json!(["the site is up", "it has pages"]), "{goal}");
    for text in ["Do: run `make site, so that it is up`", "create a task: tidy up, so that it is clean"] {
        assert!(created(text).await.get("acceptance_criteria").is_none(), "{text}");
    }
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

#[tokio::test]
async fn tests_of_a_repository_are_run_in_a_sandbox_and_the_job_is_reported() {
    let parameters =
        json!({ "properties": { "task_id": {}, "script": {}, "artifacts": {}, "wait_seconds": {} } });
    let messages = [Message::user("Run the tests in paint-it")];
    let mut asked = request(&messages, &[]);
    asked.tools = [std::sync::Arc::new(Function::new("sandbox__run", "", &parameters))].into();
    let reply = Offline::new(Duration::ZERO).answer(&asked, &NullListener).await;
    let arguments: serde_json::Value = serde_json::from_str(&reply.calls[0].arguments).unwrap();
    assert!(arguments["script"].as_str().unwrap().contains("unittest"), "{arguments}");
    assert_eq!(arguments["artifacts"], json!(["**"]));

    let job = json!({
        "job_id": "j-1", "status": "failed", "end": { "how": "exited", "code": 1 }, "log_tail": "1 failed\n",
    });
    let result = Message::Tool {
        call_id: "call_0".to_owned(),
        name: "sandbox__run".to_owned(),
        content: job.to_string(),
    };
    let messages = [Message::user("Run the tests"), result];
    let reply = Offline::new(Duration::ZERO).answer(&request(&messages, &[]), &NullListener).await;
    assert!(
        reply.content.contains("it exited with code 1.") && reply.content.contains("1 failed"),
        "{reply:?}"
    );
}

/// A goal to be done becomes a task, and then its workflow is started.
#[tokio::test]
async fn goal_becomes_a_task_whose_workflow_is_started() {
    let tools = ["db__task__create", "ask_user"];
    let asked = "Do: run `make test`";
    let reply = answer(asked, &tools).await;
    let [create] = &reply.calls[..] else { panic!("one call: {reply:?}") };
    let arguments: serde_json::Value = serde_json::from_str(&create.arguments).unwrap();
    assert_eq!(
        (create.name.as_str(), &arguments["description"]),
        ("db__task__create", &json!("run `make test`"))
    );
    let mut messages = vec![
        Message::user(asked),
        Message::Assistant { content: String::new(), calls: reply.calls.clone() },
        Message::Tool {
            call_id: "call_0".into(),
            name: "db__task__create".into(),
            content: json!({ "task_id": "t-1", "name": "run-make-test" }).to_string(),
        },
    ];
    let start = continued(&messages, &tools).await;
    assert_eq!((start.name.as_str(), start.arguments.as_str()), ("workflow__start", r#"{"task_id":"t-1"}"#));
    messages.extend([
        Message::Assistant { content: String::new(), calls: vec![start] },
        Message::Tool { call_id: "call_1".into(), name: "workflow__start".into(), content: "queued".into() },
    ]);
    let report = Offline::new(Duration::ZERO).answer(&request(&messages, &tools), &NullListener).await;
    assert!(report.calls.is_empty() && report.content.contains("queued"), "{report:?}");

    let call = answer("start task paint-it", &tools).await.calls.remove(0);
    assert_eq!(
        (call.name.as_str(), call.arguments.as_str()),
        ("workflow__start", r#"{"task_id":"paint-it"}"#)
    );
    let call = answer("Answer paint-it: in blue: all of it", &tools).await.calls.remove(0);
    let arguments: serde_json::Value = serde_json::from_str(&call.arguments).unwrap();
    assert_eq!(arguments, json!({ "task_id": "paint-it", "input": "in blue: all of it" }));
    let call = answer("answer paint-it #i-1: yes", &tools).await.calls.remove(0);
    let arguments: serde_json::Value = serde_json::from_str(&call.arguments).unwrap();
    assert_eq!(arguments, json!({ "task_id": "paint-it", "input": "yes", "question_id": "i-1" }));
    for other in ["answer me this", "answer me this: no", "do you know?", "start a new project"] {
        assert!(answer(other, &tools).await.calls.is_empty(), "{other}");
    }
}
