use serde_json::json;

use super::*;

const BODY: &str = "Q7rT2mZx9LkW4vNc8BdY5hJp3GsF6aEu1Ro";

/// Passes the deltas of a choice, and its end. Returns all choices that are sent, in their order.
fn sent(deltas: &[Value]) -> Vec<Value> {
    let mut texts = ChoiceTexts::default();
    let mut out = Vec::new();
    let mut pass = |delta: &Value, is_last: bool| {
        let mut choice = json!({ "index": 0, "delta": delta });
        let passed = texts.pass(choice.as_object_mut().unwrap(), is_last);
        out.extend(passed.into_iter().map(Value::Object));
        out.push(choice);
    };
    deltas.iter().for_each(|delta| pass(delta, false));
    pass(&json!({}), true);
    out
}

/// Joins all strings but those with an exact meaning.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text_of).collect(),
        Value::Object(members) => {
            let texts = members.iter().filter(|(name, _)| !EXACT.contains(&name.as_str()));
            texts.map(|(_, member)| text_of(member)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

/// Where servers put texts of a delta.
fn places() -> [fn(&str) -> Value; 12] {
    [
        |text| json!({ "content": text }),
        |text| json!({ "reasoning_content": text }),
        |text| json!({ "reasoning": text, "content": "" }),
        |text| json!({ "refusal": text, "role": "assistant" }),
        |text| json!({ "function_call": { "name": "put", "arguments": text } }),
        |text| json!({ "tool_calls": [{ "index": 1, "function": { "arguments": text } }] }),
        |text| json!({ "tool_calls": [{ "index": 0, "type": "custom", "custom": { "input": text } }] }),
        |text| json!({ "reasoning_details": [{ "index": 0, "type": "reasoning.text", "text": text }] }),
        |text| json!({ "thinking_blocks": [{ "type": "thinking", "thinking": text }] }),
        |text| json!({ "content": [{ "type": "thinking", "thinking": [{ "type": "text", "text": text }] }] }),
        |text| json!({ "audio": { "id": "audio_1", "transcript": text } }),
        |text| json!({ "x_vendor": { "notes": ["", text], "more": null } }),
    ]
}

/// G11
#[test]
fn secret_is_replaced_wherever_it_stands_and_is_split() {
    let secret = format!("sk-{BODY}");
    for place in places() {
        for cut in 1..secret.len() {
            let (first, second) = secret.split_at(cut);
            let deltas = [place(&format!("use {first}")), place(&format!("{second} now"))];
            let all: String = sent(&deltas).iter().map(text_of).collect();
            assert_eq!(all, "use [redacted:model_key] now", "{} cut at {cut}", place(""));
        }
        let pieces: Vec<Value> = secret.chars().map(|letter| place(&letter.to_string())).collect();
        let all: String = sent(&pieces).iter().map(text_of).collect();
        assert_eq!(all, "[redacted:model_key]", "{} in single characters", place(""));
    }
}

#[test]
fn rest_of_a_text_is_sent_before_the_choice_ends_and_in_its_place() {
    for place in places() {
        let choices = sent(&[place("see sk-")]);
        let [_, rest, last] = choices.as_slice() else { panic!("three choices of {}", place("")) };
        assert_eq!(text_of(rest), "sk-", "{rest}");
        assert_eq!(last["delta"], json!({}));
    }
    let rest = |delta: Value| sent(&[delta])[1].clone();
    let call = json!({ "index": 3, "id": "call_1", "type": "function",
                       "function": { "name": "put", "arguments": "{\"a\": \"b\", \"c\": sk-" } });
    let expected = json!([{ "index": 3, "type": "function", "function": { "arguments": "sk-" } }]);
    assert_eq!(rest(json!({ "tool_calls": [call] })), json!({ "delta": { "tool_calls": expected } }));
    let block = json!({ "type": "thinking", "thinking": "see sk-", "signature": "c2lnbmF0dXJl" });
    let expected = json!([{ "type": "thinking", "thinking": "sk-" }]);
    assert_eq!(rest(json!({ "blocks": [block] })), json!({ "delta": { "blocks": expected } }));
}

/// Clients take a text for complete when the next one begins.
#[test]
fn rest_of_a_text_is_sent_before_the_next_text() {
    let call = |index: u64, text: &str| {
        let function = json!({ "arguments": text });
        json!({ "tool_calls": [{ "index": index, "function": function }] })
    };
    let deltas = [
        json!({ "reasoning": "think sk-" }),
        json!({ "content": "say sk-" }),
        call(0, "put sk-"),
        call(1, "get"),
    ];
    let all: Vec<String> = sent(&deltas).iter().map(text_of).collect();
    assert_eq!(all, ["think ", "sk-", "say ", "sk-", "put ", "sk-", "get", ""]);
}

/// Only the beginning of the secret is sent, which looks like none.
#[test]
fn text_that_goes_on_after_another_one_is_read_with_what_was_sent() {
    let deltas = [
        json!({ "content": "sk-Q7r" }),
        json!({ "reasoning": "hm" }),
        json!({ "content": &BODY[3..] }),
        json!({ "reasoning": " so" }),
    ];
    let all: String = sent(&deltas).iter().map(text_of).collect();
    assert_eq!(all, "sk-Q7rhm so[redacted:secret]");
}

#[test]
fn exact_members_are_sent_as_they_are_and_at_once() {
    let call = json!({ "index": 0, "id": "call_s", "type": "function",
                       "function": { "name": "get_sk", "arguments": "" } });
    let delta = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
    let choices = sent(&[delta.clone(), delta.clone()]);
    assert_eq!(choices.len(), 3);
    assert_eq!((&choices[0]["delta"], &choices[1]["delta"]), (&delta, &delta));
    let name = |text: &str| json!({ "tool_calls": [{ "index": 0, "function": { "name": text } }] });
    let choices = sent(&[name("sk-Q7r"), name(&BODY[3..]), name("put")]);
    assert_eq!(choices[1]["delta"], name("[redacted:secret]"));
    // Also where it is repeated.
    let secret = name(&format!("sk-{BODY}"));
    let choices = sent(&[secret.clone(), secret]);
    assert_eq!(choices[0]["delta"], name("[redacted:model_key]"));
    assert_eq!(choices[1]["delta"], name("[redacted:model_key]"));
}

/// Tokens would give away what is held back.
#[test]
fn tokens_are_left_out() {
    let token = json!({ "token": "sk-", "logprob": -0.1, "bytes": [115, 107, 45], "top_logprobs": [] });
    let mut choice = json!({ "index": 0, "delta": { "content": "Hi", "token_ids": [1] }, "token_ids": [1],
                             "logprobs": { "content": [token], "refusal": null } });
    let passed = ChoiceTexts::default().pass(choice.as_object_mut().unwrap(), false);
    assert!(passed.is_empty());
    let expected = json!({ "index": 0, "delta": { "content": "Hi", "token_ids": [] }, "token_ids": [],
                           "logprobs": null });
    assert_eq!(choice, expected);
}

#[test]
fn what_arrives_as_a_whole_is_redacted_as_a_whole() {
    let link =
        json!({ "type": "url_citation", "url_citation": { "url": "https://bob:hunter2@docs.example" } });
    let choices = sent(&[json!({ "annotations": [link] })]);
    let url = &choices[0]["delta"]["annotations"][0]["url_citation"]["url"];
    assert_eq!((choices.len(), url), (2, &json!("https://[redacted:secret]@docs.example")));
    let mut choice =
        json!({ "delta": {}, "finish_reason": "stop", "message": { "content": format!("sk-{BODY}") } });
    assert!(ChoiceTexts::default().pass(choice.as_object_mut().unwrap(), true).is_empty());
    assert_eq!(choice["message"]["content"], "[redacted:model_key]");
    assert_eq!(choice["finish_reason"], "stop");
}

/// G11: some servers send a `message` in each chunk in the place of a `delta`.
#[test]
fn secret_that_is_split_over_messages_is_replaced() {
    let secret = format!("sk-{BODY}");
    for cut in 1..secret.len() {
        let mut texts = ChoiceTexts::default();
        let mut all = String::new();
        let mut pass = |text: &str, is_last: bool| {
            let mut choice = json!({ "index": 0, "message": { "role": "assistant", "content": text } });
            let passed = texts.pass(choice.as_object_mut().unwrap(), is_last);
            let before = passed.into_iter().map(Value::Object);
            all.extend(before.chain([choice]).map(|choice| text_of(&choice["message"])));
        };
        pass(&format!("use {}", &secret[..cut]), false);
        pass(&secret[cut..], false);
        pass("", true);
        assert_eq!(all, "use [redacted:model_key]", "cut at {cut}");
    }
}

/// G11
#[test]
fn arguments_that_are_an_object_are_redacted_by_their_names() {
    let arguments = |password: &str| {
        let arguments = json!({ "password": password, (format!("sk-{BODY}")): "x" });
        json!({ "tool_calls": [{ "index": 0, "function": { "name": "put", "arguments": arguments } }] })
    };
    let all: String = sent(&[arguments("Q7rT2"), arguments("mZx9L")]).iter().map(Value::to_string).collect();
    assert!(!all.contains("Q7rT2") && !all.contains("mZx9L"), "{all}");
    assert!(all.contains("[redacted:model_key]"), "{all}");
}
