//! Time zones: what their clocks show, and which instants a time on the clock means.

use std::sync::LazyLock;

use jiff::{
    Timestamp,
    civil::DateTime,
    tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase},
};

use crate::Error;

/// The longest name in an error.
const MAX_NAME_CHARS: usize = 64;

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Returns the names of all time zones, in alphabetical order.
pub fn zone_names() -> Vec<String> {
    let mut names: Vec<String> = ZONES.available().map(|name| name.as_str().to_owned()).collect();
    names.sort();
    names
}

/// A time zone of the IANA database. Instants are whole seconds since 1970, UTC.
#[derive(Clone, Debug)]
pub(crate) struct Zone(TimeZone);

/// The instants that a time on the clock means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Once(i64),
    /// The clock is put back and shows this time twice.
    Twice {
        first: i64,
        second: i64,
    },
    /// The clock is put forward and never shows this time.
    Never {
        gap_end: i64,
    },
}

impl Meaning {
    /// Returns the one instant that stands for the time: the first of two, or the end of the gap.
    pub(crate) fn instant(self) -> i64 {
        match self {
            Self::Once(at) | Self::Twice { first: at, .. } | Self::Never { gap_end: at } => at,
        }
    }
}

/// A span of time in which the offset of a zone from UTC does not change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    offset: Offset,
    /// Its first second; `None` if it has no beginning.
    pub(crate) start: Option<i64>,
    /// The first second after it; `None` if it has no end.
    pub(crate) end: Option<i64>,
}

impl Span {
    /// Returns what the clock shows at an instant of the span.
    pub(crate) fn clock_at(self, second: i64) -> Option<DateTime> {
        Some(self.offset.to_datetime(Timestamp::from_second(second).ok()?))
    }

    /// Returns when the clock would show a time if the span had no end.
    pub(crate) fn instant_of(self, clock: DateTime) -> Option<i64> {
        Some(self.offset.to_timestamp(clock).ok()?.as_second())
    }
}

impl Zone {
    /// Parses an IANA name, in upper or lower case.
    pub(crate) fn parse(name: &str) -> Result<Self, Error> {
        let unknown = || Error::UnknownZone(name.chars().take(MAX_NAME_CHARS).collect());
        let zone = ZONES.get(name).map_err(|_| unknown())?;
        if zone.is_unknown() || zone.iana_name().is_none() {
            return Err(unknown());
        }
        Ok(Self(zone))
    }

    /// Returns the name as the database writes it.
    pub(crate) fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    pub(crate) fn clock_at(&self, second: i64) -> Option<DateTime> {
        Some(self.0.to_datetime(Timestamp::from_second(second).ok()?))
    }

    /// Formats an instant as the clock shows it, with the offset from UTC.
    pub(crate) fn format(&self, us: i64) -> String {
        match Timestamp::from_microsecond(us) {
            Ok(at) => at.display_with_offset(self.0.to_offset(at)).to_string(),
            Err(_) => String::new(),
        }
    }

    pub(crate) fn meaning(&self, clock: DateTime) -> Option<Meaning> {
        let instant = |offset: Offset| Some(offset.to_timestamp(clock).ok()?.as_second());
        match self.0.to_ambiguous_timestamp(clock).offset() {
            AmbiguousOffset::Unambiguous { offset } => instant(offset).map(Meaning::Once),
            AmbiguousOffset::Fold { before, after } => {
                Some(Meaning::Twice { first: instant(before)?, second: instant(after)? })
            }
            // With the offset before the gap, the time lies at or after the change of the clock.
            AmbiguousOffset::Gap { before, .. } => {
                let gap_end = self.last_change(instant(before)?)?;
                Some(Meaning::Never { gap_end })
            }
        }
    }

    /// Returns the span that an instant is in.
    pub(crate) fn span(&self, second: i64) -> Option<Span> {
        let at = Timestamp::from_second(second).ok()?;
        let end = self.0.following(at).next().map(|change| change.timestamp().as_second());
        Some(Span { offset: self.0.to_offset(at), start: self.last_change(second), end })
    }

    /// Returns when the zone last changed something, at an instant or before it.
    fn last_change(&self, second: i64) -> Option<i64> {
        let after = Timestamp::from_second(second.checked_add(1)?).ok()?;
        self.0.preceding(after).next().map(|change| change.timestamp().as_second())
    }
}
