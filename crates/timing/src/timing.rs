//! The timing of a schedule, checked.

use contract::schedule::{self, Firing};
use jiff::{
    Timestamp,
    civil::{Date, DateTime},
};

use crate::{
    Error, SECOND_US,
    cron::Cron,
    interval::Interval,
    zone::{Meaning, Zone},
};
use contract::schedule::FiringNote;

/// The longest text of a time in an error.
const MAX_TIME_CHARS: usize = 64;
/// How long a date is: `2026-10-25`.
const DATE_CHARS: usize = 10;
/// How many slots of a cron expression are counted at most.
pub(crate) const MAX_COUNTED: u64 = 1_000;

/// When a schedule is due. Its due times are its slots, in microseconds since 1970, UTC.
#[derive(Clone, Debug)]
pub struct Timing(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Cron(Box<Cron>),
    Interval(Interval),
    Once { at: i64, zone: Zone, note: Option<FiringNote> },
}

impl Timing {
    /// Parses a timing. An interval without a beginning starts one interval after `now`.
    pub fn parse(given: &schedule::Timing, now: i64) -> Result<Self, Error> {
        Ok(Self(match given {
            schedule::Timing::Cron { expression, time_zone } => {
                Kind::Cron(Box::new(Cron::parse(expression, Zone::parse(time_zone)?)?))
            }
            schedule::Timing::Interval { every_seconds, starting_at } => {
                let start = match starting_at {
                    Some(text) => parse_instant(text)?,
                    // A whole second, as those of a cron expression are.
                    None => {
                        let every = i64::try_from(*every_seconds).unwrap_or(i64::MAX);
                        now.div_euclid(SECOND_US).saturating_add(every).saturating_mul(SECOND_US)
                    }
                };
                Kind::Interval(Interval::new(*every_seconds, start)?)
            }
            schedule::Timing::Once { at, time_zone } => {
                let zone = Zone::parse(time_zone.as_deref().unwrap_or("UTC"))?;
                let (at, note) = parse_in_zone(at, &zone)?;
                Kind::Once { at, zone, note }
            }
        }))
    }

    /// Returns the timing as it is stored: with the beginning of an interval, and names of zones as the
    /// database writes them.
    pub fn to_contract(&self) -> schedule::Timing {
        match &self.0 {
            Kind::Cron(cron) => schedule::Timing::Cron {
                expression: cron.expression().to_owned(),
                time_zone: cron.zone().name().to_owned(),
            },
            Kind::Interval(interval) => schedule::Timing::Interval {
                every_seconds: interval.every_seconds(),
                starting_at: Some(format_utc(interval.start)),
            },
            Kind::Once { at, zone, .. } => {
                schedule::Timing::Once { at: zone.format(*at), time_zone: Some(zone.name().to_owned()) }
            }
        }
    }

    /// Returns the first slot after an instant; `None` if there is none.
    pub fn next_after(&self, at: i64) -> Option<i64> {
        match &self.0 {
            Kind::Cron(cron) => cron.next_after(at.div_euclid(SECOND_US))?.checked_mul(SECOND_US),
            Kind::Interval(interval) => interval.next_after(at).filter(|at| !format_utc(*at).is_empty()),
            Kind::Once { at: once, .. } => Some(*once).filter(|once| *once > at),
        }
    }

    /// Returns the last slot up to an instant; `None` if there is none since `since`.
    pub fn latest_until(&self, at: i64, since: i64) -> Option<i64> {
        match &self.0 {
            Kind::Cron(cron) => {
                let since = -(-since).div_euclid(SECOND_US);
                cron.latest_until(at.div_euclid(SECOND_US), since)?.checked_mul(SECOND_US)
            }
            Kind::Interval(interval) => interval.latest_until(at).filter(|slot| *slot >= since),
            Kind::Once { at: once, .. } => Some(*once).filter(|once| (since..=at).contains(once)),
        }
    }

    /// Returns how many slots there are from one slot to another, both included; at most 1000 of a cron
    /// expression.
    pub(crate) fn count(&self, first: i64, last: i64) -> u64 {
        if let Kind::Interval(interval) = &self.0 {
            return interval.count(first, last);
        }
        let (mut slots, mut at) = (1, first);
        while slots < MAX_COUNTED {
            match self.next_after(at) {
                Some(next) if next <= last => (slots, at) = (slots + 1, next),
                _ => break,
            }
        }
        slots
    }

    /// Describes the timing in English.
    pub fn describe(&self) -> String {
        match &self.0 {
            Kind::Cron(cron) => format!("{} ({})", cron.describe().trim_end_matches('.'), cron.zone().name()),
            Kind::Interval(interval) => interval.describe(),
            Kind::Once { at, zone, .. } => format!("Once, at {} ({})", zone.format(*at), zone.name()),
        }
    }

    /// Returns the next firings after an instant, at most `count`.
    pub fn firings(&self, after: i64, count: usize) -> Vec<Firing> {
        let slots = std::iter::successors(self.next_after(after), |at| self.next_after(*at));
        slots.take(count).map(|at| self.firing(at)).collect()
    }

    fn firing(&self, at: i64) -> Firing {
        let (local, note) = match &self.0 {
            Kind::Cron(cron) => (cron.zone().format(at), cron.note(at.div_euclid(SECOND_US))),
            Kind::Interval(_) => (format_utc(at), None),
            Kind::Once { zone, note, .. } => (zone.format(at), *note),
        };
        Firing { at: format_utc(at), local, note }
    }
}

/// Parses a time with an offset, in RFC 3339.
fn parse_instant(text: &str) -> Result<i64, Error> {
    text.parse::<Timestamp>().map(Timestamp::as_microsecond).map_err(|_| invalid_time(text))
}

/// Parses a time with an offset, or one by the clock of a zone.
fn parse_in_zone(text: &str, zone: &Zone) -> Result<(i64, Option<FiringNote>), Error> {
    if let Ok(at) = parse_instant(text) {
        return Ok((at, None));
    }
    let clock: DateTime = text.parse().map_err(|_| invalid_time(text))?;
    let meaning = zone.meaning(clock).ok_or_else(|| invalid_time(text))?;
    let note = match meaning {
        Meaning::Once(_) => None,
        Meaning::Twice { .. } => Some(FiringNote::First),
        Meaning::Never { .. } => Some(FiringNote::Moved),
    };
    let at = meaning.instant().checked_mul(SECOND_US).ok_or_else(|| invalid_time(text))?;
    Ok((at, note))
}

fn invalid_time(text: &str) -> Error {
    let shown = text.chars().take(MAX_TIME_CHARS).collect();
    // The last days of the year 9999 have no instant in every time zone.
    let date = text.get(..DATE_CHARS).and_then(|date| date.parse::<Date>().ok());
    if date.is_some_and(|date| date.year() >= 9999) { Error::TooLate(shown) } else { Error::Time(shown) }
}

fn format_utc(us: i64) -> String {
    Timestamp::from_microsecond(us).map_or_else(|_| String::new(), |at| at.to_string())
}
