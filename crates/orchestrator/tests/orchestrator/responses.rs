//! `/v1/responses`: the same turns as chat completions, in another shape.

mod direct;
mod streams;

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{ChatClient, ChatResponse, Script};

use crate::stage::Stage;

/// The fields that OpenAI's SDKs require of a response.
const FIELDS: [&str; 31] = [
    "background",
    "completed_at",
    "created_at",
    "cynode",
    "error",
    "id",
    "incomplete_details",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "object",
    "output",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "status",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "usage",
    "user",
];

fn slow(text: &str) -> Script {
    Script::After(Duration::from_millis(500), Box::new(Script::say(text)))
}

fn body(input: impl Into<Value>) -> Value {
    json!({ "model": "cynodeai.pm", "input": input.into() })
}

fn following(previous: &ChatResponse, input: &str) -> Value {
    json!({ "model": "cynodeai.pm", "input": input, "previous_response_id": previous.body["id"] })
}

async fn ask(client: &ChatClient, body: Value) -> ChatResponse {
    client.send("POST", "/responses", Some(body)).await
}

#[track_caller]
fn text(response: &ChatResponse) -> &str {
    let text = response.body.pointer("/output/0/content/0/text").and_then(Value::as_str);
    text.unwrap_or_else(|| panic!("no answer: {response:?}"))
}

#[tokio::test]
async fn a_response_has_every_field_and_is_kept() {
    let stage = Stage::start([Script::say("Nothing is left.")]).await;
    let client = stage.client();
    let mut request = body("What is left?");
    request["instructions"] = json!("Be brief.");
    request["metadata"] = json!({ "note": "mine" });
    let answer = ask(&client, request).await;
    assert_eq!((answer.status, text(&answer)), (200, "Nothing is left."));
    let fields: Vec<&str> = answer.body.as_object().unwrap().keys().map(String::as_str).collect();
    let mut sorted = fields.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, FIELDS);
    let id = answer.body["id"].as_str().unwrap();
    assert_eq!(id, format!("resp_{}", answer.header("x-cynode-handoff").unwrap()));
    assert_eq!((&answer.body["status"], &answer.body["store"]), (&json!("completed"), &json!(true)));
    assert_eq!(answer.body["metadata"], json!({ "note": "mine" }));
    assert!(answer.body["completed_at"].is_i64(), "{answer:?}");
    let message = &answer.body["output"][0];
    assert_eq!((&message["type"], &message["role"]), (&json!("message"), &json!("assistant")));
    assert_eq!((&message["status"], &message["phase"]), (&json!("completed"), &json!("final_answer")));
    assert_eq!(message["content"][0]["annotations"], json!([]));
    assert!(answer.body["usage"]["total_tokens"].as_u64().unwrap() > 0);
    assert!(answer.body["usage"]["input_tokens_details"]["cached_tokens"].is_u64());
    assert!(stage.model.turns()[0].body.to_string().contains("Be brief."));

    let stored = client.send("GET", &format!("/responses/{id}"), None).await;
    assert_eq!((stored.status, &stored.body["output"]), (200, &answer.body["output"]));
    assert!(stored.body["completed_at"].is_i64(), "{stored:?}");
    let items = client.send("GET", &format!("/responses/{id}/input_items?order=asc"), None).await;
    let said: Vec<&Value> =
        items.body["data"].as_array().unwrap().iter().map(|item| &item["content"][0]["text"]).collect();
    assert_eq!(said, ["Be brief.", "What is left?"]);
    let first = items.body["first_id"].as_str().unwrap();
    let rest =
        client.send("GET", &format!("/responses/{id}/input_items?order=asc&after={first}"), None).await;
    assert_eq!(rest.body["data"].as_array().unwrap().len(), 1);
    // It is a turn like any other.
    let same = client.send("GET", &id.replace("resp_", "/chat/completions/chatcmpl-"), None).await;
    assert_eq!(same.content(), "Nothing is left.");
}

