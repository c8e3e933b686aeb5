//! An orchestrator may die at any instant: nothing is lost, nothing is done twice.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use testkit::{
    ChatEvent, GatewayProcess, Model, Nats, OrchestratorBuilder, OrchestratorProcess, Script, Streamed,
    TestClock, Worker,
};

use crate::stage::Stage;

fn slow(text: &str) -> Script {
    Script::After(Duration::from_millis(700), Box::new(Script::say(text)))
}

/// The client's retry joins the same run at another orchestrator and gets the whole answer.
#[tokio::test]
async fn an_orchestrator_killed_in_mid_stream_is_replaced_and_the_model_is_not_asked_again() {
    let mut stage = Stage::start([slow("The whole answer.")]).await;
    let mut stream = stage.client().stream(&[("user", "hello")]).await;
    stream.next().await;
    stage.orchestrator.process.kill();
    assert!(matches!(stream.next().await, ChatEvent::Broken | ChatEvent::End));
    let second = stage.builder.start().await;
    let retry = second.client(&stage.key).with("x-stainless-retry-count", "1");
    let streamed = retry.stream(&[("user", "hello")]).await.read().await;
    assert_eq!((streamed.content.as_str(), streamed.is_done), ("The whole answer.", true));
    assert_eq!(stage.model.turns().len(), 1);
    assert_eq!(stage.handoffs().await, 1);
}

/// Stops an orchestrator at a crash point, kills it there, and retries at another one.
async fn kill_at(point: &str) -> (Stage, OrchestratorProcess, Streamed) {
    let model = Model::start([Script::say("The one answer.")]).await;
    let mut stage = Stage::start_with(model, |builder| builder).await;
    stage.orchestrator = stage.builder.clone().stopping_at(point).start().await;
    let client = stage.client();
    let asking = async {
        let mut stream = client.open("/chat/completions", &streamed_body()).await.ok()?;
        stream.read_until(|_| false).await;
        Some(())
    };
    tokio::select! {
        _ = asking => panic!("it does not stop at {point}"),
        () = stage.orchestrator.wait_until_stopped() => {}
    }
    stage.orchestrator.process.kill();
    let second = stage.builder.start().await;
    let retry = second.client(&stage.key).with("x-stainless-retry-count", "1");
    let streamed = retry.open("/chat/completions", &streamed_body()).await.unwrap().read().await;
    (stage, second, streamed)
}

fn streamed_body() -> serde_json::Value {
    let mut body = testkit::chat_body(&[("user", "hello")]);
    body["stream"] = serde_json::json!(true);
    body
}

#[tokio::test]
async fn killed_at_every_point_a_retry_gets_the_one_answer() {
    for point in ["TurnStored#1", "HandoffPublished#1", "AnswerKnown#1", "AnswerStored#1"] {
        let (stage, _second, streamed) = kill_at(point).await;
        assert_eq!((streamed.content.as_str(), streamed.is_done), ("The one answer.", true), "{point}");
        assert_eq!((stage.model.turns().len(), stage.handoffs().await), (1, 1), "{point}");
    }
}

/// A turn that was stored and not handed off is handed off by another orchestrator, without any client.
#[tokio::test]
async fn what_a_dead_orchestrator_left_behind_is_handed_off_and_answered() {
    let model = Model::start([Script::say("The one answer.")]).await;
    let mut stage = Stage::start_with(model, |builder| builder.set("chat.sweep_every", "1s")).await;
    stage.orchestrator = stage.builder.clone().stopping_at("TurnStored#1").start().await;
    let client = stage.client();
    tokio::select! {
        _ = client.ask("hello") => panic!("it does not stop"),
        () = stage.orchestrator.wait_until_stopped() => {}
    }
    stage.orchestrator.process.kill();
    assert_eq!(stage.handoffs().await, 0);
    let second = stage.builder.start().await;
    let client = second.client(&stage.key);
    testkit::eventually("the answer is in the thread", || async {
        let threads = client.send("GET", "/threads", None).await;
        let thread = threads.body["data"][0]["id"].as_str()?.to_owned();
        let messages = client.send("GET", &format!("/threads/{thread}/messages"), None).await;
        (messages.body["data"][1]["content"] == "The one answer.").then_some(())
    })
    .await;
    assert_eq!((stage.model.turns().len(), stage.handoffs().await), (1, 1));
}

/// The answer is stored in its thread also if client and orchestrator died before it was there.
#[tokio::test]
async fn an_answer_is_recorded_when_everyone_who_waited_is_gone() {
    let mut stage = Stage::start([slow("For the record.")]).await;
    let mut stream = stage.client().stream(&[("user", "hello")]).await;
    stream.next().await;
    let path = format!("/chat/completions/chatcmpl-{}", stream.header("x-cynode-handoff").unwrap());
    stage.orchestrator.process.kill();
    drop(stream);
    stage.worker.wait_for_in_flight(subjects::Kind::Chat, 0).await;
    let second = stage.builder.start().await;
    let client = second.client(&stage.key);
    let answer = testkit::eventually("the answer is recorded", || async {
        let found = client.send("GET", &path, None).await;
        (found.status == 200).then_some(found)
    })
    .await;
    assert_eq!(answer.content(), "For the record.");
    assert_eq!(stage.model.turns().len(), 1);
}

