//! Resuming from a journal, and journals that cannot be resumed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, StreamExt};
use serde_json::json;
use subjects::{
    Continue, ErrorCode, Handoff, HandoffId, Kind, Status, Stop, Timestamp, Work,
    journal::{Entry, Record, SPILL_THRESHOLD},
    streams,
};
use testkit::{
    Answer as GatewayAnswer, Errands, Gateway, Model, Nats, Orchestrator, Script, Tool, Worker,
    WorkerBuilder, chat, eventually, handoff,
};
use time::OffsetDateTime;

/// Response time of the model, adjustable while it runs.
fn adjustable(first: u64) -> (Arc<AtomicU64>, impl Fn() -> Duration + Send + Sync + 'static) {
    let ms = Arc::new(AtomicU64::new(first));
    let read = Arc::clone(&ms);
    (ms, move || Duration::from_millis(read.load(Ordering::Relaxed)))
}

async fn settled(worker: &Worker, outcome: &str) -> f64 {
    let name = format!("pma_handoffs_settled_total{{kind=\"chat\",outcome=\"{outcome}\"}}");
    worker.metric(&name).await.unwrap_or(0.0)
}

/// Frozen before a call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_worker_makes_no_calls_after_losing_its_claim() {
    check_frozen_worker(1, None).await;
}

/// Frozen before its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_worker_does_not_answer_after_losing_its_claim() {
    check_frozen_worker(Errands::TURNS - 1, None).await;
}

/// Frozen until its deadline has passed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_worker_does_not_dead_letter_after_losing_its_claim() {
    check_frozen_worker(Errands::TURNS - 1, Some(Duration::from_secs(25))).await;
}

/// The same, frozen before its last append was confirmed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_frozen_during_an_append_does_not_dead_letter() {
    let (thinks, time) = adjustable(300);
    let (errands, nats) = (Errands::start(time).await, Nats::start());
    let settings = errands.worker(&nats).set("worker.ack_wait", "1s");
    let zombie = settings.start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let (handoff, deadline) = due_in(Duration::from_secs(25));
    let (id, lease) = (handoff.id, errands.publish_leased(&orchestrator, &handoff).await);
    eventually("the second turn", async || (errands.asked("x1")[1] == 1).then_some(())).await;
    errands.gateway.process.freeze();
    eventually("the intents of the last calls", async || {
        let intents = orchestrator.journal(id).await.into_iter().flat_map(|entry| entry.records);
        let intents = intents.filter(|record| matches!(record, Record::ToolIntent(_))).count();
        (intents == Errands::EFFECTS).then_some(())
    })
    .await;
    // Their results are being stored, and the confirmation does not arrive.
    nats.process().freeze();
    errands.gateway.process.thaw();
    eventually("the last effects", async || {
        (errands.effects().await.len() == Errands::EFFECTS).then_some(())
    })
    .await;
    zombie.process.freeze();
    thinks.store(10, Ordering::Relaxed);
    nats.process().thaw();
    check_resumed_worker(Haunted {
        errands,
        nats,
        settings,
        zombie,
        orchestrator,
        id,
        lease,
        deadline: Some(deadline),
        // That the last calls have ended, which it learnt just before.
        was_reporting: true,
    })
    .await;
}

/// An errand with a deadline.
fn due_in(time: Duration) -> (Handoff, OffsetDateTime) {
    let deadline = OffsetDateTime::now_utc() + time;
    let handoff = Handoff { deadline: Some(Timestamp::new(deadline).unwrap()), ..Errands::handoff("x1") };
    (handoff, deadline)
}

struct Haunted {
    errands: Errands,
    nats: Nats,
    settings: WorkerBuilder,
    /// Frozen.
    zombie: Worker,
    orchestrator: Orchestrator,
    id: HandoffId,
    lease: String,
    deadline: Option<OffsetDateTime>,
    /// Whether it may have been frozen while it sent a progress event.
    was_reporting: bool,
}

