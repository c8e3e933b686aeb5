//! A `continue` reads the answer that it continues from.

use std::time::Duration;

use serde_json::json;
use subjects::{
    Completion, Continue, ErrorCode, Handoff, HandoffId, Kind, Scope, Status, Work, journal::Record,
};
use testkit::{Model, Nats, Orchestrator, Script, Worker, chat, eventually, handoff};

fn of(user: &str, project: Option<&str>, handoff: Handoff) -> Handoff {
    let scope = Scope {
        user_id: Some(user.parse().unwrap()),
        project_id: project.map(|id| id.parse().unwrap()),
        ..Scope::default()
    };
    Handoff { scope, ..handoff }
}

fn continues(id: HandoffId) -> Handoff {
    handoff(Work::Continue(Continue::new(id, "the blue one")))
}

async fn asking_model() -> Model {
    Model::start([
        Script::call("ask_user", &json!({ "question": "Which one, for the secret plan?" })),
        Script::say("Painted blue."),
    ])
    .await
}

async fn ask(orchestrator: &Orchestrator, question: &Handoff) -> Completion {
    let id = orchestrator.publish(question).await;
    let asked = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(asked.status, Status::NeedsClarification);
    asked
}

/// NATS is down for 7 s just after the `continue` was claimed. Reading the earlier answer waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn continue_survives_an_outage_of_nats() {
    let (mut nats, model) = (Nats::start(), asking_model().await);
    let settings = Worker::manager(&nats).asking(&model).set("agent.assess_input", "false");
    let first = settings.start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let asked = ask(&orchestrator, &chat("paint the fence")).await;
    drop(first);
    let worker = settings.clone().stopping_at("none").start().await;
    // The outage starts after the claim, before the earlier answer is read.
    let id = orchestrator.publish(&continues(asked.handoff_id)).await;
    eventually("the claim to be stored", async || {
        let entries = orchestrator.journal(id).await;
        let claims = |record: &Record| matches!(record, Record::Claimed(_));
        entries.iter().any(|entry| entry.records.iter().any(claims)).then_some(())
    })
    .await;
    nats.kill();
    tokio::time::sleep(Duration::from_secs(7)).await;
    nats.start_again();
    let orchestrator = Orchestrator::connect(&nats).await;
    let answered = orchestrator.completion(Kind::Continue, id).await;
    assert_eq!(answered.status, Status::Completed, "{:?}\n{}", answered.error, worker.log());
}

/// P2: a handoff's conversation is visible only to its own user and project.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn continue_of_another_users_or_projects_handoff_is_refused() {
    let (nats, model) = (Nats::start(), asking_model().await);
    let _worker = Worker::manager(&nats).asking(&model).set("agent.assess_input", "false").start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let asked = ask(&orchestrator, &of("alice", Some("fence"), chat("paint the fence"))).await;
    let before = model.turns().len();
    for stranger in [
        of("mallory", Some("fence"), continues(asked.handoff_id)),
        of("alice", Some("house"), continues(asked.handoff_id)),
        of("alice", None, continues(asked.handoff_id)),
        continues(asked.handoff_id),
    ] {
        let id = orchestrator.publish(&stranger).await;
        let refused = orchestrator.completion(Kind::Continue, id).await;
        assert_eq!(refused.error.as_ref().map(|error| error.code), Some(ErrorCode::ScopeMismatch));
        assert!(refused.transcript.is_empty() && !format!("{refused:?}").contains("secret plan"));
    }
    assert_eq!(model.turns().len(), before, "nothing of the earlier conversation reached the model");
    let id = orchestrator.publish(&of("alice", Some("fence"), continues(asked.handoff_id))).await;
    let answered = orchestrator.completion(Kind::Continue, id).await;
    assert_eq!(answered.status, Status::Completed, "{:?}", answered.error);
}
