//! Invalid input is answered with its error code if its id can be read, dead-lettered complete, settled,
//! counted, and never sent to a model.

use async_nats::HeaderMap;
use serde_json::{Value, json};
use subjects::{
    Answer, DeadLetter, Encoding, ErrorCode, FindingsStatus, Handoff, HandoffId, Kind, Status, headers,
    streams::{self, Layout},
};
use testkit::{Nats, Orchestrator, Worker, chat, eventually, schedule, verify};

/// One invalid message and its expected outcome.
struct Bad {
    name: &'static str,
    kind: Kind,
    headers: HeaderMap,
    body: Vec<u8>,
    code: ErrorCode,
    /// The id that must be answered; `None` if it cannot be read.
    answered: Option<HandoffId>,
}

fn value(handoff: &Handoff) -> Value {
    serde_json::from_slice(&handoff.encode(Encoding::Json).unwrap()).unwrap()
}

fn content_type(text: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(headers::CONTENT_TYPE, text);
    headers
}

/// A chat with one change.
fn changed(name: &'static str, code: ErrorCode, change: impl Fn(&mut Value)) -> Bad {
    changed_from(name, &chat("hello"), code, change)
}

fn changed_from(name: &'static str, good: &Handoff, code: ErrorCode, change: impl Fn(&mut Value)) -> Bad {
    let mut body = value(good);
    change(&mut body);
    Bad {
        name,
        kind: good.kind(),
        headers: HeaderMap::new(),
        answered: body["handoff_id"].as_str().and_then(|id| id.parse().ok()),
        body: body.to_string().into_bytes(),
        code,
    }
}

fn raw(name: &'static str, headers: HeaderMap, body: Vec<u8>, answered: Option<HandoffId>) -> Bad {
    Bad { name, kind: Kind::Chat, headers, body, code: ErrorCode::InvalidHandoff, answered }
}

fn all() -> Vec<Bad> {
    use ErrorCode::{DeadlineExceeded, InvalidHandoff, NotForPma, UnsupportedVersion};
    let good = chat("hello");
    // The id comes early, as in the examples of the contract.
    let text = |handoff: &Handoff| {
        let id = handoff.id;
        let rest = value(handoff).to_string();
        format!("{{\"schema_version\":1,\"handoff_id\":\"{id}\",\"x\":{rest}")
    };
    let truncated = chat("truncated");
    let packed = chat("packed");
    let mut half_packed = packed.encode(Encoding::MessagePack).unwrap();
    half_packed.truncate(half_packed.len() - 7);
    let wrong_type = chat("typed");
    let deep = chat("deep");
    let deep_body =
        format!("{{\"handoff_id\":\"{}\",\"x\":{}1{}}}", deep.id, "[".repeat(10_000), "]".repeat(10_000));
    let twice = chat("twice");
    let twice_body = value(&twice).to_string().replacen('{', "{\"kind\":\"chat\",", 1);
    let by_message_id = chat("known by its message id");
    let mut with_id = HeaderMap::new();
    with_id.insert(headers::MSG_ID, by_message_id.id.to_string());
    vec![
        raw("truncated JSON", HeaderMap::new(), text(&truncated).into_bytes(), Some(truncated.id)),
        raw("unreadable, with a message id", with_id, b"{".to_vec(), Some(by_message_id.id)),
        raw("empty", HeaderMap::new(), Vec::new(), None),
        raw("not UTF-8", HeaderMap::new(), vec![0xff, 0xfe], None),
        raw("wrong MessagePack", content_type("application/msgpack"), half_packed, Some(packed.id)),
        raw(
            "JSON called MessagePack",
            content_type("application/msgpack"),
            value(&good).to_string().into_bytes(),
            None,
        ),
        raw(
            "wrong content type",
            content_type("text/plain"),
            value(&wrong_type).to_string().into_bytes(),
            Some(wrong_type.id),
        ),
        raw("10,000-deep nesting", HeaderMap::new(), deep_body.into_bytes(), Some(deep.id)),
        raw("duplicate keys", HeaderMap::new(), twice_body.into_bytes(), Some(twice.id)),
        changed("unknown major version", UnsupportedVersion, |body| body["schema_version"] = json!(2)),
        changed("missing version", InvalidHandoff, |body| {
            drop(body.as_object_mut().unwrap().remove("schema_version"))
        }),
        changed("missing field", InvalidHandoff, |body| {
            drop(body.as_object_mut().unwrap().remove("payload"))
        }),
        changed("wrong-typed field", InvalidHandoff, |body| body["payload"]["messages"] = json!(7)),
        changed("wrong kind for the subject", InvalidHandoff, |body| body["kind"] = json!("plan")),
        changed("nil id", InvalidHandoff, |body| {
            body["handoff_id"] = json!("00000000-0000-0000-0000-000000000000")
        }),
        changed("malformed id", InvalidHandoff, |body| body["handoff_id"] = json!("not-a-uuid")),
        changed("malformed scope id", InvalidHandoff, |body| body["scope"]["user_id"] = json!("a b")),
        changed("another model", NotForPma, |body| body["payload"]["model"] = json!("llama-3")),
        changed_from("a job spec", &schedule("x"), NotForPma, |body| {
            body["payload"]["payload_type"] = json!("job_spec")
        }),
        changed("an expired deadline", DeadlineExceeded, |body| {
            body["deadline"] = json!("2020-01-01T00:00:00Z")
        }),
        changed("a foreign reply_to", InvalidHandoff, |body| body["reply_to"] = json!("pma.handoff.chat")),
    ]
}