/// `previous_response_id` goes on with the thread, and branches off where the thread has gone on.
#[tokio::test]
async fn a_response_follows_another() {
    let stage = Stage::start(["One.", "Two.", "Three.", "Four."].map(Script::say)).await;
    let client = stage.client();
    let first = ask(&client, body("first")).await;
    let second = ask(&client, following(&first, "second")).await;
    assert_eq!(second.body["previous_response_id"], first.body["id"]);
    assert_eq!(second.header("x-cynode-thread"), first.header("x-cynode-thread"));
    let asked = stage.model.turns()[1].body["messages"].to_string();
    assert!(asked.contains("first") && asked.contains("One."), "{asked}");

    let branch = ask(&client, following(&first, "another second")).await;
    assert_ne!(branch.header("x-cynode-thread"), first.header("x-cynode-thread"));
    let asked = stage.model.turns()[2].body["messages"].to_string();
    assert!(asked.contains("first") && asked.contains("One."), "{asked}");
    assert!(!asked.contains("Two."), "{asked}");
    // And the branch goes on.
    let on = ask(&client, following(&branch, "fourth")).await;
    assert_eq!(on.header("x-cynode-thread"), branch.header("x-cynode-thread"));
    let asked = stage.model.turns()[3].body["messages"].to_string();
    assert!(asked.contains("One.") && asked.contains("Three."), "{asked}");

    let unknown = json!({ "model": "cynodeai.pm", "input": "x",
                          "previous_response_id": "resp_0193f2c0-5a00-7000-8000-00000000c0de" });
    let refused = ask(&client, unknown).await;
    assert_eq!((refused.status, refused.code()), (400, "previous_response_not_found"));
}

/// Another conversation that began with the same words is not gone on with.
#[tokio::test]
async fn a_response_that_branches_off_begins_a_thread_of_its_own() {
    let stage = Stage::start(["One.", "Two.", "Other.", "Three."].map(Script::say)).await;
    let client = stage.client();
    let first = ask(&client, body("first")).await;
    ask(&client, following(&first, "second")).await;
    let other = ask(&client, body("first")).await;
    let branch = ask(&client, following(&first, "another second")).await;
    let thread = |response: &ChatResponse| response.header("x-cynode-thread").unwrap().to_owned();
    assert_ne!(thread(&other), thread(&first));
    assert_ne!(thread(&branch), thread(&first));
    assert_ne!(thread(&branch), thread(&other));
    let asked = stage.model.turns()[3].body["messages"].to_string();
    assert!(asked.contains("One.") && !asked.contains("Other."), "{asked}");
}

/// Two requests that follow the same response at once: one goes on with its thread, the other branches off.
#[tokio::test]
async fn of_two_responses_that_follow_another_at_once_one_branches_off() {
    let stage = Stage::start([Script::say("One."), slow("Two."), slow("Three.")]).await;
    let client = stage.client();
    let first = ask(&client, body("first")).await;
    let asking =
        (ask(&client, following(&first, "to the left")), ask(&client, following(&first, "to the right")));
    let (left, right) = tokio::join!(asking.0, asking.1);
    assert_eq!((left.status, right.status), (200, 200), "{left:?} {right:?}");
    let thread = first.header("x-cynode-thread");
    let is_in_thread = |response: &ChatResponse| response.header("x-cynode-thread") == thread;
    assert_ne!(is_in_thread(&left), is_in_thread(&right), "{left:?} {right:?}");
    for turn in &stage.model.turns()[1..] {
        let asked = turn.body["messages"].to_string();
        assert!(asked.contains("first") && asked.contains("One."), "{asked}");
        assert_ne!(asked.contains("to the left"), asked.contains("to the right"), "{asked}");
    }
}

