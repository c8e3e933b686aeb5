use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use serde_json::json;
use subjects::{ErrorCode, Kind, Status, streams};
use testkit::{
    Answer as ToolAnswer, Errands, Gateway, Model, Nats, Orchestrator, Script, Tool, Worker, chat, eventually,
};

/// With default settings a model that is away for 11 s costs a lone handoff nothing but time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lone_handoff_outlives_an_outage_of_the_model() {
    let nats = Nats::start();
    let model = Model::start([Script::say("here I am")]).await;
    model.fail_with(Some(503));
    let worker = Worker::manager(&nats)
        .set("inference.base_url", model.url())
        .set("inference.model", "scripted")
        // One question at a time, which fails too seldom to count as an outage by its failures.
        .set("agent.assess_input", "false")
        .start()
        .await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let started = Instant::now();
    let id = orchestrator.publish(&chat("hello")).await;
    eventually("readiness to tell", async || (worker.get("/readyz").await.0 == 503).then_some(())).await;
    let (_, why) = worker.get("/readyz").await;
    assert!(why.contains("scripted"), "{why}");
    tokio::time::sleep_until((started + Duration::from_secs(11)).into()).await;
    assert!(orchestrator.answer(Kind::Chat, id).await.is_none(), "it waits");
    model.fail_with(None);
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!((answer.status, answer.attempts), (Status::Completed, 1));
    let received = worker.metric("pma_handoffs_received_total{kind=\"chat\"}").await;
    assert_eq!(received, Some(1.0), "no delivery was paid");
    eventually("readiness", async || (worker.get("/readyz").await.0 == 200).then_some(())).await;
}

/// The same for the gateway: 13 s, in the middle of a turn, with default settings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lone_handoff_outlives_an_outage_of_the_gateway() {
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
    eventually("readiness to tell", async || (worker.get("/readyz").await.0 == 503).then_some(())).await;
    tokio::time::sleep_until((away + Duration::from_secs(13)).into()).await;
    gateway.start_again();
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!((answer.status, answer.attempts), (Status::Completed, 1), "{:?}", answer.error);
    assert_eq!(gateway.calls().len(), 1);
}

/// Patience is a setting, and it ends: an outage that outlives it is answered as a failure, not before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patience_ends_when_it_is_over() {
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

/// A new handoff, while another one has found the gateway away, has a patience of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_handoff_has_the_whole_patience() {
    let nats = Nats::start();
    let model = Model::start([Script::say("done")]).await;
    // An address at which nothing listens yet.
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
    // Before the outage is known as one; after that nothing is pulled.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let second = publish("second").await;
    for (published, id) in [first, second] {
        let answer = orchestrator.completion(Kind::Chat, id).await;
        assert_eq!(answer.error.map(|error| error.code), Some(ErrorCode::ToolFailed));
        assert!(published.elapsed() >= Duration::from_secs(3), "after {:?}", published.elapsed());
    }
}

/// `CYNODE_RUNS` refuses everything for longer than six deliveries used to take. No poison, no turn paid twice, and
/// readiness tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_stream_of_runs_poisons_nothing() {
    let nats = Nats::start();
    let errands = Errands::start(|| Duration::from_millis(800)).await;
    let worker = errands.worker(&nats).set("worker.ack_wait", "2s").start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let in_work = orchestrator.publish(&Errands::handoff("before")).await;
    eventually("the first turn", async || (errands.asked("before")[0] == 1).then_some(())).await;
    orchestrator.refuse_runs(true).await;
    let not_begun = orchestrator.publish(&Errands::handoff("during")).await;
    eventually("readiness to tell", async || (worker.get("/readyz").await.0 == 503).then_some(())).await;
    let (_, why) = worker.get("/readyz").await;
    assert!(why.contains(streams::RUNS), "{why}");
    // As long as six hand-backs with growing delays took.
    tokio::time::sleep(Duration::from_secs(45)).await;
    orchestrator.refuse_runs(false).await;
    for id in [in_work, not_begun] {
        let answer = orchestrator.completion(Kind::Chat, id).await;
        assert_eq!(answer.status, Status::Completed, "{:?}", answer.error);
    }
    assert_eq!(errands.asked("before"), [1, 1, 1], "a turn that could not be stored is kept, not paid again");
    assert_eq!(errands.asked("during"), [1, 1, 1]);
    assert_eq!(orchestrator.stored(streams::DEAD).await, 0);
    eventually("readiness", async || (worker.get("/readyz").await.0 == 200).then_some(())).await;
}

/// A finished turn is stored while the tools that it asks for only read, however long they take.
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