#[tokio::test]
async fn invalid_input_is_answered_dead_lettered_settled_counted_and_never_processed() {
    let nats = Nats::start();
    let worker = Worker::manager(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let all = all();
    for (number, bad) in all.iter().enumerate() {
        let sequence = orchestrator.publish_raw(bad.kind, bad.headers.clone(), bad.body.clone()).await;
        let name = bad.name;
        eventually(&format!("{name}: to be settled"), async || {
            (orchestrator.queued().await == 0).then_some(())
        })
        .await;

        // Dead-lettered complete, with the reason.
        let letters = orchestrator.contents(streams::DEAD).await;
        assert_eq!(letters.len(), number + 1, "{name}");
        let stored = &letters[number];
        let letter = DeadLetter::read(&stored.subject, &stored.headers).unwrap();
        assert_eq!(
            (letter.kind, letter.reason, letter.sequence),
            (bad.kind, bad.code, sequence),
            "{name}: {letter:?}"
        );
        assert_eq!(stored.payload, bad.body, "{name}");
        for (header, values) in bad.headers.iter() {
            assert_eq!(letter.original.get(header.clone()), values.first(), "{name}");
        }

        // Answered if the id can be read.
        if let Some(id) = bad.answered {
            let Some(Answer::Completion(answer)) = orchestrator.answer(bad.kind, id).await else {
                panic!("{name} was not answered")
            };
            assert_eq!(answer.status, Status::Failed, "{name}");
            assert_eq!(answer.error.as_ref().map(|error| error.code), Some(bad.code), "{name}");
        }
    }
    let answers = all.iter().filter(|bad| bad.answered.is_some()).count();
    assert_eq!(orchestrator.stored(streams::RUNS).await, answers as u64, "an unexpected answer was stored");
    for code in [ErrorCode::InvalidHandoff, ErrorCode::UnsupportedVersion, ErrorCode::DeadlineExceeded] {
        let expected = all.iter().filter(|bad| bad.code == code && bad.kind == Kind::Chat).count();
        let name = format!("pma_handoffs_refused_total{{kind=\"chat\",code=\"{code}\"}}");
        assert_eq!(worker.metric(&name).await, Some(expected as f64), "{name}");
    }
    assert_eq!(worker.metric("pma_model_calls_total").await, Some(0.0), "invalid input reached a model");
    // The worker still processes valid handoffs.
    let id = orchestrator.publish(&chat("still there?")).await;
    orchestrator.wait_for_answer(Kind::Chat, id).await;
}

/// A refused verification is answered with findings that claim no verdict.
#[tokio::test]
async fn a_refused_verification_claims_no_verdict() {
    let nats = Nats::start();
    let _worker = Worker::analyst(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut question = verify("task-1");
    question.deadline = Some("2020-01-01T00:00:00Z".parse().unwrap());
    let id = orchestrator.publish(&question).await;
    let Answer::Findings(findings) = orchestrator.wait_for_answer(Kind::Verify, id).await else {
        panic!("findings")
    };
    assert_eq!(findings.status, FindingsStatus::NeedsClarification);
    assert_eq!(findings.error.map(|error| error.code), Some(ErrorCode::DeadlineExceeded));
}

/// A body of the server's maximum size is answered if valid; if invalid, it is dead-lettered complete,
/// although the reason no longer fits into the same message. One byte more is refused to the producer.
#[tokio::test]
async fn largest_message_is_answered_or_dead_lettered_complete() {
    let nats = Nats::start();
    let _worker = Worker::manager(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let limit = orchestrator.client.max_payload();
    let filled = |text: &str| {
        let mut handoff = chat(text);
        let short = handoff.encode(Encoding::Json).unwrap().len();
        if let subjects::Work::Chat(chat) = &mut handoff.work {
            chat.messages[0].content.push_str(&"x".repeat(limit - short));
        }
        handoff
    };
    let good = filled("good ");
    let body = good.encode(Encoding::Json).unwrap();
    assert_eq!(body.len(), limit);
    orchestrator.publish_raw(Kind::Chat, HeaderMap::new(), body.clone()).await;
    let answer = orchestrator.wait_for_answer(Kind::Chat, good.id).await;
    assert_eq!(answer.error(), None);

    let bad = filled("bad ");
    let body =
        String::from_utf8(bad.encode(Encoding::Json).unwrap()).unwrap().replace("cynodeai.pm", "cynodeai.xx");
    orchestrator.publish_raw(Kind::Chat, HeaderMap::new(), body.clone().into_bytes()).await;
    let answer = orchestrator.wait_for_answer(Kind::Chat, bad.id).await;
    assert_eq!(answer.error().map(|error| error.code), Some(ErrorCode::NotForPma));
    let letters = orchestrator.contents(streams::DEAD).await;
    let letter = DeadLetter::read(&letters[0].subject, &letters[0].headers).unwrap();
    let object = letter.spilled.expect("the body is in the object store");
    let store = orchestrator.jetstream.get_object_store(streams::SPILL).await.unwrap();
    let mut kept = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut store.get(&object).await.unwrap(), &mut kept).await.unwrap();
    assert_eq!(kept, body.as_bytes());

    // Sent without the client, which would refuse it: the server rejects it, and nothing is stored.
    let stored = orchestrator.stored(streams::HANDOFFS).await;
    let address = nats.url().replace("nats://", "");
    let said =
        tokio::task::spawn_blocking(move || publish_over_the_limit(&address, limit + 1)).await.unwrap();
    assert!(said.contains("Maximum Payload Violation"), "{said}");
    assert_eq!(orchestrator.stored(streams::HANDOFFS).await, stored);
    let id = orchestrator.publish(&chat("still there?")).await;
    orchestrator.wait_for_answer(Kind::Chat, id).await;
}

/// Publishes over a raw connection and returns what the server said.
fn publish_over_the_limit(address: &str, bytes: usize) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "CONNECT {{\"verbose\":false}}\r\nPUB pma.handoff.chat {bytes}\r\n").unwrap();
    let mut said = String::new();
    // Ends when the server closes the connection, which it does in this case.
    stream.read_to_string(&mut said).ok();
    said
}

