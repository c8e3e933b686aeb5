//! With `security.trusted_producers` set, only signed handoffs are accepted.

use std::time::Duration;

use async_nats::HeaderMap;
use nkeys::KeyPair;
use subjects::{
    Body, DeadLetter, Encoding, ErrorCode, Handoff, Kind, Subject, headers, signature::SignatureBase, streams,
};
use testkit::{Nats, Orchestrator, Worker, chat, eventually};

fn signature(key: &KeyPair, subject: &Subject, body: &[u8]) -> String {
    let subject = subject.to_string();
    let inspected = Body::inspect(Encoding::Json, body);
    SignatureBase::new(&subject, inspected.envelope_fields(), body).unwrap().sign(key).unwrap()
}

fn signed(key: &KeyPair, subject: &Subject, handoff: &Handoff) -> (HeaderMap, Vec<u8>) {
    let body = handoff.encode(Encoding::Json).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(headers::SIGNATURE, signature(key, subject, &body));
    headers.insert(headers::MSG_ID, handoff.id.to_string());
    (headers, body)
}

/// P2: unsigned, wrongly signed, modified and re-targeted handoffs are dead-lettered without an answer, so
/// that an untrusted client cannot occupy the id of another handoff: the genuine one is answered afterwards
/// under that id.
#[tokio::test]
async fn untrusted_handoff_is_not_answered_and_cannot_occupy_an_id() {
    let nats = Nats::start();
    let (key, stranger) = (KeyPair::new_user(), KeyPair::new_user());
    let trusted = format!("[\"{}\"]", key.public_key());
    let worker = Worker::manager(&nats).set("security.trusted_producers", &trusted).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let rightful = chat("the rightful one");
    let chat_subject = Subject::Handoff(Kind::Chat);
    let (good_headers, good_body) = signed(&key, &chat_subject, &rightful);

    let mut strangers = Vec::new();
    strangers.push(("unsigned", Kind::Chat, HeaderMap::new(), good_body.clone()));
    let (by_stranger, _) = signed(&stranger, &chat_subject, &rightful);
    strangers.push(("signed by a stranger", Kind::Chat, by_stranger, good_body.clone()));
    let mut garbled = HeaderMap::new();
    garbled.insert(headers::SIGNATURE, "garbled");
    strangers.push(("garbled signature", Kind::Chat, garbled, good_body.clone()));
    let changed = String::from_utf8(good_body.clone()).unwrap().replace("rightful", "wrongful").into_bytes();
    strangers.push(("changed body", Kind::Chat, good_headers.clone(), changed));
    strangers.push(("re-targeted", Kind::Plan, good_headers.clone(), good_body.clone()));
    // The content type is not signed. A valid body with another content type must not be refused under the
    // genuine id.
    let mut relabelled = good_headers.clone();
    relabelled.insert(headers::CONTENT_TYPE, "text/plain");
    strangers.push(("relabelled", Kind::Chat, relabelled, good_body.clone()));
    let mut repacked = good_headers.clone();
    repacked.insert(headers::CONTENT_TYPE, "application/msgpack");
    strangers.push(("repacked", Kind::Chat, repacked, good_body.clone()));
    strangers.push(("truncated", Kind::Chat, good_headers.clone(), good_body[..40].to_vec()));
    for (number, (name, kind, mut headers, body)) in strangers.into_iter().enumerate() {
        // Without the message id of the genuine handoff; otherwise the server would deduplicate it.
        headers.insert(headers::MSG_ID, format!("stranger-{number}"));
        orchestrator.publish_raw(kind, headers, body.clone()).await;
        eventually(name, async || (orchestrator.queued().await == 0).then_some(())).await;
        let letters = orchestrator.contents(streams::DEAD).await;
        assert_eq!(letters.len(), number + 1, "{name}");
        let letter = DeadLetter::read(&letters[number].subject, &letters[number].headers).unwrap();
        assert_eq!(letter.reason, ErrorCode::UntrustedProducer, "{name}");
        assert_eq!(letters[number].payload, body, "{name}");
    }
    assert_eq!(orchestrator.stored(streams::RUNS).await, 0, "an untrusted handoff was answered");

    orchestrator.publish_raw(Kind::Chat, good_headers, good_body).await;
    let answer = orchestrator.wait_for_answer_within(Duration::from_secs(10), Kind::Chat, rightful.id).await;
    assert_eq!(answer.error(), None);
    let refused = "pma_handoffs_refused_total{kind=\"chat\",code=\"untrusted_producer\"}";
    assert_eq!(worker.metric(refused).await, Some(7.0));
}

/// A key may be trusted for some subjects only.
#[tokio::test]
async fn key_can_be_trusted_for_one_subject_only() {
    let nats = Nats::start();
    let key = KeyPair::new_user();
    let trusted = format!("[{{key=\"{}\",subjects=[\"pma.handoff.plan\"]}}]", key.public_key());
    let _worker = Worker::manager(&nats).set("security.trusted_producers", &trusted).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let question = chat("not mine to ask");
    let (headers, body) = signed(&key, &Subject::Handoff(Kind::Chat), &question);
    orchestrator.publish_raw(Kind::Chat, headers, body).await;
    eventually("the handoff to be dead-lettered", async || {
        (orchestrator.stored(streams::DEAD).await == 1).then_some(())
    })
    .await;
    let plan = testkit::handoff(subjects::Work::Plan(subjects::Plan {
        goal: "mine to ask".into(),
        acceptance_criteria: vec![],
        constraints: vec![],
        task_id: None,
    }));
    let (headers, body) = signed(&key, &Subject::Handoff(Kind::Plan), &plan);
    orchestrator.publish_raw(Kind::Plan, headers, body).await;
    assert_eq!(orchestrator.wait_for_answer(Kind::Plan, plan.id).await.error(), None);
}
