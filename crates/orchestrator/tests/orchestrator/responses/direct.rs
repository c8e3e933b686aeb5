//! Responses of models that are not the project manager.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{ChatEvent, Model, OrchestratorBuilder, Script, eventually};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::ask;
use crate::stage::Stage;

const BODY: &str = "Q7rT2mZx9LkW4vNc8BdY5hJp3GsF6aEu1Ro";

/// Starts a stack with a direct model `llama`, which the server calls `llama-8b`.
async fn start(script: Script) -> (Stage, Model) {
    let direct = Model::start([script]).await;
    let models = format!(r#"[{{ id = "llama", model = "llama-8b", url = "{}" }}]"#, direct.url());
    let model = Model::start([Script::say("I am the manager.")]).await;
    let stage = Stage::start_with(model, |builder| builder.set("direct.models", &models)).await;
    (stage, direct)
}

fn response(text: &str) -> Value {
    json!({ "id": "resp_1", "object": "response", "status": "completed", "model": "llama-8b",
            "output": [{ "id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
                         "content": [{ "type": "output_text", "text": text, "annotations": [] }] }],
            "usage": { "input_tokens": 11, "output_tokens": 5, "total_tokens": 16 } })
}

#[tokio::test]
async fn a_request_is_passed_on_without_secrets_and_so_is_the_response() {
    let (stage, direct) = start(Script::Json(response(&format!("Use sk-{BODY} now.")))).await;
    let request = json!({ "model": "llama", "instructions": format!("The token is ghp_{BODY}."),
                          "input": [{ "role": "user", "content": [
                              { "type": "input_text", "text": "My key: sk-Q7rT2mZ" },
                              { "type": "input_text", "text": &BODY[7..] }] }],
                          "tools": [{ "type": "function", "name": "shell" }], "tool_choice": "required" });
    let answer = ask(&stage.client(), request).await;
    assert_eq!(answer.status, 200);
    assert_eq!(super::text(&answer), "Use [redacted:model_key] now.");
    let asked = &direct.asked()[0].body;
    assert_eq!((&asked["model"], &asked["tool_choice"]), (&json!("llama-8b"), &json!("required")));
    assert!(!asked.to_string().contains(&BODY[..7]) && !asked.to_string().contains(&BODY[7..]), "{asked}");
    let metrics = stage.orchestrator.metrics().await;
    for line in
        ["orchestrator_direct_prompt_tokens_total 11", "orchestrator_direct_completion_tokens_total 5"]
    {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
    assert_eq!(stage.handoffs().await, 0);
    let mut background = json!({ "model": "llama", "input": "hello", "background": true });
    let refused = ask(&stage.client(), background.clone()).await;
    assert_eq!((refused.status, &refused.body["error"]["param"]), (400, &json!("background")));
    background["model"] = json!("unknown");
    assert_eq!(ask(&stage.client(), background).await.code(), "model_not_found");
    assert_eq!(stage.client().send("GET", "/responses/resp_1", None).await.code(), "response_not_found");
}

/// G11: also where a part alone looks like a secret, and what is left of it in the next part like none.
#[tokio::test]
async fn a_secret_that_is_split_over_parts_of_a_request_is_replaced() {
    let (stage, direct) = start(Script::Json(response("Done."))).await;
    let (first, second) = BODY.split_at(20);
    let first = format!("My key: sk-{first}");
    let parts = |kind: &str| json!([{ "type": kind, "text": first }, { "type": kind, "text": second }]);
    let request = json!({ "model": "llama", "input": [{ "role": "user", "content": parts("input_text") }] });
    ask(&stage.client(), request).await;
    let request = json!({ "model": "llama", "messages": [{ "role": "user", "content": parts("text") }] });
    stage.client().send("POST", "/chat/completions", Some(request)).await;
    for asked in direct.asked() {
        let asked = asked.body.to_string();
        assert!(asked.contains("My key: [redacted:model_key]") && !asked.contains(second), "{asked}");
    }
    assert_eq!(direct.asked().len(), 2);
}

/// G11: in every text of a streamed completion, and before its end.
#[tokio::test]
async fn a_secret_that_is_split_over_chunks_is_replaced_in_every_text() {
    let secret = format!("sk-{BODY}");
    let chunk = |delta: Value, finish: Option<&str>| {
        json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "llama-8b",
                "choices": [{ "index": 0, "delta": delta, "finish_reason": finish,
                              "logprobs": { "content": [{ "token": delta.to_string(), "logprob": -1 }] } }] })
        .to_string()
    };
    let in_pieces = |delta: &dyn Fn(&str) -> Value| -> Vec<String> {
        let pieces = secret.as_bytes().chunks(5);
        pieces.map(|piece| chunk(delta(&String::from_utf8_lossy(piece)), None)).collect()
    };
    let mut events = in_pieces(&|text| json!({ "reasoning_content": text }));
    events.extend(in_pieces(&|text| json!({ "content": text })));
    events.extend(in_pieces(&|text| {
        json!({ "tool_calls": [{ "index": 0, "id": "call_1", "type": "function",
                                 "function": { "name": "put", "arguments": text } }] })
    }));
    events.push(chunk(json!({}), Some("tool_calls")));
    let (stage, _direct) = start(Script::Raw(events)).await;
    let request =
        json!({ "model": "llama", "stream": true, "messages": [{ "role": "user", "content": "hi" }] });
    let mut stream = stage.client().open("/chat/completions", &request).await.unwrap();
    let (mut texts, mut finish) = ([const { String::new() }; 3], Value::Null);
    loop {
        let chunk = match stream.next().await {
            ChatEvent::Data(chunk) => chunk,
            ChatEvent::Comment(_) => continue,
            ChatEvent::Done => break,
            other => panic!("a chunk, not {other:?}"),
        };
        assert_eq!(finish, Value::Null, "nothing follows the reason: {chunk}");
        let (choice, all) = (&chunk["choices"][0], chunk.to_string());
        assert!(!all.contains(&BODY[..10]) && choice["logprobs"].is_null(), "{chunk}");
        let places = ["/delta/reasoning_content", "/delta/content", "/delta/tool_calls/0/function/arguments"];
        for (text, place) in texts.iter_mut().zip(places) {
            text.push_str(choice.pointer(place).and_then(Value::as_str).unwrap_or_default());
        }
        finish = choice["finish_reason"].clone();
    }
    assert_eq!(texts, ["[redacted:model_key]"; 3].map(str::to_owned));
    assert_eq!(finish, "tool_calls");
}

