//! Timings that are refused.

use contract::schedule;
use proptest::prelude::*;
use timing::{Error, MAX_INTERVAL_SECONDS, Timing};

fn parse_cron(expression: &str, time_zone: &str) -> Result<Timing, Error> {
    Timing::parse(&schedule::Timing::Cron { expression: expression.into(), time_zone: time_zone.into() }, 0)
}

#[test]
fn bad_expressions_are_refused() {
    for expression in [
        "",
        "* * * *",
        "* * * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "5-1 * * * *",
        "a b c d e",
        "@reboot",
        "@nothing",
        "0 9 * * MON-",
        "0 9 * * ☃",
        &"1,".repeat(100),
    ] {
        assert!(parse_cron(expression, "UTC").is_err(), "{expression}");
    }
    let why = parse_cron("0 9 * *", "UTC").unwrap_err().to_string();
    assert!(why.contains("5 fields") && why.ends_with("this one has 4"), "{why}");
    for (expression, expected) in [
        (
            "0 0 WL * *",
            "invalid cron expression: `W` follows one day of the month, as in 15W, or `L`, as in LW",
        ),
        (
            "0 0 32W * *",
            "invalid cron expression: `W` follows one day of the month, as in 15W, or `L`, as in LW",
        ),
        (
            "0 0 L,LW * *",
            "invalid cron expression: `L` and `LW` do not go together; make two schedules of them",
        ),
        (
            "0 0 * * LW",
            "invalid cron expression: a field has a character that it cannot have; `L` and `W` are for days",
        ),
    ] {
        assert_eq!(parse_cron(expression, "UTC").unwrap_err().to_string(), expected, "{expression}");
    }
}

/// The last weekday is not the last day.
#[test]
fn last_weekday_of_the_month_is_described_as_such() {
    for (expression, expected) in [
        ("0 9 LW * *", "At 09:00, on the last weekday (Monday to Friday) of the month (UTC)"),
        ("0 0 9 lw * *", "At 09:00, on the last weekday (Monday to Friday) of the month (UTC)"),
        ("0 9 L * *", "At 09:00, on the last day of the month (UTC)"),
    ] {
        assert_eq!(parse_cron(expression, "UTC").unwrap().describe(), expected, "{expression}");
    }
}

#[test]
fn times_at_the_end_of_the_calendar_are_refused_in_plain_words() {
    for at in ["9999-12-31T23:59:59Z", "9999-12-31T12:00"] {
        let once = schedule::Timing::Once { at: at.to_owned(), time_zone: None };
        let why = Timing::parse(&once, 0).unwrap_err().to_string();
        assert_eq!(why, format!("the time `{at}` is too late; name one before the year 9999"));
    }
    let late = schedule::Timing::Interval {
        every_seconds: MAX_INTERVAL_SECONDS,
        starting_at: Some("9999-01-01T00:00:00Z".to_owned()),
    };
    let firings = Timing::parse(&late, 0).unwrap().firings(0, 3);
    assert_eq!(firings.len(), 1, "{firings:?}");
}

#[test]
fn bad_zones_times_and_intervals_are_refused() {
    for zone in ["", "Mars/Olympus", "CET+1", "../etc/passwd", "Etc/Unknown", "Europe/Berlin\0"] {
        let why = parse_cron("0 9 * * *", zone).unwrap_err();
        assert_eq!(why, Error::UnknownZone(zone.to_owned()));
    }
    for at in ["", "tomorrow", "2026-02-30T00:00:00Z", "12:00", "10000-01-01T00:00:00Z"] {
        let once = schedule::Timing::Once { at: at.to_owned(), time_zone: None };
        assert_eq!(Timing::parse(&once, 0).unwrap_err(), Error::Time(at.to_owned()));
    }
    for every_seconds in [0, MAX_INTERVAL_SECONDS + 1, u64::MAX] {
        let interval = schedule::Timing::Interval { every_seconds, starting_at: None };
        assert!(Timing::parse(&interval, 0).is_err(), "{every_seconds}");
    }
}

#[test]
fn a_day_that_never_comes_is_refused() {
    for expression in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 0 31 2 *", "* * * 30 2 *", "0 0 31 2 +MON"] {
        assert_eq!(parse_cron(expression, "Europe/Berlin").unwrap_err(), Error::NeverDue, "{expression}");
    }
    for expression in ["0 0 29 2 +MON", "0 0 29 2 +SUN", "0 0 31 1,2 *", "0 0 30 2 MON", "0 0 * 2 MON#5"] {
        assert!(parse_cron(expression, "Europe/Berlin").unwrap().next_after(0).is_some(), "{expression}");
    }
}

#[test]
fn all_zones_are_named_and_can_be_used() {
    let names = timing::zone_names();
    assert!(names.len() > 400, "{}", names.len());
    for name in &names {
        let parsed = parse_cron("0 9 * * *", name);
        assert!(parsed.is_ok() || name == "Etc/Unknown", "{name}: {parsed:?}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(
        expression in "[0-9*/,@#LWwa-zA-Z?+ -]{0,40}", zone in ".{0,20}", at in ".{0,30}",
    ) {
        if let Ok(timing) = parse_cron(&expression, "America/New_York") {
            // The search ends, and the text can be described.
            timing.next_after(1_800_000_000_000_000);
            timing.latest_until(1_800_000_000_000_000, 1_790_000_000_000_000);
            timing.describe();
        }
        drop(parse_cron("0 9 * * *", &zone));
        drop(Timing::parse(&schedule::Timing::Once { at, time_zone: None }, 0));
    }
}
