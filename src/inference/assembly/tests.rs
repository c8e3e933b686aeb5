use serde_json::json;

use super::*;

fn assembled(chunks: &[Value]) -> Option<Assembled> {
    let mut assembly = Assembly::new(1_000);
    for chunk in chunks {
        assembly.push(chunk).unwrap();
    }
    assembly.finish()
}

fn delta(delta: &Value) -> Value {
    json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
}

fn end(reason: &str) -> Value {
    json!({ "choices": [{ "delta": {}, "finish_reason": reason }] })
}

#[test]
fn calls_are_assembled_from_interleaved_fragments() {
    let fragment = |index: u64, id: Value, name: Value, arguments: &str| {
        let function = json!({ "name": name, "arguments": arguments });
        delta(&json!({ "tool_calls": [{ "index": index, "id": id, "function": function }] }))
    };
    let reply = assembled(&[
        delta(&json!({ "role": "assistant", "content": null })),
        fragment(0, json!("a"), json!("db_task_get"), ""),
        fragment(1, json!("b"), json!("db_task_list"), "{\"li"),
        fragment(0, Value::Null, Value::Null, "{\"task_id\":"),
        fragment(1, Value::Null, Value::Null, "mit\":2}"),
        fragment(0, Value::Null, Value::Null, "\"t\"}"),
        end("tool_calls"),
        json!({ "choices": [], "usage": { "prompt_tokens": 7, "completion_tokens": 3 } }),
    ])
    .unwrap();
    let calls: Vec<_> = reply.calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
    assert_eq!(calls, [("a", "db_task_get", "{\"task_id\":\"t\"}"), ("b", "db_task_list", "{\"limit\":2}")]);
    assert_eq!(reply.tokens, Some(Tokens { prompt: 7, completion: 3, cached: 0 }));
}

#[test]
fn replies_with_missing_fields_are_assembled() {
    let reply = assembled(&[
        delta(&json!({ "tool_calls": [{ "function": { "name": "one", "arguments": "{" } }] })),
        delta(&json!({ "tool_calls": [{ "function": { "arguments": "}" } }] })),
        delta(&json!({ "tool_calls": [{ "function": { "name": "two", "arguments": { "x": 1 } } }] })),
        end("stop"),
    ])
    .unwrap();
    let calls: Vec<_> = reply.calls.iter().map(|call| (&*call.id, &*call.name, &*call.arguments)).collect();
    assert_eq!(calls, [("call_0", "one", "{}"), ("call_1", "two", "{\"x\":1}")]);
    let all_zero = |id: &str, name: &str| {
        let function = json!({ "name": name, "arguments": "{}" });
        delta(&json!({ "tool_calls": [{ "index": 0, "id": id, "function": function }] }))
    };
    let reply = assembled(&[all_zero("a", "one"), all_zero("b", "two"), end("tool_calls")]).unwrap();
    assert_eq!(reply.calls.len(), 2, "{reply:?}");
    let whole = json!({ "choices": [{ "message": { "content": "all at once" }, "finish_reason": "stop" }] });
    assert_eq!(assembled(&[whole]).unwrap().content, "all at once");
}

/// Returns the names and arguments of the calls in these fragments, each of its own event.
fn called(fragments: &[Value]) -> Vec<(String, String)> {
    let events = fragments.iter().map(|fragment| delta(&json!({ "tool_calls": [fragment] })));
    let events: Vec<Value> = events.chain([end("tool_calls")]).collect();
    let calls = assembled(&events).unwrap().calls;
    calls.into_iter().map(|call| (call.name, call.arguments)).collect()
}

/// Several adapters for Gemini send each call whole, and give all of them the same index.
#[test]
fn whole_calls_with_the_same_index_are_kept_apart() {
    let pairs = |calls: &[(&str, &str)]| -> Vec<(String, String)> {
        calls.iter().map(|(name, arguments)| ((*name).to_owned(), (*arguments).to_owned())).collect()
    };
    let two = [("get", "{\"id\":1}"), ("get", "{\"id\":2}"), ("list", "{}")];
    for extra in [json!({ "index": 0 }), json!({ "index": 0, "id": "same" }), json!({ "id": "same" })] {
        let fragment = |name: Option<&str>, arguments: &str| {
            let mut fragment = extra.clone();
            fragment["function"] = json!({ "name": name, "arguments": arguments });
            fragment
        };
        let whole = two.map(|(name, arguments)| fragment(Some(name), arguments));
        assert_eq!(called(&whole), pairs(&two), "{extra}");
        // Servers that repeat the name in each fragment of one call.
        let repeated = [
            fragment(Some("get"), ""),
            fragment(Some("get"), "{\"id\":"),
            fragment(Some("get"), "1}"),
            fragment(Some("get"), ""),
            fragment(None, " "),
        ];
        assert_eq!(called(&repeated), pairs(&[("get", "{\"id\":1} ")]), "{extra}");
        // Two calls of one tool, each in pieces after its name.
        for name in [None, Some("get")] {
            let pieces = ["{\"id\":", "1}", "{\"id\":", "2}"].map(|arguments| fragment(name, arguments));
            let [first, second, third, fourth] = pieces;
            let begin = || fragment(Some("get"), "");
            let calls = called(&[begin(), first, second, begin(), third, fourth]);
            assert_eq!(calls, pairs(&two[..2]), "{extra} {name:?}");
        }
    }
}

