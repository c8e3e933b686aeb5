//! Which due slots fire: missed-run policy and concurrency policy.

use contract::schedule::{Concurrency, MissedRuns, SkipReason};
use proptest::prelude::*;
use timing::{ON_TIME_SECONDS, Plan, Policies, Skipped, Timing, plan};

use super::{cron, every, us, utc};

const MINUTE: i64 = 60_000_000;
const ALL: usize = usize::MAX;

fn policies(missed: MissedRuns, missed_limit: u32, concurrency: Concurrency) -> Policies {
    Policies { missed, missed_limit, concurrency }
}

/// Ten-minute slots; the first undecided one is at 09:00.
fn planned(policies: Policies, now: &str, has_open_run: bool, max_runs: usize) -> Plan {
    let timing = every(600, "2026-01-01T00:00:00Z");
    plan(
        &timing,
        policies,
        us("2026-01-05T09:00:00Z"),
        us(&format!("2026-01-05T{now}Z")),
        has_open_run,
        max_runs,
    )
}

/// Writes a plan as `09:00 fires; 09:10+2 missed; next 09:40`.
fn words(plan: &Plan) -> String {
    let clock = |at: i64| utc(at)[11..16].to_owned();
    let skipped = plan.skip.iter().map(|it| {
        assert_eq!(it.last, it.first + (it.slots as i64 - 1) * 10 * MINUTE, "{it:?}");
        (it.first, format!("{}+{} {}", clock(it.first), it.slots, it.reason.as_str()))
    });
    let fired = plan.fire.iter().map(|at| (*at, format!("{} fires", clock(*at))));
    let mut parts: Vec<(i64, String)> = skipped.chain(fired).collect();
    parts.sort();
    let mut parts: Vec<String> = parts.into_iter().map(|(_, text)| text).collect();
    parts.push(format!("next {}", plan.next.map_or("none".to_owned(), clock)));
    if plan.replaces {
        parts.push("replaces".to_owned());
    }
    parts.join("; ")
}

#[test]
fn nothing_is_due_before_the_next_slot() {
    for missed in [MissedRuns::Skip, MissedRuns::Once, MissedRuns::All] {
        let policies = policies(missed, 10, Concurrency::Replace);
        assert_eq!(words(&planned(policies, "08:59:59", true, ALL)), "next 09:00");
    }
}

#[test]
fn due_slot_fires_whatever_the_policy() {
    for missed in [MissedRuns::Skip, MissedRuns::Once, MissedRuns::All] {
        for now in ["09:00:00", "09:00:59", "09:01:00"] {
            let policies = policies(missed, 10, Concurrency::Forbid);
            assert_eq!(words(&planned(policies, now, false, ALL)), "09:00 fires; next 09:10");
        }
    }
    assert_eq!(ON_TIME_SECONDS, 60);
}

#[test]
fn missed_slots_fire_as_the_policy_says() {
    for (missed, limit, now, expected) in [
        (MissedRuns::Skip, 10, "09:01:01", "09:00+1 missed; next 09:10"),
        (MissedRuns::Skip, 10, "09:35:00", "09:00+4 missed; next 09:40"),
        (MissedRuns::Skip, 10, "09:30:20", "09:00+3 missed; 09:30 fires; next 09:40"),
        (MissedRuns::Once, 10, "09:01:01", "09:00 fires; next 09:10"),
        (MissedRuns::Once, 10, "09:35:00", "09:00+3 missed; 09:30 fires; next 09:40"),
        (MissedRuns::All, 10, "09:35:00", "09:00 fires; 09:10 fires; 09:20 fires; 09:30 fires; next 09:40"),
        (MissedRuns::All, 2, "09:35:00", "09:00+2 missed; 09:20 fires; 09:30 fires; next 09:40"),
        (MissedRuns::All, 1, "23:59:59", "09:00+89 missed; 23:50 fires; next 00:00"),
    ] {
        let policies = policies(missed, limit, Concurrency::Allow);
        assert_eq!(words(&planned(policies, now, true, ALL)), expected, "{missed:?} {now}");
    }
}

#[test]
fn open_run_is_kept_company_waited_for_or_replaced() {
    let once = MissedRuns::Once;
    for (missed, concurrency, open, expected) in [
        (once, Concurrency::Allow, true, "09:00+3 missed; 09:30 fires; next 09:40"),
        (once, Concurrency::Forbid, true, "09:00+3 missed; 09:30+1 busy; next 09:40"),
        (once, Concurrency::Forbid, false, "09:00+3 missed; 09:30 fires; next 09:40"),
        (once, Concurrency::Replace, true, "09:00+3 missed; 09:30 fires; next 09:40; replaces"),
        (once, Concurrency::Replace, false, "09:00+3 missed; 09:30 fires; next 09:40"),
        // Slots that are caught up meet each other.
        (MissedRuns::All, Concurrency::Forbid, false, "09:00 fires; 09:10+3 busy; next 09:40"),
        (MissedRuns::All, Concurrency::Forbid, true, "09:00+4 busy; next 09:40"),
        (MissedRuns::All, Concurrency::Replace, true, "09:00+3 replaced; 09:30 fires; next 09:40; replaces"),
    ] {
        let policies = policies(missed, 10, concurrency);
        assert_eq!(words(&planned(policies, "09:35:00", open, ALL)), expected, "{missed:?} {concurrency:?}");
    }
}

