//! A model, a gateway or a stream is not available for a while.

use std::{
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::ctl;

use serde_json::json;
use subjects::{Answer, ErrorCode, Kind, Status, journal::Record, streams};
use testkit::{
    Answer as ToolAnswer, Errands, Gateway, Model, ModelRequest, Nats, Orchestrator, Script, Tool, Worker,
    chat, eventually, eventually_within,
};

/// With default settings, an outage of the model of 11 s only delays a lone handoff.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lone_handoff_survives_an_outage_of_the_model() {
    let nats = Nats::start();
    let model = Model::start([Script::say("here I am")]).await;
    model.fail_with(Some(503));
    let worker = Worker::manager(&nats)
        .set("inference.base_url", model.url())
        .set("inference.model", "scripted")
        // One request at a time: its failures are too few to count as an outage by number.
        .set("agent.assess_input", "false")
        .start()
        .await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let started = Instant::now();
    let id = orchestrator.publish(&chat("hello")).await;
    eventually("/readyz to report 503", async || (worker.get("/readyz").await.0 == 503).then_some(())).await;
    let (_, why) = worker.get("/readyz").await;
    assert!(why.contains("scripted"), "{why}");
    tokio::time::sleep_until((started + Duration::from_secs(11)).into()).await;
    assert!(orchestrator.answer(Kind::Chat, id).await.is_none(), "the handoff waits");
    model.fail_with(None);
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!((answer.status, answer.attempts), (Status::Completed, 1));
    let received = worker.metric("pma_handoffs_received_total{kind=\"chat\"}").await;
    assert_eq!(received, Some(1.0), "the outage cost no delivery");
    eventually("/readyz to report 200", async || (worker.get("/readyz").await.0 == 200).then_some(())).await;
}

/// The same for an outage of the gateway of 13 s in the middle of a turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lone_handoff_survives_an_outage_of_the_gateway() {
    let nats = Nats::start();
    let create = Tool::new("db.task.create", "Creates a task.", json!({ "type": "object" }), |_| {
        ToolAnswer::text("made")
    });
    let mut gateway = Gateway::start(vec![create]).await;
    let turn = Script::call("db__task__create", &json!({ "title": "x" }));
    let model =
        Model::start([Script::After(Duration::from_millis(500), Box::new(turn)), Script::say("done")]).await;
    let worker = Worker::manager(&nats)
        .set("inference.base_url", model.url())
        .set("inference.model", "scripted")
        .calling(&gateway)
        .start()
        .await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("create a task")).await;
    eventually("the first turn", async || (model.turns().len() == 1).then_some(())).await;
    gateway.kill();
    let away = Instant::now();
    eventually("/readyz to report 503", async || (worker.get("/readyz").await.0 == 503).then_some(())).await;
    tokio::time::sleep_until((away + Duration::from_secs(13)).into()).await;
    gateway.start_again();
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!((answer.status, answer.attempts), (Status::Completed, 1), "{:?}", answer.error);
    assert_eq!(gateway.calls().len(), 1);
}

/// A handoff fails when the outage lasts longer than `inference.patience`, and not earlier.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handoff_fails_when_its_patience_is_over() {
    let nats = Nats::start();
    let model = Model::start([Script::say("never heard")]).await;
    model.fail_with(Some(503));
    let _worker = Worker::manager(&nats).asking(&model).set("inference.patience", "4s").start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let started = Instant::now();
    let id = orchestrator.publish(&chat("hello")).await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.error.map(|error| error.code), Some(ErrorCode::InferenceUnavailable));
    assert!((4..12).contains(&started.elapsed().as_secs()), "after {:?}", started.elapsed());
}

