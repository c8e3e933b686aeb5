//! Workers, gateways and NATS fail at random.

use std::{
    str::FromStr,
    sync::Mutex,
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use testkit::{Errands, GatewayProcess, Nats, Orchestrator, Postgres, Worker, WorkerBuilder};

use super::ledger::{Ledger, mixed};

const MANAGERS: usize = 6;
const ANALYSTS: usize = 2;
const WORKERS: usize = MANAGERS + ANALYSTS;

/// Reads a number from the environment: `make storm` sets larger ones than `make test`.
fn from_env<T: FromStr>(name: &str, usual: T) -> T {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// Publishes handoffs of three turns and four effects each. Some have a task verified by an analyst, some are
/// continued after a question, some are published twice. Managers and analysts are killed and frozen, NATS
/// and two gateways on one PostgreSQL are killed and restarted, and for some seconds at a time the model, a
/// gateway or `CYNODE_RUNS` is not available. At the end every answer, every turn and every effect is
/// counted. `STORM_SEED` repeats a run, `STORM_SECONDS` and `STORM_HANDOFFS` make it longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_and_effect_happens_once_in_a_storm_with_postgres() {
    let seed = from_env("STORM_SEED", rand::rng().random());
    let lasts = Duration::from_secs(from_env("STORM_SECONDS", 25));
    let handoffs = from_env("STORM_HANDOFFS", 300);
    println!("STORM_SEED={seed} STORM_SECONDS={} STORM_HANDOFFS={handoffs}", lasts.as_secs());
    let mut rng = StdRng::seed_from_u64(seed);

    let postgres = Postgres::start();
    let thinks = Mutex::new(StdRng::seed_from_u64(rng.random()));
    let thinks = move || {
        Duration::from_millis(thinks.lock().expect("no panic while thinking").random_range(200..1_000))
    };
    let (errands, second) = Errands::start_on(thinks, &postgres.database()).await;
    let mut nats = Nats::start();
    let settings = settings(&errands, &second, &nats);
    let mut workers: Vec<Worker> = Vec::new();
    for settings in &settings {
        workers.push(settings.start().await);
    }
    let orchestrator = Orchestrator::connect(&nats).await;
    let ledger = Ledger::publish(&errands, &orchestrator, mixed(handoffs, &mut rng)).await;

    let mut storm = Storm { errands, second, seen: Seen::default(), windows: Windows::default() };
    // Frozen workers, and until when.
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
        storm.close_windows(&orchestrator, Instant::now()).await;
        let worker = rng.random_range(0..WORKERS);
        match rng.random_range(0..24) {
            0..=11 => {
                frozen.retain(|(known, _)| *known != worker);
                workers[worker].process.kill();
                workers[worker] = settings[worker].spawn();
                storm.seen.kills += 1;
            }
            12..=16 if frozen.iter().all(|(known, _)| *known != worker) => {
                workers[worker].process.freeze();
                // Some resume in time, some after another worker has their handoffs.
                let time = Duration::from_millis(rng.random_range(500..6_000));
                frozen.push((worker, Instant::now() + time));
                storm.seen.freezes += 1;
            }
            17 | 18 if storm.windows.gateway.is_none() => {
                let gateway = if rng.random() { &mut storm.errands.gateway } else { &mut storm.second };
                gateway.start_again().await;
                storm.seen.gateways += 1;
            }
            19 if storm.windows.runs.is_none() => {
                nats.kill();
                nats.start_again();
                storm.seen.servers += 1;
            }
            20 => ledger.publish_copies(&orchestrator, &mut rng).await,
            window @ 21..=23 => storm.open_window(window, &orchestrator, &mut rng).await,
            _ => {}
        }
    }
    for (worker, _) in frozen {
        workers[worker].process.thaw();
    }
    storm.close_windows(&orchestrator, Instant::now() + Duration::from_secs(3_600)).await;
    println!("{:?}, {} copies", storm.seen, ledger.copies());
    let queued = orchestrator.queued().await;
    assert!(queued > 0, "the handoffs were done before the storm ended; make them slower");
    ledger.balance(&storm.errands, &orchestrator, Duration::from_secs(240) + 2 * lasts).await;
}

/// Managers and analysts; every other manager calls the second gateway.
fn settings(errands: &Errands, second: &GatewayProcess, nats: &Nats) -> Vec<WorkerBuilder> {
    let common = |worker: WorkerBuilder| {
        worker
            .set("worker.ack_wait", "3s")
            // Far more than the kills that one handoff can meet.
            .set("worker.max_attempts", "50")
            .set("inference.timeout", "20s")
            .set("inference.patience", "60s")
    };
    let manager = |number: usize| {
        let manager =
            common(errands.worker(nats)).set("analysts.enabled", "true").set("analysts.max_concurrent", "4");
        let manager = manager.set("worker.concurrency.chat", "2").set("worker.concurrency.continue", "1");
        if number.is_multiple_of(2) { manager } else { manager.set("gateway.url", second.url()) }
    };
    let analyst =
        |_| common(Worker::analyst(nats).asking(&errands.model)).set("worker.concurrency.verify", "2");
    (0..MANAGERS).map(manager).chain((0..ANALYSTS).map(analyst)).collect()
}

/// Counts of injected failures.
#[derive(Debug, Default)]
struct Seen {
    kills: usize,
    freezes: usize,
    gateways: usize,
    servers: usize,
    models_away: usize,
    gateways_away: usize,
    runs_away: usize,
}

/// What is not available, and until when.
#[derive(Debug, Default)]
struct Windows {
    model: Option<Instant>,
    gateway: Option<Instant>,
    runs: Option<Instant>,
}

struct Storm {
    errands: Errands,
    second: GatewayProcess,
    seen: Seen,
    windows: Windows,
}

impl Storm {
    async fn open_window(&mut self, which: u32, orchestrator: &Orchestrator, rng: &mut StdRng) {
        let until = Instant::now() + Duration::from_millis(rng.random_range(1_000..6_000));
        match which {
            21 if self.windows.model.is_none() => {
                self.errands.model.fail_with(Some(503));
                self.windows.model = Some(until);
                self.seen.models_away += 1;
            }
            22 if self.windows.gateway.is_none() => {
                self.second.kill();
                self.windows.gateway = Some(until);
                self.seen.gateways_away += 1;
            }
            23 if self.windows.runs.is_none() => {
                orchestrator.refuse_runs(true).await;
                self.windows.runs = Some(until);
                self.seen.runs_away += 1;
            }
            _ => {}
        }
    }

    async fn close_windows(&mut self, orchestrator: &Orchestrator, now: Instant) {
        let is_over = |until: &mut Instant| *until < now;
        if self.windows.model.take_if(is_over).is_some() {
            self.errands.model.fail_with(None);
        }
        if self.windows.gateway.take_if(is_over).is_some() {
            self.second.start_again().await;
        }
        if self.windows.runs.take_if(is_over).is_some() {
            orchestrator.refuse_runs(false).await;
        }
    }
}
