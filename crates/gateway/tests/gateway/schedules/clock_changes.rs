//! Two hundred schedules in two time zones over a change of the clock, with an hour in which nothing fires
//! them, and with gateways that are killed: every slot becomes what its policies say, once.

use std::collections::{BTreeMap, BTreeSet};

use contract::schedule::Timing as GivenTiming;
use futures_util::future::join_all;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};
use subjects::Timestamp;
use testkit::{GatewayProcess, Postgres, TestClock};
use timing::Timing;

use super::{
    claims::two_gateways,
    support::{Caller, orchestrator},
};

const SCHEDULES: usize = 200;
const SECOND: i64 = 1_000_000;
const LIMIT: usize = 3;
/// How many schedules a user has.
const PER_USER: usize = 50;

/// A night in which clocks are changed.
struct Night {
    begin: &'static str,
    end: &'static str,
    /// When orchestrators are away.
    away: (&'static str, &'static str),
    zones: [&'static str; 2],
}

/// Both put the clock back at 01:00 UTC.
const AUTUMN: Night = Night {
    begin: "2026-10-24T22:10:00Z",
    end: "2026-10-25T04:10:00Z",
    away: ("2026-10-25T00:20:00Z", "2026-10-25T01:20:00Z"),
    zones: ["Europe/Berlin", "Europe/London"],
};

/// New York puts the clock forward at 07:00 UTC, Havana, where it is midnight then, at 05:00 UTC.
const SPRING: Night = Night {
    begin: "2026-03-08T03:40:00Z",
    end: "2026-03-08T08:40:00Z",
    away: ("2026-03-08T06:30:00Z", "2026-03-08T07:30:00Z"),
    zones: ["America/New_York", "America/Havana"],
};

fn us(text: &str) -> i64 {
    store::clock::micros(text.parse::<Timestamp>().unwrap().at())
}

/// What a test expects of one schedule.
struct Expected {
    name: String,
    user: String,
    timing: Timing,
    missed: &'static str,
    concurrency: &'static str,
    /// Whether its runs never end.
    is_stuck: bool,
    is_job: bool,
    has_open_run: bool,
    fired: BTreeSet<i64>,
    skipped: BTreeSet<i64>,
    /// The last instant at which it was fired.
    decided: i64,
}

impl Expected {
    fn new(number: usize, night: &Night) -> (Self, Value) {
        let zone = night.zones[number % 2].to_owned();
        let expression =
            |text: &str| GivenTiming::Cron { expression: text.to_owned(), time_zone: zone.clone() };
        let given = match number % 8 {
            0 => expression("30 2 * * *"),
            1 => expression("*/20 1,2 * * *"),
            2 => expression("15 0-3 * * *"),
            3 => expression("*/30 * * * *"),
            4 => expression("0 * * * *"),
            5 => expression("0 */2 * * *"),
            6 => expression("45 0,1 * * *"),
            _ => GivenTiming::Interval { every_seconds: 2_400, starting_at: Some(night.begin.to_owned()) },
        };
        let missed = ["skip", "once", "all"][number / 8 % 3];
        let concurrency = ["allow", "forbid", "replace"][number / 24 % 3];
        let is_job = number.is_multiple_of(7);
        let expected = Self {
            name: format!("s-{number}"),
            user: format!("u-{}", number / PER_USER),
            timing: Timing::parse(&given, 0).unwrap(),
            missed,
            concurrency,
            // No node runs jobs here, so they stay queued.
            is_stuck: is_job || number.is_multiple_of(5),
            is_job,
            has_open_run: false,
            fired: BTreeSet::new(),
            skipped: BTreeSet::new(),
            decided: us(night.begin),
        };
        let payload = match is_job {
            true => json!({ "type": "job_spec", "kind": "build" }),
            false => json!({ "type": "prompt", "prompt": "Say hello." }),
        };
        let new = json!({
            "name": expected.name, "timing": given, "payload": payload, "missed": missed,
            "missed_limit": LIMIT, "concurrency": concurrency, "timeout_seconds": 86_400,
        });
        let create = json!({ "user_id": expected.user, "new": new });
        (expected, create)
    }