/// A handoff that starts while another already waits for the gateway gets the full patience.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_handoff_gets_the_full_patience() {
    let nats = Nats::start();
    let model = Model::start([Script::say("done")]).await;
    // An address without a listener.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let _worker = Worker::manager(&nats)
        .asking(&model)
        .set("gateway.url", format!("http://{address}/mcp"))
        .set("gateway.patience", "3s")
        .start()
        .await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let publish = async |text: &str| (Instant::now(), orchestrator.publish(&chat(text)).await);
    let first = publish("first").await;
    // Before the outage is detected; after that nothing is pulled.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let second = publish("second").await;
    for (published, id) in [first, second] {
        let answer = orchestrator.completion(Kind::Chat, id).await;
        assert_eq!(answer.error.map(|error| error.code), Some(ErrorCode::ToolFailed));
        assert!(published.elapsed() >= Duration::from_secs(3), "after {:?}", published.elapsed());
    }
}

/// `CYNODE_RUNS` refuses all writes for longer than six deliveries used to take. Nothing is poisoned, no turn
/// is paid twice, and `/readyz` reports it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_writes_to_the_runs_stream_poison_no_handoff() {
    let nats = Nats::start();
    let errands = Errands::start(|| Duration::ZERO).await;
    errands.hold_after(0);
    let worker = errands.worker(&nats).set("worker.ack_wait", "2s").start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let in_work = orchestrator.publish(&Errands::handoff("before")).await;
    eventually("the first turn", async || (errands.asked("before")[0] == 1).then_some(())).await;
    orchestrator.refuse_runs(true).await;
    errands.release();
    let not_begun = orchestrator.publish(&Errands::handoff("during")).await;
    eventually("/readyz to report 503", async || (worker.get("/readyz").await.0 == 503).then_some(())).await;
    let (_, why) = worker.get("/readyz").await;
    assert!(why.contains(streams::RUNS), "{why}");
    // As long as six hand-backs with growing delays used to take.
    tokio::time::sleep(Duration::from_secs(45)).await;
    orchestrator.refuse_runs(false).await;
    for id in [in_work, not_begun] {
        let answer = orchestrator.completion(Kind::Chat, id).await;
        assert_eq!(answer.status, Status::Completed, "{:?}", answer.error);
    }
    assert_eq!(errands.asked("before"), [1, 1, 1], "a turn that could not be stored is kept, not paid again");
    assert_eq!(errands.asked("during"), [1, 1, 1]);
    assert_eq!(orchestrator.stored(streams::DEAD).await, 0);
    eventually("/readyz to report 200", async || (worker.get("/readyz").await.0 == 200).then_some(())).await;
}

/// A finished turn is stored while its read-only tools run, however long they take.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_turn_is_stored_while_reads_run() {
    let nats = Nats::start();
    let slow_read = Tool::new("db.task.list", "Lists tasks.", json!({ "type": "object" }), |_| {
        ToolAnswer::after(Duration::from_secs(30), ToolAnswer::text("none"))
    })
    .read_only();
    let gateway = Gateway::start(vec![slow_read]).await;
    let model = Model::start([Script::call("db__task__list", &json!({})), Script::say("none")]).await;
    let settings = Worker::manager(&nats)
        .asking(&model)
        .calling(&gateway)
        .set("agent.assess_input", "false")
        .set("worker.ack_wait", "1s");
    let mut worker = settings.start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    orchestrator.publish(&chat("which tasks are there?")).await;
    eventually("the read to be called", async || (gateway.calls().len() == 1).then_some(())).await;
    // Longer than any append takes; the read is still running.
    tokio::time::sleep(Duration::from_millis(300)).await;
    worker.process.kill();
    let _next = settings.start().await;
    eventually("the read to be called again", async || (gateway.calls().len() == 2).then_some(())).await;
    assert_eq!(model.turns().len(), 1, "the turn was finished, so it is not paid again");
}

