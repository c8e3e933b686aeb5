//! Direct calls (newer era, HTTP, without rmcp's client): what is sent, and every response that may come
//! back.

use std::sync::{Arc, Mutex};

use serde_json::{Map, Value, json};
use testkit::eventually;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use upstream::{Error, Failure, Fate};

use crate::support::{call, http, object, text, upstream};

type Script = Arc<dyn Fn(&Received) -> String + Send + Sync>;
type Responder = Box<dyn Fn(&Received) -> String + Send + Sync>;

/// A received request.
#[derive(Clone, Debug)]
struct Received {
    head: String,
    body: Value,
}

impl Received {
    /// Returns the sorted names of its headers.
    fn headers(&self) -> Vec<String> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let mut names: Vec<_> = lines.map(|(name, _)| name.to_ascii_lowercase()).collect();
        names.sort();
        names
    }

    fn header(&self, name: &str) -> Option<String> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines.find(|(found, _)| found.eq_ignore_ascii_case(name))?;
        Some(value.trim().to_owned())
    }
}

/// A server that writes the bytes that its script returns. Closes the connection after an empty response or
/// one with `connection: close`.
struct Wire {
    url: String,
    seen: Arc<Mutex<Vec<Received>>>,
    serving: JoinSet<()>,
}

impl Wire {
    async fn start(script: impl Fn(&Received) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (seen, script): (Arc<Mutex<Vec<Received>>>, Script) = (Arc::default(), Arc::new(script));
        let mut serving = JoinSet::new();
        let kept = seen.clone();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, kept.clone(), script.clone()));
            }
        });
        Self { url, seen, serving }
    }

    fn calls(&self) -> Vec<Received> {
        let seen = self.seen.lock().unwrap().clone();
        seen.into_iter().filter(|seen| seen.body["method"] == "tools/call").collect()
    }
}

async fn serve(mut stream: TcpStream, kept: Arc<Mutex<Vec<Received>>>, script: Script) {
    let mut read = Vec::new();
    loop {
        let head_end = read.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let length = head_end.map(|end| {
            let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            length.map_or(0, |length| length.trim().parse::<usize>().unwrap())
        });
        if let (Some(end), Some(length)) = (head_end, length)
            && read.len() >= end + 4 + length
        {
            let rest = read.split_off(end + 4 + length);
            let seen = Received {
                head: String::from_utf8_lossy(&read[..end]).into_owned(),
                body: serde_json::from_slice(&read[end + 4..]).unwrap_or(Value::Null),
            };
            read = rest;
            kept.lock().unwrap().push(seen.clone());
            let answer = match seen.body["method"].as_str() {
                Some("server/discover") => result(
                    &seen,
                    &json!({
                        "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 0,
                        "serverInfo": {"name": "wire", "version": "1"}, "resultType": "complete",
                        "cacheScope": "private",
                    }),
                ),
                _ => script(&seen),
            };
            let written = stream.write_all(answer.as_bytes()).await;
            if answer.is_empty() || answer.contains("connection: close") || written.is_err() {
                return;
            }
            continue;
        }
        let mut more = [0; 4096];
        match stream.read(&mut more).await {
            Ok(count) if count > 0 => read.extend_from_slice(&more[..count]),
            _ => return,
        }
    }
}

fn answer(status: &str, kind: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn message(message: &Value) -> String {
    answer("200 OK", "application/json", &message.to_string())
}

fn result(to: &Received, result: &Value) -> String {
    message(&json!({"jsonrpc": "2.0", "id": to.body["id"], "result": result}))
}

fn text_result(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}], "resultType": "complete"})
}

fn stream(events: &[String]) -> String {
    answer("200 OK", "text/event-stream", &events.concat())
}

fn event(message: &Value) -> String {
    format!("data: {message}\n\n")
}

async fn fails(script: impl Fn(&Received) -> String + Send + Sync + 'static) -> (Failure, usize) {
    let wire = Wire::start(script).await;
    let failure = call(&upstream(http(wire.url.clone())), "tool").await.unwrap_err();
    (failure, wire.calls().len())
}

/// A tool whose name is not header-safe is called through rmcp, which shows what rmcp sends.
#[tokio::test]
async fn a_direct_call_sends_what_rmcp_sends() {
    let wire = Wire::start(|seen| result(seen, &text_result("done"))).await;
    let upstream = upstream(http(wire.url.clone()));
    for name in ["tool", "wörkzeug"] {
        let (arguments, meta) = (object(json!({"a": [1, "ä"]})), object(json!({"traceparent": "00-1-2-01"})));
        assert_eq!(text(&upstream.call(name, arguments, meta, None).await.unwrap()), "done");
    }
    let [mut ours, mut rmcps] = <[Received; 2]>::try_from(wire.calls()).unwrap();
    assert_eq!(ours.headers(), rmcps.headers());
    for header in ["accept", "content-type", "mcp-protocol-version", "mcp-method", "host"] {
        assert_eq!(ours.header(header), rmcps.header(header), "{header}");
    }
    assert_eq!(ours.header("mcp-name").as_deref(), Some("tool"));
    assert_eq!(ours.body["id"], ours.body["params"]["_meta"]["progressToken"]);
    for seen in [&mut ours, &mut rmcps] {
        seen.body["id"] = json!(0);
        seen.body["params"]["name"] = json!("");
        seen.body["params"]["_meta"]["progressToken"] = json!(0);
    }
    assert_eq!(ours.body, rmcps.body);
}

