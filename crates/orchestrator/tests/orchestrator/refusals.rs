//! Handoffs that workers refuse without an answer end as failed, with the reason.

use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

use async_nats::HeaderMap;
use nkeys::KeyPair;
use serde_json::{Value, json};
use subjects::{Encoding, Kind, Subject, streams};
use testkit::{
    GatewayProcess, Model, Nats, OrchestratorBuilder, Script, TestClock, WorkerBuilder, eventually,
};

use crate::stage::Stage;

const REFUSED: &str = "pma_handoffs_refused_total{kind=\"chat\",code=\"untrusted_producer\"}";

fn now() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

/// Starts a stack with a clock of the gateway, whose workers trust one key.
async fn stage(
    model: Model,
    trusted: &KeyPair,
    change: impl Fn(OrchestratorBuilder) -> OrchestratorBuilder,
) -> (Stage, TestClock) {
    let clock = TestClock::at("2026-01-01T00:00:00Z");
    clock.set_micros(now());
    let nats = Nats::start();
    let settings = [("nats.url", &*nats.url())];
    let gateway = GatewayProcess::start_with_variables(&settings, &[clock.variable()]).await;
    let trusted = format!("[\"{}\"]", trusted.public_key());
    let distrustful = |worker: WorkerBuilder| {
        worker.set("security.trusted_producers", &trusted).set("inference.timeout", "60s")
    };
    let often = |builder: OrchestratorBuilder| change(builder.set("chat.sweep_every", "1s"));
    (Stage::start_on(nats, gateway, model, distrustful, often).await, clock)
}

async fn calls(stage: &Stage, tool: &str) -> usize {
    let rows = stage.gateway.must("GET", &format!("/api/v1/audit?tool={tool}"), None).await;
    rows.as_array().map_or(0, Vec::len)
}

async fn wait_for_refusal(stage: &Stage, metric: &str) {
    eventually("the worker refuses", || async {
        (stage.worker.metric(metric).await == Some(1.0)).then_some(())
    })
    .await;
}

/// The workers do not trust the orchestrator.
#[tokio::test]
async fn chat_that_the_workers_refuse_fails_with_the_reason() {
    let model = Model::start([Script::say("hello")]).await;
    let (stage, clock) = stage(model, &KeyPair::new_user(), |builder| builder).await;
    let mut stream = stage.client().stream(&[("user", "hello")]).await;
    stream.next().await;
    wait_for_refusal(&stage, REFUSED).await;
    eventually("the handoff is marked as sent", || async {
        (calls(&stage, "thread.turn.sent").await > 0).then_some(())
    })
    .await;
    clock.set_micros(now() + 6 * 60 * 1_000_000);
    let error = stream.read().await.error.unwrap();
    assert_eq!(error["code"], "untrusted_producer");
    assert!(error["message"].as_str().unwrap().contains("the workers refused it"), "{error}");
    // It was not handed off again, and the thread takes the next message.
    assert_eq!((stage.handoffs().await, stage.model.turns().len()), (1, 0));
    let threads = stage.client().send("GET", "/threads", None).await;
    assert_eq!(threads.body["data"][0]["in_progress"], json!(null));
}

/// As above, of a schedule.
#[tokio::test]
async fn run_that_the_workers_refuse_fails_with_the_reason() {
    let model = Model::start([Script::say("hello")]).await;
    let (stage, clock) = stage(model, &KeyPair::new_user(), |builder| builder).await;
    let agent = stage.gateway.agent(&stage.gateway.unbound("orchestrator").await);
    let call = async |tool: &str, arguments: Value| {
        let reply = stage.gateway.call(&agent, tool, arguments).await.unwrap();
        assert!(!reply.is_error, "{tool}: {}", reply.text);
        reply.structured.unwrap()
    };
    let schedule = json!({
        "name": "nightly",
        "timing": { "type": "cron", "expression": "0 3 * * *", "time_zone": "UTC" },
        "payload": { "type": "prompt", "prompt": "Say hello." },
    });
    call("schedule.create", json!({ "user_id": "alice", "new": schedule })).await;
    let named = json!({ "user_id": "alice", "schedule": "nightly" });
    call("schedule.run_now", named.clone()).await;
    wait_for_refusal(&stage, &REFUSED.replace("chat", "schedule")).await;
    eventually("the handoff is marked as sent", || async {
        (calls(&stage, "schedule.run.sent").await > 0).then_some(())
    })
    .await;
    clock.set_micros(now() + 6 * 60 * 1_000_000);
    let run = eventually("the run has ended", || async {
        let run = call("schedule.runs", named.clone()).await["items"][0].clone();
        (run["state"] != "running").then_some(run)
    })
    .await;
    assert_eq!(
        (&run["state"], &run["error_code"]),
        (&json!("failed"), &json!("untrusted_producer")),
        "{run}"
    );
    assert_eq!((stage.handoffs().await, stage.model.turns().len()), (1, 0));
}

/// A stranger publishes what workers refuse, under the id of a chat that is worked on.
#[tokio::test]
async fn refusal_of_a_strangers_message_ends_no_chat() {
    let model = Model::start([Script::Hang]).await;
    let key = KeyPair::new_user();
    let folder = tempfile::tempdir().unwrap();
    let seed = folder.path().join("orchestrator.seed");
    fs::write(&seed, key.seed().unwrap()).unwrap();
    fs::set_permissions(&seed, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let seed = seed.display().to_string();
    let signing = |builder: OrchestratorBuilder| builder.set("nats.signing_key_file", &seed);
    let (stage, clock) = stage(model, &key, signing).await;
    let client = stage.client();
    let mut stream = client.stream(&[("user", "hello")]).await;
    stream.next().await;
    stage.worker.wait_for_in_flight(Kind::Chat, 1).await;
    let mut forged = testkit::chat("hello");
    forged.id = stream.header("x-cynode-handoff").unwrap().parse().unwrap();
    let jetstream = async_nats::jetstream::new(stage.nats.client().await);
    let (subject, body) = (Subject::Handoff(Kind::Chat).to_string(), forged.encode(Encoding::Json).unwrap());
    let published = jetstream.publish_with_headers(subject, HeaderMap::new(), body.into()).await.unwrap();
    published.await.unwrap();
    wait_for_refusal(&stage, REFUSED).await;
    let letters = jetstream.get_stream(streams::DEAD).await.unwrap().get_info().await.unwrap().state.messages;
    assert_eq!(letters, 1);
    clock.set_micros(now() + 6 * 60 * 1_000_000);
    let looked = calls(&stage, "thread.turn.unsent").await;
    eventually("turns were looked at twice", || async {
        (calls(&stage, "thread.turn.unsent").await >= looked + 3).then_some(())
    })
    .await;
    assert_eq!(stage.worker.metric("pma_handoffs_in_flight{kind=\"chat\"}").await, Some(1.0));
    let threads = client.send("GET", "/threads", None).await;
    assert!(threads.body["data"][0]["in_progress"].is_string(), "{}", threads.body);
}
