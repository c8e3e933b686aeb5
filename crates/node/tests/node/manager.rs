//! The project manager runs things: from a chat to a job, its log and its files on the task.

use std::time::Duration;

use serde_json::{Value, json};
use subjects::{Continue, Kind, Status, Work};
use testkit::{Model, Orchestrator, Script, Worker, WorkerBuilder, chat};

use crate::stage::Stage;

const PATIENCE: Duration = Duration::from_secs(90);

/// Puts a small repository on the task.
async fn put_repository(stage: &Stage) {
    let files = [
        ("calc.py", "def add(a, b):\n    return a + b\n"),
        (
            "test_calc.py",
            "import unittest\nfrom calc import add\n\nclass Adds(unittest.TestCase):\n    \
             def test_adds(self):\n        self.assertEqual(add(2, 3), 5)\n",
        ),
    ];
    for (path, content) in files {
        let put = json!({ "task_id": stage.task, "path": path, "content": content });
        stage.call("artifact.put", put).await;
    }
}

/// Asks a manager in the scope of the task. Returns what it answers.
async fn ask(stage: &Stage, worker: WorkerBuilder, text: &str) -> String {
    let _worker = worker.calling_process(&stage.gateway).await.start().await;
    let orchestrator = Orchestrator::connect(&stage.nats).await;
    let mut asked = chat(text);
    asked.scope.task_id = Some(stage.task.parse().unwrap());
    asked.scope.user_id = Some("ada".parse().unwrap());
    orchestrator.publish(&asked).await;
    match orchestrator.wait_for_answer_within(PATIENCE, Kind::Chat, asked.id).await {
        subjects::Answer::Completion(completion) => {
            completion.message.unwrap_or_else(|| panic!("{:?}", completion.error)).content
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the jobs of the task.
async fn jobs(stage: &Stage) -> Vec<Value> {
    let listed = stage.call("sandbox.job.list", json!({ "task_id": stage.task })).await;
    listed["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn offline_manager_runs_the_tests_of_a_repository() {
    let stage = Stage::start().await;
    put_repository(&stage).await;
    let _node = stage.node("n1").await.start().await;
    let answer = ask(&stage, Worker::manager(&stage.nats), "Run the tests of this repository").await;
    assert!(answer.contains("completed") && answer.contains("test_adds"), "{answer}");
    let jobs = jobs(&stage).await;
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    let id = jobs[0]["job_id"].as_str().unwrap();
    assert!(stage.log(id).await.contains("OK"), "{}", stage.log(id).await);
}

/// A job belongs to a task. The task needs no files.
#[tokio::test]
async fn offline_manager_asks_for_the_task_of_a_job_and_runs_it_with_the_answer() {
    let stage = Stage::start().await;
    let _node = stage.node("n1").await.start().await;
    let _worker = Worker::manager(&stage.nats).calling_process(&stage.gateway).await.start().await;
    let orchestrator = Orchestrator::connect(&stage.nats).await;
    let mut asked = chat("run: echo it runs");
    asked.scope.user_id = Some("ada".parse().unwrap());
    orchestrator.publish(&asked).await;
    let question = orchestrator.completion(Kind::Chat, asked.id).await;
    assert_eq!(question.status, Status::NeedsClarification, "{question:?}");
    assert!(question.message.unwrap().content.contains("For which task should it run?"));
    assert!(jobs(&stage).await.is_empty());
    let input = Continue::new(asked.id, stage.task.clone());
    let mut answer = chat("");
    answer.work = Work::Continue(input);
    answer.scope = asked.scope.clone();
    orchestrator.publish(&answer).await;
    let answered = orchestrator.wait_for_answer_within(PATIENCE, Kind::Continue, answer.id).await;
    let subjects::Answer::Completion(answered) = answered else { panic!("{answered:?}") };
    let said = answered.message.unwrap().content;
    assert!(said.contains("it exited with code 0") && said.contains("it runs"), "{said}");
    assert_eq!(jobs(&stage).await.len(), 1);
}

#[tokio::test]
async fn manager_with_a_model_runs_the_tests_and_finds_the_report_on_the_task() {
    let stage = Stage::start().await;
    put_repository(&stage).await;
    let _node = stage.node("n1").await.start().await;
    let run = json!({
        "task_id": stage.task, "artifacts": ["**"], "wait_seconds": 60, "outputs": ["report.txt"],
        "script": "python3 -m unittest -v > report.txt 2>&1; code=$?; cat report.txt; exit $code",
    });
    let model =
        Model::start([Script::call("sandbox__run", &run), Script::say("All tests of `calc` pass.")]).await;
    let worker = Worker::manager(&stage.nats).asking(&model);
    let answer = ask(&stage, worker, "run the tests of this repository").await;
    assert_eq!(answer, "All tests of `calc` pass.");
    let seen = model.turns().last().unwrap().messages().last().unwrap()["content"].to_string();
    assert!(seen.contains("test_adds") && seen.contains("completed"), "{seen}");
    assert!(stage.artifact("report.txt").await.contains("OK"));
    assert_eq!(jobs(&stage).await.len(), 1);
}
