//! The engine's own time for each node of the graph, with the queue, leases, checkpoints and events.

use std::time::Duration;

use contract::workflow::{Details, Status};
use testkit::{Goal, Report};
use time::OffsetDateTime;

use super::{
    handoffs::{Interval, Listener},
    stage::{Stage, chain, percentile, time_of},
};

const STEPS: usize = 10;
/// `load_task_context`, `plan_steps`, `decide_next` and `finalize_summary`; then, for each step,
/// `dispatch_step`, `collect_result`, `verify_step_result` and `decide_next`.
const NODES: usize = 4 + 4 * STEPS;
/// One that a manager does, and its review.
const HANDOFFS: usize = 2 * STEPS;
const WARM_UP: usize = 2;
const WORKFLOWS: usize = 20;
const MAX_OVERHEAD_MS: f64 = 25.0;

/// Runs workflows one after the other, whose steps the offline model answers at once.
///
/// A node counts from the checkpoint of the node before to its own, as the events tell it. The first one
/// counts from `workflow.start`, the last one to the end of the workflow, so that nothing is left out: queue,
/// lease, calls, checkpoints, events and release. The time from a handoff on NATS to its answer is taken off;
/// what the gateway does to publish the one and to read the other is not.
pub(crate) async fn measure(report: &mut Report) {
    println!("engine: {WORKFLOWS} workflows of {STEPS} steps, {NODES} nodes each, one at a time");
    let stage = Stage::start(Duration::ZERO).await;
    let runner = stage.runner.start().await;
    let mut listener = Listener::start(&stage).await;
    let (mut nodes, mut means, mut wholes, mut handoffs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut cpu = (0.0, 0.0);
    for number in 0..WARM_UP + WORKFLOWS {
        if number == WARM_UP {
            cpu = (runner.process.cpu(), stage.gateway.process.cpu());
        }
        let task = stage.begin(&chain(STEPS)).await;
        listener.wait_for_ack().await;
        let ended = stage.workflow(&task).await;
        assert_eq!(ended.workflow.status, Status::Done, "{ended:#?}");
        if number < WARM_UP {
            continue;
        }
        let effects: Vec<Interval> =
            ended.effects.iter().map(|effect| listener.interval(&effect.id)).collect();
        assert_eq!(effects.len(), HANDOFFS, "{ended:#?}");
        let spans = spans(&ended);
        assert_eq!(spans.len(), NODES, "{ended:#?}");
        let own: Vec<f64> = spans.iter().map(|span| own_time(span, &effects)).collect();
        means.push(own.iter().sum::<f64>() / NODES as f64);
        wholes.push(spans.iter().map(length).sum::<f64>() / NODES as f64);
        nodes.extend(own);
        handoffs.extend(effects.iter().map(length));
    }
    let all = (NODES * WORKFLOWS) as f64;
    let cpu = (runner.process.cpu() - cpu.0, stage.gateway.process.cpu() - cpu.1);
    let goal = Some(Goal::AtMost(MAX_OVERHEAD_MS));
    let what = "engine per node, without the work of managers";
    report.add(&format!("{what}, p50 of nodes"), "ms", vec![percentile(&nodes, 50)], goal);
    report.add(&format!("{what}, p99 of nodes"), "ms", vec![percentile(&nodes, 99)], None);
    report.add(&format!("{what}, mean of a workflow, p50"), "ms", means.clone(), goal);
    report.add(&format!("{what}, mean of a workflow, p99"), "ms", vec![percentile(&means, 99)], None);
    report.add("whole workflow per node, work of managers included, p50", "ms", wholes, None);
    report.add("handoff, published to answered, p50", "ms", vec![percentile(&handoffs, 50)], None);
    report.add("CPU of the runner per node", "ms", vec![cpu.0 * 1e3 / all], None);
    report.add(
        "CPU of the gateway per node, with its calls of managers",
        "ms",
        vec![cpu.1 * 1e3 / all],
        None,
    );
}

/// Returns the times of the nodes, in order and without gaps.
fn spans(ended: &Details) -> Vec<Interval> {
    let is_whole = |node: &str| ["workflow", "runner"].contains(&node);
    // Everything that is stored with one checkpoint has one time.
    let mut ends: Vec<OffsetDateTime> =
        ended.events.iter().filter(|event| !is_whole(&event.node)).map(|event| time_of(&event.at)).collect();
    ends.dedup();
    *ends.last_mut().expect("nodes") = time_of(ended.workflow.ended_at.as_deref().expect("it has ended"));
    let start = time_of(&ended.workflow.created_at);
    let begins = std::iter::once(start).chain(ends.iter().copied());
    begins.zip(&ends).map(|(began, ended)| Interval { began, ended: *ended }).collect()
}

/// Returns the milliseconds of a span in which no handoff was at work. Handoffs of a chain do not overlap.
fn own_time(span: &Interval, effects: &[Interval]) -> f64 {
    let shared = effects.iter().map(|effect| {
        let (began, ended) = (effect.began.max(span.began), effect.ended.min(span.ended));
        if ended > began { length(&Interval { began, ended }) } else { 0.0 }
    });
    length(span) - shared.sum::<f64>()
}

fn length(interval: &Interval) -> f64 {
    (interval.ended - interval.began).as_seconds_f64() * 1e3
}