/// Freezes a worker past `ack_wait` in the middle of a turn and resumes it after another one has finished: it
/// must not call, publish or acknowledge anything.
async fn check_frozen_worker(turn: usize, within: Option<Duration>) {
    let (thinks, time) = adjustable(700);
    let (errands, nats) = (Errands::start(time).await, Nats::start());
    let settings = errands.worker(&nats).set("worker.ack_wait", "1s");
    let zombie = settings.start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let (handoff, deadline) = match within.map(due_in) {
        Some((handoff, deadline)) => (handoff, Some(deadline)),
        None => (Errands::handoff("x1"), None),
    };
    let (id, lease) = (handoff.id, errands.publish_leased(&orchestrator, &handoff).await);
    eventually("the model request of the turn", async || (errands.asked("x1")[turn] == 1).then_some(()))
        .await;
    zombie.process.freeze();
    thinks.store(10, Ordering::Relaxed);
    check_resumed_worker(Haunted {
        errands,
        nats,
        settings,
        zombie,
        orchestrator,
        id,
        lease,
        deadline,
        was_reporting: false,
    })
    .await;
}

/// Counts the calls of tools. A worker that finds a handoff answered may give its lease back once more.
async fn calls(errands: &Errands) -> usize {
    let rows = errands.gateway.audit("limit=1000").await;
    rows.iter().filter(|row| row["tool"] != "lease.revoke").count()
}

/// Lets another worker finish the handoff, then resumes the frozen one.
async fn check_resumed_worker(haunted: Haunted) {
    let Haunted { errands, nats: _nats, settings, zombie, orchestrator, id, lease, deadline, was_reporting } =
        haunted;
    let other = settings.start().await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!((answer.status, answer.attempts), (Status::Completed, 2));
    orchestrator.wait_until_settled().await;
    errands.wait_for_revocation(&lease).await;

    let stored = orchestrator.contents(streams::RUNS).await.len();
    let calls = calls(&errands).await;
    // Plain subscriptions also receive messages that the streams refuse. The frozen worker holds the first
    // delivery; a redelivery may be in its socket, and it may acknowledge that one as already answered.
    let mut published = Vec::new();
    let subjects = ["pma.run.>", "pma.delta.>", "pma.dead.>", "$JS.ACK.*.*.1.>"];
    for subject in subjects.into_iter().chain((!was_reporting).then_some("pma.event.>")) {
        published.push(orchestrator.client.subscribe(subject).await.unwrap());
    }
    let mut published = futures_util::stream::select_all(published);
    orchestrator.client.flush().await.unwrap();
    if let Some(deadline) = deadline {
        eventually("the deadline to pass", async || (OffsetDateTime::now_utc() > deadline).then_some(()))
            .await;
    }
    zombie.process.thaw();
    eventually("the frozen worker to be fenced", async || {
        (settled(&zombie, "fenced").await == 1.0).then_some(())
    })
    .await;
    orchestrator.queued().await;
    let heard = published.next().now_or_never().flatten();
    assert!(heard.is_none(), "the frozen worker published on {}", heard.unwrap().subject);
    assert_eq!(
        orchestrator.contents(streams::RUNS).await.len(),
        stored,
        "the frozen worker stored a message"
    );
    assert_eq!(self::calls(&errands).await, calls, "the frozen worker called a tool");
    let effects = errands.effects().await;
    assert_eq!(effects.len(), Errands::EFFECTS);
    assert!(effects.values().all(|count| *count == 1), "{effects:?}");
    // Both workers still process further handoffs.
    for name in ["x2", "x3", "x4"] {
        let id = orchestrator.publish(&Errands::handoff(name)).await;
        assert_eq!(orchestrator.completion(Kind::Chat, id).await.status, Status::Completed);
    }
    drop(other);
}

/// A handoff whose worker was killed right after the claim.
async fn begun(nats: &Nats, orchestrator: &Orchestrator) -> HandoffId {
    let mut worker =
        Worker::manager(nats).set("worker.ack_wait", "1s").thinking(Duration::from_secs(600)).start().await;
    let id = orchestrator.publish(&chat("begun")).await;
    eventually("the claim to be stored", async || (!orchestrator.journal(id).await.is_empty()).then_some(()))
        .await;
    worker.process.kill();
    id
}

