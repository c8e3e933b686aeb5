use std::time::Duration;

use subjects::{ErrorCode, Handoff, HandoffId, Kind, Status, streams};
use testkit::{Errands, Nats, Orchestrator, eventually};

use super::ctl;

async fn failed_errand(errands: &Errands, nats: &Nats, orchestrator: &Orchestrator) -> HandoffId {
    // The model is away from the second turn on: two effects have happened by then.
    let worker = errands.worker(nats).start().await;
    let id = orchestrator.publish(&Errands::handoff("x1")).await;
    eventually("the second turn", async || (errands.asked("x1")[1] == 1).then_some(())).await;
    errands.model.fail_with(Some(503));
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(
        answer.error.map(|error| error.code),
        Some(ErrorCode::InferenceUnavailable),
        "{}",
        worker.log()
    );
    id
}

/// write → the model fails → dead letter → replay, as the README says: the write happens once, its turn is paid once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_goes_on_where_the_handoff_failed() {
    let nats = Nats::start();
    let errands = Errands::start(|| Duration::from_millis(500)).await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = failed_errand(&errands, &nats, &orchestrator).await;
    errands.model.fail_with(None);
    let asked_before = errands.asked("x1");
    let _worker = errands.worker(&nats).start().await;
    let replayed = ctl(&nats, &["dead", "replay", "1"]).await;
    assert_eq!(replayed.code, 0, "{replayed:?}");
    let answer = orchestrator.completion(Kind::Chat, id.replayed()).await;
    assert_eq!(answer.status, Status::Completed, "{:?}", answer.error);
    let effects = errands.effects().await;
    assert!(Errands::expected_effects("x1").iter().all(|effect| effects[effect] == 1), "{effects:?}");
    assert_eq!(errands.asked("x1")[0], 1, "the first turn was finished and is not paid again");
    assert_eq!(asked_before[0], 1);
}

/// The same letter, replayed twice, by two people.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handoff_has_one_replay() {
    let nats = Nats::start();
    let errands = Errands::start(|| Duration::from_millis(500)).await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = failed_errand(&errands, &nats, &orchestrator).await;
    errands.model.fail_with(None);
    // A second letter of the same handoff, as an instance leaves that gave it up at the same time.
    let letter = orchestrator.contents(streams::DEAD).await.remove(0);
    let mut headers = letter.headers.clone();
    headers.insert("Nats-Msg-Id", "another");
    let stored = orchestrator
        .jetstream
        .publish_with_headers(letter.subject.clone(), headers, letter.payload.clone())
        .await
        .unwrap();
    stored.await.unwrap();
    let _workers = [errands.worker(&nats).start().await, errands.worker(&nats).start().await];
    ctl(&nats, &["dead", "replay", "1"]).await;
    ctl(&nats, &["dead", "replay", "2"]).await;
    let answer = orchestrator.completion(Kind::Chat, id.replayed()).await;
    assert_eq!(answer.status, Status::Completed, "{:?}", answer.error);
    orchestrator.settled().await;
    let effects = errands.effects().await;
    assert!(effects.values().all(|count| *count == 1), "{effects:?}");
    assert_eq!(orchestrator.answers().await.len(), 2, "the failure and the replay");
}

/// A letter was stored, its worker died, and another completed the handoff. The letter is shown as completed and is not
/// replayed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letter_of_a_completed_handoff_is_not_replayed() {
    let nats = Nats::start();
    let errands = Errands::start(|| Duration::from_millis(300)).await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let settings = errands.worker(&nats).set("worker.ack_wait", "1s");
    // Stops when the letter is stored and the failure is not yet answered.
    let mut first = settings.clone().stopping_at("BeforeAnswer#1").start().await;
    let id = orchestrator.publish(&Errands::handoff("x1")).await;
    eventually("the second turn", async || (errands.asked("x1")[1] == 1).then_some(())).await;
    errands.model.fail_with(Some(503));
    eventually("the letter", async || (orchestrator.stored(streams::DEAD).await == 1).then_some(())).await;
    let early = ctl(&nats, &["dead", "replay", "1"]).await;
    assert!(early.code != 0 && early.stderr.contains("still being worked on"), "{early:?}");
    first.process.kill();
    errands.model.fail_with(None);
    let _second = settings.start().await;
    assert_eq!(orchestrator.completion(Kind::Chat, id).await.status, Status::Completed);
    let before = orchestrator.answers().await.len();
    let listed = ctl(&nats, &["dead", "ls"]).await;
    let replayed = ctl(&nats, &["dead", "replay", "1"]).await;
    assert!(listed.stdout.contains("completed"), "{listed:?}");
    assert!(replayed.code != 0 && replayed.stderr.contains("completed"), "{replayed:?}");
    orchestrator.settled().await;
    assert_eq!(orchestrator.answers().await.len(), before);
    assert_eq!(errands.asked("x1")[2], 1);
    let effects = errands.effects().await;
    assert!(effects.values().all(|count| *count == 1), "{effects:?}");
    assert!(orchestrator.answer(Kind::Chat, id.replayed()).await.is_none());
}

/// A replay that somebody makes by hand while the handoff is in work is refused, and changes nothing for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handoff_in_work_is_not_replayed_by_hand() {
    let nats = Nats::start();
    let errands = Errands::start(|| Duration::from_millis(1_000)).await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let _workers = [errands.worker(&nats).start().await, errands.worker(&nats).start().await];
    let first = Errands::handoff("x1");
    orchestrator.publish(&first).await;
    eventually("the first turn", async || (errands.asked("x1")[0] == 1).then_some(())).await;
    let replay = Handoff { id: first.id.replayed(), replays: vec![first.id], ..first.clone() };
    orchestrator.publish(&replay).await;
    let refused = orchestrator.completion(Kind::Chat, replay.id).await.error.unwrap();
    assert_eq!(refused.code, ErrorCode::InvalidHandoff);
    assert!(refused.message.contains("still being worked on"), "{refused:?}");
    assert_eq!(orchestrator.completion(Kind::Chat, first.id).await.status, Status::Completed);
    assert_eq!(errands.asked("x1"), [1, 1, 1]);
}
