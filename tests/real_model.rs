//! A real language model on this machine, through the whole stack: worker, gateway, store. The tests check
//! that requests and replies are handled, not what the model says.

use std::{fs, io::Read, path::PathBuf, process::ChildStdin, time::Duration};

use serde_json::{Value, json};
use subjects::{Act, Answer, Completion, Handoff, Kind, Status, StepOutcome};
use testkit::{
    GatewayProcess, Nats, Orchestrator, Process, Worker, WorkerBuilder, chat, eventually_within, schedule,
    workspace,
};

const NAME: &str = "smollm2-135m";
/// It is slow on cores that are busy with other tests.
const PATIENCE: Duration = Duration::from_secs(300);

/// The server that `make run-model` starts.
struct RealModel {
    _process: Process,
    _input: ChildStdin,
    url: String,
    _folder: tempfile::TempDir,
}

impl RealModel {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("model.log");
        let python = workspace().join(".tools/model/bin/python");
        let script = workspace().join("scripts/serve_model.py").display().to_string();
        let (process, input) = Process::start_with_stdin(&python, &[script], &[], &log);
        let url = eventually_within(PATIENCE, "the model to be served", async || {
            let mut text = String::new();
            fs::File::open(&log).ok()?.read_to_string(&mut text).ok()?;
            text.lines()
                .find_map(|line| line.strip_prefix(&format!("{NAME} is served at ")))
                .map(str::to_owned)
        })
        .await;
        Self { _process: process, _input: input, url, _folder: folder }
    }

    fn asked_by(&self, worker: WorkerBuilder) -> WorkerBuilder {
        worker
            .set("inference.base_url", &*self.url)
            .set("inference.model", NAME)
            .set("inference.timeout", "240s")
            .set("agent.think_timeout", "240s")
    }
}

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
        .set("agent.assess_input", "false")
        .set("gateway.url", gateway.url())
        .set("gateway.token_file", token_file(&gateway, &token).display().to_string());
    let _worker = worker.start().await;
    let orchestrator = Orchestrator::connect(&nats).await;

    let answer = answered(&orchestrator, Kind::Chat, &chat("Say hello in one short sentence.")).await;
    assert_eq!(answer.status, Status::Completed, "{answer:?}");
    assert!(!answer.message.unwrap().content.trim().is_empty());
    assert!(answer.usage.prompt_tokens > 0 && answer.usage.completion_tokens > 0, "{:?}", answer.usage);
    let asked = answer.trace.steps.iter().find(|step| step.act == Act::Model).unwrap();
    assert_eq!((asked.name.as_str(), asked.outcome), (&*format!("local/{NAME}"), StepOutcome::Ok));

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
