//! Cron expressions in a time zone.
//!
//! The expression is matched against the clock of the zone, without an offset; what a change of the clock
//! does is decided here. An expression that names its hours (`30 2 * * *`, `*/15 9-17 * * *`) is due once for
//! each time that it names: a time that the clock skips is due at the end of the gap, one that it shows twice
//! the first time. An expression with `*` in its hour field (`*/15 * * * *`, `0 */6 * * *`) is due at every
//! instant at which the clock shows a matching time: never in a gap, twice where the clock is put back.

use croner::{
    CronPattern, Weekday,
    errors::CronError,
    parser::{CronParser, Seconds, Year},
};
use jiff::{
    ToSpan,
    civil::{Date, DateTime, date},
};

use crate::{
    Error,
    zone::{Meaning, Zone},
};
use contract::schedule::FiringNote;

const MAX_EXPRESSION_BYTES: usize = 128;

/// A cron expression in a time zone. Instants are whole seconds since 1970, UTC.
#[derive(Clone, Debug)]
pub(crate) struct Cron {
    expression: String,
    pattern: croner::Cron,
    zone: Zone,
}

impl Cron {
    pub(crate) fn parse(expression: &str, zone: Zone) -> Result<Self, Error> {
        if expression.len() > MAX_EXPRESSION_BYTES || !expression.is_ascii() {
            return Err(Error::ExpressionTooLong(MAX_EXPRESSION_BYTES));
        }
        let expression = expression.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        let fields = expression.split(' ').filter(|field| !field.is_empty()).count();
        let is_nickname = expression.starts_with('@');
        if !is_nickname && !(5..=6).contains(&fields) {
            return Err(Error::Fields(fields));
        }
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let pattern = parser.parse(&expression).map_err(|error| Error::Expression(explain(&error)))?;
        let days: Vec<&str> = day_of_month(&expression).split(',').collect();
        if days.iter().any(|day| is_last_weekday(day)) && days.iter().any(|day| day.eq_ignore_ascii_case("L"))
        {
            let why = "`L` and `LW` do not go together; make two schedules of them";
            return Err(Error::Expression(why.to_owned()));
        }
        if !has_a_day(&pattern.pattern) {
            return Err(Error::NeverDue);
        }
        Ok(Self { expression, pattern, zone })
    }

    pub(crate) fn expression(&self) -> &str {
        &self.expression
    }

    pub(crate) fn zone(&self) -> &Zone {
        &self.zone
    }

    /// Describes the expression in English.
    pub(crate) fn describe(&self) -> String {
        let description = self.pattern.describe();
        // croner describes `LW` as it does `L`.
        if day_of_month(&self.expression).split(',').any(is_last_weekday) {
            return description
                .replace("last day of the month", "last weekday (Monday to Friday) of the month");
        }
        description
    }

    /// Returns whether the expression has `*` in its hour field.
    fn follows_clock(&self) -> bool {
        self.pattern.pattern.hours.from_wildcard
    }

    pub(crate) fn next_after(&self, second: i64) -> Option<i64> {
        if !self.follows_clock() {
            let mut clock = self.zone.clock_at(second)?;
            loop {
                clock = self.next_match(clock, false)?;
                // Where the clock is put back, a later time on the clock may be an earlier instant.
                let at = self.zone.meaning(clock)?.instant();
                if at > second {
                    return Some(at);
                }
            }
        }
        let mut from = second.checked_add(1)?;
        loop {
            let span = self.zone.span(from)?;
            let at = span.instant_of(self.next_match(span.clock_at(from)?, true)?)?;
            match span.end {
                Some(end) if at >= end => from = end,
                _ => return Some(at),
            }
        }
    }

