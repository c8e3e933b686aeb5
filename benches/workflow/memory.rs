//! The memory of a runner that works on as many workflows as it has slots.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde_json::json;
use testkit::{Goal, Process, Report, eventually_within};

use super::stage::{LEASE, Stage, chain};

/// The default of the runner's setting `runner.slots`.
const WORKFLOWS: usize = 50;
/// Done before the step that waits, so that the states are those of real workflows.
const STEPS: usize = 4;
const MAX_RESIDENT_MIB: f64 = 300.0;
const IN_FLIGHT: &str = "workflow_in_flight ";
const JOBS_BEGUN: &str = "workflow_gateway_calls_total{outcome=\"ok\",tool=\"workflow.job\"} ";

/// Has all workflows wait for a job that no node takes, for longer than a lease.
pub(crate) async fn measure(report: &mut Report) {
    println!("memory: {WORKFLOWS} workflows in flight, each waits for a job after {STEPS} steps");
    let stage = Stage::start(Duration::ZERO).await;
    let runner = stage.runner.start().await;
    let idle = resident(&runner.process);
    let mut steps = chain(STEPS);
    steps.push(json!({ "name": "job", "description": "Convert the file.", "kind": "job",
        "script": "python3 convert.py", "depends_on": [format!("step-{}", STEPS - 1)] }));
    stream::iter(0..WORKFLOWS).for_each_concurrent(4, |_| async { drop(stage.begin(&steps).await) }).await;
    eventually_within(Duration::from_secs(300), "all workflows wait for their job", async || {
        let metrics = runner.metrics().await;
        let value = |name: &str| {
            let line = metrics.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|value| value.parse::<f64>().ok()).unwrap_or_default()
        };
        let wanted = WORKFLOWS as f64;
        (value(IN_FLIGHT) == wanted && value(JOBS_BEGUN) >= wanted).then_some(())
    })
    .await;
    let before = (runner.process.cpu(), stage.gateway.process.cpu());
    // Each lease is renewed three times meanwhile.
    tokio::time::sleep(LEASE).await;
    let after = (runner.process.cpu(), stage.gateway.process.cpu());
    let (most, waiting) = (peak(&runner.process), resident(&runner.process));
    report.add("resident memory of an idle runner", "MiB", vec![idle], None);
    report.add("resident memory, 50 workflows that wait", "MiB", vec![waiting], None);
    let share = |before: f64, after: f64| vec![(after - before) / LEASE.as_secs_f64() * 100.0];
    report.add("CPU of the runner, 50 workflows that wait", "%", share(before.0, after.0), None);
    report.add("CPU of the gateway, 50 workflows that wait", "%", share(before.1, after.1), None);
    let goal = Some(Goal::AtMost(MAX_RESIDENT_MIB));
    report.add("resident memory, 50 workflows in flight, peak", "MiB", vec![most], goal);
}

fn resident(process: &Process) -> f64 {
    status(process).vmrss.expect("a running process") as f64 / 1024.0
}

/// Returns the most that was ever resident, in MiB.
fn peak(process: &Process) -> f64 {
    status(process).vmhwm.expect("a running process") as f64 / 1024.0
}

fn status(process: &Process) -> procfs::process::Status {
    let id = i32::try_from(process.id()).expect("an id");
    procfs::process::Process::new(id).and_then(|process| process.status()).expect("the process is there")
}
