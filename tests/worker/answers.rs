//! Every handoff gets one answer.

use std::time::Duration;

use async_nats::HeaderMap;
use subjects::{
    Answer, Encoding, ErrorCode, FindingsStatus, Kind, Plan, Role, Status, Stop, Work, headers, streams,
};
use testkit::{Nats, Orchestrator, Worker, chat, eventually, handoff, schedule, verify};

/// C5, C6, P14: a chat for `cynodeai.pm` is answered with a completion on the subject of the handoff.
#[tokio::test]
async fn a_chat_is_answered_and_leaves_the_queue() {
    let nats = Nats::start();
    let _worker = Worker::manager(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("What is left to do?")).await;
    let completion = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(completion.status, Status::Completed);
    assert_eq!(completion.attempts, 1);
    assert_eq!(completion.trace.stop, Stop::GoalMet);
    assert_eq!(completion.trace.trace_id, id.trace_id());
    let message = completion.message.expect("a message");
    assert!(message.content.contains("What is left to do?"), "{}", message.content);
    orchestrator.wait_until_settled().await;
}

/// A worker uses one thread unless `worker.threads` says otherwise; either way it answers every handoff.
#[tokio::test]
async fn worker_uses_the_configured_number_of_threads() {
    for (set, there) in [(None, 0), (Some("3"), 3)] {
        let nats = Nats::start();
        let settings = Worker::manager(&nats);
        let worker =
            set.map_or(settings.clone(), |count| settings.set("worker.threads", count)).start().await;
        let orchestrator = Orchestrator::connect(&nats).await;
        let mut asked = Vec::new();
        for number in 0..20 {
            asked.push(orchestrator.publish(&chat(&format!("question {number}"))).await);
        }
        for id in asked {
            orchestrator.wait_for_answer(Kind::Chat, id).await;
        }
        let process = procfs::process::Process::new(worker.process.id().try_into().unwrap()).unwrap();
        // Blocking file reads and name lookups also use threads with this name for a few seconds.
        eventually("the configured number of threads", async || {
            // A thread that has ended has no name.
            let names = process.tasks().unwrap().filter_map(|thread| Some(thread.ok()?.stat().ok()?.comm));
            (names.filter(|name| name == "tokio-rt-worker").count() == there).then_some(())
        })
        .await;
    }
}

