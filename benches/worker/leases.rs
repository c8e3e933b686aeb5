//! What a lease adds to a handoff: the worker reads it, sends it with every call, and gives it back.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use serde_json::json;
use subjects::Subject;
use testkit::{GatewayProcess, Goal, Nats, Orchestrator, Report, Worker, chat};

const HANDOFFS: usize = 400;
const ROUNDS: usize = 5;
/// A lease is given back after the answer. The next handoff does not begin before that is over.
const PAUSE: Duration = Duration::from_millis(5);

/// A thousandth of a turn with a model that takes half a second.
const MAX_ADDED_MS: f64 = 0.5;

/// Measures handoffs with and without a lease, in turns, from publishing to the answer.
pub(crate) async fn measure(report: &mut Report) {
    println!("leases: {HANDOFFS} handoffs with one and as many without, one at a time, {ROUNDS} rounds");
    let nats = Nats::start();
    let gateway = GatewayProcess::start_with(&[("nats.url", &nats.url())]).await;
    let worker = Worker::manager(&nats).calling_process(&gateway).await.start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let (mut without, mut added) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (mut plain, mut leased) = (Vec::new(), Vec::new());
        for _ in 0..HANDOFFS {
            plain.push(answer(&orchestrator, None).await);
            leased.push(answer(&orchestrator, Some(&gateway)).await);
        }
        let median = |mut times: Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        let (plain, leased) = (median(plain), median(leased));
        // The first round opens connections and fills caches.
        if round > 0 {
            without.push(plain);
            added.push(leased - plain);
        }
    }
    for (name, has_lease) in [("without", false), ("with", true)] {
        let mut each = Vec::new();
        for _ in 0..ROUNDS {
            let before = worker.process.cpu();
            for _ in 0..HANDOFFS {
                answer(&orchestrator, has_lease.then_some(&gateway)).await;
            }
            each.push((worker.process.cpu() - before) / HANDOFFS as f64 * 1e3);
        }
        report.add(&format!("CPU of the worker for a handoff {name} a lease"), "ms", each, None);
    }
    report.add("handoff without a lease, gateway and offline model, p50", "ms", without, None);
    report.add("a lease adds to a handoff, p50", "ms", added, Some(Goal::AtMost(MAX_ADDED_MS)));
}

/// Publishes a handoff and returns how long its answer took, in milliseconds. Its lease is there before.
async fn answer(orchestrator: &Orchestrator, gateway: Option<&GatewayProcess>) -> f64 {
    let question = chat("hello");
    let mut answers = orchestrator
        .client
        .subscribe(Subject::Completion(question.id).to_string())
        .await
        .expect("subscribed");
    orchestrator.client.flush().await.expect("flushed");
    let lease = match gateway {
        Some(gateway) => {
            let wanted = json!({
                "agent": "project_manager", "user_id": "ada", "handoff_id": question.id.to_string(),
            });
            Some(gateway.lease(wanted).await.1)
        }
        None => None,
    };
    let started = Instant::now();
    match lease {
        Some(lease) => orchestrator.publish_under(&question, &lease).await,
        None => {
            orchestrator.publish(&question).await;
        }
    }
    answers.next().await.expect("an answer");
    let took = started.elapsed().as_secs_f64() * 1e3;
    tokio::time::sleep(PAUSE).await;
    took
}
