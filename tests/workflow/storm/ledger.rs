//! Counts what must have happened exactly once.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use async_nats::jetstream;
use futures_util::TryStreamExt;
use serde_json::{Value, json};
use subjects::{
    HandoffId, Role, Subject,
    journal::{Entry, Question, Record},
    streams,
};
use testkit::{Orchestrator, eventually_within};
use tokio::time::{Instant, sleep};

use super::{
    plan::{ATTEMPTS, Plan},
    stack::Stack,
};
use crate::stage::Stage;

const SETTLES_WITHIN: Duration = Duration::from_secs(60);
/// How a job ends that the failures of the stack ended: the step is tried again.
const LOST: [&str; 2] = ["node_lost", "engine_failed"];

/// What was begun, over all tasks.
#[derive(Default)]
struct Counts {
    /// The ids of all jobs.
    jobs: Vec<String>,
    /// The ids of all handoffs to managers.
    handoffs: Vec<HandoffId>,
    lost: usize,
    takeovers: usize,
    findings: usize,
}

/// Waits until all workflows have ended, then counts everything.
pub(super) async fn balance(stack: &mut Stack, plans: &[Plan], patience: Duration) {
    wait_for_ends(stack, patience).await;
    let stage = &stack.stage;
    let mut counts = Counts::default();
    for plan in plans {
        check_task(stage, plan, &mut counts).await;
    }
    assert_nothing_left(stage).await;
    assert_results(stage, &counts.jobs).await;
    let orchestrator = Orchestrator::connect(&stage.nats).await;
    assert_answers(&orchestrator, &counts.handoffs).await;
    println!(
        "{} tasks, {} jobs ({} lost with their nodes) and {} handoffs, each once; {} findings; {} takeovers",
        plans.len(),
        counts.jobs.len(),
        counts.lost,
        counts.handoffs.len(),
        counts.findings,
        counts.takeovers,
    );
}

async fn wait_for_ends(stack: &mut Stack, patience: Duration) {
    let until = Instant::now() + patience;
    loop {
        stack.restart_ended();
        let mut active = Vec::new();
        for status in ["queued", "running", "waiting"] {
            let found = stack.stage.call("workflow.list", json!({ "status": status, "limit": 20 })).await;
            active.extend(found["items"].as_array().unwrap().clone());
        }
        if active.is_empty() {
            return;
        }
        let is_stuck = active.iter().find(|workflow| workflow["status"] == "waiting");
        assert_eq!(is_stuck, None, "no workflow asks a person");
        assert!(Instant::now() < until, "not ended: {active:#?}\n{}", stack.logs());
        sleep(Duration::from_millis(500)).await;
    }
}

async fn check_task(stage: &Stage, plan: &Plan, counts: &mut Counts) {
    let workflow = stage.workflow(&plan.task).await;
    assert!(workflow["holder"].is_null() && workflow["lease_expires_at"].is_null(), "{workflow}");
    let (status, task_status) = if plan.is_broken() { ("failed", "failed") } else { ("done", "completed") };
    assert_eq!(workflow["status"], status, "{workflow}");
    assert_eq!(stage.task_status(&plan.task).await, task_status);

    // By kind and step: how those ended that were begun.
    let mut begun: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut jobs = Vec::new();
    for effect in workflow["effects"].as_array().unwrap() {
        let mut outcome = text(&effect["outcome"]);
        if effect["kind"] == "job" {
            let job = stage.call("sandbox.job.get", json!({ "job_id": effect["id"] })).await;
            outcome = text(&job["end"]["how"]);
            if outcome == "exited" {
                outcome = format!("exited {}", job["exit_code"]);
            }
            jobs.push(text(&effect["id"]));
        } else {
            counts.handoffs.push(effect["id"].as_str().unwrap().parse().unwrap());
        }
        begun.entry((text(&effect["kind"]), text(&effect["step"]))).or_default().push(outcome);
    }
    assert_eq!(stage.jobs(&plan.task).await.len(), jobs.len(), "every job is one that the workflow began");
    counts.jobs.append(&mut jobs);

    let (done_jobs, done) = plan.done();
    let is_lost = |outcome: &String| LOST.contains(&outcome.as_str());
    let lost = |step: &str| {
        let ends = begun.get(&("job".to_owned(), step.to_owned()));
        ends.map_or(0, |ends| ends.iter().filter(|end| is_lost(end)).count())
    };
    let mut expected: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let mut expect = |kind: &str, step: &str, outcomes: Vec<String>| {
        expected.insert((kind.to_owned(), step.to_owned()), outcomes);
    };
    for step in &done_jobs {
        expect("job", step, vec!["exited 0".to_owned()]);
    }
    for step in &done {
        expect("review", step, vec!["completed".to_owned(); 1 + lost(step)]);
    }
    if plan.is_broken() {
        let tries = usize::try_from(ATTEMPTS).unwrap();
        expect("job", "join", vec!["exited 3".to_owned(); tries - lost("join")]);
        expect("review", "join", vec!["completed".to_owned(); tries]);
        let error = workflow["error"].as_str().unwrap();
        let because = format!("step “join” was tried {ATTEMPTS} times without success.");
        assert!(error.starts_with(&because), "{error}");
    } else {
        expect("chat", "word", vec!["completed".to_owned()]);
    }
    let all_lost: usize = begun.values().flatten().filter(|end| is_lost(end)).count();
    for ends in begun.values_mut() {
        ends.retain(|end| !is_lost(end));
    }
    assert_eq!(begun, expected, "{workflow:#}");
    counts.lost += all_lost;

    for (path, content) in plan.files() {
        assert_eq!(stage.artifact(&plan.task, path).await, content, "{path} of {}", plan.task);
    }
    let findings = stage.findings(&plan.task).await;
    let verdicts: Vec<(&str, &str)> = findings
        .iter()
        .map(|it| (it["criterion"].as_str().unwrap(), it["verdict"].as_str().unwrap()))
        .collect();
    let expected = if plan.is_broken() { vec![] } else { vec![("It was joined", "met")] };
    assert_eq!(verdicts, expected, "{findings:?}");
    counts.findings += findings.len();
    let events = workflow["events"].as_array().unwrap();
    counts.takeovers += events.iter().filter(|event| event["outcome"] == "lease_lost").count();
}

