//! A cluster of three nodes; each node is killed in turn.

use std::time::{Duration, Instant};

use subjects::streams;
use testkit::{Cluster, Errands, Orchestrator, Worker, eventually_within};

use super::ledger::{Ledger, plain};

const WORKERS: usize = 3;
const HANDOFFS: usize = 240;
/// Time limit for the cluster to recover between two kills.
const RECOVERS_WITHIN: Duration = Duration::from_secs(60);

/// Streams with three replicas; each node is killed and restarted, then the leader of each
/// stream.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_and_effect_happens_once_whichever_node_dies() {
    let mut cluster = Cluster::start().await;
    let errands = Errands::start(|| Duration::from_millis(400)).await;
    let settings = errands
        .worker_at(&cluster.url())
        .set("nats.replicas", "3")
        .set("worker.ack_wait", "5s")
        .set("worker.concurrency.chat", "2")
        .set("worker.max_attempts", "50")
        .set("inference.timeout", "20s");
    let mut workers: Vec<Worker> = Vec::new();
    for _ in 0..WORKERS {
        workers.push(settings.start().await);
    }
    let orchestrator =
        Orchestrator::over(async_nats::connect(cluster.url().split(',').collect::<Vec<_>>()).await.unwrap());
    let ledger = Ledger::publish(&errands, &orchestrator, plain(HANDOFFS)).await;

    let mut longest = Duration::ZERO;
    for node in 0..cluster.nodes.len() {
        longest = longest.max(kill_and_restart(&mut cluster, &orchestrator, node).await);
    }
    for stream in [streams::HANDOFFS, streams::RUNS] {
        let leader = cluster.leader_of(&orchestrator.jetstream, stream).await;
        longest = longest.max(kill_and_restart(&mut cluster, &orchestrator, leader).await);
    }
    println!("longest stall {:.1} s", longest.as_secs_f64());
    ledger.balance(&errands, &orchestrator, Duration::from_secs(180)).await;
    for worker in &mut workers {
        assert!(worker.process.is_running(), "a worker ended:\n{}", worker.log());
    }
}

/// Kills a node, waits until an answer is stored without it, and restarts it. Returns how long no answer was
/// stored.
async fn kill_and_restart(cluster: &mut Cluster, orchestrator: &Orchestrator, node: usize) -> Duration {
    let queued = async || {
        let stream = orchestrator.jetstream.get_stream(streams::HANDOFFS).await.ok()?;
        Some(stream.cached_info().state.messages)
    };
    let before = eventually_within(RECOVERS_WITHIN, "the queue to be read", &queued).await;
    assert!(before > 0, "the handoffs were done before the last kill; make them slower");
    cluster.nodes[node].kill();
    let died = Instant::now();
    eventually_within(RECOVERS_WITHIN, "the next answer", async || {
        queued().await.filter(|now| *now < before)
    })
    .await;
    let stall = died.elapsed();
    cluster.nodes[node].start_again();
    // Wait for full recovery: with two nodes down nothing could be stored.
    eventually_within(RECOVERS_WITHIN, "all replicas to be current", async || {
        for stream in [streams::HANDOFFS, streams::RUNS] {
            let info = orchestrator.jetstream.get_stream(stream).await.ok()?.cached_info().clone();
            let cluster = info.cluster.as_ref()?;
            if cluster.leader.is_none() || cluster.replicas.iter().any(|peer| peer.offline || !peer.current) {
                return None;
            }
        }
        Some(())
    })
    .await;
    stall
}
