//! G2: the same handoff with the same recording gives the same bytes, and requests that were not recorded
//! fail.

use async_nats::HeaderMap;
use serde_json::json;
use subjects::{Encoding, ErrorCode, Handoff, Kind, Pattern, Plan, Role, Status, Subject, Work, streams};
use testkit::{
    Answer, Gateway, Model, Nats, Orchestrator, Script, Tool, Worker, WorkerBuilder, chat, handoff,
};

async fn bytes_of(orchestrator: &Orchestrator, question: &Handoff) -> Vec<u8> {
    let kind = question.kind();
    // Without a message id, which the server would deduplicate, and with the last run removed.
    orchestrator.publish_raw(kind, HeaderMap::new(), question.encode(Encoding::Json).unwrap()).await;
    orchestrator.wait_for_answer(kind, question.id).await;
    let stream = orchestrator.jetstream.get_stream(streams::RUNS).await.unwrap();
    let subject = Subject::answer(kind, question.id).to_string();
    let stored = stream.get_last_raw_message_by_subject(&subject).await.unwrap();
    orchestrator.wait_until_settled().await;
    let run = Pattern::Run(Role::ProjectManager, question.id).to_string();
    stream.purge().filter(run).await.unwrap();
    stored.payload.to_vec()
}

#[tokio::test]
async fn a_recorded_handoff_is_answered_with_the_same_bytes() {
    let nats = Nats::start();
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("recording.jsonl").display().to_string();
    let orchestrator = Orchestrator::connect(&nats).await;
    let questions = [
        chat("What is left?"),
        handoff(Work::Plan(Plan {
            goal: "Publish".to_owned(),
            acceptance_criteria: vec![],
            constraints: vec![],
            task_id: None,
        })),
    ];
    let named = |worker: WorkerBuilder| worker.set("instance", "recorded");
    let mut recorded = Vec::new();
    {
        let list =
            Tool::new("db.task.list", "Lists tasks.", json!({ "type": "object" }), |_| Answer::text("two"));
        let create = Tool::new("db.task.create", "Creates a task.", json!({ "type": "object" }), |_| {
            Answer::task("t-1", "t-1", &[])
        });
        let gateway = Gateway::start(vec![list, create]).await;
        let calls = ["db__task__list", "db__task__list"].map(|name| (name.to_owned(), "{}".to_owned()));
        let model = Model::start([Script::Call(calls.to_vec()), Script::say("Two tasks, twice.")]).await;
        let live = named(Worker::manager(&nats)).asking(&model).calling(&gateway);
        let _worker = live.set("inference.record_to", &recording).start().await;
        for question in &questions {
            recorded.push(bytes_of(&orchestrator, question).await);
        }
    }
    // Model and gateway are stopped.
    let replaying = named(Worker::manager(&nats)).set("inference.recording", &recording);
    for process in 0..2 {
        let worker = replaying.start().await;
        for run in 0..50 {
            for (question, recorded) in questions.iter().zip(&recorded) {
                let replayed = bytes_of(&orchestrator, question).await;
                let text = String::from_utf8_lossy(&replayed);
                assert!(replayed == *recorded, "process {process}, run {run}: {text}");
            }
        }
        assert_eq!(worker.metric("pma_model_calls_total").await, Some(0.0), "no model was called");
    }

    let _worker = replaying.start().await;
    let other = chat("Something else?");
    let id = orchestrator.publish(&other).await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    let error = answer.error.unwrap();
    assert_eq!((answer.status, error.code), (Status::Failed, ErrorCode::InferenceFailed));
    assert!(error.message.contains("recording has no answer"), "{}", error.message);
}
