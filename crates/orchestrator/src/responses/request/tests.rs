use serde_json::json;
use subjects::ChatRole;

use super::*;

const ID: &str = "0193f2c0-5a00-7000-8000-00000000c0de";

fn read(changes: &Value) -> Result<ResponseRequest, ApiError> {
    let mut body = json!({ "model": "cynodeai.pm", "input": "hello" });
    for (key, value) in changes.as_object().unwrap() {
        body[key] = value.clone();
    }
    ResponseRequest::read(body.as_object().unwrap(), 10)
}

fn said(request: &ResponseRequest) -> Vec<(ChatRole, &str)> {
    fn said(item: &InputItem) -> (ChatRole, &str) {
        match item {
            InputItem::Message(message) => (message.role, message.content.as_str()),
            InputItem::Answer { .. } => (ChatRole::Assistant, "(referred to)"),
        }
    }
    request.input.iter().map(said).collect()
}

/// As Codex sends it.
#[test]
fn what_codex_sends_is_read() {
    let message = |role: &str, part: &str, text: &str| {
        let content = json!([{ "type": part, "text": text }]);
        json!({ "type": "message", "role": role, "content": content })
    };
    let request = read(&json!({
        "instructions": "You are a coding agent.",
        "input": [
            message("developer", "input_text", "Sandbox."),
            message("user", "input_text", "Where am I?"),
            { "type": "reasoning", "summary": [], "content": null, "encrypted_content": "x" },
            message("assistant", "output_text", "Here."),
            message("user", "input_text", "Go on."),
        ],
        "tools": [{ "type": "function", "name": "shell", "strict": false, "parameters": {} },
                  { "type": "web_search" }],
        "tool_choice": "auto", "parallel_tool_calls": false, "store": false, "stream": true,
        "reasoning": { "effort": "medium", "summary": "auto" }, "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0193", "text": { "verbosity": "low" }, "service_tier": "auto",
        "client_metadata": { "x": "y" },
    }))
    .unwrap();
    assert_eq!(
        said(&request),
        [
            (ChatRole::System, "You are a coding agent."),
            (ChatRole::System, "Sandbox."),
            (ChatRole::User, "Where am I?"),
            (ChatRole::Assistant, "Here."),
            (ChatRole::User, "Go on."),
        ]
    );
    assert_eq!(request.delivery, Delivery::Stream);
    assert!(!request.echo.parallel_tool_calls);
}

/// As the AI SDK sends it: what is stored is referred to.
#[test]
fn what_the_ai_sdk_sends_is_read() {
    let request = read(&json!({
        "input": [
            { "role": "system", "content": "Be brief." },
            { "role": "user", "content": [{ "type": "input_text", "text": "Where am I?" }] },
            { "type": "item_reference", "id": format!("rs_{ID}_1") },
            { "type": "item_reference", "id": format!("msg_{ID}") },
            { "id": format!("msg_{ID}_1") },
            { "role": "user", "content": "Go on." },
        ],
        "max_output_tokens": 7, "temperature": 0.5, "previous_response_id": format!("resp_{ID}"),
        "metadata": { "thread_id": "t-1", "note": "password=hunter2-Q7rT2mZx9" }, "background": true,
    }))
    .unwrap();
    let words = ["Be brief.", "Where am I?", "(referred to)", "(referred to)", "Go on."];
    assert_eq!(said(&request).iter().map(|(_, text)| *text).collect::<Vec<&str>>(), words);
    assert_eq!(request.previous, ID.parse().ok());
    assert_eq!((request.question.temperature, request.question.max_tokens), (Some(0.5), Some(7)));
    assert_eq!(request.question.thread, Thread::Metadata("t-1".to_owned()));
    assert_eq!(request.delivery, Delivery::Background);
    assert_eq!(request.echo.metadata["note"], "password=[redacted:secret]");
}

/// Bad input is refused with the field that is wrong.
#[test]
fn wrong_requests_are_refused_by_field() {
    let item = |item: Value| json!({ "input": [item] });
    let user = |content: Value| json!({ "input": [{ "role": "user", "content": content }] });
    let many: Vec<Value> = vec![json!({ "role": "user", "content": "x" }); 11];
    for (changes, param) in [
        (json!({ "input": null }), "input"),
        (json!({ "input": 7 }), "input"),
        (json!({ "input": [] }), "input"),
        (json!({ "input": " " }), "input.content"),
        (json!({ "input": "a\u{0}b" }), "input"),
        (json!({ "input": many }), "input"),
        (json!({ "input": "x".repeat(600 * 1024) }), "input"),
        (json!({ "instructions": 7 }), "instructions"),
        (item(json!("hello")), "input[0]"),
        (item(json!({ "type": 7 })), "input[0].type"),
        (item(json!({ "type": "function_call", "call_id": "1" })), "input[0].type"),
        (item(json!({ "type": "function_call_output", "call_id": "1", "output": "x" })), "input[0].type"),
        (item(json!({ "type": "web_search_call" })), "input[0].type"),
        (item(json!({ "type": "message", "content": "x" })), "input[0].role"),
        (item(json!({ "role": "wizard", "content": "x" })), "input[0].role"),
        (item(json!({ "role": "assistant", "content": "x" })), "input[0].role"),
        (item(json!({ "role": "user" })), "input[0].content"),
        (item(json!({ "type": "item_reference", "id": format!("msg_{ID}") })), "input[0].role"),
        (item(json!({ "type": "item_reference", "id": "msg_1" })), "input[0].id"),
        (item(json!({ "type": "item_reference" })), "input[0].id"),
        (user(json!("  ")), "input[0].content"),
        (user(json!([{ "type": "input_image", "image_url": "x" }])), "input[0].content[0].type"),
        (user(json!([{ "type": "input_file" }])), "input[0].content[0].type"),
        (user(json!([{ "type": "input_text" }])), "input[0].content[0].text"),
        (json!({ "stream": "yes" }), "stream"),
        (json!({ "background": "yes" }), "background"),
        (json!({ "store": 1 }), "store"),
        (json!({ "previous_response_id": "resp_1" }), "previous_response_id"),
        (json!({ "previous_response_id": 1 }), "previous_response_id"),
        (json!({ "conversation": "conv_1" }), "conversation"),
        (json!({ "prompt": { "id": "pmpt_1" } }), "prompt"),
        (json!({ "tool_choice": "required" }), "tool_choice"),
        (json!({ "tool_choice": { "type": "function", "name": "shell" } }), "tool_choice"),
        (json!({ "tool_choice": { "type": "allowed_tools", "mode": "required" } }), "tool_choice"),
        (json!({ "tool_choice": 1 }), "tool_choice"),
        (json!({ "text": { "format": { "type": "json_schema" } } }), "text.format"),
        (json!({ "text": "plain" }), "text"),
        (json!({ "top_logprobs": 2 }), "top_logprobs"),
        (json!({ "include": ["message.output_text.logprobs"] }), "include"),
        (json!({ "temperature": 3 }), "temperature"),
        (json!({ "max_output_tokens": 0 }), "max_output_tokens"),
        (json!({ "metadata": [] }), "metadata"),
        (json!({ "metadata": { "thread_id": 7 } }), "metadata.thread_id"),
        (json!({ "metadata": { "project_id": ["shed"] } }), "metadata.project_id"),
        (json!({ "parallel_tool_calls": 1 }), "parallel_tool_calls"),
    ] {
        let refused = read(&changes).expect_err(&changes.to_string());
        assert_eq!(refused.param.as_deref(), Some(param), "{changes}");
        assert_eq!(refused.status.as_u16(), 400, "{changes}");
    }
}