/// Instructions are those of the last request that had any, up to the response that is followed.
#[tokio::test]
async fn instructions_hold_until_others_are_sent() {
    let stage = Stage::start(["One.", "Two.", "Three.", "Four."].map(Script::say)).await;
    let client = stage.client();
    let with = |mut body: Value, instructions: &str| {
        body["instructions"] = json!(instructions);
        body
    };
    let first = ask(&client, with(body("first"), "Speak like a pirate.")).await;
    let second = ask(&client, with(following(&first, "second"), "Speak like a monk.")).await;
    let third = ask(&client, following(&second, "third")).await;
    assert_eq!(text(&third), "Three.");
    let is_told = |turn: usize| {
        let asked = stage.model.turns()[turn].body["messages"].to_string();
        (asked.contains("pirate"), asked.contains("monk"))
    };
    assert_eq!([0, 1, 2].map(is_told), [(true, false), (false, true), (false, true)]);
    let thread = third.header("x-cynode-thread").unwrap();
    let messages = client.send("GET", &format!("/threads/{thread}/messages"), None).await;
    let said: Vec<&str> =
        messages.body["data"].as_array().unwrap().iter().map(|it| it["content"].as_str().unwrap()).collect();
    let (pirate, monk) = ("Speak like a pirate.", "Speak like a monk.");
    assert_eq!(said, [pirate, "first", "One.", monk, "second", "Two.", "third", "Three."]);
    // A thread that branches off before the others has the earlier ones.
    let branch = ask(&client, following(&first, "another second")).await;
    assert_ne!(branch.header("x-cynode-thread"), third.header("x-cynode-thread"));
    assert_eq!(is_told(3), (true, false));
}

/// The AI SDK refers to answers by id; Codex sends all that was said.
#[tokio::test]
async fn clients_that_repeat_the_conversation_stay_in_their_thread() {
    let stage = Stage::start(["One.", "Two.", "Three."].map(Script::say)).await;
    let client = stage.client();
    let user = |text: &str| json!({ "role": "user", "content": [{ "type": "input_text", "text": text }] });
    let first = ask(&client, body(json!([user("first")]))).await;
    let reference = json!({ "type": "item_reference", "id": first.body["output"][0]["id"] });
    let second = ask(&client, body(json!([user("first"), reference, user("second")]))).await;
    assert_eq!(text(&second), "Two.");
    assert_eq!(second.header("x-cynode-thread"), first.header("x-cynode-thread"));
    let asked = stage.model.turns()[1].body["messages"].to_string();
    assert!(asked.contains("One."), "{asked}");
    let said = |text: &str| {
        json!({ "type": "message", "role": "assistant", "id": "msg_x", "status": "completed",
                "content": [{ "type": "output_text", "text": text, "annotations": [] }] })
    };
    let all = json!([user("first"), said("One."), user("second"), said("Two."), user("third")]);
    let third = ask(&client, body(all)).await;
    assert_eq!(third.header("x-cynode-thread"), first.header("x-cynode-thread"));

    let reference = json!({ "type": "item_reference", "id": "msg_0193f2c0-5a00-7000-8000-00000000c0de" });
    let refused = ask(&client, body(json!([user("first"), reference, user("second")]))).await;
    assert_eq!((refused.status, refused.code()), (400, "item_not_found"));
    assert_eq!(refused.body["error"]["param"], "input[1].id");
}

/// A short request cannot make the orchestrator put together more than a long one could bring.
#[tokio::test]
async fn answers_that_are_referred_to_are_bounded_as_if_they_were_repeated() {
    let long = "The sky is blue.\n".repeat(3_000);
    let stage = Stage::start([Script::Whole(long), Script::say("Two.")]).await;
    let client = stage.client();
    let user = |text: &str| json!({ "role": "user", "content": text });
    let first = ask(&client, body("first")).await;
    let reference = json!({ "type": "item_reference", "id": first.body["output"][0]["id"] });
    let input = |count: usize| {
        let mut items: Vec<Value> =
            (0..count).flat_map(|number| [user(&format!("{number}")), reference.clone()]).collect();
        items.push(user("last"));
        body(json!(items))
    };
    let refused = ask(&client, input(20)).await;
    assert_eq!((refused.status, refused.code()), (400, "context_length_exceeded"));
    let error = &refused.body["error"];
    assert_eq!((&error["param"], &error["type"]), (&json!("input"), &json!("invalid_request_error")));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("Answers that it refers to are counted"), "{message}");
    assert_eq!(stage.model.turns().len(), 1);
    assert_eq!(text(&ask(&client, input(2)).await), "Two.");
}

