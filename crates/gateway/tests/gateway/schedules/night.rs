//! A night in which clocks are changed, and what two hundred schedules are to do in it.

use std::collections::{BTreeMap, BTreeSet};

use contract::schedule::Timing as GivenTiming;
use futures_util::future::join_all;
use serde_json::{Value, json};
use subjects::Timestamp;
use timing::Timing;

use super::support::Caller;

pub(super) const SCHEDULES: usize = 200;
pub(super) const SECOND: i64 = 1_000_000;
const LIMIT: usize = 3;
/// How many schedules a user has.
const PER_USER: usize = 50;

/// A night in which clocks are changed.
pub(super) struct Night {
    pub(super) begin: &'static str,
    pub(super) end: &'static str,
    /// When orchestrators are away.
    pub(super) away: (&'static str, &'static str),
    zones: [&'static str; 2],
}

/// Both put the clock back at 01:00 UTC.
pub(super) const AUTUMN: Night = Night {
    begin: "2026-10-24T22:10:00Z",
    end: "2026-10-25T04:10:00Z",
    away: ("2026-10-25T00:20:00Z", "2026-10-25T01:20:00Z"),
    zones: ["Europe/Berlin", "Europe/London"],
};

/// New York puts the clock forward at 07:00 UTC, Havana, where it is midnight then, at 05:00 UTC.
pub(super) const SPRING: Night = Night {
    begin: "2026-03-08T03:40:00Z",
    end: "2026-03-08T08:40:00Z",
    away: ("2026-03-08T06:30:00Z", "2026-03-08T07:30:00Z"),
    zones: ["America/New_York", "America/Havana"],
};

pub(super) fn us(text: &str) -> i64 {
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

/// The schedules of a night, and the handoffs that were made for them.
pub(super) struct Book {
    expected: Vec<Expected>,
    /// Numbers of the schedules by their ids.
    numbers: BTreeMap<String, usize>,
    /// How often a run of a schedule and slot was received.
    received: BTreeMap<(usize, i64), usize>,
}

impl Book {
    /// Creates the schedules.
    pub(super) async fn create(night: &Night, caller: &Caller<'_>) -> Self {
        let mut book = Self { expected: Vec::new(), numbers: BTreeMap::new(), received: BTreeMap::new() };
        for number in 0..SCHEDULES {
            let (one, create) = Expected::new(number, night);
            let made = caller.must("create", create).await;
            book.numbers.insert(made["schedule_id"].as_str().unwrap().to_owned(), number);
            book.expected.push(one);
        }
        book
    }

    /// Expects what is due to be decided about now.
    pub(super) fn expect_at(&mut self, now: i64) {
        self.expected.iter_mut().for_each(|one| one.fire(now));
    }

    /// Returns how many handoffs are expected so far.
    pub(super) fn handoffs(&self) -> usize {
        self.expected.iter().filter(|one| !one.is_job).map(|one| one.fired.len()).sum()
    }

    /// Notes a run that was given out or published. Returns whether it is to be answered.
    pub(super) fn receive(&mut self, schedule: &str, slot: &str) -> bool {
        let number = self.numbers[schedule];
        *self.received.entry((number, us(slot))).or_default() += 1;
        !self.expected[number].is_stuck
    }

    /// Returns whether the gateway has decided about everything that is due.
    pub(super) async fn is_decided(&self, caller: &Caller<'_>, now: i64) -> bool {
        for user in 0..SCHEDULES / PER_USER {
            let page = json!({ "user_id": format!("u-{user}"), "limit": PER_USER });
            let schedules = caller.must("list", page).await;
            let mut next = schedules["items"].as_array().unwrap().iter().map(|one| &one["next_at"]);
            if next.any(|next| us(next.as_str().unwrap()) <= now) {
                return false;
            }
        }
        true
    }

    /// Compares the history of every schedule, and the handoffs, with what was expected.
    pub(super) async fn check(&self, caller: &Caller<'_>) {
        let (mut fired, mut skipped) = (0, 0);
        for (number, one) in self.expected.iter().enumerate() {
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
                self.received.keys().filter(|(of, _)| *of == number).map(|(_, slot)| *slot).collect();
            let expected_handoffs = if one.is_job { Vec::new() } else { ran };
            assert_eq!(handed, expected_handoffs, "{what}: handoffs (W7: none for a job)");
            fired += one.fired.len();
            skipped += one.skipped.len();
        }
        let twice: Vec<_> = self.received.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "{twice:?}");
        println!("{fired} slots fired, {skipped} skipped");
        assert!(fired > SCHEDULES && skipped > SCHEDULES / 2, "{fired} {skipped}");
    }
}

/// Ends runs, as their answers would.
pub(super) async fn answer(callers: &[Caller<'_>], ids: &[String]) {
    for chunk in ids.chunks(16) {
        let ends = chunk.iter().enumerate().map(|(at, id)| {
            let end = json!({ "handoff_id": id, "outcome": "completed", "text": "Hello." });
            callers[at % callers.len()].must("run.end", end)
        });
        join_all(ends).await;
    }
}
