//! Leap days, year ends, weekdays, seconds; intervals and single times.

use contract::schedule;
use timing::Timing;

use super::{check, cron, every, us, utc};

#[test]
fn leap_days_come_every_four_years_but_in_2100() {
    check(
        &cron("0 12 29 2 *", "UTC"),
        "2093-01-01T00:00:00Z",
        &["2096-02-29T12:00:00+00:00", "2104-02-29T12:00:00+00:00"],
    );
}

#[test]
fn last_day_of_the_month_is_meant_by_l() {
    check(
        &cron("0 0 L * *", "Europe/Berlin"),
        "2028-01-15T00:00:00Z",
        &["2028-01-31T00:00:00+01:00", "2028-02-29T00:00:00+01:00", "2028-03-31T00:00:00+02:00"],
    );
}

#[test]
fn firings_end_with_the_last_year_in_local_time() {
    check(
        &cron("59 59 23 31 12 *", "America/New_York"),
        "2026-12-31T12:00:00Z",
        &["2026-12-31T23:59:59-05:00", "2027-12-31T23:59:59-05:00"],
    );
    check(&cron("0 0 1 1 *", "Pacific/Kiritimati"), "2026-12-31T09:00:00Z", &["2027-01-01T00:00:00+14:00"]);
}

#[test]
fn a_31st_is_skipped_by_months_that_have_none() {
    check(
        &cron("0 0 31 * *", "UTC"),
        "2026-03-31T00:00:00Z",
        &["2026-05-31T00:00:00+00:00", "2026-07-31T00:00:00+00:00"],
    );
}

#[test]
fn weekdays_have_names_and_numbers() {
    for expression in ["0 9 * * MON-FRI", "0 9 * * 1-5"] {
        check(
            &cron(expression, "Europe/Berlin"),
            "2026-07-03T12:00:00Z",
            &["2026-07-06T09:00:00+02:00", "2026-07-07T09:00:00+02:00"],
        );
    }
    check(&cron("0 9 * * 0", "UTC"), "2026-07-03T12:00:00Z", &["2026-07-05T09:00:00+00:00"]);
    check(&cron("0 9 * * 7", "UTC"), "2026-07-03T12:00:00Z", &["2026-07-05T09:00:00+00:00"]);
    // The second Tuesday.
    check(&cron("0 9 * * TUE#2", "UTC"), "2026-07-01T00:00:00Z", &["2026-07-14T09:00:00+00:00"]);
}

#[test]
fn day_of_month_or_weekday_is_enough() {
    check(
        &cron("0 0 13 * FRI", "UTC"),
        "2026-11-07T00:00:00Z",
        &["2026-11-13T00:00:00+00:00", "2026-11-20T00:00:00+00:00"],
    );
    check(&cron("0 0 13 * +FRI", "UTC"), "2026-11-14T00:00:00Z", &["2027-08-13T00:00:00+00:00"]);
}

#[test]
fn six_fields_begin_with_the_second() {
    check(
        &cron("*/20 * * * * *", "UTC"),
        "2026-01-01T00:00:30Z",
        &["2026-01-01T00:00:40+00:00", "2026-01-01T00:01:00+00:00"],
    );
}

#[test]
fn a_slot_is_after_the_given_instant() {
    let timing = cron("0 9 * * *", "UTC");
    let slot = us("2026-01-01T09:00:00Z");
    assert_eq!(timing.next_after(slot - 1), Some(slot));
    assert_eq!(timing.next_after(slot).map(utc).unwrap(), "2026-01-02T09:00:00Z");
    assert_eq!(timing.next_after(slot + 1).map(utc).unwrap(), "2026-01-02T09:00:00Z");
    assert_eq!(timing.latest_until(slot, 0), Some(slot));
    assert_eq!(timing.latest_until(slot + 1, 0), Some(slot));
    assert_eq!(timing.latest_until(slot - 1, slot - 1), None);
}

#[test]
fn interval_without_a_beginning_starts_one_interval_later() {
    let timing = schedule::Timing::Interval { every_seconds: 90, starting_at: None };
    let timing = Timing::parse(&timing, us("2026-01-01T00:00:00.75Z")).unwrap();
    check(&timing, "2026-01-01T00:00:00.75Z", &["2026-01-01T00:01:30Z", "2026-01-01T00:03:00Z"]);
    // As it is stored, it has its beginning and does not depend on when it is read.
    let stored = timing.to_contract();
    let later = Timing::parse(&stored, us("2027-01-01T00:00:00Z")).unwrap();
    check(&later, "2026-01-01T00:00:00.75Z", &["2026-01-01T00:01:30Z", "2026-01-01T00:03:00Z"]);
    assert_eq!(later.to_contract(), stored);
}

#[test]
fn interval_that_began_long_ago_keeps_its_beat() {
    let timing = every(7, "2020-01-01T00:00:00Z");
    check(&timing, "2026-01-01T00:00:00Z", &["2026-01-01T00:00:01Z", "2026-01-01T00:00:08Z"]);
    check(&every(7, "2030-01-01T00:00:00Z"), "2026-01-01T00:00:00Z", &["2030-01-01T00:00:00Z"]);
}

#[test]
fn single_time_is_due_once() {
    let once = |at: &str, zone: Option<&str>| {
        let timing = schedule::Timing::Once { at: at.to_owned(), time_zone: zone.map(str::to_owned) };
        Timing::parse(&timing, 0).unwrap()
    };
    for (at, zone, expected) in [
        ("2026-06-01T09:00:00Z", None, "2026-06-01T09:00:00+00:00"),
        ("2026-06-01T09:00:00-04:00", None, "2026-06-01T13:00:00+00:00"),
        ("2026-06-01T09:00", Some("Europe/Berlin"), "2026-06-01T09:00:00+02:00"),
        ("2026-03-29T02:30", Some("Europe/Berlin"), "2026-03-29T03:00:00+02:00 Moved"),
        ("2026-10-25T02:30", Some("Europe/Berlin"), "2026-10-25T02:30:00+02:00 First"),
        ("2026-10-25T02:30:00+01:00", Some("Europe/Berlin"), "2026-10-25T02:30:00+01:00"),
    ] {
        let timing = once(at, zone);
        check(&timing, "2026-01-01T00:00:00Z", &[expected]);
        assert_eq!(timing.firings(us("2026-01-01T00:00:00Z"), 10).len(), 1);
        assert_eq!(timing.next_after(us("2026-12-01T00:00:00Z")), None);
        let stored = Timing::parse(&timing.to_contract(), 0).unwrap();
        assert_eq!(stored.next_after(0), timing.next_after(0), "{at}");
    }
}

#[test]
fn timings_are_described_in_words() {
    for (timing, words) in [
        (cron("0 9 * * MON-FRI", "europe/berlin"), "At 09:00"),
        (every(1, "2026-01-01T00:00:00Z"), "Every 1 second"),
        (every(90_061, "2026-01-01T00:00:00Z"), "Every 1 day 1 hour 1 minute 1 second"),
        (every(7_200, "2026-01-01T00:00:00Z"), "Every 2 hours"),
    ] {
        assert!(timing.describe().starts_with(words), "{}", timing.describe());
    }
    assert!(cron("0 9 * * MON-FRI", "europe/berlin").describe().ends_with("(Europe/Berlin)"));
}