/// Streams are restored from a backup of before the chat was handed off, and the gateway is not: the chat is
/// handed off again, and its thread is not busy for ever.
#[tokio::test]
async fn what_restored_streams_have_lost_is_handed_off_again_and_answered() {
    let clock = TestClock::at("2026-01-01T00:00:00Z");
    let now = || i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap();
    clock.set_micros(now());
    let nats = Nats::start();
    let settings = [("nats.url", &*nats.url())];
    let gateway = GatewayProcess::start_with_variables(&settings, &[clock.variable()]).await;
    let model = Model::start([Script::say("The one answer.")]).await;
    let often = |builder: OrchestratorBuilder| builder.set("chat.sweep_every", "1s");
    let mut stage = Stage::start_on(nats, gateway, model, |worker| worker, often).await;
    stage.worker.process.kill();
    let mut stream = stage.client().stream(&[("user", "hello")]).await;
    stream.next().await;
    testkit::eventually("the handoff is marked as sent", || async {
        let rows = stage.gateway.must("GET", "/api/v1/audit?tool=thread.turn.sent", None).await;
        rows.as_array().is_some_and(|rows| !rows.is_empty()).then_some(())
    })
    .await;
    assert_eq!(stage.handoffs().await, 1);
    let jetstream = async_nats::jetstream::new(stage.nats.client().await);
    let queue = jetstream.get_stream(subjects::streams::HANDOFFS).await.unwrap();
    stage.nats.lose_stream(queue.cached_info().config.clone()).await;
    let manager = Worker::manager(&stage.nats).asking(&stage.model).set("worker.ack_wait", "5s");
    stage.worker = manager.calling_process(&stage.gateway).await.start().await;
    clock.set_micros(now() + 6 * 60 * 1_000_000);
    let streamed = stream.read().await;
    assert_eq!((streamed.content.as_str(), streamed.is_done), ("The one answer.", true));
    assert_eq!((stage.model.turns().len(), stage.handoffs().await), (1, 1));
    assert!(stage.orchestrator.log().contains("Handoff without an answer published again."));
}

/// NATS or the gateway may be away for a while: the client is told, and nothing is lost.
#[tokio::test]
async fn while_nats_or_the_gateway_is_away_requests_are_refused_and_can_be_repeated() {
    let mut stage = Stage::start([Script::say("Here again.")]).await;
    let client = stage.client();
    stage.gateway.kill();
    let refused = client.ask("hello").await;
    assert_eq!((refused.status, refused.code()), (503, "gateway_unavailable"));
    assert!(refused.header("retry-after").is_some());
    stage.gateway.start_again().await;
    stage.nats.kill();
    let refused = client.ask("hello").await;
    assert_eq!((refused.status, refused.code()), (503, "nats_unavailable"));
    stage.nats.start_again();
    let retry = stage.client().with("x-stainless-retry-count", "1");
    let answer = testkit::eventually("the chat is answered", || async {
        let answer = retry.ask("hello").await;
        (answer.status == 200).then_some(answer)
    })
    .await;
    assert_eq!(answer.content(), "Here again.");
}

/// Waits until the probe, which load balancers follow, and the metric, on which alerts are, say this.
async fn wait_for_readiness(stage: &Stage, is_ready: bool) {
    let (status, metric) = if is_ready { (200, "1") } else { (503, "0") };
    let line = format!("\norchestrator_ready {metric}\n");
    testkit::eventually(&format!("readiness is {is_ready}"), || async {
        let probed = reqwest::get(format!("{}/readyz", stage.orchestrator.admin_url())).await.unwrap();
        let metrics = stage.orchestrator.metrics().await;
        (probed.status().as_u16() == status && metrics.contains(&line)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn probe_and_metric_say_when_nats_the_gateway_or_the_stream_of_answers_is_away() {
    let mut stage = Stage::start([Script::say("hello")]).await;
    // It would create the stream again.
    stage.worker.process.kill();
    wait_for_readiness(&stage, true).await;
    stage.gateway.kill();
    wait_for_readiness(&stage, false).await;
    stage.gateway.start_again().await;
    wait_for_readiness(&stage, true).await;
    stage.nats.kill();
    wait_for_readiness(&stage, false).await;
    stage.nats.start_again();
    wait_for_readiness(&stage, true).await;
    let jetstream = async_nats::jetstream::new(stage.nats.client().await);
    let runs = jetstream.get_stream(subjects::streams::RUNS).await.unwrap().cached_info().config.clone();
    jetstream.delete_stream(subjects::streams::RUNS).await.unwrap();
    wait_for_readiness(&stage, false).await;
    let refused = stage.client().ask("hello").await;
    assert_eq!((refused.status, refused.code()), (503, "starting"));
    jetstream.create_stream(runs).await.unwrap();
    wait_for_readiness(&stage, true).await;
}

/// A stream survives a restart of NATS in the middle of the work.
#[tokio::test]
async fn a_stream_survives_a_restart_of_nats_and_of_the_gateway() {
    let mut stage = Stage::start([slow("Still here.")]).await;
    let mut stream = stage.client().stream(&[("user", "hello")]).await;
    stream.next().await;
    stage.worker.wait_for_in_flight(subjects::Kind::Chat, 1).await;
    stage.nats.kill();
    stage.gateway.kill();
    stage.nats.start_again();
    stage.gateway.start_again().await;
    let streamed = stream.read().await;
    assert_eq!((streamed.content.as_str(), streamed.is_done), ("Still here.", true));
}