#[tokio::test]
async fn the_response_is_found_among_other_events() {
    let wire = Wire::start(|seen| {
        let other = json!({"jsonrpc": "2.0", "id": 1, "result": text_result("not this")});
        let other_error = json!({"jsonrpc": "2.0", "id": "x", "error": {"code": 1, "message": "nor this"}});
        let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        let id = &seen.body["id"];
        let answer = json!({"jsonrpc": "2.0", "id": id.to_string(), "result": text_result("this")});
        stream(&[
            ": a comment\n\n".to_owned(),
            "data: no JSON\n\n".to_owned(),
            format!(
                "event: ping\ndata: {}\n\n",
                json!({"jsonrpc": "2.0", "id": id, "result": text_result("no message")})
            ),
            event(&other),
            event(&other_error),
            event(&changed),
            event(&answer),
        ])
    })
    .await;
    let upstream = upstream(http(wire.url.clone()));
    let mut changes = upstream.tool_changes();
    call(&upstream, "tool").await.unwrap();
    changes.mark_unchanged();
    assert_eq!(text(&call(&upstream, "tool").await.unwrap()), "this");
    assert!(changes.has_changed().unwrap(), "the notification in the stream is passed on");
}

#[tokio::test]
async fn an_error_in_any_form_is_an_answer() {
    let error = |id: Value| json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "no"}});
    let ways: [Responder; 4] = [
        Box::new(move |seen| message(&error(seen.body["id"].clone()))),
        // A server that could not parse the request does not know its id.
        Box::new(move |_| message(&json!({"jsonrpc": "2.0", "error": {"code": -32602, "message": "no"}}))),
        Box::new(move |seen| stream(&[event(&error(seen.body["id"].clone()))])),
        Box::new(move |seen| {
            answer("400 Bad Request", "application/json", &error(seen.body["id"].clone()).to_string())
        }),
    ];
    for way in ways {
        let (failure, calls) = fails(way).await;
        assert!(matches!(&failure.error, Error::Rejected { code: Some(-32602), message } if message == "no"));
        assert_eq!((failure.fate, calls), (Fate::Answered, 1));
    }
}

#[tokio::test]
async fn a_response_without_an_answer_leaves_the_fate_unknown() {
    let ways: [Responder; 6] = [
        Box::new(|_| message(&json!({"jsonrpc": "2.0", "id": 1, "result": text_result("another's")}))),
        Box::new(|_| message(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))),
        Box::new(|_| answer("200 OK", "application/json", "no JSON")),
        Box::new(|_| answer("200 OK", "text/html", "<p>")),
        Box::new(|_| answer("202 Accepted", "application/json", "")),
        Box::new(|_| {
            stream(&[event(&json!({"jsonrpc": "2.0", "id": 1, "result": text_result("another's")}))])
        }),
    ];
    for way in ways {
        let (failure, calls) = fails(way).await;
        assert!(matches!(failure.error, Error::Protocol(_) | Error::Unavailable(_)), "{failure:?}");
        assert_eq!((failure.fate, calls), (Fate::Unknown, 1), "{failure:?}");
    }
}

#[tokio::test]
async fn a_connection_lost_after_the_request_leaves_the_fate_unknown() {
    let cut = |kind: &str| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\ncontent-length: 99\r\n\r\n")
    };
    for begun in [String::new(), cut("application/json"), cut("text/event-stream")] {
        let (failure, calls) = fails(move |_| begun.clone()).await;
        assert!(matches!(failure.error, Error::Unavailable(_)), "{failure:?}");
        assert_eq!((failure.fate, calls), (Fate::Unknown, 1), "{failure:?}");
    }
}

#[tokio::test]
async fn a_call_to_a_stopped_server_was_not_run() {
    let mut wire = Wire::start(|seen| result(seen, &text_result("done"))).await;
    let upstream = upstream(http(wire.url.clone()));
    call(&upstream, "tool").await.unwrap();
    wire.serving.shutdown().await;
    // The open connection turns out to be closed, or a new one is refused; in both cases nothing was sent.
    let failure = call(&upstream, "tool").await.unwrap_err();
    assert!(matches!(failure.error, Error::Unavailable(_)), "{failure:?}");
    assert_eq!((failure.fate, wire.calls().len()), (Fate::NotRun, 1), "{failure:?}");
}

#[tokio::test]
async fn an_interrupted_stream_is_resumed() {
    let id = Mutex::new(Value::Null);
    let wire = Wire::start(move |seen| {
        let mut id = id.lock().unwrap();
        if seen.body["method"] == "tools/call" {
            *id = seen.body["id"].clone();
            return stream(&["id: 7\nretry: 10\ndata:\n\n".to_owned()]);
        }
        assert_eq!(seen.header("last-event-id").as_deref(), Some("7"));
        stream(&[event(&json!({"jsonrpc": "2.0", "id": *id, "result": text_result("after all")}))])
    })
    .await;
    assert_eq!(text(&call(&upstream(http(wire.url.clone())), "tool").await.unwrap()), "after all");
    assert_eq!(wire.calls().len(), 1);
}

#[tokio::test]
async fn a_running_call_ends_when_the_upstream_is_closed() {
    // Starts a stream and sends nothing.
    let begun = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let wire = Wire::start(move |_| begun.to_owned()).await;
    let upstream = upstream(http(wire.url.clone()));
    let (called, ()) = tokio::join!(upstream.call("tool", Map::new(), Map::new(), None), async {
        eventually("it runs", async || (wire.calls().len() == 1).then_some(())).await;
        upstream.close().await;
    });
    let failure = called.unwrap_err();
    assert_eq!(failure.fate, Fate::Unknown, "{failure:?}");
}
