//! What a journal makes possible, and what it refuses to guess.

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
    journal::{Entry, Record, SPILL_OVER},
    streams,
};
use testkit::{
    Answer as GatewayAnswer, Errands, Gateway, Model, Nats, Orchestrator, Script, Tool, Worker,
    WorkerBuilder, chat, eventually, handoff,
};
use time::OffsetDateTime;

/// A model whose patience can be changed while it runs.
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
async fn a_zombie_calls_nothing() {
    a_zombie_does_nothing(1, None).await;
}

/// Frozen before its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zombie_answers_nothing() {
    a_zombie_does_nothing(Errands::TURNS - 1, None).await;
}

/// Frozen until it is too late for an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zombie_gives_nothing_up() {
    a_zombie_does_nothing(Errands::TURNS - 1, Some(Duration::from_secs(10))).await;
}

/// The same, frozen before it heard whether its last entry was stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zombie_in_the_middle_of_an_append_gives_nothing_up() {
    let (thinks, time) = adjustable(300);
    let (errands, nats) = (Errands::start(time).await, Nats::start());
    let settings = errands.worker(&nats).set("worker.ack_wait", "1s");
    let zombie = settings.start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let (handoff, deadline) = due_in(Duration::from_secs(10));
    let id = orchestrator.publish(&handoff).await;
    eventually("the second turn", async || (errands.asked("x1")[1] == 1).then_some(())).await;
    errands.gateway.process.freeze();
    eventually("the last calls to be intended", async || {
        let intents = orchestrator.journal(id).await.into_iter().flat_map(|entry| entry.records);
        let intents = intents.filter(|record| matches!(record, Record::ToolIntent(_))).count();
        (intents == Errands::EFFECTS).then_some(())
    })
    .await;
    // What they return is being stored, and nothing is heard of it.
    nats.process().freeze();
    errands.gateway.process.thaw();
    eventually("the last effects", async || {
        (errands.effects().await.len() == Errands::EFFECTS).then_some(())
    })
    .await;
    zombie.process.freeze();
    thinks.store(10, Ordering::Relaxed);
    nats.process().thaw();
    haunt(Haunted { errands, nats, settings, zombie, orchestrator, id, deadline: Some(deadline) }).await;
}

/// An errand that is to be done by then.
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
    deadline: Option<OffsetDateTime>,
}

/// Frozen past `ack_wait` in the middle of a turn, thawed when another has finished: no call, no publish, no ack.
async fn a_zombie_does_nothing(turn: usize, within: Option<Duration>) {
    let (thinks, time) = adjustable(700);
    let (errands, nats) = (Errands::start(time).await, Nats::start());
    let settings = errands.worker(&nats).set("worker.ack_wait", "1s");
    let zombie = settings.start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let (handoff, deadline) = match within.map(due_in) {
        Some((handoff, deadline)) => (handoff, Some(deadline)),
        None => (Errands::handoff("x1"), None),
    };
    let id = orchestrator.publish(&handoff).await;
    eventually("the turn to be asked for", async || (errands.asked("x1")[turn] == 1).then_some(())).await;
    zombie.process.freeze();
    thinks.store(10, Ordering::Relaxed);
    haunt(Haunted { errands, nats, settings, zombie, orchestrator, id, deadline }).await;
}

/// Another finishes it; then the zombie comes back.
async fn haunt(haunted: Haunted) {
    let Haunted { errands, nats: _nats, settings, zombie, orchestrator, id, deadline } = haunted;
    let other = settings.start().await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!((answer.status, answer.attempts), (Status::Completed, 2));
    orchestrator.settled().await;

    let stored = orchestrator.contents(streams::RUNS).await.len();
    let calls = errands.gateway.audit("limit=1000").await.len();
    // Also what the streams would refuse: whoever listens without them hears it. What it holds is the first delivery; a
    // later one may have waited in its socket, and of that it may say that it is answered.
    let mut published = Vec::new();
    for subject in ["pma.run.>", "pma.event.>", "pma.delta.>", "pma.dead.>", "$JS.ACK.*.*.1.>"] {
        published.push(orchestrator.client.subscribe(subject).await.unwrap());
    }
    let mut published = futures_util::stream::select_all(published);
    orchestrator.client.flush().await.unwrap();
    if let Some(deadline) = deadline {
        eventually("the deadline to pass", async || (OffsetDateTime::now_utc() > deadline).then_some(()))
            .await;
    }
    zombie.process.thaw();
    eventually("the zombie to find out", async || (settled(&zombie, "fenced").await == 1.0).then_some(()))
        .await;
    orchestrator.queued().await;
    let heard = published.next().now_or_never().flatten();
    assert!(heard.is_none(), "it published on {}", heard.unwrap().subject);
    assert_eq!(orchestrator.contents(streams::RUNS).await.len(), stored, "it published");
    assert_eq!(errands.gateway.audit("limit=1000").await.len(), calls, "it called a tool");
    let effects = errands.effects().await;
    assert_eq!(effects.len(), Errands::EFFECTS);
    assert!(effects.values().all(|count| *count == 1), "{effects:?}");
    // It is no worse for it: the next handoff may go to either.
    for name in ["x2", "x3", "x4"] {
        let id = orchestrator.publish(&Errands::handoff(name)).await;
        assert_eq!(orchestrator.completion(Kind::Chat, id).await.status, Status::Completed);
    }
    drop(other);
}

