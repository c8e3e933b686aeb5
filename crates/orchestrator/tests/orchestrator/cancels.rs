//! Cancels that no worker hears at first: they are stored, and workers are told again.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use subjects::{Kind, Status, Subject};
use testkit::{
    ChatClient, ChatStream, Model, Orchestrator, OrchestratorBuilder, OrchestratorProcess, Script, Worker,
    WorkerBuilder, eventually,
};

use crate::stage::Stage;

fn often(builder: OrchestratorBuilder) -> OrchestratorBuilder {
    builder.set("chat.sweep_every", "1s")
}

fn patient(worker: WorkerBuilder) -> WorkerBuilder {
    worker.set("inference.timeout", "60s")
}

/// Starts a stack whose model never answers, and whose orchestrator stops before it publishes a cancel.
async fn stage() -> Stage {
    let model = Model::start([Script::Hang, Script::Hang]).await;
    let mut stage = Stage::start_with_worker(model, patient, often).await;
    stage.orchestrator = stage.builder.clone().stopping_at("CancelStored#1").start().await;
    stage
}

/// Begins a chat and waits until the worker has asked the model.
async fn begin(stage: &Stage, client: &ChatClient) -> ChatStream {
    let mut stream = client.stream(&[("user", "Never mind.")]).await;
    stream.next().await;
    stage.worker.wait_for_in_flight(Kind::Chat, 1).await;
    // From now on, only a cancel stops it: it does without its lease while the model thinks.
    eventually("the model is asked", || async { (stage.model.turns().len() == 1).then_some(()) }).await;
    stream
}

/// Kills the orchestrator once it has stored the cancel, and starts another one.
async fn killed_after(stage: &mut Stage, cancelling: impl Future) -> OrchestratorProcess {
    tokio::select! {
        _ = cancelling => panic!("it does not stop"),
        () = stage.orchestrator.wait_until_stopped() => {}
    }
    assert_eq!(stage.worker.metric("pma_handoffs_in_flight{kind=\"chat\"}").await, Some(1.0));
    stage.orchestrator.process.kill();
    stage.builder.start().await
}

fn path_of(stream: &ChatStream) -> String {
    format!("/chat/completions/chatcmpl-{}", stream.header("x-cynode-handoff").unwrap())
}

async fn is_cancelled(client: &ChatClient, path: &str) {
    eventually("the turn is cancelled", || async {
        let found = client.send("GET", path, None).await;
        (found.status != 202).then(|| assert_eq!((found.status, found.code()), (409, "cancelled")))
    })
    .await;
    assert_eq!(client.send("GET", "/threads", None).await.body["data"][0]["in_progress"], json!(null));
}

#[tokio::test]
async fn cancel_that_a_killed_orchestrator_stored_reaches_the_worker() {
    let mut stage = stage().await;
    let client = stage.client();
    let path = path_of(&begin(&stage, &client).await);
    let cancel = format!("{path}/cancel");
    let second = killed_after(&mut stage, client.send("POST", &cancel, None)).await;
    stage.worker.wait_for_in_flight(Kind::Chat, 0).await;
    is_cancelled(&second.client(&stage.key), &path).await;
    assert_eq!((stage.model.turns().len(), stage.handoffs().await), (1, 1));
}

#[tokio::test]
async fn work_for_a_client_that_left_is_stopped_though_the_orchestrator_is_killed() {
    let mut stage = stage().await;
    let key = stage.gateway.api_key_with("erin", &[("on_disconnect", json!("cancel"))]).await.1;
    let stream = begin(&stage, &stage.orchestrator.client(&key)).await;
    let path = path_of(&stream);
    drop(stream);
    let second = killed_after(&mut stage, std::future::pending::<()>()).await;
    stage.worker.wait_for_in_flight(Kind::Chat, 0).await;
    is_cancelled(&second.client(&key), &path).await;
}

#[tokio::test]
async fn work_on_a_deleted_thread_is_stopped_though_the_orchestrator_is_killed() {
    let mut stage = stage().await;
    let client = stage.client().with("x-cynode-thread", "a");
    let stream = begin(&stage, &client).await;
    let _second = killed_after(&mut stage, client.send("DELETE", "/threads/a", None)).await;
    stage.worker.wait_for_in_flight(Kind::Chat, 0).await;
    drop(stream);
}

