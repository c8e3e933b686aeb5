use serde_json::json;

use super::*;
use crate::answering::fields::parse_object;

fn read(body: &Value) -> Result<ChatRequest, ApiError> {
    ChatRequest::read(&parse_object(body.to_string().as_bytes())?, 10)
}

fn with(changes: &Value) -> Value {
    let mut body = json!({ "model": "cynodeai.pm", "messages": [{ "role": "user", "content": "hello" }] });
    for (key, value) in changes.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

#[test]
fn what_clients_send_is_read() {
    let request = read(&with(&json!({
        "messages": [
            { "role": "developer", "content": "Be brief." },
            { "role": "user", "content": [
                { "type": "text", "text": "one" }, { "type": "input_text", "text": "two" },
            ] },
            { "role": "assistant", "content": null, "refusal": "no" },
            { "role": "assistant", "content": null, "tool_calls": [] },
            { "role": "user", "content": "again", "name": "bob" },
        ],
        "stream": true, "stream_options": { "include_usage": true }, "temperature": 0.5,
        "max_tokens": 5, "max_completion_tokens": 7, "n": 1, "tools": [{ "type": "function" }],
        "tool_choice": "auto", "logprobs": false, "user": "bob",
        "store": true, "metadata": { "thread_id": "t-1" }, "service_tier": "auto", "unheard": { "of": [1] },
    })))
    .unwrap();
    let said: Vec<(ChatRole, &str)> =
        request.question.messages.iter().map(|message| (message.role, message.content.as_str())).collect();
    assert_eq!(
        said,
        [
            (ChatRole::System, "Be brief."),
            (ChatRole::User, "one\ntwo"),
            (ChatRole::Assistant, "no"),
            (ChatRole::User, "again"),
        ]
    );
    assert!(request.stream && request.include_usage);
    assert_eq!((request.question.temperature, request.question.max_tokens), (Some(0.5), Some(7)));
    assert_eq!(request.question.thread, Thread::Metadata("t-1".to_owned()));
}

/// Bad input is refused with the field that is wrong.
#[test]
fn wrong_requests_are_refused_by_field() {
    let user = |content: Value| json!({ "messages": [{ "role": "user", "content": content }] });
    let many: Vec<Value> = vec![json!({ "role": "user", "content": "x" }); 11];
    for (changes, param) in [
        (json!({ "model": 7 }), "model"),
        (json!({ "model": "" }), "model"),
        (json!({ "messages": "hello" }), "messages"),
        (json!({ "messages": [] }), "messages"),
        (json!({ "messages": many }), "messages"),
        (json!({ "messages": ["hello"] }), "messages[0]"),
        (json!({ "messages": [{ "content": "x" }] }), "messages[0].role"),
        (json!({ "messages": [{ "role": "wizard", "content": "x" }] }), "messages[0].role"),
        (
            json!({ "messages": [{ "role": "tool", "content": "x", "tool_call_id": "1" }] }),
            "messages[0].role",
        ),
        (json!({ "messages": [{ "role": "assistant", "content": "x" }] }), "messages[0].role"),
        (
            json!({ "messages": [{ "role": "assistant", "tool_calls": [{ "id": "1" }] }] }),
            "messages[0].tool_calls",
        ),
        (user(json!(null)), "messages[0].content"),
        (user(json!(7)), "messages[0].content"),
        (user(json!("  ")), "messages[0].content"),
        (user(json!("a\u{0}b")), "messages[0].content"),
        (user(json!("x".repeat(600 * 1024))), "messages"),
        (user(json!(["x"])), "messages[0].content[0]"),
        (user(json!([{ "type": "text" }])), "messages[0].content[0].text"),
        (user(json!([{ "type": "image_url", "image_url": {} }])), "messages[0].content[0].type"),
        (user(json!([{ "type": "input_audio" }])), "messages[0].content[0].type"),
        (json!({ "stream": "yes" }), "stream"),
        (json!({ "stream_options": 1 }), "stream_options"),
        (json!({ "temperature": 3 }), "temperature"),
        (json!({ "temperature": "hot" }), "temperature"),
        (json!({ "max_tokens": 0 }), "max_tokens"),
        (json!({ "max_tokens": -1 }), "max_tokens"),
        (json!({ "metadata": [] }), "metadata"),
        (json!({ "metadata": { "thread_id": 7 } }), "metadata.thread_id"),
        (json!({ "metadata": { "project_id": ["shed"] } }), "metadata.project_id"),
        (json!({ "tools": [{ "type": "function" }], "tool_choice": "required" }), "tool_choice"),
        (json!({ "tool_choice": { "type": "function", "function": { "name": "f" } } }), "tool_choice"),
        (json!({ "functions": [{}], "function_call": { "name": "f" } }), "function_call"),
        (json!({ "n": 2 }), "n"),
        (json!({ "n": "one" }), "n"),
        (json!({ "logprobs": true }), "logprobs"),
        (json!({ "modalities": ["text", "audio"] }), "modalities"),
        (json!({ "audio": { "voice": "alloy" } }), "audio"),
        (json!({ "response_format": { "type": "json_object" } }), "response_format"),
    ] {
        let refused = read(&with(&changes)).expect_err(&changes.to_string());
        assert_eq!(refused.param.as_deref(), Some(param), "{changes}");
        assert_eq!(refused.status.as_u16(), 400, "{changes}");
    }
}

#[test]
fn bodies_that_are_no_json_objects_are_refused() {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    for body in
        [&b""[..], b"{", b"[]", b"\"x\"", b"{\"a\": \"\xff\"}", b"{\"a\": \"\\ud800\"}", deep.as_bytes()]
    {
        let refused = parse_object(body).expect_err("refused");
        assert_eq!((refused.status.as_u16(), &*refused.code), (400, "invalid_json"));
    }
}