#[test]
fn each_call_of_a_document_is_one() {
    let call = |arguments: &str| json!({ "function": { "name": "get", "arguments": arguments } });
    let same = |arguments: &str| json!({ "id": "a", "function": { "name": "get", "arguments": arguments } });
    for calls in [[call("{\"id\":1}"), call("{\"id\":2}")], [same(""), same("{}")]] {
        let message = json!({ "content": null, "tool_calls": calls });
        let document = json!({ "choices": [{ "message": message, "finish_reason": "tool_calls" }] });
        assert_eq!(assembled(&[document]).unwrap().calls.len(), 2);
    }
}

/// What follows a complete reply is not worth another one.
#[test]
fn reply_is_complete_once_it_ended_with_a_finish_reason() {
    let mut assembly = Assembly::new(1_000);
    for (event, is_complete) in [
        (end("stop"), false),
        (delta(&json!({ "content": "half" })), false),
        (end("stop"), true),
        (delta(&json!({ "content": "" })), true),
        (json!({ "choices": [], "usage": { "prompt_tokens": 5 } }), true),
        (delta(&json!({ "content": " and more" })), false),
    ] {
        assembly.push(&event).unwrap();
        assert_eq!(assembly.is_complete(), is_complete, "{event}");
    }
}

#[test]
fn incomplete_stream_yields_no_reply() {
    assert_eq!(assembled(&[delta(&json!({ "content": "half a" }))]), None);
    assert_eq!(assembled(&[]), None);
    let unnamed = json!({ "choices": [{ "delta": { "content": "a" }, "finish_reason": "" }] });
    assert_eq!(assembled(&[unnamed]), None, "an empty finish reason is none");
}

/// Servers that report the usage in every event do so also in a stream that breaks off.
#[test]
fn usage_ends_a_reply_only_after_its_last_choice() {
    let usage = json!({ "prompt_tokens": 5, "completion_tokens": 1 });
    let with_usage = |part: &Value| {
        let mut event = delta(part);
        event["usage"] = usage.clone();
        event
    };
    let half = with_usage(&json!({ "content": "half a" }));
    let call = with_usage(
        &json!({ "tool_calls": [{ "index": 0, "function": { "name": "x", "arguments": "{}" } }] }),
    );
    let last = json!({ "choices": [], "usage": usage });
    assert_eq!(assembled(std::slice::from_ref(&half)), None);
    assert_eq!(assembled(std::slice::from_ref(&call)), None);
    assert_eq!(assembled(&[last.clone(), half.clone()]), None, "more followed");
    assert_eq!(assembled(&[half, last.clone()]).unwrap().content, "half a");
    assert_eq!(assembled(&[call, last]).unwrap().calls.len(), 1);
    let mut ended = Assembly::new(1_000);
    ended.push(&with_usage(&json!({ "content": "all" }))).unwrap();
    ended.note_end();
    assert_eq!(ended.finish().unwrap().content, "all");
    let mut aborted = Assembly::new(1_000);
    for content in ["one", "two", "three"] {
        aborted.push(&with_usage(&json!({ "content": content }))).unwrap();
    }
    aborted.note_end();
    assert_eq!(aborted.finish(), None, "whether that is all, nothing says");
    let document = json!({ "choices": [{ "message": { "content": "all" } }], "usage": usage });
    assert_eq!(assembled(&[document]).unwrap().content, "all");
}

#[test]
fn finish_reason_says_whether_a_reply_is_whole() {
    let said = delta(&json!({ "content": "half a" }));
    for (reason, finish) in [
        ("stop", Finish::Stop),
        ("STOP", Finish::Stop),
        ("eos_token", Finish::Stop),
        ("max_tokens", Finish::Length),
    ] {
        assert_eq!(assembled(&[said.clone(), end(reason)]).unwrap().finish, finish, "{reason}");
    }
    for (reason, why) in [("content_filter", FILTERED), ("SAFETY", FILTERED), ("error", "`error`")] {
        let mut assembly = Assembly::new(1_000);
        assembly.push(&said).unwrap();
        let refused = assembly.push(&end(reason)).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn object_is_whole_if_it_is_closed_and_cut_if_it_is_not() {
    for (content, said, finish) in [
        (r#"{"answer": "one, tw"#, "stop", Finish::Length),
        (r#"{"answer": "one"}"#, "stop", Finish::Stop),
        ("{\"answer\": \"one\"}\n\n  ", "length", Finish::Stop),
        (r#"{"answer": "It is " and more}"#, "stop", Finish::Stop),
        ("{name} stands for a name", "stop", Finish::Stop),
    ] {
        let reply = assembled(&[delta(&json!({ "content": content })), end(said)]).unwrap();
        assert_eq!(reply.finish, finish, "{content}");
    }
}

#[test]
fn long_reply_is_cut_at_the_limit_and_says_so() {
    let mut assembly = Assembly::new(10);
    assert_eq!(assembly.push(&delta(&json!({ "content": "12345678" }))), Ok(Pushed::Text(8)));
    assert_eq!(assembly.push(&delta(&json!({ "content": "é☂é" }))), Ok(Pushed::LimitReached));
    let reply = assembly.finish().unwrap();
    assert_eq!((reply.content.as_str(), reply.finish), ("12345678é", Finish::CutShort));

    let call = json!({ "tool_calls": [{ "index": 0, "function": { "name": "x", "arguments": "{\"a" } }] });
    let reply = assembled(&[delta(&call), end("length")]).unwrap();
    assert_eq!((reply.calls.len(), reply.finish), (1, Finish::Length), "nobody takes it for whole");
}

#[test]
fn error_in_the_stream_is_returned() {
    let mut assembly = Assembly::new(10);
    let pushed = assembly.push(&json!({ "error": { "message": "out of memory" } }));
    assert_eq!(pushed, Err("out of memory".to_owned()));
}