    /// Returns the last slot up to an instant; `None` if there is none since `since`.
    pub(crate) fn latest_until(&self, second: i64, since: i64) -> Option<i64> {
        let is_since = |at: &i64| *at >= since;
        if !self.follows_clock() {
            let clock = self.latest_shown(second)?;
            return Some(self.zone.meaning(self.previous_match(clock)?)?.instant()).filter(is_since);
        }
        let mut until = second;
        while until >= since {
            let span = self.zone.span(until)?;
            let at = span.instant_of(self.previous_match(span.clock_at(until)?)?)?;
            match span.start {
                Some(start) if at < start => until = start.checked_sub(1)?,
                _ => return Some(at).filter(is_since),
            }
        }
        None
    }

    /// Returns what a change of the clock does to a slot.
    pub(crate) fn note(&self, second: i64) -> Option<FiringNote> {
        let clock = self.zone.clock_at(second)?;
        if !self.pattern.is_time_matching(&clock).unwrap_or(true) {
            return Some(FiringNote::Moved);
        }
        match self.zone.meaning(clock)? {
            Meaning::Twice { first, .. } if first == second => Some(FiringNote::First),
            Meaning::Twice { .. } => Some(FiringNote::Second),
            Meaning::Once(_) | Meaning::Never { .. } => None,
        }
    }

    /// Returns the latest time that the clock has shown up to an instant. While it shows times for the second
    /// time, that is the last one before it was put back.
    fn latest_shown(&self, second: i64) -> Option<DateTime> {
        let clock = self.zone.clock_at(second)?;
        match self.zone.meaning(clock)? {
            Meaning::Twice { first, .. } if first != second => {
                let change = self.zone.span(second)?.start?;
                self.zone.clock_at(change.checked_sub(1)?)
            }
            _ => Some(clock),
        }
    }

    fn next_match(&self, clock: DateTime, inclusive: bool) -> Option<DateTime> {
        self.pattern.find_next_occurrence(&clock, inclusive).ok()
    }

    fn previous_match(&self, clock: DateTime) -> Option<DateTime> {
        self.pattern.find_previous_occurrence(&clock, true).ok()
    }
}

/// Returns the field of an expression that names days of the month.
fn day_of_month(expression: &str) -> &str {
    let fields: Vec<&str> = expression.split(' ').collect();
    fields.len().checked_sub(3).and_then(|at| fields.get(at)).copied().unwrap_or_default()
}

/// Returns whether a part of a field is the last weekday of the month.
fn is_last_weekday(part: &str) -> bool {
    part.eq_ignore_ascii_case("LW")
}

/// Says in plain words why croner refuses an expression.
fn explain(error: &CronError) -> String {
    const NOT_A_WEEKDAY: &str = "`W` follows one day of the month, as in 15W, or `L`, as in LW";
    match error {
        CronError::EmptyPattern => "it is empty".to_owned(),
        CronError::IllegalCharacters(_) => {
            "a field has a character that it cannot have; `L` and `W` are for days".to_owned()
        }
        CronError::ComponentError(why) if why.contains("closest weekday") => NOT_A_WEEKDAY.to_owned(),
        CronError::InvalidPattern(why) | CronError::ComponentError(why) => {
            let mut letters = why.trim_end_matches('.').chars();
            letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
        }
        CronError::InvalidDate | CronError::InvalidTime | CronError::TimeSearchLimitExceeded => {
            "it names a time that there is not".to_owned()
        }
    }
}

/// Returns whether an expression matches any day. A search for the next match would look through thousands of
/// years before it gives up.
fn has_a_day(pattern: &CronPattern) -> bool {
    // In 28 years of which every fourth is a leap year, each date falls on each weekday.
    let days = date(2000, 1, 1).series(1.day()).take_while(|day| day.year() < 2028);
    let matches = |day: Date| {
        let weekday =
            Weekday::from_days_from_sunday(day.weekday().to_sunday_zero_offset().unsigned_abs().into());
        let (year, month, number) = (day.year().into(), day.month().unsigned_abs(), day.day().unsigned_abs());
        pattern.month_match(month.into()).unwrap_or(false)
            && pattern.day_match(year, month.into(), number.into(), weekday).unwrap_or(false)
    };
    days.into_iter().any(matches)
}