/// A message with more headers than a dead letter can carry is kept completely, headers and body.
#[tokio::test]
async fn excess_headers_are_kept_in_the_object_store() {
    for layout in Layout::ALL {
        let nats = Nats::start();
        let _manager = Worker::manager(&nats).laid_out(layout).start().await;
        check_kept_in_the_object_store(&nats, layout, Kind::Chat).await;
        let _analyst = Worker::analyst(&nats).laid_out(layout).start().await;
        check_kept_in_the_object_store(&nats, layout, Kind::Verify).await;
    }
}

async fn check_kept_in_the_object_store(nats: &Nats, layout: Layout, kind: Kind) {
    let orchestrator = Orchestrator::connect(nats).await.laid_out(layout);
    let mut flood = HeaderMap::new();
    flood.insert("X-Flood", "x".repeat(60_000));
    flood.insert("Cynode-Dead-Body-Object", "someone-elses");
    orchestrator.publish_raw(kind, flood, b"{".to_vec()).await;
    orchestrator.wait_until_settled().await;
    let letters = orchestrator.contents(streams::DEAD).await;
    let last = letters.last().unwrap();
    let letter = DeadLetter::read(&last.subject, &last.headers).unwrap();
    assert_eq!(letter.kind, kind);
    assert_eq!((&last.payload[..], letter.spilled), (&b"{"[..], None));
    let store = orchestrator.jetstream.get_object_store(layout.spill(kind.role())).await.unwrap();
    let mut kept = String::new();
    let object = letter.spilled_headers.expect("the headers are in the object store");
    tokio::io::AsyncReadExt::read_to_string(&mut store.get(&object).await.unwrap(), &mut kept).await.unwrap();
    assert!(kept.contains("X-Flood") && kept.contains("someone-elses"));
}