/// The only worker is killed in the middle of the work. The next one is told before it goes on for long.
#[tokio::test]
async fn cancel_while_no_worker_is_there_reaches_the_next_one() {
    let model = Model::start([Script::Hang, Script::Hang]).await;
    let mut stage = Stage::start_with_worker(model, patient, often).await;
    let client = stage.client();
    let path = path_of(&begin(&stage, &client).await);
    stage.worker.process.kill();
    let accepted = client.send("POST", &format!("{path}/cancel"), None).await;
    assert_eq!(accepted.status, 202, "{accepted:?}");
    let manager = patient(Worker::manager(&stage.nats).asking(&stage.model).set("worker.ack_wait", "5s"));
    stage.worker = manager.calling_process(&stage.gateway).await.start().await;
    is_cancelled(&client, &path).await;
}

/// Streams are restored from a backup of before the chat was handed off, after it was cancelled.
#[tokio::test]
async fn cancelled_chat_that_the_queue_has_lost_ends_and_is_not_handed_off_again() {
    let model = Model::start([Script::Hang, Script::Hang]).await;
    let mut stage = Stage::start_with_worker(model, patient, often).await;
    stage.worker.process.kill();
    let client = stage.client();
    let mut stream = client.stream(&[("user", "Never mind.")]).await;
    stream.next().await;
    let path = path_of(&stream);
    let id = stream.header("x-cynode-handoff").unwrap().parse().unwrap();
    eventually("the handoff is marked as sent", || async {
        let rows = stage.gateway.must("GET", "/api/v1/audit?tool=thread.turn.sent", None).await;
        rows.as_array().is_some_and(|rows| !rows.is_empty()).then_some(())
    })
    .await;
    let jetstream = async_nats::jetstream::new(stage.nats.client().await);
    let queue = jetstream.get_stream(subjects::streams::HANDOFFS).await.unwrap();
    stage.nats.lose_stream(queue.cached_info().config.clone()).await;
    let cancel = format!("{path}/cancel");
    let cancelling = client.send("POST", &cancel, None);
    let (_, streamed) = tokio::join!(cancelling, stream.read());
    assert_eq!(streamed.error.unwrap()["code"], "cancelled");
    is_cancelled(&client, &path).await;
    assert_eq!((stage.model.turns().len(), stage.handoffs().await), (0, 0));
    // That it is lost is not certain: a worker that has it all the same is told, also after the end.
    let mut cancels = stage.nats.client().await.subscribe(Subject::Cancel(id).to_string()).await.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(30), cancels.next()).await;
    assert!(told.is_ok_and(|told| told.is_some()), "no worker is told any more");
}

/// A person starts a run that replaces another one. Nobody tells the worker of it but the next orchestrator.
#[tokio::test]
async fn run_that_is_replaced_while_no_orchestrator_is_there_is_stopped() {
    let model = Model::start_with_structured([], |_| Script::Hang).await;
    let mut stage = Stage::start_with_worker(model, patient, often).await;
    let agent = stage.gateway.agent(&stage.gateway.unbound("orchestrator").await);
    let schedule = json!({
        "name": "nightly",
        "timing": { "type": "cron", "expression": "0 3 * * *", "time_zone": "UTC" },
        "payload": { "type": "prompt", "prompt": "Say hello." },
        "concurrency": "replace",
    });
    let named = json!({ "user_id": "alice", "schedule": "nightly" });
    call(&stage, &agent, "schedule.create", json!({ "user_id": "alice", "new": schedule })).await;
    let replaced = call(&stage, &agent, "schedule.run_now", named.clone()).await;
    stage.worker.wait_for_in_flight(Kind::Schedule, 1).await;
    eventually("the model is asked", || async { (!stage.model.asked().is_empty()).then_some(()) }).await;
    stage.orchestrator.process.kill();
    let second = call(&stage, &agent, "schedule.run_now", named.clone()).await;
    stage.orchestrator = stage.builder.start().await;
    let id = replaced["run_id"].as_str().unwrap().parse().unwrap();
    let answers = Orchestrator::connect(&stage.nats).await;
    let answer = answers.completion(Kind::Schedule, id).await;
    assert_eq!(answer.status, Status::Cancelled, "{answer:?}");
    let runs = call(&stage, &agent, "schedule.runs", named).await;
    assert_eq!(
        (&runs["items"][0]["run_id"], &runs["items"][1]["state"]),
        (&second["run_id"], &json!("replaced"))
    );
}

async fn call(stage: &Stage, agent: &mcp::Client, tool: &str, arguments: Value) -> Value {
    let reply = stage.gateway.call(agent, tool, arguments).await.unwrap();
    assert!(!reply.is_error, "{tool}: {}", reply.text);
    reply.structured.unwrap()
}