#[tokio::test]
async fn a_secret_that_is_split_over_deltas_is_replaced_in_every_event() {
    let text = format!("Use sk-{BODY} now, or sk-{BODY}");
    let place = json!({ "output_index": 0, "item_id": "msg_1", "content_index": 0 });
    let event = |kind: &str, number: usize, more: &Value| {
        let mut event = place.clone();
        event["type"] = json!(kind);
        event["sequence_number"] = json!(number);
        for (key, value) in more.as_object().unwrap() {
            event[key] = value.clone();
        }
        event.to_string()
    };
    let mut events: Vec<String> = text
        .as_bytes()
        .chunks(5)
        .enumerate()
        .map(|(number, piece)| {
            let delta = json!({ "delta": String::from_utf8_lossy(piece), "logprobs": [] });
            event("response.output_text.delta", number, &delta)
        })
        .collect();
    let end = events.len();
    events.push(event("response.output_text.done", end, &json!({ "text": text, "logprobs": [] })));
    events.push(event(
        "response.output_item.done",
        end + 1,
        &json!({ "item": response(&text)["output"][0] }),
    ));
    let completed = json!({ "type": "response.completed", "sequence_number": end + 2,
                            "response": response(&text) });
    events.push(completed.to_string());
    let (stage, _direct) = start(Script::Raw(events)).await;
    let request = json!({ "model": "llama", "input": "hello", "stream": true });
    let mut stream = stage.client().open("/responses", &request).await.unwrap();
    let (mut deltas, mut number, mut last) = (String::new(), 0, Value::Null);
    while let ChatEvent::Data(event) = stream.next().await {
        assert!(!event.to_string().contains(&BODY[..10]), "{event}");
        assert_eq!(event["sequence_number"], number, "{event}");
        number += 1;
        deltas.push_str(event["delta"].as_str().unwrap_or_default());
        last = event;
    }
    let expected = "Use [redacted:model_key] now, or [redacted:model_key]";
    assert_eq!(deltas, expected);
    assert_eq!(last["response"]["output"][0]["content"][0]["text"], expected);
    assert!(stage.orchestrator.metrics().await.contains("orchestrator_direct_prompt_tokens_total 11"));
}

#[tokio::test]
async fn a_stream_that_breaks_off_ends_with_an_error() {
    let created = json!({ "type": "response.created", "sequence_number": 0, "response": { "id": "resp_1" } });
    let (stage, _direct) = start(Script::Raw(vec![created.to_string()])).await;
    let request = json!({ "model": "llama", "input": "hello", "stream": true });
    let mut stream = stage.client().open("/responses", &request).await.unwrap();
    let ChatEvent::Data(first) = stream.next().await else { panic!("an event") };
    assert_eq!(first, created);
    let ChatEvent::Data(last) = stream.next().await else { panic!("an error") };
    assert_eq!((&last["type"], &last["error"]["code"]), (&json!("error"), &json!("model_server_error")));
    assert_eq!((&last["sequence_number"], stream.next().await), (&json!(1), ChatEvent::End));
}