/// The stream is purged, or removed and created again, while the worker runs: the worker writes the journal
/// again and continues.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_journal_is_written_again_by_its_worker() {
    for how in ["purged", "created again"] {
        let nats = Nats::start();
        let errands = Errands::start(|| Duration::ZERO).await;
        errands.hold_after(1);
        let worker = errands.worker(&nats).start().await;
        let orchestrator = Orchestrator::connect(&nats).await;
        let id = orchestrator.publish(&Errands::handoff("x1")).await;
        eventually("the second turn", async || (errands.asked("x1")[1] == 1).then_some(())).await;
        if how == "purged" {
            orchestrator.jetstream.get_stream(streams::RUNS).await.unwrap().purge().await.unwrap();
        } else {
            orchestrator.jetstream.delete_stream(streams::RUNS).await.unwrap();
            let provisioned = ctl(&nats, &["provision"]).await;
            assert_eq!(provisioned.code, 0, "{provisioned:?}");
        }
        errands.release();
        let answer = orchestrator.completion(Kind::Chat, id).await;
        assert_eq!((answer.status, answer.attempts), (Status::Completed, 1), "{how}: {}", worker.log());
        assert_eq!(errands.asked("x1"), [1, 1, 1], "{how}: each turn was paid once");
        let effects = errands.effects().await;
        assert!(effects.values().all(|count| *count == 1), "{how}: {effects:?}");
        let turns = orchestrator.journal(id).await.into_iter().flat_map(|entry| entry.records);
        let turns = turns.filter(|record| matches!(record, Record::ModelTurn(_))).count();
        assert!(turns >= 2, "{how}: the first turn is in the journal again");
    }
}

/// An idle worker checks its streams too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_worker_reports_a_missing_stream() {
    let nats = Nats::start();
    let worker = Worker::manager(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    orchestrator.jetstream.delete_stream(streams::RUNS).await.unwrap();
    eventually("/readyz to report 503", async || (worker.get("/readyz").await.0 == 503).then_some(())).await;
    let (_, why) = worker.get("/readyz").await;
    assert!(why.contains("CYNODE_RUNS") && why.contains("missing"), "{why}");
    assert_eq!(ctl(&nats, &["provision"]).await.code, 0);
    eventually("/readyz to report 200", async || (worker.get("/readyz").await.0 == 200).then_some(())).await;
}

/// The model server lists its models but answers no request. A handoff that is pulled as a trial is handed
/// back, not failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_that_the_probe_misses_fails_no_queued_handoff() {
    let nats = Nats::start();
    let is_away = Arc::new(AtomicBool::new(true));
    let seen = Arc::clone(&is_away);
    let turns = move |_: &ModelRequest| match seen.load(Ordering::SeqCst) {
        true => Script::Status(503, None),
        false => Script::say("here I am"),
    };
    let model = Model::start_answering(turns, |_| Script::say("unused")).await;
    let worker = Worker::manager(&nats)
        .asking(&model)
        .set("agent.assess_input", "false")
        .set("inference.tries", "1")
        .set("inference.patience", "1s")
        .set("worker.concurrency.chat", "2")
        .start()
        .await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut ids = Vec::new();
    for number in 0..8 {
        ids.push(orchestrator.publish(&chat(&format!("question {number}"))).await);
    }
    let handed_back = || worker.log().matches("Handing the handoff back.").count();
    eventually_within(Duration::from_secs(60), "three trials", async || (handed_back() >= 3).then_some(()))
        .await;
    // Handoffs that were in progress when the outage started used up their patience.
    let failed = orchestrator.stored(streams::DEAD).await;
    assert!(failed <= 4, "{failed} handoffs failed: {}", worker.log());
    is_away.store(false, Ordering::SeqCst);
    let mut completed = 0;
    for id in ids {
        let answer = orchestrator.wait_for_answer_within(Duration::from_secs(90), Kind::Chat, id).await;
        let Answer::Completion(answer) = answer else { panic!("{answer:?}") };
        completed += u64::from(answer.status == Status::Completed);
    }
    assert_eq!((completed, orchestrator.stored(streams::DEAD).await), (8 - failed, failed));
}
