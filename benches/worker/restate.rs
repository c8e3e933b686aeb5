//! Compares the worker with Restate on the same errand: three model turns and four tool calls, each step
//! journaled.
//!
//! Both use the same model and tools, with the same number in flight. Neither waits for the disk at a step,
//! and both survive SIGKILL of any of their processes. Restate has the fastest settings that were found: see
//! `testkit::Restate`.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use subjects::{Answer, HandoffId, Kind};
use testkit::{
    Errands, Goal, Nats, Orchestrator, Process, QuickErrands, Report, Restate, RestatePrograms,
    eventually_within,
};

const HANDOFFS: usize = 500;
const IN_FLIGHT: usize = 32;
const ROUNDS: usize = 5;
/// Much longer than a round takes.
const ROUND_TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) async fn measure(report: &mut Report) {
    let Some(programs) = RestatePrograms::find() else {
        println!(
            "Restate: not compared, since its server or our service for it is missing; `make bench` gets both"
        );
        return;
    };
    println!("ours and Restate: {HANDOFFS} errands, {IN_FLIGHT} in flight, {ROUNDS} rounds");
    let errands = QuickErrands::start().await;
    let nats = Nats::start();
    let settings = errands.worker(&nats).set("worker.concurrency.chat", IN_FLIGHT.to_string());
    let worker = settings.start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let restate = Restate::start(&programs, &[errands.model_url(), errands.tools_url()]).await;
    // Warms up connections, caches and allocations before the measurement.
    let warm_up = [names("ours-warm"), names("restate-warm")];
    on_ours(&orchestrator, &warm_up[0]).await;
    on_restate(&restate, &warm_up[1]).await;

    let mut run: Vec<String> = warm_up.concat();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let before = [used(&[nats.process(), &worker.process]), used(&restate.processes())];
    // Alternates within each round, so that a slow phase of the machine affects both equally.
    for round in 0..ROUNDS {
        let (on_worker, on_server) = (names(&format!("ours-{round}")), names(&format!("restate-{round}")));
        ours.push(on_ours(&orchestrator, &on_worker).await);
        theirs.push(on_restate(&restate, &on_server).await);
        run.extend(on_worker.into_iter().chain(on_server));
    }
    let after = [used(&[nats.process(), &worker.process]), used(&restate.processes())];
    let [our_cost, their_cost] =
        [0, 1].map(|side| (after[side] - before[side]) * 1_000.0 / (ROUNDS * HANDOFFS) as f64);
    assert_each_effect_once(&errands, &run);
    let ratios = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect();
    report.add("errands, Restate", "/s", theirs, None);
    report.add("errands, ours", "/s", ours, None);
    report.add("errands, ours to Restate", "x", ratios, Some(Goal::AtLeast(2.0)));
    // Excludes the model and the tools, which cost both sides the same. Ours includes reading the answers
    // again to check them.
    report.add("CPU of an errand, Restate", "ms", vec![their_cost], None);
    report.add("CPU of an errand, ours", "ms", vec![our_cost], None);
}

/// Returns the CPU time of processes in seconds.
fn used(processes: &[&Process]) -> f64 {
    processes.iter().map(|process| process.cpu()).sum()
}

fn names(prefix: &str) -> Vec<String> {
    (0..HANDOFFS).map(|number| format!("{prefix}-{number}")).collect()
}

/// Returns errands per second, from the first publish until the last handoff is acknowledged.
async fn on_ours(orchestrator: &Orchestrator, names: &[String]) -> f64 {
    let started = Instant::now();
    let publishing = names.iter().map(|name| async move {
        let id = orchestrator.publish(&Errands::handoff(name)).await;
        (id, name)
    });
    let published: Vec<(HandoffId, &String)> =
        stream::iter(publishing).buffer_unordered(IN_FLIGHT).collect().await;
    eventually_within(ROUND_TIMEOUT, "the queue to be empty", async || {
        (orchestrator.queued().await == 0).then_some(())
    })
    .await;
    let rate = names.len() as f64 / started.elapsed().as_secs_f64();
    for (id, name) in published {
        let Answer::Completion(answer) = orchestrator.wait_for_answer(Kind::Chat, id).await else {
            panic!("{name}: not a completion")
        };
        let said = answer.message.as_ref().map(|message| message.content.clone());
        assert_eq!(said, Some(Errands::answer(name)), "{name}: {:?}", answer.error);
    }
    rate
}

/// Returns errands per second, from the first call until the last one has returned.
async fn on_restate(restate: &Restate, names: &[String]) -> f64 {
    let started = Instant::now();
    let calling = names.iter().map(|name| async move { (restate.call("Errands/errand", name).await, name) });
    let answers: Vec<(String, &String)> = stream::iter(calling).buffer_unordered(IN_FLIGHT).collect().await;
    let rate = names.len() as f64 / started.elapsed().as_secs_f64();
    for (said, name) in answers {
        assert_eq!(said, Errands::answer(name));
    }
    rate
}

/// Checks that each errand had each of its effects exactly once, on either side.
fn assert_each_effect_once(errands: &QuickErrands, run: &[String]) {
    let expected = run.iter().flat_map(|name| Errands::expected_effects(name)).map(|effect| (effect, 1));
    assert!(errands.effects() == expected.collect(), "not every effect exactly once");
}
