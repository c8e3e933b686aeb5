//! Requests that are repeated join their turn; a thread has one turn at a time.

use std::time::Duration;

use serde_json::json;
use testkit::{Script, chat_body};

use crate::stage::Stage;

fn slow(text: &str) -> Script {
    Script::After(Duration::from_millis(400), Box::new(Script::say(text)))
}

#[tokio::test]
async fn requests_with_the_same_idempotency_key_are_one() {
    let stage = Stage::start([slow("The one answer.")]).await;
    let client = stage.client().with("idempotency-key", "message-1");
    let stream = client.stream(&[("user", "hello")]).await;
    // The bodies differ: streams and plain requests are different requests.
    let reused = client.ask("hello").await;
    assert_eq!((reused.status, reused.code()), (422, "idempotency_key_reused"));
    let second = client.stream(&[("user", "hello")]).await;
    assert_eq!(stream.header("x-cynode-handoff"), second.header("x-cynode-handoff"));
    let (first, second) = tokio::join!(stream.read(), second.read());
    assert_eq!((first.content.as_str(), second.content.as_str()), ("The one answer.", "The one answer."));
    // Also when the answer is there.
    let third = client.stream(&[("user", "hello")]).await.read().await;
    assert_eq!((third.content.as_str(), third.is_done), ("The one answer.", true));
    assert_eq!(stage.model.turns().len(), 1);
    assert_eq!(stage.handoffs().await, 1);
}

/// A key names a request to one thread and for one project: another one never gets its answer.
#[tokio::test]
async fn an_idempotency_key_is_not_reused_for_another_thread_or_project() {
    let stage = Stage::start([Script::say("For the fence."), Script::say("For the shed.")]).await;
    let key = |name| stage.client().with("idempotency-key", name);
    let fence = || key("message-1").with("x-cynode-thread", "fence").with("x-cynode-project", "garden");
    assert_eq!(fence().ask("hello").await.content(), "For the fence.");
    for other in [
        key("message-1"),
        key("message-1").with("x-cynode-thread", "shed").with("x-cynode-project", "garden"),
        key("message-1").with("x-cynode-thread", "fence"),
        key("message-1").with("x-cynode-thread", "fence").with("x-cynode-project", "house"),
    ] {
        let reused = other.ask("hello").await;
        assert_eq!((reused.status, reused.code()), (422, "idempotency_key_reused"), "{reused:?}");
    }
    assert_eq!(fence().ask("hello").await.content(), "For the fence.");
    // A retry that is counted joins the request with the same headers, and no other.
    let shed = || stage.client().with("x-cynode-thread", "shed").with("x-cynode-project", "garden");
    let first = shed().ask("hello").await;
    let retry = shed().with("x-stainless-retry-count", "1").ask("hello").await;
    assert_eq!((first.content(), &first.body["id"]), ("For the shed.", &retry.body["id"]));
    assert_eq!(stage.handoffs().await, 2);
}

/// OpenAI's SDKs send no idempotency key, but count their retries.
#[tokio::test]
async fn a_retry_joins_the_request_with_the_same_body() {
    let stage = Stage::start([slow("The one answer.")]).await;
    let first = stage.client().with("x-stainless-retry-count", "0");
    let retry = stage.client().with("x-stainless-retry-count", "1");
    let (one, two) = tokio::join!(first.ask("hello"), async {
        stage.worker.wait_for_in_flight(subjects::Kind::Chat, 1).await;
        retry.ask("hello").await
    });
    assert_eq!(one.body, two.body);
    assert_eq!(stage.model.turns().len(), 1);
    // A new request with the same words is a new turn.
    let again = first.ask("hello").await;
    assert_ne!(again.body["id"], one.body["id"]);
    assert_eq!(stage.model.turns().len(), 2);
}

#[tokio::test]
async fn a_busy_thread_refuses_the_next_message_until_it_is_answered() {
    let stage = Stage::start([slow("First."), Script::say("Second.")]).await;
    let client = stage.client().with("x-cynode-thread", "my-thread");
    let stream = client.stream(&[("user", "one")]).await;
    let busy = client.ask("two").await;
    assert_eq!((busy.status, busy.code()), (409, "thread_busy"));
    assert_eq!(busy.header("x-should-retry"), Some("false"));
    assert_eq!(stream.read().await.content, "First.");
    // Not a moment later, but at once: the answer is stored before the stream ends.
    let second = client.ask("two").await;
    assert_eq!(second.content(), "Second.");
    assert_eq!(stage.handoffs().await, 2);
}

#[tokio::test]
async fn a_message_after_a_question_answers_it() {
    let stage = Stage::start([
        Script::call("ask_user", &json!({ "question": "Which site is meant?" })),
        Script::say("The documentation it is."),
    ])
    .await;
    let client = stage.client().with("x-cynode-thread", "sites");
    let question = client.ask("Publish the site.").await;
    assert_eq!(question.content(), "Which site is meant?");
    assert_eq!(question.body["cynode"]["state"], "question");
    let thread = client.send("GET", "/threads/sites", None).await;
    assert_eq!(thread.body["question"], question.body["id"]);
    let answer = client.ask("The documentation.").await;
    assert_eq!(answer.content(), "The documentation it is.");
    let asked = stage.model.turns();
    let said = serde_json::to_string(asked.last().unwrap().messages()).unwrap();
    assert!(said.contains("Publish the site.") && said.contains("The documentation."), "{said}");
    assert_eq!(client.send("GET", "/threads/sites", None).await.body["question"], json!(null));
}

/// All that the user says after the question is the answer, and the request's options hold for it.
#[tokio::test]
async fn an_answer_to_a_question_keeps_its_instructions_and_options() {
    let stage = Stage::start([
        Script::call("ask_user", &json!({ "question": "Which site is meant?" })),
        Script::say("The documentation it is."),
    ])
    .await;
    let client = stage.client().with("x-cynode-thread", "sites");
    client.ask("Publish the site.").await;
    let mut body = chat_body(&[
        ("system", "Be brief."),
        ("user", "Publish the site."),
        ("assistant", "Which site is meant?"),
        ("user", "The documentation."),
        ("user", "Not before noon."),
    ]);
    (body["temperature"], body["max_tokens"]) = (json!(1.5), json!(77));
    let answer = client.send("POST", "/chat/completions", Some(body)).await;
    assert_eq!(answer.content(), "The documentation it is.");
    let asked = stage.model.turns().pop().unwrap();
    let said = asked.messages().last().unwrap()["content"].as_str().unwrap();
    assert!(said.contains("Be brief.") && said.contains("The documentation.\nNot before noon."), "{said}");
    let limit = asked.body.get("max_tokens").or(asked.body.get("max_completion_tokens"));
    assert_eq!((&asked.body["temperature"], limit), (&json!(1.5), Some(&json!(77))));
}

/// Clients that send the whole conversation each time need not name a thread.
#[tokio::test]
async fn a_conversation_is_one_thread_without_a_name() {
    let stage = Stage::start([Script::say("Hello."), Script::say("Fine.")]).await;
    let client = stage.client();
    let first = client.ask("hi").await;
    let body = chat_body(&[("user", "hi"), ("assistant", "Hello."), ("user", "how are you?")]);
    let second = client.send("POST", "/chat/completions", Some(body)).await;
    assert_eq!(second.content(), "Fine.");
    assert_eq!(first.header("x-cynode-thread"), second.header("x-cynode-thread"));
    assert_eq!(client.send("GET", "/threads", None).await.body["data"].as_array().unwrap().len(), 1);
}