#[tokio::test]
async fn a_background_response_is_fetched_when_it_is_done() {
    let stage = Stage::start([slow("Here it is."), Script::Hang]).await;
    let client = stage.client();
    let mut request = body("hello");
    request["background"] = json!(true);
    let queued = ask(&client, request.clone()).await;
    assert_eq!((queued.status, &queued.body["status"]), (200, &json!("queued")));
    assert_eq!((&queued.body["background"], &queued.body["usage"]), (&json!(true), &json!(null)));
    let path = format!("/responses/{}", queued.body["id"].as_str().unwrap());
    let done = testkit::eventually("the response is completed", || async {
        let found = client.send("GET", &path, None).await;
        assert!(["in_progress", "completed"].contains(&found.body["status"].as_str().unwrap()), "{found:?}");
        (found.body["status"] == "completed").then_some(found)
    })
    .await;
    assert_eq!(text(&done), "Here it is.");
    assert_eq!(done.body["background"], true);
    let (created, completed) = (done.body["created_at"].as_i64(), done.body["completed_at"].as_i64());
    assert!(completed.is_some() && completed >= created, "{done:?}");

    let queued = ask(&client, request).await;
    let path = format!("/responses/{}", queued.body["id"].as_str().unwrap());
    stage.worker.wait_for_in_flight(subjects::Kind::Chat, 1).await;
    let cancelled = client.send("POST", &format!("{path}/cancel"), None).await;
    assert_eq!((cancelled.status, &cancelled.body["status"]), (200, &json!("cancelled")));
    assert_eq!(cancelled.body["error"]["code"], "cancelled");
    assert_eq!(
        (&cancelled.body["background"], &cancelled.body["completed_at"]),
        (&json!(true), &json!(null))
    );
    assert_eq!(client.send("GET", &path, None).await.body["status"], "cancelled");
    // A response is deleted with its thread.
    let refused = client.send("DELETE", &path, None).await;
    assert_eq!((refused.status, refused.code()), (405, "method_not_allowed"));
}

/// A failure is an error of the request, and the state of the response.
#[tokio::test]
async fn a_failed_turn_is_an_error() {
    let stage = Stage::start([Script::Refuse(400, "no such model".to_owned())]).await;
    let client = stage.client();
    let failed = ask(&client, body("hello")).await;
    assert_eq!((failed.status, failed.code()), (502, "inference_failed"));
    assert_eq!(failed.header("x-should-retry"), Some("false"));
    let path = format!("/responses/resp_{}", failed.header("x-cynode-handoff").unwrap());
    let stored = client.send("GET", &path, None).await;
    assert_eq!((stored.status, &stored.body["status"]), (200, &json!("failed")));
    assert_eq!(stored.body["error"]["code"], "inference_failed");
    assert!(stored.body["error"]["type"].is_string());
}

#[tokio::test]
async fn repeated_requests_are_one_response() {
    let stage = Stage::start([slow("The one answer."), Script::say("Another.")]).await;
    let named = stage.client().with("idempotency-key", "message-1");
    let (one, two) = tokio::join!(ask(&named, body("hello")), ask(&named, body("hello")));
    assert_eq!((text(&one), text(&two)), ("The one answer.", "The one answer."));
    assert_eq!(one.body["id"], two.body["id"]);
    let reused = ask(&named, body("another")).await;
    assert_eq!((reused.status, reused.code()), (422, "idempotency_key_reused"));
    // A retry of one that follows another, whose thread has gone on by the first try itself.
    let first = stage.client().with("x-stainless-retry-count", "0");
    let retry = stage.client().with("x-stainless-retry-count", "1");
    let answer = ask(&first, following(&one, "more")).await;
    let again = ask(&retry, following(&one, "more")).await;
    assert_eq!((text(&answer), &answer.body["id"]), ("Another.", &again.body["id"]));
    assert_eq!((stage.model.turns().len(), stage.handoffs().await), (2, 2));
}

/// What front ends ask for themselves is no work here either.
#[tokio::test]
async fn background_prompts_are_answered_by_rule() {
    let stage = Stage::start([Script::say("never")]).await;
    let client = stage.client().with("x-cynode-task", "title_generation");
    let answer = ask(&client, body("Paint the fence.")).await;
    assert_eq!(text(&answer), r#"{"title":"Paint the fence"}"#);
    assert_eq!((&answer.body["status"], answer.body.get("cynode")), (&json!("completed"), None));
    assert_eq!(stage.handoffs().await, 0);
}