#[test]
fn what_exceeds_the_number_of_runs_stays_due() {
    let policies = policies(MissedRuns::All, 10, Concurrency::Allow);
    let plan = planned(policies, "09:35:00", false, 3);
    assert_eq!(words(&plan), "09:00 fires; 09:10 fires; 09:20 fires; next 09:30");
}

#[test]
fn timing_that_ends_has_no_next_slot() {
    let at = "2026-01-05T09:00:00Z".to_owned();
    let once = contract::schedule::Timing::Once { at, time_zone: None };
    let timing = Timing::parse(&once, 0).unwrap();
    let slot = us("2026-01-05T09:00:00Z");
    let decide = |missed, late| {
        plan(&timing, policies(missed, 10, Concurrency::Allow), slot, slot + late * MINUTE, false, ALL)
    };
    assert_eq!(decide(MissedRuns::Skip, 0), Plan { fire: vec![slot], ..Plan::default() });
    assert_eq!(decide(MissedRuns::Once, 900), Plan { fire: vec![slot], ..Plan::default() });
    let late = Skipped { first: slot, last: slot, slots: 1, reason: SkipReason::Missed };
    assert_eq!(decide(MissedRuns::Skip, 900), Plan { skip: vec![late], ..Plan::default() });
}

#[test]
fn years_of_missed_seconds_are_planned_at_once() {
    let timing = cron("* * * * * *", "Europe/Berlin");
    let (next, now) = (us("2016-01-01T00:00:00Z"), us("2026-01-01T00:00:00Z"));
    let plan = plan(&timing, policies(MissedRuns::All, 100, Concurrency::Allow), next, now, false, ALL);
    assert_eq!((plan.fire.len(), plan.fire.last()), (100, Some(&now)));
    assert_eq!(plan.skip.len(), 1);
    assert_eq!((plan.skip[0].first, plan.skip[0].slots), (next, 1_000), "no more than that are counted");
}

fn any_policies() -> impl Strategy<Value = Policies> {
    let missed = prop::sample::select(&[MissedRuns::Skip, MissedRuns::Once, MissedRuns::All][..]);
    let concurrency =
        prop::sample::select(&[Concurrency::Allow, Concurrency::Forbid, Concurrency::Replace][..]);
    (missed, 1..8_u32, concurrency).prop_map(|(missed, missed_limit, concurrency)| Policies {
        missed,
        missed_limit,
        concurrency,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Whenever a schedule is looked at, each of its slots is decided about exactly once, in order.
    #[test]
    fn every_slot_is_decided_once(
        expression in prop::sample::select(&["*/7 * * * *", "30 1,2 * * *", "*/10 2 * * *", "0 * * * *"][..]),
        zone in prop::sample::select(&["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"][..]),
        day in prop::sample::select(&["2026-03-28", "2026-10-24", "2026-03-07", "2026-10-31"][..]),
        policies in any_policies(),
        looks in prop::collection::vec((1..600_i64, any::<bool>(), 1..5_usize), 1..40),
    ) {
        let timing = cron(expression, zone);
        let begin = us(&format!("{day}T00:00:00Z"));
        let mut next = timing.next_after(begin);
        let (mut now, mut decided, mut fired) = (begin, Vec::new(), 0);
        for (minutes, has_open_run, max_runs) in looks {
            now += minutes * MINUTE;
            let Some(slot) = next else { break };
            let plan = plan(&timing, policies, slot, now, has_open_run, max_runs);
            prop_assert!(plan.fire.len() <= max_runs);
            let mut these: Vec<(i64, i64, u64)> = plan.fire.iter().map(|at| (*at, *at, 1)).collect();
            these.extend(plan.skip.iter().map(|it| (it.first, it.last, it.slots)));
            these.sort();
            decided.extend(these);
            fired += plan.fire.len();
            prop_assert!(plan.next > Some(slot) || slot > now, "it moves on");
            // Only catching up one by one leaves something due.
            prop_assert!(plan.next > Some(now) || plan.fire.len() == max_runs);
            next = plan.next;
        }
        let mut expected = timing.next_after(begin);
        for (first, last, slots) in decided {
            prop_assert_eq!(expected, Some(first), "no slot is left out or decided about twice");
            let mut at = first;
            for _ in 1..slots {
                at = timing.next_after(at).unwrap();
            }
            prop_assert_eq!(at, last);
            expected = timing.next_after(last);
        }
        prop_assert_eq!(expected, next);
        prop_assert!(fired > 0 || next.is_some());
    }
}