/// A journal entry that cannot be read ends the handoff with an error and a dead letter; nothing is repeated
/// on a guess.
#[tokio::test]
async fn unreadable_journal_ends_in_an_answer_and_a_dead_letter() {
    let nats = Nats::start();
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = begun(&nats, &orchestrator).await;
    orchestrator.write_journal(id, r#"{"v":1,"at":"2026-01-01T00:00:00Z","records":[{"record":"mod"#).await;
    let worker = Worker::manager(&nats).set("worker.ack_wait", "1s").start().await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!((answer.status, answer.trace.stop), (Status::Failed, Stop::GivenUp));
    let error = answer.error.expect("an error");
    assert_eq!(error.code, ErrorCode::Internal);
    assert!(error.message.contains("the journal cannot be read"), "{}", error.message);
    assert_eq!(orchestrator.stored(streams::DEAD).await, 1);
    orchestrator.wait_until_settled().await;
    assert_eq!(worker.metric("pma_model_calls_total").await, Some(0.0), "the turn was started over");
}

/// A handoff that a newer build has started is handed back.
#[tokio::test]
async fn handoff_of_a_newer_build_is_handed_back() {
    let nats = Nats::start();
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = begun(&nats, &orchestrator).await;
    orchestrator.write_journal(id, r#"{"v":99,"unheard":"of"}"#).await;
    let worker = Worker::manager(&nats).set("worker.ack_wait", "1s").start().await;
    eventually("the handoff to be handed back", async || {
        (settled(&worker, "retried").await == 1.0).then_some(())
    })
    .await;
    assert!(worker.log().contains("Journal was written by a newer build"));
    assert_eq!(orchestrator.queued().await, 1);
    assert!(orchestrator.answer(Kind::Chat, id).await.is_none());
    assert_eq!(orchestrator.stored(streams::DEAD).await, 0);
}

/// This build finishes a turn that a build of version 1 started; the journal is byte for byte what that build
/// wrote.
#[tokio::test]
async fn handoff_of_an_older_build_is_finished() {
    let errands = Errands::start(|| Duration::from_millis(5)).await;
    let nats = Nats::start();
    drop(errands.worker(&nats).start().await);
    let orchestrator = Orchestrator::connect(&nats).await;
    let handoff = Errands::handoff("x1");
    let written = include_str!("../data/journal_v1.jsonl").replace("{handoff}", &handoff.id.to_string());
    for line in written.lines() {
        assert_eq!(Entry::decode(line.as_bytes()).unwrap().v, 1);
        orchestrator.write_journal(handoff.id, line.to_owned()).await;
    }
    // As after a kill: published long ago and redelivered.
    orchestrator
        .publish_raw(Kind::Chat, Default::default(), handoff.encode(subjects::Encoding::Json).unwrap())
        .await;
    let _worker = errands.worker(&nats).set("worker.ack_wait", "1s").start().await;
    let answer = orchestrator.completion(Kind::Chat, handoff.id).await;
    assert_eq!((answer.status, answer.attempts), (Status::Completed, 2));
    assert_eq!(errands.asked("x1"), [0, 1, 1], "the first turn was already finished");
    let effects: Vec<String> = errands.effects().await.into_keys().collect();
    assert_eq!(effects, Errands::expected_effects("x1"));
}

/// A handoff that makes progress each time may be claimed any number of times, even with a small
/// `worker.max_attempts`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handoff_with_progress_is_never_poisoned() {
    let errands = Errands::start(|| Duration::from_millis(5)).await;
    let nats = Nats::start();
    let settings = errands.worker(&nats).set("worker.ack_wait", "1s").set("worker.max_attempts", "1");
    drop(settings.start().await);
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&Errands::handoff("x1")).await;
    // Each worker makes one append more than the one before.
    for _ in 0..3 {
        let mut worker = settings.clone().stopping_at("Appended#1").start().await;
        eventually("the next crash point", async || worker.log().contains("\"stops\":true").then_some(()))
            .await;
        worker.process.kill();
    }
    let _worker = settings.start().await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!((answer.status, answer.attempts), (Status::Completed, 4));
    // Tool results are stored while the next request is sent, so the kill may interrupt that request.
    let [first, second, third] = errands.asked("x1");
    assert_eq!((first, third), (1, 1), "finished turns are not paid again");
    assert!((1..=2).contains(&second), "{second} requests of the second turn");
}

