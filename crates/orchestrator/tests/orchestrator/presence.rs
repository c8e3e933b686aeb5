//! Clients that leave, come back, or ask the same again.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use subjects::Kind;
use testkit::{
    ChatClient, ChatEvent, GatewayProcess, Model, Nats, OrchestratorBuilder, Postgres, Script, TestClock,
    WorkerBuilder, eventually,
};

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

/// A gateway without NATS cannot tell of a revocation. Orchestrators ask about the keys of open requests.
#[tokio::test]
async fn streams_end_also_if_the_revocation_is_not_heard() {
    let (nats, gateway) = (Nats::start(), GatewayProcess::start().await);
    let model = Model::start([Script::Hang]).await;
    let stage = Stage::start_on(nats, gateway, model, |worker| worker, |builder| builder).await;
    let (id, key) = stage.gateway.api_key("bob").await;
    let mut stream = stage.orchestrator.client(&key).stream(&[("user", "hello")]).await;
    stream.next().await;
    stage.gateway.must("DELETE", &format!("/api/v1/tokens/{id}"), None).await;
    let ended = async { while let ChatEvent::Comment(_) | ChatEvent::Data(_) = stream.next().await {} };
    assert!(tokio::time::timeout(Duration::from_secs(90), ended).await.is_ok(), "the stream goes on");
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

/// One of two gateways stands still with a request. The client gives up, and its retry comes through the
/// other gateway before the first request goes on.
#[tokio::test]
async fn a_request_that_is_overtaken_by_its_retry_joins_it_on_postgres() {
    let (postgres, nats) = (Postgres::start(), Nats::start());
    let (database, nats_url) = (postgres.database(), nats.url());
    let settings = [("store.url", database.as_str()), ("nats.url", &nats_url)];
    let gateway = GatewayProcess::start_with(&settings).await;
    let other = GatewayProcess::start_with(&settings).await;
    let model = Model::start([Script::say("The one answer."), Script::say("Too much.")]).await;
    let stage = Stage::start_on(nats, gateway, model, |worker| worker, |builder| builder).await;
    let second = OrchestratorBuilder::new(&stage.nats, &other).await.start().await;
    second.wait_until_it_hands_off().await;
    // Both orchestrators know the key, so that the gateway is first asked for the turn.
    let (here, there) = (stage.client(), second.client(&stage.key));
    for client in [&here, &there] {
        assert_eq!(client.send("GET", "/threads", None).await.status, 200);
    }
    // The worker needs the other gateway.
    other.process.freeze();
    let first = there.with("x-stainless-retry-count", "0");
    let repeating = async {
        eventually("the first request is on its way", || async {
            (unread_bytes(&other.url()) > 0).then_some(())
        })
        .await;
        let retry = here.with("x-stainless-retry-count", "1").ask("go on").await;
        assert_eq!(retry.content(), "The one answer.");
        other.process.thaw();
        retry
    };
    let (first, retry) = tokio::join!(first.ask("go on"), repeating);
    assert_eq!((first.content(), &first.body["id"]), ("The one answer.", &retry.body["id"]));
    assert_eq!((stage.model.turns().len(), stage.handoffs().await), (1, 1));
}

/// Returns how many bytes a server has received and not read.
fn unread_bytes(url: &str) -> u64 {
    let port = url.trim_end_matches("/mcp").rsplit_once(':').expect("a port").1;
    let port = format!(":{:04X}", port.parse::<u16>().expect("a number"));
    let sockets = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
    let unread = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next()?;
        let queues = fields.nth(2)?;
        local.ends_with(&port).then_some(u64::from_str_radix(queues.split_once(':')?.1, 16).ok()?)
    };
    sockets.lines().filter_map(unread).sum()
}
