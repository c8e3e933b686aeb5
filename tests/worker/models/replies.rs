//! Replies that say nothing, and servers that refuse what was not meant.

use serde_json::json;
use subjects::{ErrorCode, Status};
use testkit::{Model, ModelRequest, Script};

use super::{Stage, content, details};

/// A server that works and a model that says nothing: it is asked again, and the server does not count as
/// away.
#[tokio::test]
async fn empty_reply_is_asked_for_again() {
    let stage = Stage::native([Script::say(" \n"), Script::say("Hello.")]).await;
    let answer = stage.ask("Hello").await;
    assert_eq!((answer.status, content(&answer)), (Status::Completed, "Hello."));
    assert!(details(&answer).contains("was empty"), "{:?}", answer.trace.steps);
    assert_eq!(answer.usage.prompt_tokens, 200, "both replies are paid for");

    let mute = Stage::native([Script::say("<think>Well.</think>")]).await;
    let answer = mute.ask("Hello").await;
    assert_eq!((answer.status, mute.model.asked().len()), (Status::Failed, 2), "{answer:?}");
    assert_ne!(answer.error.as_ref().unwrap().code, ErrorCode::InferenceUnavailable, "{answer:?}");
}

/// A model that thinks until its limit is told so.
#[tokio::test]
async fn reply_without_an_answer_before_the_limit_is_asked_for_again() {
    let turns = [Script::TooLong("<think>Let me see, and see".to_owned()), Script::say("Hello.")];
    let stage = Stage::native(turns).await;
    assert_eq!(content(&stage.ask("Hello").await), "Hello.");
    let second = stage.model.turns().pop().unwrap();
    let told = second.messages().last().unwrap()["content"].as_str().unwrap().to_owned();
    assert!(told.contains("cut off"), "{told}");
}

/// The half of an answer is one only if the model cannot do better.
#[tokio::test]
async fn broken_answer_is_asked_for_again() {
    let model = Model::start_answering(
        |_| Script::Hang,
        |asked: &ModelRequest| match asked.messages().iter().any(|it| it.to_string().contains("one step")) {
            false => Script::say("{\"answer\": \"It is \" and more}"),
            true => Script::Say(json!({ "answer": "It is done." }).to_string()),
        },
    )
    .await;
    let stage = Stage::around(model, |worker| worker.set("inference.tool_mode", "typed")).await;
    assert_eq!(content(&stage.ask("Hello").await), "It is done.");
}

/// A server that wants the newer name of `max_tokens` refuses only the tool that it refuses.
#[tokio::test]
async fn tools_are_tried_in_the_way_that_the_server_wants() {
    let refuse = |asked: &ModelRequest| {
        if asked.body.get("max_tokens").is_some() {
            let why = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.";
            return Script::Refuse(400, why.to_owned());
        }
        if asked.offered().contains(&"db__task__list") {
            return Script::Refuse(400, "Invalid schema for function 'db__task__list'".to_owned());
        }
        Script::say("Nothing is open.")
    };
    let stage = Stage::around(Model::start_answering(refuse, refuse).await, |worker| worker).await;
    let answer = stage.ask("List the tasks").await;
    assert_eq!((answer.status, content(&answer)), (Status::Completed, "Nothing is open."), "{answer:?}");
    assert!(details(&answer).contains("db__task__list"), "{:?}", answer.trace.steps);
}
