use contract::egress::Limits;

use super::*;
use crate::config;

const CHAT: Endpoint = Endpoint::ChatCompletions;

fn settings() -> config::Provider {
    config::Provider {
        name: "openai".into(),
        url: "http://127.0.0.1:1/v1".parse().unwrap(),
        key_file: None,
        auth: config::Auth::Bearer,
        models: Vec::new(),
        prices: config::Prices::default(),
        limits: Limits::default(),
        max_completion_tokens: 500,
        limit_field: "max_completion_tokens",
        include_usage: false,
    }
}

fn limited() -> config::Provider {
    config::Provider { limits: Limits { tokens_per_day: Some(1), ..Limits::default() }, ..settings() }
}

/// Returns the body that is sent and what it may use, or the code and the member of the refusal.
fn prepared(
    body: &str,
    endpoint: Endpoint,
    settings: &config::Provider,
) -> Result<(String, Expected), (String, String)> {
    match prepare_body(body.as_bytes(), endpoint, &Provider::new(settings).unwrap()) {
        Ok(it) => Ok((String::from_utf8(it.body.unwrap().to_vec()).unwrap(), it.expected)),
        Err(error) => Err((error.code.into_owned(), error.param.unwrap_or_default())),
    }
}

#[test]
fn provider_reads_the_model_that_was_checked() {
    let settings = config::Provider { models: vec!["gpt-*".into(), "o3".into()], ..settings() };
    let chat = |body: &str| prepared(body, CHAT, &settings);
    let (body, expected) =
        chat(r#"{"model":"gpt-5","messages":[{"b":1,"a":2}],"max_tokens":9,"n":2}"#).unwrap();
    assert_eq!(body, r#"{"max_tokens":9,"messages":[{"b":1,"a":2}],"model":"gpt-5","n":2}"#);
    assert_eq!(expected.likely.completion, 18);
    let not_allowed = || Err(("model_not_allowed".to_owned(), "model".to_owned()));
    assert_eq!(chat(r#"{"model":"gpt-5","model":"secret-model"}"#), not_allowed());
    assert_eq!(chat(r#"{"model":"secret-model","model":"o3"}"#).unwrap().0, r#"{"model":"o3"}"#);
    assert_eq!(chat(r#"{"m\u006fdel":"secret-model"}"#), not_allowed());
    for wrong in ["", "[]", "{", r#"{"model":7}"#, r#"{"model":" "}"#, r#"{"messages":[]}"#] {
        assert_eq!(chat(wrong).unwrap_err().0, "invalid_value", "{wrong}");
    }
}

#[test]
fn streams_of_chat_completions_are_asked_for_their_usage() {
    let with = config::Provider { include_usage: true, ..settings() };
    let body = r#"{"model":"m","stream":true,"stream_options":{"include_obfuscation":false}}"#;
    let sent = prepared(body, CHAT, &with).unwrap().0;
    let options = r#""stream_options":{"include_obfuscation":false,"include_usage":true}"#;
    assert!(sent.contains(options), "{sent}");
    for (endpoint, settings) in [(Endpoint::Responses, &with), (CHAT, &settings())] {
        let sent = prepared(r#"{"model":"m","stream":true}"#, endpoint, settings).unwrap().0;
        assert_eq!(sent, r#"{"model":"m","stream":true}"#);
    }
    let plain = prepared(r#"{"model":"m"}"#, CHAT, &with).unwrap();
    assert_eq!(plain.0, r#"{"model":"m"}"#);
    assert_eq!(plain.1.likely.completion, USUAL_COMPLETION_TOKENS);
    let embedding = prepared(r#"{"model":"m"}"#, Endpoint::Embeddings, &with).unwrap();
    assert_eq!(embedding.1.likely.completion, 0);
}

/// What is reserved is what the provider is told: one limit, under the name that the protocol has for it.
#[test]
fn replies_are_limited_under_a_budget() {
    let old = config::Provider { limit_field: "max_tokens", ..limited() };
    let new = limited();
    for (settings, endpoint, given, sent, completion) in [
        (&new, CHAT, "", r#""max_completion_tokens":500"#, 500),
        (&new, CHAT, r#","n":3"#, r#""max_completion_tokens":500"#, 1_500),
        (&new, CHAT, r#","n":null,"max_tokens":null"#, r#""max_completion_tokens":500"#, 500),
        (&new, CHAT, r#","max_tokens":7"#, r#""max_completion_tokens":7"#, 7),
        (&new, CHAT, r#","max_tokens":70000"#, r#""max_completion_tokens":500"#, 500),
        (&new, CHAT, r#","max_tokens":9,"max_completion_tokens":8"#, r#""max_completion_tokens":8"#, 8),
        (&new, CHAT, r#","n_predict":99999"#, r#""max_completion_tokens":500"#, 500),
        (&old, CHAT, r#","max_completion_tokens":8"#, r#""max_tokens":8"#, 8),
        (&old, CHAT, "", r#""max_tokens":500"#, 500),
        (&new, Endpoint::Responses, "", r#""max_output_tokens":500"#, 500),
        (&new, Endpoint::Responses, r#","max_output_tokens":20"#, r#""max_output_tokens":20"#, 20),
        (&new, Endpoint::Messages, "", r#""max_tokens":500"#, 500),
        (&new, Endpoint::Messages, r#","max_tokens":501"#, r#""max_tokens":500"#, 500),
    ] {
        let (body, expected) = prepared(&format!(r#"{{"model":"m"{given}}}"#), endpoint, settings).unwrap();
        assert!(body.contains(sent), "{given}: {body}");
        assert_eq!(LIMITS.iter().filter(|name| body.contains(**name)).count(), 1, "{given}: {body}");
        assert_eq!(expected.most.unwrap().completion, completion, "{given}: {body}");
    }
    for wrong in ["-1", "0", "1.5", "\"7\"", "[]"] {
        for name in ["n", "max_tokens", "max_completion_tokens"] {
            let body = format!(r#"{{"model":"m","{name}":{wrong}}}"#);
            let refused = prepared(&body, CHAT, &new);
            assert_eq!(refused, Err(("invalid_value".to_owned(), name.to_owned())), "{body}");
        }
    }
    let embeddings = r#"{"input":"text","model":"m"}"#;
    let (body, expected) = prepared(embeddings, Endpoint::Embeddings, &new).unwrap();
    assert_eq!((body.as_str(), expected.most.unwrap().completion), (embeddings, 0));
    // Without a budget the request is passed on as it is.
    let free = r#"{"max_tokens":70000,"model":"m","n":1.5,"previous_response_id":"x"}"#;
    let (body, expected) = prepared(free, CHAT, &settings()).unwrap();
    assert_eq!((body.as_str(), expected.most), (free, None));
}

/// A character may be as many tokens as it has bytes.
#[test]
fn as_many_tokens_of_the_prompt_are_reserved_as_it_has_bytes() {
    let text = "🜁".repeat(1_000);
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}]}}"#);
    let (_, expected) = prepared(&body, CHAT, &limited()).unwrap();
    let most = expected.most.unwrap().prompt;
    assert!(most >= 4_000 && usize::try_from(most).unwrap() >= body.len(), "{most}");
    assert!(expected.likely.prompt < most / 2, "an estimate, if the provider does not say");
}

#[test]
fn what_has_no_bound_is_refused_under_a_budget() {
    let (image, text) = (r#"{"type":"image_url","image_url":{"url":"u"}}"#, r#"{"type":"text","text":"t"}"#);
    for (endpoint, member, value) in [
        (Endpoint::Responses, "previous_response_id", r#""resp_1""#.to_owned()),
        (Endpoint::Responses, "background", "true".to_owned()),
        (Endpoint::Responses, "prompt", r#"{"id":"pmpt_1"}"#.to_owned()),
        (Endpoint::Responses, "tools", r#"[{"type":"web_search"}]"#.to_owned()),
        (Endpoint::Responses, "input", r#"[{"type":"item_reference","id":"x"}]"#.to_owned()),
        (Endpoint::Responses, "input", r#"[{"role":"user","content":[{"type":"input_file"}]}]"#.to_owned()),
        (CHAT, "messages", format!(r#"[{{"role":"user","content":[{text},{image}]}}]"#)),
        (CHAT, "messages", r#"[{"role":"assistant","audio":{"id":"a"}}]"#.to_owned()),
        (CHAT, "messages", r#"[{"role":"user","content":[{"image_url":"u"}]}]"#.to_owned()),
        (CHAT, "tools", r#"[{"google_search":{}}]"#.to_owned()),
        (CHAT, "service_tier", r#""priority""#.to_owned()),
        (CHAT, "search_parameters", r#"{"mode":"on"}"#.to_owned()),
        (CHAT, "enable_search", "true".to_owned()),
        (CHAT, "web_search", "true".to_owned()),
        (CHAT, "search_settings", "{}".to_owned()),
        (CHAT, "compound_custom", "{}".to_owned()),
        (CHAT, "documents", r#"[{"url":"u"}]"#.to_owned()),
        (CHAT, "provider", r#"{"order":["x"]}"#.to_owned()),
        (CHAT, "route", r#""fallback""#.to_owned()),
        (CHAT, "modalities", r#"["text","audio"]"#.to_owned()),
        (CHAT, "Messages", "[]".to_owned()),
        (CHAT, "a_member_of_tomorrow", "0".to_owned()),
        (CHAT, "messages", r#"[{"role":"user","content":"a","images":["AAAA"]}]"#.to_owned()),
        (CHAT, "messages", r#"[{"role":"user","content":"a","Content":[]}]"#.to_owned()),
        (CHAT, "messages", r#"[{"role":"user","content":[{"type":"text","image_url":"u"}]}]"#.to_owned()),
        (CHAT, "tools", r#"[{"type":"function","function":{},"googleSearch":{}}]"#.to_owned()),
        (Endpoint::Messages, "inference_geo", r#""us""#.to_owned()),
        (Endpoint::Messages, "messages", tool_result(r#"{"type":"image","source":{}}"#)),
        (Endpoint::Messages, "mcp_servers", "[]".to_owned()),
        (Endpoint::Embeddings, "input", r#"[{"image":"u"}]"#.to_owned()),
    ] {
        let body = format!(r#"{{"model":"m","{member}":{value}}}"#);
        let refused = prepared(&body, endpoint, &limited());
        assert_eq!(refused, Err(("unsupported_value".to_owned(), member.to_owned())), "{body}");
    }
    for (endpoint, members) in [
        (CHAT, format!(r#""messages":[{{"role":"user","content":[{text}]}}],"service_tier":null"#)),
        (CHAT, r#""tools":[{"type":"function","function":{"name":"f"}}]"#.to_owned()),
        (Endpoint::Messages, r#""system":"s","tools":[{"name":"f","input_schema":{}}]"#.to_owned()),
        (Endpoint::Messages, format!(r#""messages":{}"#, tool_result(text))),
        (Endpoint::Messages, tool_use()),
        (Endpoint::Responses, r#""input":[{"type":"function_call_output","output":"o"}]"#.to_owned()),
        (Endpoint::Embeddings, r#""input":["a",[1,2]]"#.to_owned()),
    ] {
        let body = format!(r#"{{"model":"m",{members}}}"#);
        assert!(prepared(&body, endpoint, &limited()).is_ok(), "{body}");
    }
}

/// A provider may take another one of two members with the same name, or read what this process cannot.
#[test]
fn what_cannot_be_checked_is_refused_under_a_budget() {
    let image = r#"[{"type":"image_url","image_url":{"url":"u"}}]"#;
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for messages in [
        format!(r#"[{{"role":"user","content":{image},"content":"hi"}}]"#),
        format!(r#"[{{"role":"user","content":{image},"name":"\ud800"}}]"#),
        format!(r#"[{{"role":"user","content":{image},"prefix":1e999}}]"#),
        format!(r#"[{{"role":"user","content":{image},"tool_calls":{deep}}}]"#),
    ] {
        let body = format!(r#"{{"model":"m","messages":{messages}}}"#);
        let refused = prepared(&body, CHAT, &limited());
        assert_eq!(refused, Err(("invalid_value".to_owned(), "body".to_owned())), "{body}");
    }
    let twice = r#"{"model":"m","max_tokens":7,"max_tokens":8}"#;
    assert_eq!(prepared(twice, CHAT, &limited()).unwrap_err().0, "invalid_value");
    // The order of members, such as those of a schema, stays.
    let ordered = r#"{"max_completion_tokens":7,"model":"m","tools":[{"type":"function","function":{}}]}"#;
    assert_eq!(prepared(ordered, CHAT, &limited()).unwrap().0, ordered);
}

fn tool_result(part: &str) -> String {
    format!(r#"[{{"role":"user","content":[{{"type":"tool_result","content":[{part}]}}]}}]"#)
}

/// The arguments of a call are text, whatever they are called.
fn tool_use() -> String {
    let call = r#"{"type":"tool_use","id":"1","name":"f","input":{"type":"image"}}"#;
    format!(r#""messages":[{{"role":"assistant","content":[{call}]}}]"#)
}
