//! What happens to slots where clocks are put forward and back.

use super::{check, cron, every};

const BERLIN: &str = "Europe/Berlin";
const NEW_YORK: &str = "America/New_York";
const LORD_HOWE: &str = "Australia/Lord_Howe";

#[test]
fn named_time_in_the_gap_is_due_at_its_end_and_only_that_day() {
    check(
        &cron("30 2 * * *", BERLIN),
        "2026-03-28T00:00:00Z",
        &["2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00 Moved", "2026-03-30T02:30:00+02:00"],
    );
    check(
        &cron("30 2 * * *", NEW_YORK),
        "2026-03-07T00:00:00Z",
        &["2026-03-07T02:30:00-05:00", "2026-03-08T03:00:00-04:00 Moved", "2026-03-09T02:30:00-04:00"],
    );
    // Half an hour is skipped there.
    check(
        &cron("15 2 * * *", LORD_HOWE),
        "2026-10-02T16:00:00Z",
        &["2026-10-04T02:30:00+11:00 Moved", "2026-10-05T02:15:00+11:00"],
    );
}

#[test]
fn all_named_times_in_one_gap_are_one_slot() {
    check(
        &cron("*/20 2 * * *", BERLIN),
        "2026-03-28T01:30:00Z",
        &["2026-03-28T02:40:00+01:00", "2026-03-29T03:00:00+02:00 Moved", "2026-03-30T02:00:00+02:00"],
    );
    // One that is also named at the end of the gap does not fire twice.
    check(
        &cron("0 2,3 * * *", BERLIN),
        "2026-03-28T12:00:00Z",
        &["2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"],
    );
}

#[test]
fn named_time_in_the_repeated_hour_is_due_once_the_first_time() {
    check(
        &cron("30 2 * * *", BERLIN),
        "2026-10-24T12:00:00Z",
        &["2026-10-25T02:30:00+02:00 First", "2026-10-26T02:30:00+01:00"],
    );
    check(
        &cron("30 1 * * *", NEW_YORK),
        "2026-10-31T12:00:00Z",
        &["2026-11-01T01:30:00-04:00 First", "2026-11-02T01:30:00-05:00"],
    );
    check(
        &cron("45 1 * * *", LORD_HOWE),
        "2026-04-04T00:00:00Z",
        &["2026-04-05T01:45:00+11:00 First", "2026-04-06T01:45:00+10:30"],
    );
    // Asked in the second of the two hours, the first one has passed.
    check(&cron("30 2 * * *", BERLIN), "2026-10-25T01:10:00Z", &["2026-10-26T02:30:00+01:00"]);
}

#[test]
fn hours_that_are_not_named_follow_the_clock() {
    // 02:00 to 02:59 does not exist.
    check(
        &cron("30 * * * *", BERLIN),
        "2026-03-28T23:45:00Z",
        &["2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00", "2026-03-29T04:30:00+02:00"],
    );
    // 02:00 to 02:59 is there twice: no hour passes without a firing.
    check(
        &cron("30 * * * *", BERLIN),
        "2026-10-24T23:45:00Z",
        &["2026-10-25T02:30:00+02:00 First", "2026-10-25T02:30:00+01:00 Second", "2026-10-25T03:30:00+01:00"],
    );
    check(
        &cron("0 */2 * * *", NEW_YORK),
        "2026-03-08T04:30:00Z",
        &["2026-03-08T00:00:00-05:00", "2026-03-08T04:00:00-04:00"],
    );
    check(
        &cron("*/15 * * * *", LORD_HOWE),
        "2026-04-04T14:30:00Z",
        &[
            "2026-04-05T01:45:00+11:00 First",
            "2026-04-05T01:30:00+10:30 Second",
            "2026-04-05T01:45:00+10:30 Second",
            "2026-04-05T02:00:00+10:30",
        ],
    );
    check(
        &cron("*/15 * * * *", LORD_HOWE),
        "2026-10-03T15:00:00Z",
        &["2026-10-04T01:45:00+10:30", "2026-10-04T02:30:00+11:00", "2026-10-04T02:45:00+11:00"],
    );
    check(
        &cron("30 59 * * * *", BERLIN),
        "2026-10-25T00:00:00Z",
        &["2026-10-25T02:59:30+02:00 First", "2026-10-25T02:59:30+01:00 Second", "2026-10-25T03:59:30+01:00"],
    );
}

#[test]
fn a_day_without_midnight_has_its_midnight_slot() {
    // In Chile clocks go from 24:00 to 01:00, and back from 24:00 to 23:00.
    check(
        &cron("0 0 * * *", "America/Santiago"),
        "2026-09-05T12:00:00Z",
        &["2026-09-06T01:00:00-03:00 Moved", "2026-09-07T00:00:00-03:00"],
    );
    check(
        &cron("30 23 * * SAT", "America/Santiago"),
        "2026-04-04T12:00:00Z",
        &["2026-04-04T23:30:00-03:00 First", "2026-04-11T23:30:00-04:00"],
    );
}

#[test]
fn a_day_that_a_zone_left_out_is_due_when_the_next_begins() {
    // Samoa had no 30 December 2011.
    check(
        &cron("0 9 * * *", "Pacific/Apia"),
        "2011-12-29T12:00:00Z",
        &[
            "2011-12-29T09:00:00-10:00",
            "2011-12-31T00:00:00+14:00 Moved",
            "2011-12-31T09:00:00+14:00",
            "2012-01-01T09:00:00+14:00",
        ],
    );
}

#[test]
fn intervals_do_not_care_about_clocks() {
    check(
        &every(3_600, "2026-10-24T23:30:00Z"),
        "2026-10-24T23:30:00Z",
        &["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T02:30:00Z"],
    );
}

#[test]
fn utc_never_changes() {
    check(
        &cron("30 2 * * *", "UTC"),
        "2026-03-28T12:00:00Z",
        &["2026-03-29T02:30:00+00:00", "2026-03-30T02:30:00+00:00"],
    );
}
