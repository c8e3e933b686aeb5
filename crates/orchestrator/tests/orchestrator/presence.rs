//! Clients that leave, come back, or ask the same again.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use subjects::Kind;
use testkit::{ChatClient, ChatEvent, Model, Script, TestClock, WorkerBuilder, eventually};

use crate::stage::Stage;

/// Of equal requests, the retry of one that never arrived must not get the answer of an earlier one.
#[tokio::test]
async fn what_was_delivered_is_not_joined_later() {
    let clock = TestClock::at("2026-01-01T00:00:00Z");
    let now = || i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap();
    clock.set_micros(now());
    let model = Model::start([Script::say("First."), Script::say("Second.")]).await;
    let stage = Stage::start_at(model, &clock).await;
    let client = |count| stage.client().with("x-stainless-retry-count", count);
    let first = client("0").ask("go on").await;
    assert_eq!(first.content(), "First.");
    eventually("the answer is marked as delivered", || async {
        let path = "/api/v1/audit?tool=thread.turn.delivered";
        let rows = stage.gateway.must("GET", path, None).await;
        rows.as_array().is_some_and(|rows| !rows.is_empty()).then_some(())
    })
    .await;
    // The last bytes of the answer may be lost on their way.
    assert_eq!(client("1").ask("go on").await.body["id"], first.body["id"]);
    clock.set_micros(now() + 31_000_000);
    let second = client("1").ask("go on").await;
    assert_eq!(second.content(), "Second.");
    assert_eq!(stage.model.turns().len(), 2);
}

/// The connection of a client breaks, and its retry reaches another orchestrator.
#[tokio::test]
async fn a_retry_at_another_orchestrator_keeps_the_work() {
    let slow = Script::After(Duration::from_secs(4), Box::new(Script::say("The one answer.")));
    let patient = |worker: WorkerBuilder| worker.set("inference.timeout", "30s");
    let stage = Stage::start_with_worker(Model::start([slow]).await, patient, |builder| builder).await;
    let second = stage.builder.start().await;
    let key = stage.gateway.api_key_with("erin", &[("on_disconnect", json!("cancel"))]).await.1;
    let mut stream = stage.orchestrator.client(&key).stream(&[("user", "hello")]).await;
    stream.next().await;
    stage.worker.wait_for_in_flight(Kind::Chat, 1).await;
    drop(stream);
    let retry = second.client(&key).with("x-stainless-retry-count", "1");
    let answer = retry.stream(&[("user", "hello")]).await.read().await;
    assert_eq!((answer.content.as_str(), answer.is_done, &answer.error), ("The one answer.", true, &None));
    assert_eq!((stage.model.turns().len(), stage.handoffs().await), (1, 1));
}

/// Of two requests that wait for one turn, one leaves.
#[tokio::test]
async fn work_is_cancelled_when_the_last_request_has_left() {
    let stage = Stage::start([Script::Hang]).await;
    let second = stage.builder.start().await;
    let key = stage.gateway.api_key_with("erin", &[("on_disconnect", json!("cancel"))]).await.1;
    let client_of = |url| ChatClient::new(url, &key).with("idempotency-key", "one");
    let (here, there) = (stage.orchestrator.url(), second.url());
    let mut one = client_of(&here).stream(&[("user", "hello")]).await;
    let mut two = client_of(&there).stream(&[("user", "hello")]).await;
    one.next().await;
    two.next().await;
    stage.worker.wait_for_in_flight(Kind::Chat, 1).await;
    drop(two);
    let left = || async {
        let path = "/api/v1/audit?tool=thread.turn.leave";
        let rows = stage.gateway.must("GET", path, None).await;
        rows.as_array().map_or(0, Vec::len)
    };
    eventually("the second has left", || async { (left().await == 1).then_some(()) }).await;
    assert_eq!(stage.worker.metric("pma_handoffs_in_flight{kind=\"chat\"}").await, Some(1.0));
    drop(one);
    stage.worker.wait_for_in_flight(Kind::Chat, 0).await;
}

/// Leaving, or never waiting, does not make room for more.
#[tokio::test]
async fn turns_without_a_client_count_as_open() {
    let model = Model::start([Script::Hang, Script::Hang]).await;
    let stage = Stage::start_with(model, |builder| builder.set("rate_limits.concurrent_turns", "2")).await;
    let mut left = stage.client().stream(&[("user", "one")]).await;
    left.next().await;
    drop(left);
    let background = json!({ "model": "cynodeai.pm", "input": "two", "background": true });
    let queued = stage.client().send("POST", "/responses", Some(background.clone())).await;
    assert_eq!(queued.status, 200, "{queued:?}");
    let second = stage.builder.start().await;
    for client in [stage.client(), second.client(&stage.key)] {
        let refused = client.ask("three").await;
        assert_eq!((refused.status, refused.code()), (429, "rate_limit_exceeded"));
        let refused = client.send("POST", "/responses", Some(background.clone())).await;
        assert_eq!((refused.status, refused.code()), (429, "rate_limit_exceeded"));
    }
    let path = format!("/responses/{}/cancel", queued.body["id"].as_str().unwrap());
    assert_eq!(stage.client().send("POST", &path, None).await.status, 200);
    let streamed = stage.client().stream(&[("user", "three")]).await;
    assert_eq!(streamed.status, 200);
}

#[tokio::test]
async fn streams_and_waiting_requests_end_when_their_key_is_revoked() {
    let stage = Stage::start([Script::Hang, Script::Hang]).await;
    let (id, key) = stage.gateway.api_key("bob").await;
    let mut others = stage.client().stream(&[("user", "hello")]).await;
    others.next().await;
    let client = stage.orchestrator.client(&key);
    let mut stream = client.stream(&[("user", "hello")]).await;
    stream.next().await;
    let asking = client.ask("hello");
    let revoking = async {
        stage.worker.wait_for_in_flight(Kind::Chat, 3).await;
        stage.gateway.must("DELETE", &format!("/api/v1/tokens/{id}"), None).await;
        loop {
            match stream.next().await {
                ChatEvent::Comment(_) | ChatEvent::Data(_) => {}
                end => break end,
            }
        }
    };
    let (asked, end) = tokio::join!(asking, revoking);
    assert_eq!((asked.status, asked.code()), (401, "invalid_api_key"));
    // The mere end of a stream would look like success.
    assert_eq!(end, ChatEvent::Broken);
    assert!(matches!(others.next().await, ChatEvent::Comment(_) | ChatEvent::Data(_)));
}

/// The gateway was away when an answer came, so that its turn is still open there.
#[tokio::test]
async fn an_answer_that_is_not_stored_yet_does_not_keep_its_thread_busy() {
    let slow = Script::After(Duration::from_secs(1), Box::new(Script::say("First.")));
    let mut stage = Stage::start([slow, Script::say("Second.")]).await;
    let client = stage.client().with("x-cynode-thread", "my-thread");
    let mut stream = client.stream(&[("user", "one")]).await;
    stage.worker.wait_for_in_flight(Kind::Chat, 1).await;
    eventually("the model is asked", || async { (!stage.model.turns().is_empty()).then_some(()) }).await;
    stage.gateway.kill();
    let first = stream.read_until(|event| *event == ChatEvent::Done).await;
    assert_eq!((first.content.as_str(), first.is_done), ("First.", true));
    stage.gateway.start_again().await;
    assert_eq!(client.ask("two").await.content(), "Second.");
}