/// P3: a manager also processes its other kinds, each from its own queue.
#[tokio::test]
async fn schedule_and_plan_are_answered() {
    let nats = Nats::start();
    let _worker = Worker::manager(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let plan = handoff(Work::Plan(Plan {
        goal: "Ship it".into(),
        acceptance_criteria: vec![],
        constraints: vec![],
        task_id: None,
    }));
    for handoff in [schedule("Check the links."), plan] {
        let id = orchestrator.publish(&handoff).await;
        let completion = orchestrator.completion(handoff.kind(), id).await;
        assert_eq!((completion.kind, completion.status), (handoff.kind(), Status::Completed));
    }
}

/// An analyst without tools reports that it could not judge the criteria, instead of passing or failing them.
#[tokio::test]
async fn verification_without_tools_asks_for_clarification() {
    let nats = Nats::start();
    let _worker = Worker::analyst(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&verify("deploy-docs-2")).await;
    let Answer::Findings(findings) = orchestrator.wait_for_answer(Kind::Verify, id).await else {
        panic!("findings")
    };
    assert_eq!(findings.status, FindingsStatus::NeedsClarification);
    assert_eq!(findings.task_id.map(|id| id.to_string()).as_deref(), Some("deploy-docs-2"));
    assert_eq!(findings.error, None);
}

/// The answer uses the encoding of the handoff and carries its `traceparent`.
#[tokio::test]
async fn message_pack_is_answered_in_message_pack() {
    let nats = Nats::start();
    let _worker = Worker::manager(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let question = chat("packed");
    let mut sent = HeaderMap::new();
    sent.insert(headers::CONTENT_TYPE, Encoding::MessagePack.content_type());
    sent.insert("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    orchestrator.publish_raw(Kind::Chat, sent, question.encode(Encoding::MessagePack).unwrap()).await;
    orchestrator.wait_for_answer(Kind::Chat, question.id).await;
    let stored = orchestrator.answers().await;
    let content_type = stored[0].headers.get(headers::CONTENT_TYPE).unwrap().as_str();
    assert_eq!(content_type, "application/msgpack");
    assert!(
        stored[0]
            .headers
            .get("traceparent")
            .unwrap()
            .as_str()
            .starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-")
    );
    let answer = Answer::decode(Role::ProjectManager, Encoding::MessagePack, &stored[0].payload).unwrap();
    assert_eq!(answer.handoff_id(), question.id);
}

/// `reply_to` requests a copy in addition to the durable answer.
#[tokio::test]
async fn copy_of_the_answer_is_sent_to_reply_to() {
    use futures_util::StreamExt;
    let nats = Nats::start();
    let _worker = Worker::manager(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut copies = orchestrator.client.subscribe("pma.reply.mine").await.unwrap();
    orchestrator.client.flush().await.unwrap();
    let mut question = chat("a copy, please");
    question.reply_to = Some("pma.reply.mine".into());
    let id = orchestrator.publish(&question).await;
    let copy = tokio::time::timeout(Duration::from_secs(10), copies.next()).await.unwrap().unwrap();
    let stored = orchestrator.answers().await;
    assert_eq!(copy.payload, stored[0].payload);
    assert_eq!(orchestrator.wait_for_answer(Kind::Chat, id).await.handoff_id(), id);
}

/// The same id published twice runs once. The server drops the copy within its dedupe window; without a
/// message id, the worker finds the stored answer.
#[tokio::test]
async fn a_handoff_published_twice_runs_once() {
    let nats = Nats::start();
    let worker = Worker::manager(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let question = chat("twice");
    orchestrator.publish(&question).await;
    orchestrator.wait_for_answer(Kind::Chat, question.id).await;
    orchestrator.publish(&question).await;
    orchestrator.publish_raw(Kind::Chat, HeaderMap::new(), question.encode(Encoding::Json).unwrap()).await;
    orchestrator.wait_until_settled().await;
    let settled = "pma_handoffs_settled_total{kind=\"chat\",outcome=\"already_answered\"}";
    eventually("the copy to be settled as already answered", async || {
        worker.metric(settled).await.filter(|n| *n == 1.0)
    })
    .await;
    let answered = "pma_handoffs_settled_total{kind=\"chat\",outcome=\"answered\"}";
    assert_eq!(worker.metric(answered).await, Some(1.0));
    assert_eq!(orchestrator.answers().await.len(), 1);
}

/// A copy that arrives while the first is still running waits for it.
#[tokio::test]
async fn a_copy_of_a_running_handoff_waits_for_it() {
    let nats = Nats::start();
    // With one attempt allowed, a copy that was handed back and claimed again would be dead-lettered as
    // poisoned.
    let settings = Worker::manager(&nats).set("worker.max_attempts", "1").set("worker.ack_wait", "1s");
    let worker = settings.thinking(Duration::from_secs(4)).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let question = chat("twice at once");
    for _ in 0..2 {
        orchestrator
            .publish_raw(Kind::Chat, HeaderMap::new(), question.encode(Encoding::Json).unwrap())
            .await;
    }
    orchestrator.wait_for_answer(Kind::Chat, question.id).await;
    orchestrator.wait_until_settled().await;
    let answered = "pma_handoffs_settled_total{kind=\"chat\",outcome=\"answered\"}";
    assert_eq!(worker.metric(answered).await, Some(1.0));
    assert_eq!(orchestrator.answers().await.len(), 1);
    assert_eq!(orchestrator.stored(streams::DEAD).await, 0);
    // One answer by the running handoff; the copy made no model call.
    assert_eq!(worker.metric("pma_model_calls_total").await, Some(1.0));
}

/// A worker answers a handoff and dies before it settles the delivery. The handoff is not dead-lettered when
/// its deadline has passed by the redelivery.
#[tokio::test]
async fn answered_handoff_is_not_dead_lettered_after_its_deadline() {
    let nats = Nats::start();
    let settings = Worker::manager(&nats).set("worker.ack_wait", "1s");
    drop(settings.start().await);
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut question = chat("answered, not settled");
    let soon = time::OffsetDateTime::now_utc() + Duration::from_secs(1);
    question.deadline = Some(subjects::Timestamp::new(soon).unwrap());
    let id = orchestrator.publish(&question).await;
    // A client takes the message, answers it and never settles it.
    let stream = orchestrator.jetstream.get_stream(streams::HANDOFFS).await.unwrap();
    let consumer: async_nats::jetstream::consumer::PullConsumer =
        stream.get_consumer(streams::consumer_name(Kind::Chat)).await.unwrap();
    let mut taken = consumer.fetch().max_messages(1).messages().await.unwrap();
    futures_util::StreamExt::next(&mut taken).await.unwrap().unwrap();
    let subject = subjects::Subject::Completion(id).to_string();
    orchestrator.jetstream.publish(subject, "the answer".into()).await.unwrap().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let worker = settings.start().await;
    orchestrator.wait_until_settled().await;
    assert_eq!(orchestrator.stored(streams::DEAD).await, 0);
    assert_eq!(orchestrator.answers().await.len(), 1);
    assert_eq!(worker.metric("pma_model_calls_total").await, Some(0.0));
}

/// A deadline that passes during the work ends it with an answer and a dead letter that can be replayed.
#[tokio::test]
async fn a_deadline_ends_the_work() {
    let nats = Nats::start();
    let _worker = Worker::manager(&nats).thinking(Duration::from_secs(60)).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut question = chat("quickly");
    let soon = time::OffsetDateTime::now_utc() + Duration::from_secs(1);
    question.deadline = Some(subjects::Timestamp::new(soon).unwrap());
    let id = orchestrator.publish(&question).await;
    let answer = orchestrator.wait_for_answer_within(Duration::from_secs(5), Kind::Chat, id).await;
    assert_eq!(answer.error().map(|error| error.code), Some(ErrorCode::DeadlineExceeded));
    assert_eq!(orchestrator.stored(streams::DEAD).await, 1);
}
