//! Two hundred schedules in two time zones over a change of the clock, with an hour in which nothing fires
//! them, and with gateways that are killed: every slot becomes what its policies say, once.

use futures_util::future::join_all;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};
use testkit::{GatewayProcess, Postgres, TestClock};

use super::{
    claims::two_gateways,
    night::{AUTUMN, Book, Night, SECOND, SPRING, answer, us},
    support::{Caller, orchestrator},
};

/// Returns when the schedules are fired: at random instants, and not while orchestrators are away.
fn looks(night: &Night, random: &mut SmallRng) -> Vec<i64> {
    let (begin, end) = (us(night.begin), us(night.end));
    let away = us(night.away.0)..us(night.away.1);
    let mut now = begin;
    let mut looks = Vec::new();
    while now < end {
        now += random.random_range(30..700) * SECOND;
        if away.contains(&now) {
            now = away.end;
        }
        looks.push(now);
    }
    looks
}

async fn mark_sent(caller: &Caller<'_>, runs: &[Value]) {
    let ids: Vec<&Value> = runs.iter().map(|run| &run["handoff_id"]).collect();
    for chunk in ids.chunks(200) {
        caller.must("run.sent", json!({ "handoff_ids": chunk })).await;
    }
}

/// Fires all schedules at one instant, from several callers. Returns the runs, also those whose answer a
/// killed gateway did not give: they are not marked as sent, and are found by that.
async fn fire(callers: &[Caller<'_>]) -> Vec<Value> {
    let mut runs = join_all(callers.iter().map(Caller::fire_all)).await.concat();
    // A caller may have found what another one had locked.
    runs.extend(callers[0].fire_all().await);
    mark_sent(&callers[0], &runs).await;
    loop {
        let unsent = callers[0].must("run.unsent", json!({ "older_than_seconds": 0, "limit": 50 })).await;
        // Those that were sent are listed again until they are answered.
        let is_unsent = |run: &&Value| run.get("sent_at").is_none();
        let unsent: Vec<Value> =
            unsent["runs"].as_array().unwrap().iter().filter(is_unsent).cloned().collect();
        if unsent.is_empty() {
            return runs;
        }
        mark_sent(&callers[0], &unsent).await;
        runs.extend(unsent);
    }
}

async fn live_through(night: &Night, gateways: &mut [GatewayProcess], clock: &TestClock, seed: u64) {
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let secret = orchestrator(&gateways[0]).await;
    let mut book = Book::create(night, &Caller::new(&gateways[0], &secret)).await;
    let looks = looks(night, &mut random);
    let kills = [looks.len() / 3, looks.len() * 2 / 3];
    for (at, now) in looks.iter().enumerate() {
        clock.set_micros(*now);
        book.expect_at(*now);
        if gateways.len() > 1 && kills.contains(&at) {
            // What it was doing is done by the other, or was done and is found unsent.
            let doomed = &gateways[1];
            let caller = Caller::new(doomed, &secret);
            let process = doomed.process.id();
            let firing = caller.fire_all();
            let killing = async {
                let wait = std::time::Duration::from_millis(random.random_range(0..60));
                tokio::time::sleep(wait).await;
                kill(process);
            };
            drop(tokio::join!(firing, killing));
            drop(caller);
            gateways[1].start_again().await;
        }
        let callers: Vec<Caller<'_>> = gateways.iter().map(|gateway| Caller::new(gateway, &secret)).collect();
        let runs = fire(&callers).await;
        let mut ends = Vec::new();
        for run in &runs {
            if book.receive(run["schedule_id"].as_str().unwrap(), run["slot"].as_str().unwrap()) {
                ends.push(run["handoff_id"].as_str().unwrap().to_owned());
            }
        }
        answer(&callers, &ends).await;
    }
    book.check(&Caller::new(&gateways[0], &secret)).await;
}

/// Sends SIGKILL to a gateway while its caller waits for it.
fn kill(process: u32) {
    let process = nix::unistd::Pid::from_raw(i32::try_from(process).unwrap());
    nix::sys::signal::kill(process, nix::sys::signal::Signal::SIGKILL).unwrap();
}

fn seed() -> u64 {
    std::env::var("STORM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(2_026)
}

/// W7: 200 schedules over the hour that comes twice, at two gateways that are killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedules_fire_once_while_clocks_go_back_on_postgres() {
    let (postgres, clock) = (Postgres::start(), TestClock::at(AUTUMN.begin));
    let mut gateways = two_gateways(&postgres, &clock).await;
    live_through(&AUTUMN, &mut gateways, &clock, seed()).await;
}

/// The same over the hour that never comes, at one gateway on SQLite.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedules_fire_once_while_clocks_go_forward() {
    let clock = TestClock::at(SPRING.begin);
    let mut gateways = [GatewayProcess::start_with_variables(&[], &[clock.variable()]).await];
    live_through(&SPRING, &mut gateways, &clock, seed()).await;
}
