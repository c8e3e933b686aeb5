//! Streams of responses.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{ChatClient, ChatEvent, ChatStream, Model, OrchestratorProcess, Script};

use super::{body, slow};
use crate::stage::{Stage, say_and_call};

fn streamed(input: &str) -> Value {
    let mut body = body(input);
    body["stream"] = json!(true);
    body
}

async fn open(client: &ChatClient, body: &Value) -> ChatStream {
    client.open("/responses", body).await.expect("the server answers")
}

/// Reads all events, and checks that they are numbered.
async fn read(mut stream: ChatStream) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    loop {
        match stream.next().await {
            ChatEvent::Data(event) => {
                assert_eq!(event["sequence_number"], events.len(), "{event}");
                events.push(event);
            }
            ChatEvent::Comment(_) => {}
            ChatEvent::End => return events,
            other => panic!("{other:?} after {events:?}"),
        }
    }
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

/// Joins the deltas of all texts.
fn text(events: &[Value]) -> String {
    let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
    deltas.map(|event| event["delta"].as_str().unwrap()).collect()
}

/// Returns the text of the response in the last event.
#[track_caller]
fn answer(events: &[Value]) -> &str {
    let last = events.last().expect("an event");
    assert_eq!(last["type"], "response.completed", "{last}");
    last["response"]["output"][0]["content"][0]["text"].as_str().expect("a text")
}