/// A worker that is stopped in an orderly way records it: the attempt does not count, and no finished work is
/// lost.
#[tokio::test]
async fn orderly_stop_does_not_count_as_an_attempt() {
    let nats = Nats::start();
    let settings = Worker::manager(&nats).set("worker.max_attempts", "1").set("worker.grace", "0s");
    let slow = settings.clone().thinking(Duration::from_secs(600));
    let orchestrator = Orchestrator::connect(&nats).await;
    drop(settings.start().await);
    let id = orchestrator.publish(&chat("handed on")).await;
    for count in 1..=3 {
        let mut worker = slow.start().await;
        worker.wait_for_in_flight(Kind::Chat, 1).await;
        let claims = async || {
            let journal = orchestrator.journal(id).await;
            let records = journal.iter().flat_map(|entry| &entry.records);
            let claims = records.filter(|record| matches!(record, Record::Claimed(_))).count();
            (claims == count).then_some(())
        };
        eventually("the claim to be stored", claims).await;
        worker.process.terminate();
        assert_eq!(worker.process.wait(Duration::from_secs(10)).code(), Some(0));
    }
    let _worker = settings.start().await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!((answer.status, answer.attempts), (Status::Completed, 4));
}

/// A question, its answer, and a crash in between: the `continue` builds on the same transcript.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn continue_after_a_crash_uses_the_same_transcript() {
    let create = |title: &str| Script::call("db__task__create", &json!({ "title": title }));
    let ask = Script::call("ask_user", &json!({ "question": "Which site?" }));
    let model = Model::start([create("before"), ask, create("after"), Script::say("both are there")]).await;
    let errands = Errands::start(|| Duration::ZERO).await;
    let nats = Nats::start();
    let settings = errands.worker(&nats).asking(&model).set("worker.ack_wait", "1s");
    let first = settings.start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let asked = orchestrator.publish(&chat("create the tasks for the site")).await;
    assert_eq!(orchestrator.completion(Kind::Chat, asked).await.status, Status::NeedsClarification);
    drop(first);

    let mut dies = settings.clone().stopping_at("ToolAnswered#1").start().await;
    let work = Work::Continue(Continue::new(asked, "the docs"));
    let id = orchestrator.publish(&handoff(work)).await;
    eventually("the crash point before the call", async || {
        dies.log().contains("\"stops\":true").then_some(())
    })
    .await;
    dies.process.kill();
    let _next = settings.start().await;
    let answer = orchestrator.completion(Kind::Continue, id).await;
    assert_eq!((answer.status, answer.attempts), (Status::Completed, 2), "{:?}", answer.error);
    let turns = model.turns();
    assert_eq!(turns.len(), 4, "no turn was requested twice");
    let roles: Vec<&str> =
        turns[3].messages().iter().map(|message| message["role"].as_str().unwrap_or_default()).collect();
    let expected = ["system", "user", "assistant", "tool", "assistant", "user", "assistant", "tool"];
    assert_eq!(roles, expected, "the complete conversation");
    let effects: Vec<(String, usize)> = errands.effects().await.into_iter().collect();
    assert_eq!(effects, [("after".to_owned(), 1), ("before".to_owned(), 1)]);
}

/// An entry that is too large for a message is stored in the object store, where the next worker finds it.
#[tokio::test]
async fn a_large_entry_is_kept_in_the_object_store() {
    let long = "x".repeat(SPILL_THRESHOLD + 1);
    let result = long.clone();
    let create = Tool::new("db.task.create", "Creates a task.", json!({ "type": "object" }), move |_| {
        GatewayAnswer::text(result.clone())
    });
    let gateway = Gateway::start(vec![create]).await;
    let model = Model::start([Script::call("db__task__create", &json!({})), Script::say("fini")]).await;
    let nats = Nats::start();
    let settings = Worker::manager(&nats)
        .asking(&model)
        .calling(&gateway)
        .set("worker.ack_wait", "1s")
        .set("agent.assess_input", "false")
        .set("agent.context_tokens", "1000000")
        .set("gateway.max_result_bytes", "1000000");
    let mut first = settings.clone().stopping_at("Appended#2").start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("create the tasks at length")).await;
    eventually("the entry to be stored", async || first.log().contains("\"stops\":true").then_some(())).await;
    first.process.kill();
    assert!(orchestrator.journal(id).await.iter().any(|entry| entry.spilled.is_some()));
    let _second = settings.start().await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.message.map(|message| message.content).as_deref(), Some("fini"), "{:?}", answer.error);
    let seen = model.turns().last().unwrap().messages().last().unwrap()["content"].to_string();
    assert!(seen.contains(&long), "the model receives the stored result");
    assert_eq!(gateway.calls().len(), 1, "the tool was not called again");
}
