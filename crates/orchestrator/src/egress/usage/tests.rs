use super::*;

const JSON: &str = "application/json";
const SSE: &str = "text/event-stream; charset=utf-8";

/// Returns the prompt and the completion that a reply reports, and whether all of it could be read.
fn read(content_type: &'static str, reply: &str) -> (Option<u64>, Option<u64>, bool) {
    let mut whole = UsageReader::new(Some(&HeaderValue::from_static(content_type)));
    whole.push(reply.as_bytes());
    let mut bytes = UsageReader::new(Some(&HeaderValue::from_static(content_type)));
    reply.as_bytes().chunks(1).for_each(|byte| bytes.push(byte));
    let found = whole.report();
    assert_eq!(bytes.report(), found, "pieces do not matter: {reply}");
    (found.prompt, found.completion, !found.is_unreadable)
}

#[test]
fn usage_is_read_from_replies_of_every_protocol() {
    for (kind, reply, expected) in [
        (JSON, r#"{"usage":{"prompt_tokens":7,"completion_tokens":3}}"#, (7, 3)),
        (JSON, r#"{"usage":{"input_tokens":7,"output_tokens":3}}"#, (7, 3)),
        (
            SSE,
            "data: {\"choices\":[],\"usage\":null}\n\ndata: \
             {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\
             \"completion_tokens\":2}}\n\ndata: [DONE]\n\n",
            (9, 2),
        ),
        (
            SSE,
            "event: response.completed\r\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":\
             {\"input_tokens\":5,\"output_tokens\":6}}}\r\n\r\n",
            (5, 6),
        ),
        (
            SSE,
            "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":4,\
             \"cache_read_input_tokens\":10,\"output_tokens\":1}}}\n\n\
             data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":8}}",
            (14, 8),
        ),
    ] {
        let (prompt, completion) = expected;
        assert_eq!(read(kind, reply), (Some(prompt), Some(completion), true), "{reply}");
    }
    let embedding = r#"{"usage":{"prompt_tokens":7,"total_tokens":7}}"#;
    assert_eq!(read(JSON, embedding), (Some(7), None, true));
    for reply in ["data: {\"choices\":[]}\n\ndata: [DONE]\n\n", "data: {\"usage\":null}\n\n", ""] {
        assert_eq!(read(SSE, reply), (None, None, true), "{reply}");
    }
}

/// Providers write numbers, names and events in many ways.
#[test]
fn usage_is_read_however_it_is_written() {
    const DATA: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}";
    let both = r#""prompt_tokens":7,"input_tokens":6,"completion_tokens":2,"output_tokens":3"#;
    let usage = r#""usage":{"prompt_tokens":7,"completion_tokens":3}"#;
    for (kind, reply) in [
        (JSON, format!(r#"{{"usage":{{{both}}}}}"#)),
        (JSON, r#"{"usage":{"prompt_tokens":7.0,"completion_tokens":2.5}}"#.to_owned()),
        (JSON, r#"{"usage":{"prompt_tokens":"7","completion_tokens":" 3.0"}}"#.to_owned()),
        (JSON, r#"{"usage":{"prompt_tokens":7,"completion_tokens":3,"completion_tokens":0}}"#.to_owned()),
        (JSON, format!(r#"{{{usage},"choices":[],{usage}}}"#)),
        (JSON, format!(r#"{{{usage},"usage":{{"prompt_tokens":0,"completion_tokens":0}},"usage":null}}"#)),
        (JSON, format!("\u{feff}{{{usage}}}")),
        (SSE, format!("\u{feff}{DATA}\n\n")),
        (SSE, format!("{DATA}\r\rdata: [DONE]\r\r")),
        (SSE, format!("data: {{}}\r\n\r\n{DATA}\r\n\r\ndata: [DONE]\r\n\r\n")),
        (SSE, format!("data: {{\"choices\":[],\ndata:{usage}}}\n\ndata: [DONE]\n\n")),
        (SSE, format!("data: [DONE]\n\n{DATA}\n\n")),
        ("Text/Event-Stream; charset=utf-8", format!("{DATA}\n\n")),
        (" TEXT/EVENT-STREAM", format!("data: {{}}\n\n{DATA}")),
    ] {
        assert_eq!(read(kind, &reply), (Some(7), Some(3), true), "{reply}");
    }
}

#[test]
fn usage_that_cannot_be_read_is_known_to_be_there() {
    for wrong in ["-1", "true", "[]", "{}", "\"many\"", "\"-1\"", "\"NaN\"", "\"inf\"", "1e30", "1e999"] {
        let reply = format!(r#"{{"usage":{{"prompt_tokens":{wrong},"completion_tokens":3}}}}"#);
        assert_eq!(read(JSON, &reply), (None, Some(3), false), "{reply}");
    }
    for reply in [r#"{"usage":"none"}"#, r#"{"usage":[]}"#, r#"{"usage":7}"#, "not JSON", r#"[{"usage":{}}]"#]
    {
        assert_eq!(read(JSON, reply), (None, None, false), "{reply}");
    }
    let first = "data: {\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1}}\n\n";
    let broken = format!("{first}data: {{\"usage\":{{\"prompt_tokens\":7\n\ndata: [DONE]\n\n");
    assert_eq!(read(SSE, &broken), (Some(7), Some(1), false));
}

#[test]
fn parts_that_are_not_reported_count_otherwise() {
    let tokens = |usage: &str| {
        let report = Report::read(format!(r#"{{"usage":{usage}}}"#).as_bytes());
        let tokens = report.tokens(Tokens { prompt: 50, completion: 20 });
        (tokens.prompt, tokens.completion)
    };
    assert_eq!(tokens("{}"), (50, 20));
    assert_eq!(tokens(r#"{"prompt_tokens":7}"#), (7, 20));
    assert_eq!(tokens(r#"{"completion_tokens":3}"#), (50, 3));
    assert_eq!(tokens(r#"{"total_tokens":60}"#), (50, 20));
    assert_eq!(tokens(r#"{"total_tokens":10000}"#), (50, 9_950));
    // Reasoning that is in the total only.
    assert_eq!(tokens(r#"{"prompt_tokens":7,"completion_tokens":3,"total_tokens":100}"#), (7, 93));
    assert_eq!(tokens(r#"{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}"#), (7, 3));
}

/// A reply without usage is estimated by what a model wrote.
#[test]
fn documents_without_usage_are_estimated_by_their_text() {
    let text = "word ".repeat(800);
    let chat = format!(r#"{{"choices":[{{"message":{{"content":"{text}"}}}}],"id":"chatcmpl-123"}}"#);
    let call = format!(r#"{{"output":[{{"arguments":"{text}"}}],"usage":null}}"#);
    let message = format!(r#"{{"content":[{{"text":"{text}"}}],"usage":{{}}}}"#);
    let broken_off = format!(r#"{{"choices":[{{"message":{{"content":"{text}"#);
    for reply in [chat, call, message, broken_off] {
        let mut reader = UsageReader::new(Some(&HeaderValue::from_static("application/json")));
        reply.as_bytes().chunks(7).for_each(|piece| reader.push(piece));
        let report = reader.report();
        assert_eq!((report.prompt, report.completion), (None, None), "{reply}");
        assert!((1_000..1_010).contains(&reader.estimated_completion()), "{reply}");
    }
    let mut long = UsageReader::new(None);
    (0..2).for_each(|_| long.push(&vec![b' '; MAX_BYTES]));
    assert_eq!((long.report().prompt, long.estimated_completion()), (None, 2 << 20));
}

#[test]
fn last_event_of_a_stream_is_known_in_every_protocol() {
    for (before, last) in [
        ("data: {\"choices\":[{\"delta\":{\"content\":\"[DONE]\"}}]}\n\ndata: [DO", "NE]\n\n"),
        ("event: response.created\ndata: {}\n\nevent: response.completed\ndata: {}\n", "\n"),
        ("event: message_delta\r\ndata: {}\r\n\r\nevent: message_stop\r\n", "data: {}\r\n\r\n"),
    ] {
        let mut reader = UsageReader::new(Some(&HeaderValue::from_static("text/event-stream")));
        reader.push(before.as_bytes());
        assert!(!reader.is_done(), "{before}");
        reader.push(last.as_bytes());
        assert!(reader.is_done(), "{before}{last}");
    }
}

#[test]
fn memory_is_bounded_however_long_a_line_is() {
    let mut reader = UsageReader::new(Some(&HeaderValue::from_static("text/event-stream")));
    let line = vec![b'x'; MAX_BYTES];
    for _ in 0..10 {
        reader.push(&line);
    }
    assert!(reader.buffer.capacity() <= MAX_BYTES * 2);
    reader.push(b"\ndata: {\"usage\":{\"prompt_tokens\":1}}\n");
    let report = reader.report();
    assert_eq!((report.prompt, report.is_unreadable), (Some(1), true), "the long line may have had more");
    assert_eq!(reader.estimated_completion(), 1);
    let mut lines = UsageReader::new(Some(&HeaderValue::from_static("text/event-stream")));
    let line = [b"data: ".as_slice(), &vec![b'x'; MAX_BYTES / 2], b"\n"].concat();
    for _ in 0..10 {
        lines.push(&line);
    }
    assert!(lines.data.as_ref().unwrap().capacity() <= MAX_BYTES * 2);
}
