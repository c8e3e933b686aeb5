//! `docs/schedules.md` says what the code does.

use contract::schedule::{
    Concurrency, MAX_CATCH_UP, MAX_NAME_BYTES, MAX_PAYLOAD_BYTES, MAX_RUNS_KEPT, MAX_SCHEDULES_PER_USER,
    MAX_TIMEOUT_SECONDS, MissedRuns,
};
use timing::{MAX_INTERVAL_SECONDS, MIN_INTERVAL_SECONDS, Policies, plan};

use super::{cron, every, us, utc};

const DOCUMENT: &str = include_str!("../../../../docs/schedules.md");

/// Returns the rows of the table under a heading, without its head.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let section = DOCUMENT.split(&format!("\n## {heading}\n")).nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Returns what is in the first pair of backticks.
fn code(cell: &str) -> &str {
    cell.split('`').nth(1).unwrap()
}

#[test]
fn table_of_clock_changes_is_true() {
    let rows = rows("When clocks change");
    assert!(rows.len() > 10);
    for row in rows {
        let [given, zone, day, fires] = row[..] else { panic!("{row:?}") };
        let day = &day[..10];
        let timing = cron(code(given), zone);
        let in_day = |local: &str| match given.split_once("from ") {
            Some((_, hours)) => {
                let (from, to) = (&hours[..5], &hours[9..14]);
                (from..=to).contains(&&local[11..16])
            }
            None => true,
        };
        let found = timing.firings(us(&format!("{day}T00:00:00Z")) - 14 * 3_600_000_000, 100);
        let locals = found.iter().map(|firing| firing.local.as_str());
        let of_day = locals.filter(|local| local.starts_with(day) && in_day(local));
        let shown: Vec<String> = of_day.map(|at| format!("{}{}", &at[11..16], &at[19..])).collect();
        assert_eq!(shown.join(", "), fires, "{given} in {zone} on {day}");
    }
}

#[test]
fn table_of_missed_slots_is_true() {
    let section = DOCUMENT.split("\n## What is missed\n").nth(1).unwrap();
    assert!(section.contains("With slots at 09:00, 09:10, 09:20 and 09:30"));
    let timing = every(600, "2026-01-01T09:00:00Z");
    let rows = rows("What is missed");
    assert_eq!(rows.len(), 4);
    for row in rows {
        let missed = match code(row[0]) {
            "skip" => MissedRuns::Skip,
            "once" => MissedRuns::Once,
            _ => MissedRuns::All,
        };
        let limit =
            row[0].split("missed_limit` ").nth(1).map_or("10", |rest| rest.split(' ').next().unwrap());
        let missed_limit = limit.parse().unwrap();
        let policies = Policies { missed, missed_limit, concurrency: Concurrency::Allow };
        for (now, expected) in [("09:30:20", row[1]), ("09:35:00", row[2])] {
            let (first, now) = (us("2026-01-01T09:00:00Z"), us(&format!("2026-01-01T{now}Z")));
            let plan = plan(&timing, policies, first, now, false, usize::MAX);
            let fired: Vec<String> = plan.fire.iter().map(|at| utc(*at)[11..16].to_owned()).collect();
            let shown = if fired.is_empty() { "nothing".to_owned() } else { fired.join(", ") };
            assert_eq!(shown, expected, "{row:?}");
        }
    }
}

#[test]
fn table_of_limits_is_true() {
    let limits: Vec<u64> = rows("Limits").iter().map(|row| row[1].parse().unwrap()).collect();
    let expected = [
        MAX_SCHEDULES_PER_USER,
        MIN_INTERVAL_SECONDS,
        MAX_INTERVAL_SECONDS,
        MAX_PAYLOAD_BYTES as u64,
        MAX_NAME_BYTES as u64,
        MAX_CATCH_UP.into(),
        MAX_TIMEOUT_SECONDS,
        MAX_RUNS_KEPT,
    ];
    assert_eq!(limits, expected);
}