    /// Decides about what is due, in other words than the gateway does.
    fn fire(&mut self, now: i64) {
        let first = self.timing.next_after(self.decided);
        let due = std::iter::successors(first, |slot| self.timing.next_after(*slot));
        let due: Vec<i64> = due.take_while(|slot| *slot <= now).collect();
        self.decided = now;
        let Some(&last) = due.last() else { return };
        let mut fires: Vec<i64> = match self.missed {
            "skip" if now - last > 60 * SECOND => Vec::new(),
            "skip" | "once" => vec![last],
            _ => due[due.len().saturating_sub(LIMIT)..].to_vec(),
        };
        match self.concurrency {
            "forbid" if self.has_open_run => fires.clear(),
            "forbid" => fires.truncate(1),
            "replace" => fires = fires.last().copied().into_iter().collect(),
            _ => {}
        }
        self.has_open_run |= self.is_stuck && !fires.is_empty();
        self.skipped.extend(due.iter().filter(|slot| !fires.contains(slot)));
        self.fired.extend(fires);
    }
}

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

/// Ends the runs that are to end, as their answers would.
async fn answer(callers: &[Caller<'_>], ids: &[String]) {
    for chunk in ids.chunks(16) {
        let ends = chunk.iter().enumerate().map(|(at, id)| {
            let end = json!({ "handoff_id": id, "outcome": "completed", "text": "Hello." });
            callers[at % callers.len()].must("run.end", end)
        });
        join_all(ends).await;
    }
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
        let unsent = unsent["runs"].as_array().unwrap().clone();
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
    let (mut expected, mut names) = (Vec::new(), BTreeMap::new());
    {
        let caller = Caller::new(&gateways[0], &secret);
        for number in 0..SCHEDULES {
            let (one, create) = Expected::new(number, night);
            let made = caller.must("create", create).await;
            names.insert(made["schedule_id"].as_str().unwrap().to_owned(), number);
            expected.push(one);
        }
    }
    let looks = looks(night, &mut random);
    let kills = [looks.len() / 3, looks.len() * 2 / 3];
    let mut received: BTreeMap<(usize, i64), usize> = BTreeMap::new();
    for (at, now) in looks.iter().enumerate() {
        clock.set_micros(*now);
        expected.iter_mut().for_each(|one| one.fire(*now));
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
            let number = names[run["schedule_id"].as_str().unwrap()];
            *received.entry((number, us(run["slot"].as_str().unwrap()))).or_default() += 1;
            if !expected[number].is_stuck {
                ends.push(run["handoff_id"].as_str().unwrap().to_owned());
            }
        }
        answer(&callers, &ends).await;
    }
    let caller = Caller::new(&gateways[0], &secret);
    let (mut fired, mut skipped) = (0, 0);
    for (number, one) in expected.iter().enumerate() {
        let what = format!("{} {} {}", one.timing.describe(), one.missed, one.concurrency);
        let (mut ran, mut left_out) = (Vec::new(), Vec::new());
        for run in caller.history(&one.user, &one.name).await {
            let slot = us(run["slot"].as_str().unwrap());
            assert_eq!(
                run["job_id"].is_string(),
                one.is_job && run.get("skipped").is_none(),
                "{what}: {run}"
            );
            match run.get("skipped") {
                None => ran.push(slot),
                Some(range) => {
                    let first = us(range["first_slot"].as_str().unwrap());
                    let slots = std::iter::successors(Some(first), |at| one.timing.next_after(*at));
                    let slots: Vec<i64> = slots.take_while(|at| *at <= slot).collect();
                    assert_eq!(range["slots"], slots.len(), "{what}");
                    left_out.extend(slots);
                }
            }
        }
        ran.sort();
        left_out.sort();
        assert_eq!(ran, one.fired.iter().copied().collect::<Vec<_>>(), "{what}: the slots that ran");
        assert_eq!(left_out, one.skipped.iter().copied().collect::<Vec<_>>(), "{what}: what was skipped");
        let handed: Vec<i64> =
            received.keys().filter(|(of, _)| *of == number).map(|(_, slot)| *slot).collect();
        let expected_handoffs = if one.is_job { Vec::new() } else { ran };
        assert_eq!(handed, expected_handoffs, "{what}: handoffs (W7: none for a job)");
        fired += one.fired.len();
        skipped += one.skipped.len();
    }
    let twice: Vec<_> = received.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    println!("{fired} slots fired, {skipped} skipped, looked {} times", looks.len());
    assert!(fired > SCHEDULES && skipped > SCHEDULES / 2, "{fired} {skipped}");
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
