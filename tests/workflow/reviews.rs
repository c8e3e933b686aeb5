//! Reviews on the real stack: steps that fail and pass, steps that never pass, nodes that are lost, and a
//! question that is answered an hour later.

mod clarification;
mod drafts;
mod handoffs;

use serde_json::{Value, json};
use testkit::{Model, NodeProcess, RunnerProcess, Script, Worker};

use self::{
    drafts::{CRITICAL, MAJOR, MINOR, decision, issue, iteration, reviewing},
    handoffs::Handoffs,
};
use crate::stage::{Stage, effects, events, job};

/// Those that work on the tasks of a stage, with a scripted model for the manager.
struct Crew {
    _manager: Worker,
    _analyst: Worker,
    _node: NodeProcess,
    _runner: RunnerProcess,
}

impl Crew {
    async fn start(stage: &Stage, model: &Model) -> Self {
        let manager = stage.manager_worker().await.asking(model);
        let (analyst, node) = (stage.analyst_worker().await, stage.node("node-1").await);
        let runner = stage.runner("runner-1").await;
        // They start at the same time.
        let (mut manager, mut analyst, mut node) = (manager.spawn(), analyst.spawn(), node.spawn());
        let runner = runner.start().await;
        manager.wait_until_ready().await;
        analyst.wait_until_ready().await;
        node.wait_until_ready().await;
        Self { _manager: manager, _analyst: analyst, _node: node, _runner: runner }
    }
}

fn repeated(kinds: &[(&str, usize)], step: &str) -> Vec<(String, String)> {
    let each = kinds.iter().flat_map(|(kind, count)| std::iter::repeat_n(*kind, *count));
    each.map(|kind| (kind.to_owned(), step.to_owned())).collect()
}

/// A script that fails twice and passes the third time is tried three times and reviewed three times. Each
/// attempt is told the issues of the review before it, but for minor ones.
#[tokio::test]
async fn workflow_runner_tries_a_step_until_its_review_passes() {
    let stage = Stage::start().await;
    let decide = |asked: &testkit::ModelRequest| match iteration(asked) {
        1 => decision("revise", &json!([issue("critical", CRITICAL), issue("minor", MINOR)])),
        2 => decision("revise", &json!([issue("minor", MINOR), issue("major", MAJOR)])),
        _ => decision("pass", &json!([])),
    };
    let model = Model::start_with_structured([Script::say("unused")], reviewing(decide)).await;
    let _crew = Crew::start(&stage, &model).await;
    let mut reviews = Handoffs::of(&stage, "review").await;
    let script = "n=$(cat tries || echo 0); n=$((n + 1)); echo $n > tries; echo try $n; test $n -ge 3";
    let mut step = job("page", script, &[]);
    step["description"] = json!("Write the page.");
    step["artifacts"] = json!(["**"]);
    step["outputs"] = json!(["tries"]);
    step["criteria"] = json!(["the page is written"]);
    let task = stage.begin("write the page", json!([step])).await;

    let ended = stage.ended(&task).await;
    assert_eq!((&ended["status"], stage.task_status(&task).await.as_str()), (&json!("done"), "completed"));
    assert_eq!(ended["state"]["attempts_by_step"], json!({ "page": 3 }), "{ended}");
    assert_eq!(ended["state"]["review_iterations"], json!({ "page": 3 }));
    assert_eq!(effects(&ended), repeated(&[("job", 3), ("review", 3)], "page"));
    assert_eq!(stage.artifact(&task, "tries").await, "3\n", "each attempt ran once");
    let tried: Vec<String> = events(&ended)
        .into_iter()
        .filter(|[node, _, _, detail]| node == "dispatch_step" && detail.starts_with("attempt"))
        .map(|[_, _, outcome, detail]| format!("{outcome}: {detail}"))
        .collect();
    assert_eq!(tried, ["started: attempt 1", "retried: attempt 2", "retried: attempt 3"]);

    let handed = reviews.next(3).await;
    let result = |number: usize| (&handed[number]["iteration"], &handed[number]["result"]["outcome"]);
    assert_eq!(result(0), (&json!(1), &json!("failed")));
    assert_eq!(result(1), (&json!(2), &json!("failed")));
    assert_eq!(result(2), (&json!(3), &json!("succeeded")));
    let described = |number: usize| handed[number]["step"]["description"].as_str().unwrap();
    assert_eq!(described(0), "Write the page.");
    let told = |number: usize| [CRITICAL, MAJOR, MINOR].map(|problem| described(number).contains(problem));
    assert_eq!(told(1), [true, false, false], "{}", described(1));
    assert_eq!(told(2), [false, true, false], "{}", described(2));
    assert!(described(2).contains(&format!("Cure it: {MAJOR}")), "{}", described(2));
}

