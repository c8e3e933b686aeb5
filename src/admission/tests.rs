use nkeys::KeyPair;
use serde_json::{Value, json};
use subjects::SCHEMA_VERSION;

use super::*;

const ID: &str = "0193f2c0-5a00-7000-8000-00000000c0de";
const SUBJECT: &str = "pma.handoff.chat";

fn now() -> OffsetDateTime {
    "2026-11-14T10:00:30Z".parse::<subjects::Timestamp>().unwrap().at()
}

fn chat() -> Value {
    json!({
        "schema_version": SCHEMA_VERSION, "handoff_id": ID, "kind": "chat",
        "issued_at": "2026-11-14T10:00:00Z",
        "payload": { "model": "cynodeai.pm", "messages": [{ "role": "user", "content": "hello" }] },
    })
}

fn policy(trusted: Option<&KeyPair>) -> Policy {
    let trusted_producers =
        trusted.map(|key| TrustedProducer { key: key.public_key(), subjects: None }).into_iter().collect();
    Policy {
        trusted_producers,
        reply_prefixes: vec!["pma.reply.".into(), "_INBOX.".into()],
        answers_kept: tokio::sync::watch::channel(Duration::from_secs(7 * 24 * 3_600)).1,
    }
}

fn admit(policy: &Policy, headers: &HeaderMap, body: &[u8]) -> Result<Admitted, Refused> {
    policy.admit(&IncomingMessage { kind: Kind::Chat, subject: SUBJECT, headers: Some(headers), body }, now())
}

#[track_caller]
fn refused(body: &Value, code: ErrorCode) -> Refused {
    let refused = admit(&policy(None), &HeaderMap::new(), body.to_string().as_bytes()).unwrap_err();
    assert_eq!(refused.refusal.code, code, "{}", refused.refusal);
    refused
}

#[test]
fn valid_handoff_is_admitted_with_its_trace_id() {
    let admitted = admit(&policy(None), &HeaderMap::new(), chat().to_string().as_bytes()).unwrap();
    assert_eq!(admitted.trace_id, ID.replace('-', ""));
    assert!(!admitted.deduplicated);
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Msg-Id", ID);
    headers.insert("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let admitted = admit(&policy(None), &headers, chat().to_string().as_bytes()).unwrap();
    assert_eq!(admitted.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
    assert!(admitted.deduplicated);
}

#[test]
fn a_deadline_that_has_passed_is_refused() {
    let mut body = chat();
    body["deadline"] = json!("2026-11-14T10:00:30Z");
    refused(&body, ErrorCode::DeadlineExceeded);
    body["deadline"] = json!("2026-11-14T10:00:31Z");
    assert!(admit(&policy(None), &HeaderMap::new(), body.to_string().as_bytes()).is_ok());
}

#[test]
fn reply_to_outside_the_allowed_prefixes_is_refused() {
    let mut body = chat();
    for good in ["pma.reply.x", "_INBOX.abc.1"] {
        body["reply_to"] = json!(good);
        assert!(admit(&policy(None), &HeaderMap::new(), body.to_string().as_bytes()).is_ok(), "{good}");
    }
    let long = format!("pma.reply.{}", "x".repeat(300));
    for bad in [
        "pma.handoff.chat",
        "pma.reply.",
        "pma.reply.*",
        "pma.reply.a b",
        "pma.reply..x",
        "",
        "pma.reply.\r\nPUB",
        &long,
    ] {
        body["reply_to"] = json!(bad);
        assert_eq!(refused(&body, ErrorCode::InvalidHandoff).identity.answer_to, ID.parse().ok(), "{bad}");
    }
}

#[test]
fn message_id_identifies_an_unreadable_body() {
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Msg-Id", ID);
    let refused = admit(&policy(None), &headers, b"\xff").unwrap_err();
    assert_eq!(refused.identity.answer_to, ID.parse().ok());
    let refused = admit(&policy(None), &HeaderMap::new(), b"\xff").unwrap_err();
    assert_eq!(refused.identity.answer_to, None);
}

/// P2: an untrusted producer is refused before its handoff is decoded, and is not answered.
#[test]
fn untrusted_producers_are_refused_before_decoding_and_not_answered() {
    let (key, untrusted) = (KeyPair::new_user(), KeyPair::new_user());
    let body = chat().to_string();
    let sign = |key: &KeyPair, subject: &str| {
        let inspected = Body::inspect(Encoding::Json, body.as_bytes());
        SignatureBase::new(subject, inspected.envelope_fields(), body.as_bytes()).unwrap().sign(key).unwrap()
    };
    let check = |header: Option<String>, body: &str| {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", ID);
        if body.starts_with(' ') {
            headers.insert("Content-Type", "text/plain");
        }
        if let Some(header) = header {
            headers.insert("Cynode-Signature", header);
        }
        admit(&policy(Some(&key)), &headers, body.as_bytes())
    };
    assert!(check(Some(sign(&key, SUBJECT)), &body).is_ok());
    let good = Some(sign(&key, SUBJECT));
    assert_eq!(check(good, &format!(" {body}")).unwrap_err().refusal.code, ErrorCode::UntrustedProducer);
    for (what, header, body) in [
        ("unsigned", None, body.clone()),
        ("signed by an untrusted key", Some(sign(&untrusted, SUBJECT)), body.clone()),
        ("signed for another subject", Some(sign(&key, "pma.handoff.plan")), body.clone()),
        ("changed after signing", Some(sign(&key, SUBJECT)), body.replace("hello", "hullo")),
        ("unreadable", Some(sign(&key, SUBJECT)), "{".to_owned()),
    ] {
        let refused = check(header, &body).unwrap_err();
        assert_eq!(refused.refusal.code, ErrorCode::UntrustedProducer, "{what}");
        assert_eq!(refused.identity.answer_to, None, "{what}");
    }
}
