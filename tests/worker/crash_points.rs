//! The promise at every crash point: a worker is killed at each one, and another continues from there.

mod reviews;

use std::{collections::BTreeMap, time::Duration};

use futures_util::StreamExt;
use subjects::{
    Completion, Kind, Role,
    journal::{Entry, Record},
    streams,
};
use testkit::{Errands, Nats, Orchestrator, Worker, eventually};

/// Crash points that are tested concurrently.
const AT_ONCE: usize = 3;
const UNDISTURBED: &str = "y0";

/// The crash points that a worker passed: name and count.
fn passed(worker: &Worker) -> Vec<String> {
    let log = worker.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    lines.filter_map(|line| Some(line.get("point")?.as_str()?.to_owned())).collect()
}

fn turns(journal: &[Entry]) -> usize {
    let records = journal.iter().flat_map(|entry| &entry.records);
    records.filter(|record| matches!(record, Record::ModelTurn(_))).count()
}

/// Returns the tools that the first attempt offered. The name of an errand stands in the goal, so that offers
/// differ a little between errands.
fn offered(journal: &[Entry]) -> Vec<String> {
    let mut records = journal.iter().flat_map(|entry| &entry.records);
    let first = records.find_map(|record| match record {
        Record::Context(context) => Some(context.tools.clone()),
        _ => None,
    });
    first.expect("an offer")
}

/// What must not depend on the number of attempts.
fn comparable_outcome(errands: &Errands, name: &str, completion: &Completion) -> serde_json::Value {
    let steps: Vec<_> =
        completion.trace.steps.iter().map(|step| (step.act, &step.name, step.outcome)).collect();
    serde_json::json!({
        "transcript": errands.transcript(name),
        "said": completion.message.as_ref().map(|message| message.content.replace(name, "<errand>")),
        "status": completion.status,
        "tasks": completion.tasks.len(),
        "usage": (completion.usage.model_calls, completion.usage.tool_calls),
        "steps": steps,
    })
}

/// At every crash point: one answer, no finished turn paid twice, each effect once, the same
/// transcript.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_killed_at_any_point_is_continued_by_another() {
    let errands = Errands::start(|| Duration::from_millis(5)).await;
    let (points, undisturbed) = undisturbed(&errands).await;
    println!("{} crash points: {}", points.len(), points.join(" "));
    for kind in ["Claim", "Append", "Model", "Tool", "Answer", "Ack"] {
        assert!(points.iter().any(|point| point.contains(kind)), "no crash point of {kind}");
    }
    let runs = points.iter().enumerate().map(|(number, point)| {
        let (errands, undisturbed) = (&errands, &undisturbed);
        async move { kill_at(errands, number, point, undisturbed).await }
    });
    futures_util::stream::iter(runs).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
    let effects = errands.effects().await;
    let expected: BTreeMap<String, usize> = (0..points.len())
        .map(|number| format!("x{number}"))
        .chain([UNDISTURBED.to_owned()])
        .flat_map(|name| Errands::expected_effects(&name))
        .map(|effect| (effect, 1))
        .collect();
    assert_eq!(effects, expected, "each effect once");
}

async fn undisturbed(errands: &Errands) -> (Vec<String>, serde_json::Value) {
    let nats = Nats::start();
    let worker = errands.worker(&nats).stopping_at("nowhere").start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let handoff = Errands::handoff(UNDISTURBED);
    errands.publish_leased(&orchestrator, &handoff).await;
    let answer = orchestrator.completion(Kind::Chat, handoff.id).await;
    eventually("its last crash point", async || {
        passed(&worker).iter().any(|it| it == "Acknowledged#1").then_some(())
    })
    .await;
    assert_eq!(errands.asked(UNDISTURBED), [1; Errands::TURNS]);
    (passed(&worker), comparable_outcome(errands, UNDISTURBED, &answer))
}

async fn kill_at(errands: &Errands, number: usize, point: &str, undisturbed: &serde_json::Value) {
    let name = format!("x{number}");
    let nats = Nats::start();
    let settings = errands.worker(&nats).set("worker.ack_wait", "1s");
    let mut first = settings.clone().stopping_at(point).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let handoff = Errands::handoff(&name);
    let (id, lease) = (handoff.id, errands.publish_leased(&orchestrator, &handoff).await);
    eventually(&format!("{point} to be reached"), async || {
        first.log().contains("\"stops\":true").then_some(())
    })
    .await;
    first.process.kill();
    // At most one turn was requested and not stored; only that one is requested again.
    let asked = passed(&first).iter().filter(|it| it.starts_with("BeforeModel") && *it != point).count();
    let answered = orchestrator.answer(Kind::Chat, id).await.is_some();
    let stored = if answered { Errands::TURNS } else { turns(&orchestrator.journal(id).await) };
    assert!(asked.saturating_sub(stored) <= 1, "{point}: {stored} of {asked} turns are stored");
    let second = settings.start().await;
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!(comparable_outcome(errands, &name, &answer), *undisturbed, "{point}");
    assert_eq!(
        answer.trace.tools,
        offered(&orchestrator.journal(id).await),
        "{point}: one offer for all attempts"
    );
    for (turn, paid) in errands.asked(&name).into_iter().enumerate() {
        let most = if turn == stored && asked > stored { 2 } else { 1 };
        assert!(
            (1..=most).contains(&paid),
            "{point}: turn {turn} was paid {paid} times, {stored} were finished"
        );
    }
    orchestrator.wait_until_settled().await;
    let answers = orchestrator.all_answers(Role::ProjectManager, 1, Duration::from_secs(10)).await;
    assert_eq!(answers, [(id, 1)].into(), "{point}");
    assert_eq!(orchestrator.stored(streams::DEAD).await, 0, "{point}");
    errands.wait_for_revocation(&lease).await;
    drop(second);
}