/// Taken up, and killed before anything came of it.
async fn begun(nats: &Nats, orchestrator: &Orchestrator) -> HandoffId {
    let mut worker =
        Worker::manager(nats).set("worker.ack_wait", "1s").thinking(Duration::from_secs(600)).start().await;
    let id = orchestrator.publish(&chat("begun")).await;
    eventually("the claim", async || (!orchestrator.journal(id).await.is_empty()).then_some(())).await;
    worker.process.kill();
    id
}

/// A record that cannot be read is told, and the handoff kept; nothing is done again by guessing.
#[tokio::test]
async fn a_torn_journal_ends_in_an_answer_and_a_dead_letter() {
    let nats = Nats::start();
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = begun(&nats, &orchestrator).await;
    orchestrator.write_journal(id, r#"{"v":1,"at":"2026-01-01T00:00:00Z","records":[{"record":"mod"#).await;
    let worker = Worker::manager(&nats).set("worker.ack_wait", "1s").start().await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!((answer.status, answer.trace.stop), (Status::Failed, Stop::GivenUp));
    let error = answer.error.expect("an error");
    assert_eq!(error.code, ErrorCode::Internal);
    assert!(error.message.contains("what was done before cannot be read"), "{}", error.message);
    assert_eq!(orchestrator.stored(streams::DEAD).await, 1);
    orchestrator.settled().await;
    assert_eq!(worker.metric("pma_model_calls_total").await, Some(0.0), "the turn was started over");
}

/// What a newer build has begun is left to one of those.
#[tokio::test]
async fn a_journal_of_a_newer_build_is_left_alone() {
    let nats = Nats::start();
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = begun(&nats, &orchestrator).await;
    orchestrator.write_journal(id, r#"{"v":99,"unheard":"of"}"#).await;
    let worker = Worker::manager(&nats).set("worker.ack_wait", "1s").start().await;
    eventually("it to be handed back", async || (settled(&worker, "retried").await == 1.0).then_some(()))
        .await;
    assert!(worker.log().contains("Journal was written by a newer build"));
    assert_eq!(orchestrator.queued().await, 1);
    assert!(orchestrator.answer(Kind::Chat, id).await.is_none());
    assert_eq!(orchestrator.stored(streams::DEAD).await, 0);
}

/// A turn that a build of version 1 began, byte for byte as it wrote it, is finished by this one.
#[tokio::test]
async fn what_an_older_build_began_is_finished() {
    let errands = Errands::start(|| Duration::from_millis(5)).await;
    let nats = Nats::start();
    drop(errands.worker(&nats).start().await);
    let orchestrator = Orchestrator::connect(&nats).await;
    let handoff = Errands::handoff("x1");
    let written = include_str!("data/journal_v1.jsonl").replace("{handoff}", &handoff.id.to_string());
    for line in written.lines() {
        assert_eq!(Entry::decode(line.as_bytes()).unwrap().v, 1);
        orchestrator.write_journal(handoff.id, line.to_owned()).await;
    }
    // As after a kill: published long ago, delivered again.
    orchestrator
        .publish_raw(Kind::Chat, Default::default(), handoff.encode(subjects::Encoding::Json).unwrap())
        .await;
    let _worker = errands.worker(&nats).set("worker.ack_wait", "1s").start().await;
    let answer = orchestrator.completion(Kind::Chat, handoff.id).await;
    assert_eq!((answer.status, answer.attempts), (Status::Completed, 2));
    assert_eq!(errands.asked("x1"), [0, 1, 1], "the first turn was finished before");
    let effects: Vec<String> = errands.effects().await.into_keys().collect();
    assert_eq!(effects, Errands::expected_effects("x1"));
}

/// One that gets further each time may be taken up as often as it takes, also when few attempts in vain are allowed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_progresses_is_not_poison() {
    let errands = Errands::start(|| Duration::from_millis(5)).await;
    let nats = Nats::start();
    let settings = errands.worker(&nats).set("worker.ack_wait", "1s").set("worker.max_attempts", "1");
    drop(settings.start().await);
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&Errands::handoff("x1")).await;
    // Each gets one append further than the one before. The second stores what its tools said while the model is
    // already asked for the next turn: what it was asked until then is awaited, as a kill does not wait for it.
    for asked in [[1, 0, 0], [1, 1, 0], [1, 2, 0]] {
        let mut worker = settings.clone().stopping_at("Appended#1").start().await;
        eventually("it to have got further", async || worker.log().contains("\"stops\":true").then_some(()))
            .await;
        eventually("the model to be asked", async || (errands.asked("x1") == asked).then_some(())).await;
        worker.process.kill();
    }
    let _worker = settings.start().await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!((answer.status, answer.attempts), (Status::Completed, 4));
    assert_eq!(errands.asked("x1"), [1, 2, 1], "one was asked when it was killed");
}