/// The model of a step that never passes, and the manager's own work on it.
async fn never_passing() -> Model {
    let decide = |_: &testkit::ModelRequest| {
        let issues = [issue("minor", MINOR), issue("critical", CRITICAL), issue("major", MAJOR)];
        decision("revise", &json!(issues))
    };
    Model::start_with_structured([Script::say("Here is the page.")], reviewing(decide)).await
}

/// A manager's step, and one that would follow it.
fn writing() -> Value {
    json!([
        { "name": "write", "kind": "manager", "description": "Write the page.",
          "criteria": ["it has a title"] },
        job("publish", "echo published", &["write"]),
    ])
}

/// Asserts that a manager was told of critical and major issues, and not of minor ones.
#[track_caller]
fn assert_told(chat: &Value) {
    let text = chat["messages"][0]["content"].as_str().unwrap();
    assert_eq!([CRITICAL, MAJOR, MINOR].map(|problem| text.contains(problem)), [true, true, false], "{text}");
    assert!(text.contains(&format!("Cure it: {CRITICAL}")), "{text}");
}

/// A step that never passes fails its task when its attempts are used up, with the last reason.
#[tokio::test]
async fn workflow_runner_fails_a_step_that_never_passes() {
    let (stage, model) = (Stage::start().await, never_passing().await);
    let _crew = Crew::start(&stage, &model).await;
    let mut chats = Handoffs::of(&stage, "chat").await;
    let mut reviews = Handoffs::of(&stage, "review").await;
    let policy = json!({ "max_attempts": 2, "max_reviews": 5 });
    let task = stage.begin_with("write the page", writing(), policy).await;

    let ended = stage.ended(&task).await;
    assert_eq!((&ended["status"], stage.task_status(&task).await.as_str()), (&json!("failed"), "failed"));
    let error = ended["error"].as_str().unwrap();
    assert!(error.contains("step “write” was tried 2 times without success"), "{error}");
    assert!(error.contains("The model decides to revise."), "{error}");
    assert_eq!(effects(&ended), repeated(&[("chat", 2), ("review", 2)], "write"), "nothing follows it");
    // People see all issues; who mends the step sees those that matter.
    let shown = ended["state"]["verification"]["write"]["issues"].to_string();
    assert!([CRITICAL, MAJOR, MINOR].iter().all(|problem| shown.contains(problem)), "{shown}");
    let handed = chats.next(2).await;
    let first = handed[0]["messages"][0]["content"].as_str().unwrap();
    assert!(!first.contains(CRITICAL), "{first}");
    assert_told(&handed[1]);
    for review in reviews.next(2).await {
        assert!(!review["step"].to_string().contains(MINOR), "{review}");
    }
}

/// With fewer reviews than attempts, the last review asks a person, who may stop it or accept it.
#[tokio::test]
async fn workflow_runner_asks_a_person_about_a_step_that_never_passes() {
    let (stage, model) = (Stage::start().await, never_passing().await);
    let _crew = Crew::start(&stage, &model).await;
    let mut chats = Handoffs::of(&stage, "chat").await;
    let policy = json!({ "max_attempts": 5, "max_reviews": 2 });
    for (answer, status, of_task, more) in
        [("stop", "failed", "failed", 0), ("accept", "done", "completed", 1)]
    {
        let task = stage.begin_with(&format!("page to {answer}"), writing(), policy.clone()).await;
        let asked = stage.asked(&task).await;
        assert_eq!(
            (&asked["waiting_for"], stage.task_status(&task).await.as_str()),
            (&json!("question"), "blocked")
        );
        let question = asked["question"].as_str().unwrap();
        assert!(
            question.contains("The step `write` is not done") && question.contains(CRITICAL),
            "{question}"
        );
        assert!(!question.contains(MINOR), "{question}");
        assert_eq!(effects(&asked), repeated(&[("chat", 2), ("review", 2)], "write"), "no further attempt");
        assert_told(&chats.next(2).await[1]);
        stage.answer(&task, answer).await;
        let ended = stage.ended(&task).await;
        assert_eq!((&ended["status"], stage.task_status(&task).await.as_str()), (&json!(status), of_task));
        if status == "failed" {
            assert_eq!(ended["error"], "a person stopped it at step “write”");
        }
        let published = effects(&ended).iter().filter(|(_, step)| step == "publish").count();
        assert_eq!(published, more * 2, "its job and its review, or nothing: {ended}");
    }
}

