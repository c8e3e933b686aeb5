//! How soon another runner goes on after a runner was killed.

use std::time::Duration;

use testkit::{Goal, Report, eventually_within};
use time::OffsetDateTime;

use super::stage::{LEASE, Stage, chain, time_of};

const KILLS: usize = 3;
const WORKFLOWS: usize = 8;
/// The most that a workflow may have: they last longer than the measurement.
const STEPS: usize = 50;
/// Most of the time the runner waits for a manager, who has answered when the next runner asks.
const THINKING: Duration = Duration::from_secs(1);
const MAX_BEYOND_LEASE: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(60);
/// Events tell the time, so that there is no need to ask often.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Kills the runner of all workflows when it has just renewed the lease of one of them, which is the worst
/// moment for that one. Another runner is ready.
///
/// Measures from the kill to the next write with the new epoch: a checkpoint, a job or a handoff. Taking the
/// lease alone does not count.
pub(crate) async fn measure(report: &mut Report) {
    println!("takeover: {KILLS} kills of a runner with {WORKFLOWS} workflows, leases of {LEASE:?}");
    let stage = Stage::start(THINKING).await;
    let mut holder = stage.runner.start().await;
    let mut tasks = Vec::new();
    for _ in 0..WORKFLOWS {
        tasks.push(stage.begin(&chain(STEPS)).await);
    }
    let mut samples = Vec::new();
    for kill in 0..KILLS {
        let next = stage.runner.start().await;
        let mut epochs = Vec::new();
        for task in &tasks {
            epochs.push(held_epoch(&stage, task).await);
        }
        wait_for_renewal(&stage, &tasks[kill % WORKFLOWS]).await;
        let killed_at = OffsetDateTime::now_utc();
        holder.process.kill();
        for (task, epoch) in tasks.iter().zip(epochs) {
            let written_at = next_write(&stage, task, epoch).await;
            samples.push((written_at - killed_at).as_seconds_f64());
        }
        holder = next;
    }
    let longest = samples.iter().copied().fold(0.0, f64::max);
    let goal = Goal::AtMost((LEASE + MAX_BEYOND_LEASE).as_secs_f64());
    report.add("kill of a runner to the next write by another, lease of 15 s, p50", "s", samples, None);
    report.add(
        "kill of a runner to the next write by another, lease of 15 s, longest",
        "s",
        vec![longest],
        Some(goal),
    );
}

/// Waits until a runner holds the workflow, and returns its epoch.
async fn held_epoch(stage: &Stage, task: &str) -> i64 {
    eventually_within(TIMEOUT, "the workflow is held", async || {
        let workflow = stage.workflow(task).await.workflow;
        workflow.holder.is_some().then_some(workflow.epoch)
    })
    .await
}

async fn wait_for_renewal(stage: &Stage, task: &str) {
    let expires = async || stage.workflow(task).await.workflow.lease_expires_at;
    let before = expires().await;
    eventually_within(TIMEOUT, "the lease is renewed", async || (expires().await != before).then_some(()))
        .await;
}

/// Waits for a checkpoint, a job or a handoff of a later epoch, and returns its time.
async fn next_write(stage: &Stage, task: &str, epoch: i64) -> OffsetDateTime {
    let until = tokio::time::Instant::now() + TIMEOUT;
    loop {
        let found = stage.workflow(task).await;
        let events = found.events.iter().filter(|event| event.epoch > epoch && event.node != "runner");
        let events = events.map(|event| &event.at);
        let effects =
            found.effects.iter().filter(|effect| effect.epoch > epoch).map(|effect| &effect.began_at);
        if let Some(first) = events.chain(effects).map(|at| time_of(at)).min() {
            return first;
        }
        assert!(tokio::time::Instant::now() < until, "no runner took the workflow: {found:#?}");
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