/// Streams of all models share the slots.
#[tokio::test]
async fn a_stream_has_one_of_the_slots_until_it_ends() {
    let direct = Model::start([Script::HangAfter("hello".to_owned()), Script::say("hello again")]).await;
    let models = format!(r#"[{{ id = "llama", url = "{}" }}]"#, direct.url());
    let change =
        |builder: OrchestratorBuilder| builder.set("direct.models", &models).set("chat.max_streams", "1");
    let stage = Stage::start_with(Model::start([]).await, change).await;
    let client = stage.client();
    let streamed = |model: &str| {
        let messages = json!([{ "role": "user", "content": "hello" }]);
        json!({ "model": model, "messages": messages, "stream": true })
    };
    let first = client.open("/chat/completions", &streamed("llama")).await.unwrap();
    assert_eq!(first.status, 200);
    assert!(stage.orchestrator.metrics().await.contains("orchestrator_open_streams 1"));
    for model in ["llama", "cynodeai.pm"] {
        let refused = client.send("POST", "/chat/completions", Some(streamed(model))).await;
        assert_eq!((refused.status, refused.code()), (503, "too_many_streams"), "{model}");
    }
    assert_eq!((direct.asked().len(), stage.handoffs().await), (1, 0));
    drop(first);
    let second = eventually("the slot is free", || async {
        let stream = client.open("/chat/completions", &streamed("llama")).await.unwrap();
        (stream.status == 200).then_some(stream)
    })
    .await;
    assert_eq!(second.read().await.content, "hello again");
    eventually("no stream is open", || async {
        stage.orchestrator.metrics().await.contains("orchestrator_open_streams 0").then_some(())
    })
    .await;
}

/// The server sends the head of an error, and then nothing.
#[tokio::test]
async fn an_error_that_does_not_come_whole_is_answered_after_the_longest_silence() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let models = format!(r#"[{{ id = "llama", url = "http://{}/v1" }}]"#, listener.local_addr().unwrap());
    let change = |builder: OrchestratorBuilder| {
        builder.set("direct.models", &models).set("direct.silence", "300ms").set("chat.max_streams", "1")
    };
    let stage = Stage::start_with(Model::start([]).await, change).await;
    let stalling = async {
        let mut connections = Vec::new();
        for _ in 0..3 {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 16 * 1024];
            assert!(connection.read(&mut request).await.unwrap() > 0);
            let head = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 40\r\n\r\n{\"error\":";
            connection.write_all(head.as_bytes()).await.unwrap();
            connections.push(connection);
        }
        connections
    };
    let client = stage.client();
    let messages = json!([{ "role": "user", "content": "hello" }]);
    let asking = async {
        // The first stream does not keep the only slot.
        for is_streamed in [true, true, false] {
            let request = json!({ "model": "llama", "messages": messages, "stream": is_streamed });
            let refused = client.send("POST", "/chat/completions", Some(request)).await;
            assert_eq!((refused.status, refused.code()), (504, "model_server_silent"), "{is_streamed}");
        }
    };
    let asked = tokio::time::timeout(Duration::from_secs(20), async { tokio::join!(asking, stalling) });
    asked.await.expect("every request is answered");
}

/// The mere end of a connection would not tell a client that it may repeat the request.
#[tokio::test]
async fn an_orchestrator_that_stops_tells_the_clients_of_direct_models() {
    let direct = Model::start([Script::HangAfter("hello".to_owned()), Script::Hang]).await;
    let models = format!(r#"[{{ id = "llama", url = "{}" }}]"#, direct.url());
    let change = |builder: OrchestratorBuilder| builder.set("direct.models", &models).set("grace", "300ms");
    let mut stage = Stage::start_with(Model::start([]).await, change).await;
    let client = stage.client();
    let request = |is_streamed: bool| {
        let messages = json!([{ "role": "user", "content": "hello" }]);
        json!({ "model": "llama", "messages": messages, "stream": is_streamed })
    };
    let mut stream = client.open("/chat/completions", &request(true)).await.unwrap();
    stream.next().await;
    let streaming = client.send("POST", "/chat/completions", Some(request(true)));
    let asking = client.send("POST", "/chat/completions", Some(request(false)));
    let stopping = async {
        eventually("all are passed on", || async { (direct.asked().len() == 3).then_some(()) }).await;
        stage.orchestrator.process.terminate();
    };
    let (unanswered, asked, ()) = tokio::join!(streaming, asking, stopping);
    for refused in [unanswered, asked] {
        assert_eq!((refused.status, refused.code()), (503, "stopping"), "{refused:?}");
    }
    let streamed = stream.read().await;
    assert_eq!(streamed.error.unwrap()["code"], "stopping");
    assert!(stage.orchestrator.process.wait(Duration::from_secs(10)).success());
}
