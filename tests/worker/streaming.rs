//! Streamed text and progress events are best effort on core NATS. The durable answer is always complete.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;
use subjects::{Delta, Event, Kind, Pattern, Progress, Work};
use testkit::{Answer, Gateway, Model, Nats, Orchestrator, Script, Tool, Worker, chat};

#[tokio::test]
async fn text_and_progress_are_streamed() {
    let nats = Nats::start();
    let gateway =
        Gateway::start(vec![Tool::new("db.task.list", "Lists tasks.", json!({ "type": "object" }), |_| {
            Answer::text("none")
        })])
        .await;
    let text = "Nothing is left to do; every task has been verified and closed.";
    let model = Model::start([
        Script::call("db__task__list", &json!({})),
        Script::Cut("Nothing is le".to_owned()),
        Script::say(text),
    ])
    .await;
    let _manager = Worker::manager(&nats).asking(&model).calling(&gateway).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut deltas = orchestrator.client.subscribe(Pattern::Deltas.to_string()).await.unwrap();
    let mut events = orchestrator.client.subscribe(Pattern::Events.to_string()).await.unwrap();
    orchestrator.client.flush().await.unwrap();
    let mut question = chat("What is left?");
    if let Work::Chat(chat) = &mut question.work {
        chat.stream = true;
    }
    let id = orchestrator.publish(&question).await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(answer.message.unwrap().content, text, "the stored answer is complete");

    let mut seen: Vec<Delta> = Vec::new();
    while let Ok(Some(message)) = tokio::time::timeout(Duration::from_millis(300), deltas.next()).await {
        seen.push(serde_json::from_slice(&message.payload).unwrap());
    }
    assert!(
        seen.iter().all(|delta| delta.handoff_id == id && delta.turn == 1),
        "only the second turn has text: {seen:?}"
    );
    let said = |count: u32| -> String {
        seen.iter().filter(|delta| delta.r#try == count).map(|delta| delta.text.as_str()).collect()
    };
    assert_eq!(
        (said(1).as_str(), said(2).as_str()),
        ("Nothing is le", text),
        "a second try starts from the beginning"
    );
    let second: Vec<u64> = seen.iter().filter(|delta| delta.r#try == 2).map(|delta| delta.sequence).collect();
    assert_eq!(second, (0..second.len() as u64).collect::<Vec<_>>());
    assert!(second.len() > 1, "the text is streamed in several deltas");

    let mut told: Vec<(Progress, Option<String>)> = Vec::new();
    while let Ok(Some(message)) = tokio::time::timeout(Duration::from_millis(300), events.next()).await {
        let event: Event = serde_json::from_slice(&message.payload).unwrap();
        told.push((event.progress, event.name));
    }
    let tool = Some("db.task.list".to_owned());
    for expected in [(Progress::Thinking, None), (Progress::Calling, tool.clone()), (Progress::Called, tool)]
    {
        assert!(told.contains(&expected), "{expected:?} in {told:?}");
    }
}

#[tokio::test]
async fn handoff_without_stream_sends_no_deltas() {
    let nats = Nats::start();
    let model = Model::start([Script::say("quietly")]).await;
    let _manager = Worker::manager(&nats).asking(&model).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut deltas = orchestrator.client.subscribe(Pattern::Deltas.to_string()).await.unwrap();
    orchestrator.client.flush().await.unwrap();
    let mut question = chat("hello");
    if let Work::Chat(chat) = &mut question.work {
        chat.stream = false;
    }
    let id = orchestrator.publish(&question).await;
    orchestrator.wait_for_answer(Kind::Chat, id).await;
    let heard = tokio::time::timeout(Duration::from_millis(200), deltas.next()).await;
    assert!(heard.is_err(), "{heard:?}");
}
