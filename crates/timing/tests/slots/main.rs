//! Slots of timings and what becomes of them.

mod calendar;
mod clock_changes;
mod decisions;
mod document;
mod model;
mod refusals;

use contract::schedule;
use timing::Timing;

/// Parses a time in RFC 3339 to microseconds since 1970.
#[track_caller]
fn us(text: &str) -> i64 {
    text.parse::<jiff::Timestamp>().unwrap().as_microsecond()
}

fn utc(us: i64) -> String {
    jiff::Timestamp::from_microsecond(us).unwrap().to_string()
}

#[track_caller]
fn cron(expression: &str, time_zone: &str) -> Timing {
    let timing = schedule::Timing::Cron { expression: expression.into(), time_zone: time_zone.into() };
    Timing::parse(&timing, 0).unwrap()
}

fn every(seconds: u64, starting_at: &str) -> Timing {
    let starting_at = Some(starting_at.to_owned());
    Timing::parse(&schedule::Timing::Interval { every_seconds: seconds, starting_at }, 0).unwrap()
}

/// Checks the next firings after a time. Each is written as the clock of the zone shows it, and the note of a
/// change of the clock: `2026-03-29T03:00:00+02:00 Moved`.
#[track_caller]
fn check(timing: &Timing, after: &str, expected: &[&str]) {
    let firings = timing.firings(us(after), expected.len());
    let shown: Vec<String> = firings
        .iter()
        .map(|firing| match firing.note {
            Some(note) => format!("{} {note:?}", firing.local),
            None => firing.local.clone(),
        })
        .collect();
    assert_eq!(shown, expected);
    // Backwards it is the same.
    let mut slot = firings.last().map(|firing| us(&firing.at));
    for firing in firings.iter().rev() {
        assert_eq!(slot.map(utc).as_ref(), Some(&firing.at), "backwards");
        slot = timing.latest_until(us(&firing.at) - 1, us(after) + 1);
    }
    assert_eq!(slot.map(utc), None, "nothing before the first");
}