/// A node that is killed in a job costs the step nothing: the job runs again, and is the same job.
#[tokio::test]
async fn workflow_runner_does_not_blame_a_step_for_a_killed_node() {
    let stage = Stage::start().await;
    let (mut manager, mut analyst) =
        (stage.manager_worker().await.spawn(), stage.analyst_worker().await.spawn());
    let builder = stage.node("node-1").await;
    let mut dying = builder.clone().stopping_at("ProcessStarted#1").start().await;
    let _runner = stage.start_runner("runner-1").await;
    manager.wait_until_ready().await;
    analyst.wait_until_ready().await;
    let mut step = job("count", "cat /proc/sys/kernel/random/uuid > id.txt; wc -l < id.txt > lines.txt", &[]);
    step["outputs"] = json!(["*.txt"]);
    let task = stage.begin_with("count", json!([step]), json!({ "max_attempts": 1, "max_reviews": 1 })).await;
    dying.wait_until_stopped().await;
    dying.process.kill();
    let _node = builder.start().await;

    let ended = stage.ended(&task).await;
    assert_eq!(
        (&ended["status"], &ended["state"]["attempts_by_step"]),
        (&json!("done"), &json!({ "count": 1 }))
    );
    assert_eq!(effects(&ended), repeated(&[("job", 1), ("review", 1)], "count"));
    let jobs = stage.jobs(&task).await;
    assert_eq!((jobs.len(), &jobs[0]["status"]), (1, &json!("completed")), "{jobs:?}");
    assert_eq!(stage.artifact(&task, "lines.txt").await.trim(), "1");
}

/// A job that may not be repeated ends as `node_lost` when its node dies. Its attempt and the review of it do
/// not count: with one attempt and one review, the step is tried once more, unchanged, and the task is done.
#[tokio::test]
async fn workflow_runner_does_not_count_an_attempt_whose_node_was_lost() {
    let stage = Stage::start().await;
    let (mut manager, mut analyst) =
        (stage.manager_worker().await.spawn(), stage.analyst_worker().await.spawn());
    let builder = stage.node("node-1").await;
    let mut dying = builder.clone().stopping_at("ProcessStarted#1").start().await;
    let _runner = stage.start_runner("runner-1").await;
    manager.wait_until_ready().await;
    analyst.wait_until_ready().await;
    let mut reviews = Handoffs::of(&stage, "review").await;
    // It could reach a host, so another node must not run it again.
    let mut step = job("send", "echo sent > sent.txt", &[]);
    step["network"] = json!(["example.com"]);
    step["outputs"] = json!(["sent.txt"]);
    let task = stage.begin_with("send", json!([step]), json!({ "max_attempts": 1, "max_reviews": 1 })).await;
    dying.wait_until_stopped().await;
    dying.process.kill();
    let _node = builder.start().await;

    let ended = stage.ended(&task).await;
    assert_eq!(
        (&ended["status"], &ended["state"]["attempts_by_step"]),
        (&json!("done"), &json!({ "send": 1 }))
    );
    assert_eq!(ended["state"]["review_iterations"], json!({ "send": 1 }));
    assert_eq!(effects(&ended), repeated(&[("job", 2), ("review", 2)], "send"));
    let jobs = stage.jobs(&task).await;
    let ends: Vec<&Value> = jobs.iter().map(|job| &job["end"]["how"]).collect();
    assert_eq!(ends, ["exited", "node_lost"], "each job has one end: {jobs:?}");
    assert_eq!(stage.artifact(&task, "sent.txt").await, "sent\n");
    let handed = reviews.next(2).await;
    assert_eq!(handed[0]["result"]["end"]["how"], "node_lost");
    assert!(handed[0]["result"]["error"].as_str().unwrap().contains("the node that ran it was lost"));
    assert_eq!(handed[0]["step"], handed[1]["step"], "it is tried as it was");
    let excused = |[_, step, outcome, detail]: &[String; 4]| {
        step == "send" && outcome == "retried" && detail.contains("does not count")
    };
    assert_eq!(events(&ended).iter().filter(|event| excused(event)).count(), 1, "{ended}");
}