/// No message is left in a queue or in the outbox, and none is a dead letter.
async fn assert_nothing_left(stage: &Stage) {
    let orchestrator = Orchestrator::connect(&stage.nats).await;
    eventually_within(SETTLES_WITHIN, "the queues are empty", || async {
        let handoffs = orchestrator.queued().await;
        let (workflows, jobs) =
            (orchestrator.stored(streams::WORKFLOWS).await, orchestrator.stored(streams::JOBS).await);
        ((handoffs, workflows, jobs) == (0, 0, 0)).then_some(())
    })
    .await;
    assert_eq!(orchestrator.stored(streams::DEAD).await, 0, "a handoff was dead-lettered");
    assert_eq!(stage.gateway.must("GET", "/api/v1/outbox", None).await, json!([]));
}

/// Each job has one result, and nothing else has one.
async fn assert_results(stage: &Stage, jobs: &[String]) {
    let jetstream = jetstream::new(stage.nats.client().await);
    let stream = jetstream.get_stream(streams::JOB_RUNS).await.unwrap();
    let counted = stream.info_with_subjects("job.*.*.result").await.unwrap();
    let counted: Vec<(String, usize)> = counted.try_collect().await.unwrap();
    let mut results: BTreeMap<String, usize> = BTreeMap::new();
    for (subject, count) in counted {
        *results.entry(subject.split('.').nth(1).unwrap().to_owned()).or_default() += count;
    }
    let expected: BTreeMap<String, usize> = jobs.iter().map(|id| (id.clone(), 1)).collect();
    assert_eq!(results, expected);
}

/// Each handoff has one answer, and no finished turn of a model is stored twice.
async fn assert_answers(orchestrator: &Orchestrator, handoffs: &[HandoffId]) {
    let mut answers: HashMap<HandoffId, usize> = HashMap::new();
    let mut turns: HashMap<(HandoffId, Question), usize> = HashMap::new();
    for message in orchestrator.contents(streams::RUNS).await {
        match message.subject.parse() {
            Ok(Subject::Completion(id)) => *answers.entry(id).or_default() += 1,
            Ok(Subject::Journal(Role::ProjectManager, id)) => {
                for record in Entry::decode(&message.payload).expect("an entry").records {
                    if let Record::ModelTurn(turn) = record {
                        *turns.entry((id, turn.question)).or_default() += 1;
                    }
                }
            }
            _ => {}
        }
    }
    let expected: HashMap<HandoffId, usize> = handoffs.iter().map(|id| (*id, 1)).collect();
    assert_eq!(answers.len(), expected.len(), "a handoff that no workflow knows, or one without an answer");
    assert_eq!(answers, expected);
    assert!(turns.values().all(|times| *times == 1), "a finished turn is stored twice");
}
