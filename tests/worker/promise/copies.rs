//! One handoff with several messages in the queue.

use std::time::Duration;

use async_nats::HeaderMap;
use subjects::{Encoding, Handoff, Kind, Scope, Status, streams};
use testkit::{Errands, Model, Nats, Orchestrator, Script, Worker, WorkerBuilder, chat, eventually};

/// Publishes the same bytes without a message id, so the server cannot drop the copy.
async fn publish_copy(orchestrator: &Orchestrator, handoff: &Handoff) {
    let body = handoff.encode(Encoding::Json).unwrap();
    orchestrator.publish_raw(handoff.kind(), HeaderMap::new(), body).await;
}

fn slow_model(time: Duration) -> impl Future<Output = Model> {
    Model::start([Script::After(time, Box::new(Script::say("done")))])
}

/// A worker whose model timeout allows a turn longer than `ack_wait`.
fn patient(nats: &Nats, model: &Model) -> WorkerBuilder {
    Worker::manager(nats)
        .asking(model)
        .set("inference.timeout", "30s")
        .set("agent.assess_input", "false")
        .set("worker.ack_wait", "1s")
}

/// A turn longer than `ack_wait`, two copies, two instances with one slot each: the copy waits, the turn is
/// paid once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_of_a_running_handoff_waits_for_it() {
    let (nats, model) = (Nats::start(), slow_model(Duration::from_secs(5)).await);
    let settings = patient(&nats, &model).set("worker.concurrency.chat", "1");
    let _workers = [settings.start().await, settings.start().await];
    let orchestrator = Orchestrator::connect(&nats).await;
    let handoff = chat("a long one");
    publish_copy(&orchestrator, &handoff).await;
    publish_copy(&orchestrator, &handoff).await;
    let answer = orchestrator.completion(Kind::Chat, handoff.id).await;
    assert_eq!((answer.status, answer.attempts), (Status::Completed, 1));
    orchestrator.wait_until_settled().await;
    assert_eq!(model.turns().len(), 1, "each turn is paid once");
    assert_eq!(orchestrator.answers().await.len(), 1);
    assert_eq!(orchestrator.stored(streams::DEAD).await, 0);
}

/// The owner dies: its own message is redelivered and claimed again; the copy does not claim the handoff
/// first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_does_not_take_over_before_the_dead_owners_message_is_redelivered() {
    let nats = Nats::start();
    let errands = Errands::start(|| Duration::ZERO).await;
    errands.hold_after(0);
    let settings = errands.worker(&nats).set("worker.ack_wait", "1s").set("worker.concurrency.chat", "1");
    let mut first = settings.start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let handoff = Errands::handoff("x1");
    publish_copy(&orchestrator, &handoff).await;
    eventually("the first turn", async || (errands.asked("x1")[0] == 1).then_some(())).await;
    publish_copy(&orchestrator, &handoff).await;
    let _others = [settings.start().await, settings.start().await];
    first.process.kill();
    errands.release();
    let answer = orchestrator.completion(Kind::Chat, handoff.id).await;
    assert_eq!((answer.status, answer.attempts), (Status::Completed, 2));
    assert_eq!(errands.asked("x1"), [2, 1, 1], "only the interrupted turn is requested again");
    orchestrator.wait_until_settled().await;
    let effects = errands.effects().await;
    assert!(Errands::expected_effects("x1").iter().all(|effect| effects[effect] == 1), "{effects:?}");
}

/// A copy that is refused does not end the work on the valid message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_copy_leaves_the_running_handoff_alone() {
    let (nats, model) = (Nats::start(), slow_model(Duration::from_secs(4)).await);
    let settings = patient(&nats, &model);
    let worker = settings.start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let handoff = chat("a long one");
    orchestrator.publish(&handoff).await;
    eventually("the turn", async || (model.turns().len() == 1).then_some(())).await;
    let mut body: serde_json::Value =
        serde_json::from_slice(&handoff.encode(Encoding::Json).unwrap()).unwrap();
    body["reply_to"] = "somewhere.else".into();
    orchestrator.publish_raw(Kind::Chat, HeaderMap::new(), body.to_string().into_bytes()).await;
    let answer = orchestrator.completion(Kind::Chat, handoff.id).await;
    assert_eq!(answer.status, Status::Completed, "{}\n{}", worker.log(), answer.error.is_some());
    assert_eq!(model.turns().len(), 1);
}

/// An instance that was frozen with a message in its socket still has it when it resumes. By then the server
/// has redelivered the message to another instance, whose claim names a later delivery.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_delivery_does_not_take_over_from_a_later_one() {
    let (nats, model) = (Nats::start(), slow_model(Duration::from_secs(5)).await);
    let settings = patient(&nats, &model).set("worker.concurrency.chat", "1");
    let frozen = settings.start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    eventually("its pull request", async || {
        (orchestrator.consumer(Kind::Chat).await.num_waiting == 1).then_some(())
    })
    .await;
    frozen.process.freeze();
    let id = orchestrator.publish(&chat("a long one")).await;
    eventually("the delivery to the frozen worker", async || {
        (orchestrator.consumer(Kind::Chat).await.num_ack_pending == 1).then_some(())
    })
    .await;
    let _other = settings.start().await;
    eventually("the other worker to call the model", async || (model.turns().len() == 1).then_some(())).await;
    frozen.process.thaw();
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!((answer.status, answer.attempts), (Status::Completed, 1));
    assert_eq!(model.turns().len(), 1, "the live owner was not fenced");
}

/// A message with the id of another user's handoff receives neither its journal nor its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_of_another_user_is_refused_and_not_answered() {
    let (nats, model) = (Nats::start(), slow_model(Duration::from_secs(3)).await);
    let settings = patient(&nats, &model);
    let _workers = [settings.start().await, settings.start().await];
    let orchestrator = Orchestrator::connect(&nats).await;
    let of = |user: &str| Scope { user_id: Some(user.parse().unwrap()), ..Scope::default() };
    let handoff = Handoff { scope: of("alice"), ..chat("a long one") };
    orchestrator.publish(&handoff).await;
    eventually("the turn", async || (model.turns().len() == 1).then_some(())).await;
    let forged = Handoff { scope: of("mallory"), ..handoff.clone() };
    publish_copy(&orchestrator, &forged).await;
    let answer = orchestrator.completion(Kind::Chat, handoff.id).await;
    assert_eq!((answer.status, answer.attempts), (Status::Completed, 1));
    orchestrator.wait_until_settled().await;
    assert_eq!(model.turns().len(), 1);
    assert_eq!(orchestrator.answers().await.len(), 1);
}
