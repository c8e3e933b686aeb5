//! Streams: content while it is written, or only once it is the answer.

use std::time::Duration;

use serde_json::json;
use testkit::{ChatEvent, Model, Script, chat_body};

use crate::stage::{Stage, say_and_call};

#[tokio::test]
async fn a_stream_begins_at_once_and_ends_with_usage_and_done() {
    let stage = Stage::start([Script::say("There is nothing left to do, as far as I can see.")]).await;
    let client = stage.client();
    let mut body = chat_body(&[("user", "What is left?")]);
    body["stream"] = json!(true);
    body["stream_options"] = json!({ "include_usage": true });
    let mut stream = client.open("/chat/completions", &body).await.unwrap();
    assert_eq!(stream.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert!(stream.header("x-request-id").is_some());
    let handoff = stream.header("x-cynode-handoff").unwrap().to_owned();
    let ChatEvent::Data(first) = stream.next().await else { panic!("a chunk comes first") };
    assert_eq!(first["choices"][0]["delta"]["role"], "assistant");
    assert_eq!((&first["object"], &first["usage"]), (&json!("chat.completion.chunk"), &json!(null)));
    let streamed = stream.read().await;
    assert_eq!(streamed.content, "There is nothing left to do, as far as I can see.");
    assert_eq!(streamed.finish_reason.as_deref(), Some("stop"));
    assert!(streamed.is_done && streamed.usage.unwrap()["total_tokens"].as_u64().unwrap() > 0);
    assert_eq!(streamed.id.unwrap(), format!("chatcmpl-{handoff}"));
}

/// Texts of turns that end in tool calls, of tries that break off and of workers that die are not the answer.
#[tokio::test]
async fn streamed_content_is_the_stored_answer_over_tools_and_retries() {
    let answer = "There are no tasks.\nYou are done.";
    let model = Model::start([
        say_and_call("Let me look at the tasks. ", "db__task__list", &json!({})),
        Script::Cut("There are no".to_owned()),
        say_and_call("One more look. ", "db__task__list", &json!({})),
        Script::Cut("There ".to_owned()),
        Script::say(answer),
    ])
    .await;
    let stage = Stage::start_with(model, |builder| builder.set("chat.drafts", "reasoning")).await;
    let client = stage.client();
    let stream = client.stream(&[("user", "What is left?")]).await;
    let handoff = stream.header("x-cynode-handoff").unwrap().to_owned();
    let streamed = stream.read().await;
    assert_eq!(streamed.content, answer);
    assert!(streamed.is_done);
    for shown in ["Let me look at the tasks.", "→ db.task.list", "(starting over)"] {
        assert!(streamed.reasoning.contains(shown), "{shown} is not in {}", streamed.reasoning);
    }
    let stored = client.send("GET", &format!("/chat/completions/chatcmpl-{handoff}"), None).await;
    assert_eq!(stored.content(), answer);
    let thread =
        client.send("GET", "/threads", None).await.body["data"][0]["id"].as_str().unwrap().to_owned();
    let messages = client.send("GET", &format!("/threads/{thread}/messages"), None).await;
    assert_eq!(messages.body["data"][1]["content"], answer);
}

#[tokio::test]
async fn content_is_unchanged_if_the_worker_dies_while_it_writes() {
    let model = Model::start([
        Script::HangAfter("There are many things that ".to_owned()),
        Script::say("Nothing is left to do."),
    ])
    .await;
    let mut stage = Stage::start_with(model, |builder| builder.set("chat.drafts", "reasoning")).await;
    let mut stream = stage.client().stream(&[("user", "What is left?")]).await;
    let shows_text = |event: &ChatEvent| match event {
        ChatEvent::Data(data) => {
            let shown = data["choices"][0]["delta"]["reasoning_content"].as_str();
            shown.is_some_and(|text| text.contains("many"))
        }
        _ => false,
    };
    stream.read_until(shows_text).await;
    stage.worker.process.kill();
    let _second = testkit::Worker::manager(&stage.nats)
        .asking(&stage.model)
        .calling_process(&stage.gateway)
        .await
        .set("worker.ack_wait", "5s")
        .start()
        .await;
    let streamed = stream.read().await;
    assert_eq!((streamed.content.as_str(), streamed.is_done), ("Nothing is left to do.", true));
}

/// Text is content while the model writes it. What turns out not to be the answer is followed by the answer.
#[tokio::test]
async fn text_is_sent_as_content_while_it_is_written() {
    let model = Model::start([
        Script::HangAfter("Nothing is left".to_owned()),
        Script::say("Nothing is left to do."),
    ])
    .await;
    let mut stage = Stage::start_with(model, |builder| builder).await;
    let mut stream = stage.client().stream(&[("user", "What is left?")]).await;
    let mut early = String::new();
    while early != "Nothing is left" {
        if let ChatEvent::Data(data) = stream.next().await {
            early.push_str(data["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
        }
    }
    stage.worker.process.kill();
    let _second = testkit::Worker::manager(&stage.nats)
        .asking(&stage.model)
        .calling_process(&stage.gateway)
        .await
        .set("worker.ack_wait", "5s")
        .start()
        .await;
    let streamed = stream.read().await;
    assert!(streamed.is_done, "{streamed:?}");
    // The second attempt says the same, so nothing is repeated.
    assert_eq!(format!("{early}{}", streamed.content), "Nothing is left to do.");
}

/// The answer to a question of the manager is streamed like any other message.
#[tokio::test]
async fn text_after_a_question_is_sent_while_it_is_written() {
    let stage = Stage::start([
        Script::call("ask_user", &json!({ "question": "Which site is meant?" })),
        Script::HangAfter("The documentation".to_owned()),
    ])
    .await;
    let client = stage.client().with("x-cynode-thread", "sites");
    assert_eq!(client.ask("Publish the site.").await.content(), "Which site is meant?");
    let mut stream = client.stream(&[("user", "That of the docs.")]).await;
    let mut early = String::new();
    while early != "The documentation" {
        match stream.next().await {
            ChatEvent::Data(data) => {
                early.push_str(data["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
            }
            ChatEvent::Comment(_) => {}
            end => panic!("{early:?}, then {end:?}"),
        }
    }
}

#[tokio::test]
async fn a_silent_stream_is_kept_alive_by_comments() {
    let slow = Script::After(Duration::from_millis(800), Box::new(Script::say("Good morning.")));
    let stage =
        Stage::start_with(Model::start([slow]).await, |builder| builder.set("chat.keep_alive", "100ms"))
            .await;
    let streamed = stage.client().stream(&[("user", "hello")]).await.read().await;
    assert!(streamed.comments >= 3, "{streamed:?}");
    assert_eq!(streamed.content, "Good morning.");
}

#[tokio::test]
async fn text_is_not_shown_early_if_it_is_not_wanted() {
    let model = Model::start([
        say_and_call("Let me look at the tasks. ", "db__task__list", &json!({})),
        Script::say("There are none."),
    ])
    .await;
    let stage = Stage::start_with(model, |builder| builder.set("chat.drafts", "off")).await;
    let streamed = stage.client().stream(&[("user", "What is left?")]).await.read().await;
    assert_eq!(streamed.content, "There are none.");
    let lines: Vec<&str> = streamed.reasoning.lines().collect();
    assert!(
        lines.iter().all(|line| line.starts_with("→ ")) && lines.contains(&"→ db.task.list"),
        "{lines:?}"
    );
}

#[tokio::test]
async fn the_work_goes_on_when_the_client_leaves() {
    let slow = Script::After(Duration::from_millis(500), Box::new(Script::say("Here it is.")));
    let stage = Stage::start([slow]).await;
    let client = stage.client();
    let mut stream = client.stream(&[("user", "hello")]).await;
    stream.next().await;
    let path = format!("/chat/completions/chatcmpl-{}", stream.header("x-cynode-handoff").unwrap());
    drop(stream);
    let answer = testkit::eventually("the answer is stored", || async {
        let found = client.send("GET", &path, None).await;
        (found.status == 200).then_some(found)
    })
    .await;
    assert_eq!(answer.content(), "Here it is.");
}

/// A stream that just ends would look like a success to OpenAI's SDKs.
#[tokio::test]
async fn an_orchestrator_that_stops_tells_its_streams() {
    let model = Model::start([Script::Hang]).await;
    let mut stage = Stage::start_with(model, |builder| builder.set("grace", "300ms")).await;
    let mut stream = stage.client().stream(&[("user", "hello")]).await;
    stream.next().await;
    stage.orchestrator.process.terminate();
    let streamed = stream.read().await;
    assert_eq!(streamed.error.unwrap()["code"], "stopping");
    assert!(stage.orchestrator.process.wait(Duration::from_secs(10)).success());
}