#[tokio::test]
async fn a_stream_has_the_events_of_openais_and_ends_with_usage() {
    let stage = Stage::start([Script::say("There is nothing left to do.")]).await;
    let stream = open(&stage.client(), &streamed("What is left?")).await;
    assert_eq!(stream.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let id = format!("resp_{}", stream.header("x-cynode-handoff").unwrap());
    let events = read(stream).await;
    // The worker may have called tools to gather the context.
    let is_reasoning = |event: &&Value| {
        let (kind, item) = (event["type"].as_str().unwrap(), &event["item"]["type"]);
        kind.contains("reasoning") || item == "reasoning"
    };
    let about_text: Vec<Value> = events.iter().filter(|event| !is_reasoning(event)).cloned().collect();
    let mut kinds = kinds(&about_text);
    kinds.dedup();
    assert_eq!(
        kinds,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    assert_eq!((text(&events).as_str(), answer(&events)), ("There is nothing left to do.", &*text(&events)));
    assert_eq!(events[0]["response"]["id"], id);
    assert!(events.last().unwrap()["response"]["usage"]["total_tokens"].as_u64().unwrap() > 0);
}

/// Text before a tool call is a message of its own, the call is reasoning, and the response has the answer.
#[tokio::test]
async fn tool_calls_are_reasoning_and_the_response_is_the_answer_alone() {
    let stage = Stage::start([
        say_and_call("Let me look at the tasks.", "db__task__list", &json!({})),
        Script::say("There are none."),
    ])
    .await;
    let client = stage.client();
    let events = read(open(&client, &streamed("What is left?")).await).await;
    let items: Vec<&Value> = events
        .iter()
        .filter(|event| event["type"] == "response.output_item.done")
        .map(|event| &event["item"])
        .collect();
    let texts: Vec<&Value> = items
        .iter()
        .filter(|item| item["type"] == "message")
        .map(|item| &item["content"][0]["text"])
        .collect();
    assert_eq!(texts, ["Let me look at the tasks.", "There are none."]);
    let after_text = items.iter().skip_while(|item| item["type"] != "message");
    let called = after_text.map(|item| &item["summary"][0]["text"]).find_map(Value::as_str).unwrap();
    assert!(called.contains("→ db.task.list"), "{items:?}");
    assert_eq!(answer(&events), "There are none.");
    // A client that refers to all of it gets the answer, once.
    let references: Vec<Value> =
        items.iter().map(|item| json!({ "type": "item_reference", "id": item["id"] })).collect();
    let mut input = vec![json!({ "role": "user", "content": "What is left?" })];
    input.extend(references);
    input.push(json!({ "role": "user", "content": "Sure?" }));
    super::ask(&client, body(input)).await;
    let asked = stage.model.turns()[2].body["messages"].to_string();
    assert_eq!(asked.matches("There are none.").count(), 1, "{asked}");
    assert!(!asked.contains("Let me look"), "{asked}");
}

#[tokio::test]
async fn a_failed_stream_ends_with_why() {
    let stage = Stage::start([Script::Refuse(400, "no such model".to_owned())]).await;
    let events = read(open(&stage.client(), &streamed("hello")).await).await;
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.failed");
    assert_eq!(last["response"]["error"]["code"], "inference_failed");
}

/// An `error` event without the field `error` would look like a success to OpenAI's SDKs.
#[tokio::test]
async fn an_orchestrator_that_stops_tells_its_streams() {
    let model = Model::start([Script::Hang]).await;
    let mut stage =
        Stage::start_with(model, |builder| builder.set("grace", "300ms").set("chat.keep_alive", "50ms"))
            .await;
    let mut stream = open(&stage.client(), &streamed("hello")).await;
    while !matches!(stream.next().await, ChatEvent::Comment(_)) {}
    stage.orchestrator.process.terminate();
    let mut last = Value::Null;
    loop {
        match stream.next().await {
            ChatEvent::Data(event) => last = event,
            ChatEvent::Comment(_) => {}
            _ => break,
        }
    }
    assert_eq!((&last["type"], &last["code"]), (&json!("error"), &json!("stopping")));
    assert_eq!(last["error"]["code"], "stopping");
    assert!(last["message"].as_str().unwrap().contains("/v1/responses/resp_"), "{last}");
    assert!(stage.orchestrator.process.wait(Duration::from_secs(10)).success());
}

/// Stops an orchestrator at a crash point, kills it there, and retries at another one.
async fn kill_at(point: &str) -> (Stage, OrchestratorProcess, Vec<Value>) {
    let mut stage = Stage::start([Script::say("The one answer.")]).await;
    stage.orchestrator = stage.builder.clone().stopping_at(point).start().await;
    let client = stage.client();
    let asking = async {
        let mut stream = client.open("/responses", &streamed("hello")).await.ok()?;
        stream.read_until(|_| false).await;
        Some(())
    };
    tokio::select! {
        _ = asking => panic!("it does not stop at {point}"),
        () = stage.orchestrator.wait_until_stopped() => {}
    }
    stage.orchestrator.process.kill();
    let second = stage.builder.start().await;
    let retry = second.client(&stage.key).with("x-stainless-retry-count", "1");
    let events = read(open(&retry, &streamed("hello")).await).await;
    (stage, second, events)
}

#[tokio::test]
async fn killed_at_every_point_a_retry_gets_the_one_answer() {
    for point in ["TurnStored#1", "HandoffPublished#1", "AnswerKnown#1", "AnswerStored#1"] {
        let (stage, _second, events) = kill_at(point).await;
        assert_eq!(
            (answer(&events), text(&events).as_str()),
            ("The one answer.", "The one answer."),
            "{point}"
        );
        assert_eq!((stage.model.turns().len(), stage.handoffs().await), (1, 1), "{point}");
    }
}

#[tokio::test]
async fn a_key_decides_what_a_disconnect_means_unless_it_is_background() {
    let stage = Stage::start([slow("Here it is."), Script::Hang]).await;
    let key = stage.gateway.api_key_with("alice", &[("on_disconnect", json!("cancel"))]).await.1;
    let client = stage.orchestrator.client(&key);
    let mut background = streamed("hello");
    background["background"] = json!(true);
    let mut stream = open(&client, &background).await;
    stream.next().await;
    let path = format!("/responses/resp_{}", stream.header("x-cynode-handoff").unwrap());
    drop(stream);
    testkit::eventually("the response is completed", || async {
        (client.send("GET", &path, None).await.body["status"] == "completed").then_some(())
    })
    .await;
    let mut stream = open(&client, &streamed("hello")).await;
    stream.next().await;
    let path = format!("/responses/resp_{}", stream.header("x-cynode-handoff").unwrap());
    stage.worker.wait_for_in_flight(subjects::Kind::Chat, 1).await;
    drop(stream);
    testkit::eventually("the response is cancelled", || async {
        (client.send("GET", &path, None).await.body["status"] == "cancelled").then_some(())
    })
    .await;
}

/// G11: also if a secret is split over parts of the request and deltas of the answer.
#[tokio::test]
async fn secrets_are_replaced_in_requests_and_events() {
    const BODY: &str = "Q7rT2mZx9LkW4vNc8BdY5hJp3GsF6aEu1Ro";
    let secret = format!("sk-{BODY}");
    let stage = Stage::start([
        say_and_call(&format!("I found {secret} here. "), "db__task__list", &json!({})),
        Script::say(&format!("The key is {secret}, the password = {BODY} is another.")),
    ])
    .await;
    let client = stage.client().with("x-cynode-thread", "secrets");
    let (first, second) = secret.split_at(9);
    let mut request = body(json!([{ "role": "user", "content": [
        { "type": "input_text", "text": format!("My key: {first}") },
        { "type": "input_text", "text": format!("{second} please.") },
    ] }]));
    request["instructions"] = json!(format!("The token is ghp_{BODY}."));
    request["metadata"] = json!({ "key": secret });
    request["stream"] = json!(true);
    let events = read(open(&client, &request).await).await;
    assert_eq!(
        answer(&events),
        "The key is [redacted:model_key], the password = [redacted:secret] is another."
    );
    let all = serde_json::to_string(&events).unwrap();
    assert!(!all.contains(BODY) && text(&events).contains("I found [redacted:model_key] here."), "{all}");
    let id = events[0]["response"]["id"].as_str().unwrap();
    for path in [format!("/responses/{id}"), format!("/responses/{id}/input_items")] {
        let found = client.send("GET", &path, None).await.body.to_string();
        assert!(found.contains("[redacted:model_key]") && !found.contains(BODY), "{found}");
    }
    let asked = stage.model.turns()[0].body.to_string();
    assert!(asked.contains("[redacted:github_token]") && !asked.contains(BODY), "{asked}");
    assert!(!stage.orchestrator.log().contains(BODY) && !stage.gateway.log().contains(BODY));
}
