//! One handoff in, one answer out.

use std::time::Duration;

use async_nats::HeaderMap;
use subjects::{
    Answer, Encoding, ErrorCode, FindingsStatus, Kind, Plan, Role, Status, Stop, Work, headers, streams,
};
use testkit::{Nats, Orchestrator, Worker, chat, eventually, handoff, schedule, verify};

/// C5, C6, P14: a chat for `cynodeai.pm` comes back as a completion on the handoff's own subject.
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
    orchestrator.settled().await;
}

/// A worker has one thread to work on unless it is told to have more; either way all is answered.
#[tokio::test]
async fn as_many_threads_work_as_are_set() {
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
            orchestrator.answered(Kind::Chat, id).await;
        }
        let process = procfs::process::Process::new(worker.process.id().try_into().unwrap()).unwrap();
        // What reads files and looks up names has threads for a few seconds, too, and they are called the same.
        eventually("as many threads as were set", async || {
            // One that ended since has no name any more.
            let names = process.tasks().unwrap().filter_map(|thread| Some(thread.ok()?.stat().ok()?.comm));
            (names.filter(|name| name == "tokio-rt-worker").count() == there).then_some(())
        })
        .await;
    }
}

/// P3: the other kinds of a manager are taken up as well, each from its own queue.
#[tokio::test]
async fn schedule_and_plan_are_answered() {
    let nats = Nats::start();
    let _worker = Worker::manager(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let plan = handoff(Work::Plan(Plan {
        goal: "Ship it".into(),
        acceptance_criteria: vec![],
        constraints: vec![],
    }));
    for handoff in [schedule("Check the links."), plan] {
        let id = orchestrator.publish(&handoff).await;
        let completion = orchestrator.completion(handoff.kind(), id).await;
        assert_eq!((completion.kind, completion.status), (handoff.kind(), Status::Completed));
    }
}

/// An analyst that has seen nothing says so, instead of passing or failing what it cannot judge.
#[tokio::test]
async fn a_verification_without_eyes_asks_for_clarification() {
    let nats = Nats::start();
    let _worker = Worker::analyst(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&verify("deploy-docs-2")).await;
    let Answer::Findings(findings) = orchestrator.answered(Kind::Verify, id).await else {
        panic!("findings")
    };
    assert_eq!(findings.status, FindingsStatus::NeedsClarification);
    assert_eq!(findings.task_id.map(|id| id.to_string()).as_deref(), Some("deploy-docs-2"));
    assert_eq!(findings.error, None);
}

/// The answer comes in the encoding of the question, and `traceparent` runs through.
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
    orchestrator.answered(Kind::Chat, question.id).await;
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

/// `reply_to` asks for a copy beside the durable answer.
#[tokio::test]
async fn a_copy_goes_where_the_handoff_asks() {
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
    assert_eq!(orchestrator.answered(Kind::Chat, id).await.handoff_id(), id);
}

/// The same id published twice is run once: by the server's own memory while it lasts, by a look at the answers
/// when the producer gave the server no id to remember.
#[tokio::test]
async fn a_handoff_published_twice_runs_once() {
    let nats = Nats::start();
    let worker = Worker::manager(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let question = chat("twice");
    orchestrator.publish(&question).await;
    orchestrator.answered(Kind::Chat, question.id).await;
    orchestrator.publish(&question).await;
    orchestrator.publish_raw(Kind::Chat, HeaderMap::new(), question.encode(Encoding::Json).unwrap()).await;
    orchestrator.settled().await;
    let settled = "pma_handoffs_settled_total{kind=\"chat\",outcome=\"already_answered\"}";
    eventually("the copy to be known for one", async || worker.metric(settled).await.filter(|n| *n == 1.0))
        .await;
    let answered = "pma_handoffs_settled_total{kind=\"chat\",outcome=\"answered\"}";
    assert_eq!(worker.metric(answered).await, Some(1.0));
    assert_eq!(orchestrator.answers().await.len(), 1);
}

/// A copy that arrives while the first is still running waits for it.
#[tokio::test]
async fn a_copy_of_a_running_handoff_waits_for_it() {
    let nats = Nats::start();
    // With one attempt allowed, a copy that was handed back and taken up again would be given up as poison.
    let settings = Worker::manager(&nats).set("worker.max_attempts", "1").set("worker.ack_wait", "1s");
    let worker = settings.thinking(Duration::from_secs(4)).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let question = chat("twice at once");
    for _ in 0..2 {
        orchestrator
            .publish_raw(Kind::Chat, HeaderMap::new(), question.encode(Encoding::Json).unwrap())
            .await;
    }
    orchestrator.answered(Kind::Chat, question.id).await;
    orchestrator.settled().await;
    let answered = "pma_handoffs_settled_total{kind=\"chat\",outcome=\"answered\"}";
    assert_eq!(worker.metric(answered).await, Some(1.0));
    assert_eq!(orchestrator.answers().await.len(), 1);
    assert_eq!(orchestrator.stored(streams::DEAD).await, 0);
    // The answer and the assessment of the one that ran; the copy asked nobody anything.
    assert_eq!(worker.metric("pma_model_calls_total").await, Some(2.0));
}

/// A handoff that was answered by one who died before settling it is not given up because its deadline passed since.
#[tokio::test]
async fn what_was_answered_is_not_given_up_later() {
    let nats = Nats::start();
    let settings = Worker::manager(&nats).set("worker.ack_wait", "1s");
    drop(settings.start().await);
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut question = chat("answered, not settled");
    let soon = time::OffsetDateTime::now_utc() + Duration::from_secs(1);
    question.deadline = Some(subjects::Timestamp::new(soon).unwrap());
    let id = orchestrator.publish(&question).await;
    // One takes it, answers it and dies.
    let stream = orchestrator.jetstream.get_stream(streams::HANDOFFS).await.unwrap();
    let consumer: async_nats::jetstream::consumer::PullConsumer =
        stream.get_consumer(streams::consumer_name(Kind::Chat)).await.unwrap();
    let mut taken = consumer.fetch().max_messages(1).messages().await.unwrap();
    futures_util::StreamExt::next(&mut taken).await.unwrap().unwrap();
    let subject = subjects::Subject::Completion(id).to_string();
    orchestrator.jetstream.publish(subject, "the answer".into()).await.unwrap().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let worker = settings.start().await;
    orchestrator.settled().await;
    assert_eq!(orchestrator.stored(streams::DEAD).await, 0);
    assert_eq!(orchestrator.answers().await.len(), 1);
    assert_eq!(worker.metric("pma_model_calls_total").await, Some(0.0));
}

/// A deadline that passes during the work ends it, with an answer and a dead letter that can be replayed.
#[tokio::test]
async fn a_deadline_ends_the_work() {
    let nats = Nats::start();
    let _worker = Worker::manager(&nats).thinking(Duration::from_secs(60)).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut question = chat("quickly");
    let soon = time::OffsetDateTime::now_utc() + Duration::from_secs(1);
    question.deadline = Some(subjects::Timestamp::new(soon).unwrap());
    let id = orchestrator.publish(&question).await;
    let answer = orchestrator.answered_within(Duration::from_secs(5), Kind::Chat, id).await;
    assert_eq!(answer.error().map(|error| error.code), Some(ErrorCode::DeadlineExceeded));
    assert_eq!(orchestrator.stored(streams::DEAD).await, 1);
}
