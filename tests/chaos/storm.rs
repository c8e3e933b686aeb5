use std::{
    str::FromStr,
    sync::Mutex,
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use testkit::{Errands, Nats, Orchestrator, Worker};

use super::ledger::Ledger;

const WORKERS: usize = 6;

/// A number from the environment: `make storm` asks for more than `make test`.
fn from_env<T: FromStr>(name: &str, usual: T) -> T {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// Issue 5, the storm: handoffs of three turns and four effects each, under SIGKILL, SIGSTOP, gateway restarts and NATS
/// restarts. `STORM_SEED` repeats a run, `STORM_SECONDS` and `STORM_HANDOFFS` make it longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_books_balance_after_a_storm() {
    let seed = from_env("STORM_SEED", rand::rng().random());
    let lasts = Duration::from_secs(from_env("STORM_SECONDS", 20));
    let handoffs = from_env("STORM_HANDOFFS", 250);
    println!("STORM_SEED={seed} STORM_SECONDS={} STORM_HANDOFFS={handoffs}", lasts.as_secs());
    let mut rng = StdRng::seed_from_u64(seed);

    let thinks = Mutex::new(StdRng::seed_from_u64(rng.random()));
    let mut errands = Errands::start(move || {
        Duration::from_millis(thinks.lock().expect("no panic while thinking").random_range(50..700))
    })
    .await;
    let mut nats = Nats::start();
    let settings = errands
        .worker(&nats)
        .set("worker.ack_wait", "3s")
        .set("worker.concurrency.chat", "2")
        // Far more than one handoff can meet of the deaths.
        .set("worker.max_attempts", "50")
        .set("inference.timeout", "20s");
    let mut workers: Vec<Worker> = Vec::new();
    for _ in 0..WORKERS {
        workers.push(settings.start().await);
    }
    let orchestrator = Orchestrator::connect(&nats).await;
    let ledger = Ledger::publish(&orchestrator, handoffs).await;

    let (mut kills, mut freezes, mut gateways, mut servers) = (0, 0, 0, 0);
    // Who is frozen, and until when.
    let mut frozen: Vec<(usize, Instant)> = Vec::new();
    let end = Instant::now() + lasts;
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(rng.random_range(50..500))).await;
        frozen.retain(|(worker, until)| {
            let is_over = Instant::now() > *until;
            if is_over {
                workers[*worker].process.thaw();
            }
            !is_over
        });
        let worker = rng.random_range(0..WORKERS);
        match rng.random_range(0..20) {
            0..=11 => {
                frozen.retain(|(known, _)| *known != worker);
                workers[worker].process.kill();
                workers[worker] = settings.spawn();
                kills += 1;
            }
            12..=16 if frozen.iter().all(|(known, _)| *known != worker) => {
                workers[worker].process.freeze();
                // Some come back in time, some when another has their work.
                let time = Duration::from_millis(rng.random_range(500..6_000));
                frozen.push((worker, Instant::now() + time));
                freezes += 1;
            }
            17 | 18 => {
                errands.gateway.start_again().await;
                gateways += 1;
            }
            19 => {
                nats.kill();
                nats.start_again();
                servers += 1;
            }
            _ => {}
        }
    }
    for (worker, _) in frozen {
        workers[worker].process.thaw();
    }
    println!("{kills} kills, {freezes} freezes, {gateways} gateway restarts, {servers} NATS restarts");
    let queued = orchestrator.queued().await;
    assert!(queued > 0, "the work was done before the storm was; make it slower");
    ledger.balance(&errands, &orchestrator, Duration::from_secs(240)).await;
}
