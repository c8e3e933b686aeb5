//! A real language model on this machine, through the whole stack: worker, gateway, store. The tests check
//! that requests and replies are handled, not what the model says.

use std::{fs, num::NonZeroU32, path::PathBuf, time::Duration};

use serde_json::{Value, json};
use subjects::{Act, Answer, Completion, Handoff, Kind, Status, StepOutcome, Work};
use testkit::{
    GatewayProcess, Model, ModelRequest, Nats, Orchestrator, RealModel, Script, Worker, chat, schedule,
};

/// It is slow on cores that are busy with other tests.
const PATIENCE: Duration = Duration::from_secs(300);

async fn answered(orchestrator: &Orchestrator, kind: Kind, handoff: &Handoff) -> Completion {
    let id = orchestrator.publish(handoff).await;
    match orchestrator.wait_for_answer_within(PATIENCE, kind, id).await {
        Answer::Completion(answer) => answer,
        Answer::Findings(findings) => panic!("{findings:?}"),
    }
}

fn token_file(gateway: &GatewayProcess, token: &str) -> PathBuf {
    let file = gateway.folder().join("manager.token");
    fs::write(&file, token).unwrap();
    file
}

/// P9, P16, O1: a conversation, structured output, and a tool call that follows from it.
#[tokio::test]
async fn real_model_answers_a_chat_and_gives_structured_output_for_a_tool_call() {
    let (model, nats, gateway) = (RealModel::start().await, Nats::start(), GatewayProcess::start().await);
    let token = gateway.manager().await;
    let worker = model
        .asked_by(Worker::manager(&nats))
        .set("inference.tool_mode", "native")
        .set("gateway.url", gateway.url())
        .set("gateway.token_file", token_file(&gateway, &token).display().to_string());
    let _worker = worker.start().await;
    let orchestrator = Orchestrator::connect(&nats).await;

    let answer = answered(&orchestrator, Kind::Chat, &chat("Say hello in one short sentence.")).await;
    assert_ne!(answer.status, Status::Failed, "{answer:?}");
    assert!(!answer.message.unwrap().content.trim().is_empty());
    assert!(answer.usage.prompt_tokens > 0 && answer.usage.completion_tokens > 0, "{:?}", answer.usage);
    let asked = answer.trace.steps.iter().find(|step| step.act == Act::Model).unwrap();
    assert_eq!(
        (asked.name.as_str(), asked.outcome),
        (&*format!("local/{}", RealModel::NAME), StepOutcome::Ok)
    );

    let answer = answered(&orchestrator, Kind::Schedule, &schedule("Write the weekly report")).await;
    assert_eq!(answer.status, Status::Completed, "{answer:?}");
    let step =
        |act| answer.trace.steps.iter().find(|step| step.act == act && step.outcome == StepOutcome::Ok);
    assert!(step(Act::Think).is_some() && step(Act::Tool).is_some(), "{:?}", answer.trace.steps);
    let [created] = &answer.tasks[..] else { panic!("expected one task: {:?}", answer.tasks) };
    // The task that the model named is in the store.
    let agent = gateway.agent(&token);
    let task: Value = gateway
        .call(&agent, "db.task.get", json!({ "task_id": created.task_id }))
        .await
        .unwrap()
        .structured
        .unwrap();
    assert!(!task["name"].as_str().unwrap().is_empty(), "{task}");
}

/// The fixed part of a chat turn with eight tools has at most 2,500 tokens, as the server counts them.
#[tokio::test]
async fn real_model_counts_few_tokens_in_the_fixed_part_of_a_turn() {
    let (real, nats, gateway) = (RealModel::start().await, Nats::start(), GatewayProcess::start().await);
    let token = token_file(&gateway, &gateway.manager().await).display().to_string();
    for mode in ["native", "typed"] {
        let step = |_: &ModelRequest| Script::Say(json!({ "answer": "Hello." }).to_string());
        let model = Model::start_answering(|_| Script::say("Hello."), step).await;
        let worker = Worker::manager(&nats).asking(&model).set("inference.tool_mode", mode);
        let worker =
            worker.set("gateway.url", gateway.url()).set("gateway.token_file", &*token).start().await;
        let orchestrator = Orchestrator::connect(&nats).await;
        let answer = answered(&orchestrator, Kind::Chat, &chat("Create a task")).await;
        assert_eq!(answer.trace.tools.len(), 8, "{:?}", answer.trace.tools);
        drop(worker);
        let asked = model.asked().remove(0);
        let tools = asked.body.get("tools").map(Value::to_string).unwrap_or_default();
        let tokens = real.count_tokens(&format!("{}{tools}", asked.system())).await;
        println!("{mode}: {tokens} tokens");
        assert!((500..=2_500).contains(&tokens), "{mode}: {tokens} tokens");
    }
}

/// Typed steps on a real server: the steps are steps, whatever they say.
#[tokio::test]
async fn real_model_writes_typed_steps() {
    let (model, nats, gateway) = (RealModel::start().await, Nats::start(), GatewayProcess::start().await);
    let token = token_file(&gateway, &gateway.manager().await).display().to_string();
    let _worker = model
        .asked_by(Worker::manager(&nats))
        .set("inference.tool_mode", "typed")
        .set("agent.max_steps", "2")
        .set("gateway.url", gateway.url())
        .set("gateway.token_file", token)
        .start()
        .await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let mut handoff = chat("Create a task called water-plants.");
    let Work::Chat(work) = &mut handoff.work else { panic!("a chat") };
    work.max_tokens = NonZeroU32::new(60);
    let answer = answered(&orchestrator, Kind::Chat, &handoff).await;
    let asked: Vec<_> = answer.trace.steps.iter().filter(|step| step.act == Act::Model).collect();
    assert!(asked.first().is_some_and(|step| step.tries == 1), "the first reply is a step: {answer:?}");
    // What is said to be done is in the store.
    let created = answer.tasks.len();
    let text = answer.message.map(|message| message.content).unwrap_or_default();
    assert!(created > 0 || !text.contains("I created"), "{text}");
}
