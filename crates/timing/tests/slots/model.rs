//! Random cron expressions in many zones, compared with a search through every minute.

use std::collections::BTreeSet;

use jiff::{Timestamp, ToSpan, civil::DateTime, tz::TimeZone};
use proptest::{collection::btree_set, prelude::*, sample::select};

use super::cron;

const MINUTE: i64 = 60;
const DAY: i64 = 24 * 60 * MINUTE;
/// How far around a change of the clock all minutes are looked at.
const WINDOW: i64 = 2 * DAY;

/// Zones with all kinds of changes: of an hour, half an hour and two hours, at midnight, and none.
const ZONES: [&str; 12] = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Africa/Casablanca",
    "Asia/Gaza",
    "Antarctica/Troll",
    "America/Havana",
    "Atlantic/Azores",
    "Asia/Kathmandu",
    "Pacific/Chatham",
    "UTC",
];

/// The fields of an expression as sets, apart from how the expression is searched.
#[derive(Clone, Debug)]
struct Fields {
    minutes: BTreeSet<i8>,
    /// `None`: `*`.
    hours: Option<BTreeSet<i8>>,
    days: Option<BTreeSet<i8>>,
    weekdays: Option<BTreeSet<i8>>,
}

impl Fields {
    fn expression(&self) -> String {
        let list = |set: &BTreeSet<i8>| set.iter().map(i8::to_string).collect::<Vec<_>>().join(",");
        let field = |set: &Option<BTreeSet<i8>>| set.as_ref().map_or("*".to_owned(), list);
        let Self { minutes, hours, days, weekdays } = self;
        format!("{} {} {} * {}", list(minutes), field(hours), field(days), field(weekdays))
    }

    fn matches(&self, clock: DateTime) -> bool {
        let has = |set: &Option<BTreeSet<i8>>, value: i8| set.as_ref().is_none_or(|set| set.contains(&value));
        let day = has(&self.days, clock.day());
        let weekday = has(&self.weekdays, clock.weekday().to_sunday_zero_offset());
        let is_day = match (&self.days, &self.weekdays) {
            // As in cron: one of the two is enough.
            (Some(_), Some(_)) => day || weekday,
            _ => day && weekday,
        };
        is_day && has(&self.hours, clock.hour()) && self.minutes.contains(&clock.minute())
    }

    /// Returns all slots of a window, found without any search.
    fn slots(&self, zone: &TimeZone, from: i64, until: i64) -> BTreeSet<i64> {
        let clock_at = |second: i64| zone.to_datetime(Timestamp::from_second(second).unwrap());
        let instants: Vec<i64> = (from..=until).step_by(60).collect();
        if self.hours.is_none() {
            return instants.into_iter().filter(|at| self.matches(clock_at(*at))).collect();
        }
        let mut slots = BTreeSet::new();
        let mut named = clock_at(from);
        // The instant at which the clock first shows the named time, or first shows a later one.
        let mut at = from;
        while at <= until {
            if clock_at(at) < named {
                at += MINUTE;
                continue;
            }
            if self.matches(named) {
                slots.insert(at);
            }
            named = named.checked_add(1.minute()).unwrap();
        }
        slots
    }
}

fn fields() -> impl Strategy<Value = Fields> {
    let minutes = btree_set(0..60_i8, 1..4);
    let hours = prop::option::of(btree_set(0..24_i8, 1..5));
    // The hours where clocks change are the interesting ones.
    let night = prop::option::of(btree_set(0..4_i8, 1..4));
    let days = prop::option::weighted(0.2, btree_set(1..32_i8, 1..9));
    let weekdays = prop::option::weighted(0.2, btree_set(0..7_i8, 1..5));
    (minutes, prop_oneof![hours, night], days, weekdays).prop_map(|(minutes, hours, days, weekdays)| Fields {
        minutes,
        hours,
        days,
        weekdays,
    })
}

/// Returns a whole minute at or near a change of the clock between 2020 and 2037.
fn near_change(zone: &TimeZone, nth: usize) -> i64 {
    let begin = Timestamp::from_second(1_577_836_800).unwrap();
    let at = zone.following(begin).nth(nth).map_or(begin, |change| change.timestamp());
    at.as_second().div_euclid(MINUTE) * MINUTE
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn slots_are_those_that_a_look_at_every_minute_finds(
        fields in fields(), name in select(&ZONES), nth in 0..30_usize,
    ) {
        let zone = TimeZone::get(name).unwrap();
        let change = near_change(&zone, nth);
        // A margin, since a slot in the window may be named outside of it.
        let (from, until) = (change - WINDOW, change + WINDOW);
        let expected = fields.slots(&zone, from - DAY, until + DAY);
        let expected: Vec<i64> = expected.into_iter().filter(|at| (from + 1..=until).contains(at)).collect();
        let timing = cron(&fields.expression(), name);
        let us = |second: i64| second * 1_000_000;
        let found = std::iter::successors(timing.next_after(us(from)), |at| timing.next_after(*at));
        let found: Vec<i64> = found.take_while(|at| *at <= us(until)).map(|at| at / 1_000_000).collect();
        prop_assert_eq!(&found, &expected, "{} in {}", fields.expression(), name);
        // Backwards from any instant it is the same.
        let back = std::iter::successors(timing.latest_until(us(until), us(from + 1)), |at| {
            timing.latest_until(at - 1, us(from + 1))
        });
        let mut back: Vec<i64> = back.map(|at| at / 1_000_000).collect();
        back.reverse();
        prop_assert_eq!(&back, &expected, "{} in {}, backwards", fields.expression(), name);
        for probe in (from..until).step_by(1_777) {
            let next = expected.iter().copied().find(|at| *at > probe);
            let latest = expected.iter().copied().rfind(|at| *at <= probe);
            if let Some(next) = next {
                prop_assert_eq!(timing.next_after(us(probe) + 999_999), Some(us(next)));
            }
            prop_assert_eq!(timing.latest_until(us(probe) + 999_999, us(from + 1)), latest.map(us));
        }
    }
}