/// Stopped in an orderly way, a worker says so: the attempt does not count, and nothing finished is lost.
#[tokio::test]
async fn an_orderly_stop_is_no_attempt() {
    let nats = Nats::start();
    let settings = Worker::manager(&nats).set("worker.max_attempts", "1").set("worker.grace", "0s");
    let slow = settings.clone().thinking(Duration::from_secs(600));
    let orchestrator = Orchestrator::connect(&nats).await;
    drop(settings.start().await);
    let id = orchestrator.publish(&chat("handed on")).await;
    for count in 1..=3 {
        let mut worker = slow.start().await;
        worker.holds(Kind::Chat, 1).await;
        let claims = async || {
            let journal = orchestrator.journal(id).await;
            let records = journal.iter().flat_map(|entry| &entry.records);
            let claims = records.filter(|record| matches!(record, Record::Claimed(_))).count();
            (claims == count).then_some(())
        };
        eventually("the claim", claims).await;
        worker.process.terminate();
        assert_eq!(worker.process.wait(Duration::from_secs(10)).code(), Some(0));
    }
    let _worker = settings.start().await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!((answer.status, answer.attempts), (Status::Completed, 4));
}

/// A question, its answer, and a death in between: what follows builds on the transcript of what was before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clarification_goes_on_from_the_same_transcript() {
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
    let work = Work::Continue(Continue { continues: asked, input: "the docs".to_owned() });
    let id = orchestrator.publish(&handoff(work)).await;
    eventually("the call", async || dies.log().contains("\"stops\":true").then_some(())).await;
    dies.process.kill();
    let _next = settings.start().await;
    let answer = orchestrator.completion(Kind::Continue, id).await;
    assert_eq!((answer.status, answer.attempts), (Status::Completed, 2), "{:?}", answer.error);
    let turns = model.turns();
    assert_eq!(turns.len(), 4, "no turn was asked for twice");
    let roles: Vec<&str> =
        turns[3].messages().iter().map(|message| message["role"].as_str().unwrap_or_default()).collect();
    let expected = ["system", "user", "assistant", "tool", "assistant", "user", "assistant", "tool"];
    assert_eq!(roles, expected, "the whole conversation, in one piece");
    let effects: Vec<(String, usize)> = errands.effects().await.into_iter().collect();
    assert_eq!(effects, [("after".to_owned(), 1), ("before".to_owned(), 1)]);
}

/// An entry that is too large for a message is kept beside the journal, and found there by the next one.
#[tokio::test]
async fn a_large_entry_is_kept_in_the_object_store() {
    let long = "x".repeat(SPILL_OVER + 1);
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
    eventually("the entry", async || first.log().contains("\"stops\":true").then_some(())).await;
    first.process.kill();
    assert!(orchestrator.journal(id).await.iter().any(|entry| entry.spilled.is_some()));
    let _second = settings.start().await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.message.map(|message| message.content).as_deref(), Some("fini"), "{:?}", answer.error);
    let seen = model.turns().last().unwrap().messages().last().unwrap()["content"].to_string();
    assert!(seen.contains(&long), "what was kept is what the model sees");
    assert_eq!(gateway.calls().len(), 1, "it was not called again");
}
