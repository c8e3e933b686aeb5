//! Which of the due slots of a schedule fire, and which are skipped.

use contract::schedule::{Concurrency, MissedRuns, SkipReason};

use crate::{SECOND_US, Timing};

/// How late the latest slot may be to fire under [`MissedRuns::Skip`].
pub const ON_TIME_SECONDS: i64 = 60;

/// What a schedule does with slots that are late or meet an open run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policies {
    pub missed: MissedRuns,
    /// How many slots fire at most under [`MissedRuns::All`].
    pub missed_limit: u32,
    pub concurrency: Concurrency,
}

/// The decision on each due slot of a schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The slots that fire, oldest first.
    pub fire: Vec<i64>,
    /// Oldest first.
    pub skip: Vec<Skipped>,
    /// Whether open runs are replaced by the one that fires.
    pub replaces: bool,
    /// The first slot about which nothing is decided. It is due already if more slots fire than were asked
    /// for.
    pub next: Option<i64>,
}

impl Plan {
    /// Returns the last slot that was decided about.
    pub fn last_slot(&self) -> Option<i64> {
        self.fire.iter().copied().chain(self.skip.iter().map(|skipped| skipped.last)).max()
    }
}

/// One or more slots in a row that do not fire, for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    pub first: i64,
    pub last: i64,
    /// How many there are; at most 1000 of a cron expression.
    pub slots: u64,
    pub reason: SkipReason,
}

/// Decides about all slots from `next` to `now`, or about those until `max_runs` fire. `next` is the first
/// slot about which nothing was decided; `has_open_run` tells whether a run of the schedule has not ended.
pub fn plan(
    timing: &Timing,
    policies: Policies,
    next: i64,
    now: i64,
    has_open_run: bool,
    max_runs: usize,
) -> Plan {
    if next > now {
        return Plan { next: Some(next), ..Plan::default() };
    }
    let mut plan = Plan { next: timing.next_after(now), ..Plan::default() };
    let candidates = latest_slots(timing, policies, next, now);
    let Some((first, last)) = candidates.first().zip(candidates.last()) else { return plan };
    let is_late = now.saturating_sub(*last) > ON_TIME_SECONDS * SECOND_US;
    if policies.missed == MissedRuns::Skip && is_late {
        plan.skip.push(skipped(timing, next, *last, SkipReason::Missed));
        return plan;
    }
    if let Some(before) = timing.latest_until(first - 1, next) {
        plan.skip.push(skipped(timing, next, before, SkipReason::Missed));
    }
    match policies.concurrency {
        Concurrency::Allow => {
            plan.fire = candidates.iter().copied().take(max_runs).collect();
            if let Some(left) = candidates.get(max_runs) {
                plan.next = Some(*left);
            }
        }
        Concurrency::Forbid if has_open_run => {
            plan.skip.push(skipped(timing, *first, *last, SkipReason::Busy));
        }
        Concurrency::Forbid => {
            plan.fire.push(*first);
            if let Some(second) = candidates.get(1) {
                plan.skip.push(skipped(timing, *second, *last, SkipReason::Busy));
            }
        }
        Concurrency::Replace => {
            if let [.., before, _] = candidates.as_slice() {
                plan.skip.push(skipped(timing, *first, *before, SkipReason::Replaced));
            }
            plan.fire.push(*last);
            plan.replaces = has_open_run;
        }
    }
    plan
}

/// Returns the due slots that the missed-run policy lets fire, oldest first.
fn latest_slots(timing: &Timing, policies: Policies, next: i64, now: i64) -> Vec<i64> {
    let wanted = match policies.missed {
        MissedRuns::Skip | MissedRuns::Once => 1,
        MissedRuns::All => usize::try_from(policies.missed_limit.max(1)).unwrap_or(usize::MAX),
    };
    let latest = timing.latest_until(now, next);
    let slots = std::iter::successors(latest, |slot| timing.latest_until(slot - 1, next));
    let mut slots: Vec<i64> = slots.take(wanted).collect();
    slots.reverse();
    slots
}

fn skipped(timing: &Timing, first: i64, last: i64, reason: SkipReason) -> Skipped {
    Skipped { first, last, slots: timing.count(first, last), reason }
}
