//! Times, durations, numbers and prices in readable form.

use maud::{Markup, html};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use store::clock;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// Renders a time, given in microseconds since 1970, relative to now.
pub(super) fn time(micros: i64) -> Markup {
    let at = clock::from_micros(micros);
    html! {
        time datetime=(clock::text(micros)) title=(exact_time(at)) {
            (relative(at, clock::from_micros(clock::now())))
        }
    }
}

/// Renders an RFC 3339 time as returned by operations, relative to now.
pub(super) fn timestamp(rfc3339: &str) -> Markup {
    match OffsetDateTime::parse(rfc3339, &Rfc3339) {
        Ok(at) => self::time(clock::micros(at)),
        Err(_) => html! { (rfc3339) },
    }
}

pub(super) fn exact_time(at: OffsetDateTime) -> String {
    let (date, time) = (at.date(), at.time());
    let (hour, minute, second) = time.as_hms();
    format!("{date} {hour:02}:{minute:02}:{second:02}.{:03} UTC", time.millisecond())
}

fn relative(at: OffsetDateTime, now: OffsetDateTime) -> String {
    let seconds = (now - at).whole_seconds();
    let (size, is_past) = (seconds.abs(), seconds >= 0);
    let span = match size {
        0..5 => return if is_past { "just now" } else { "in a moment" }.to_owned(),
        5..MINUTE => format!("{size} s"),
        MINUTE..HOUR => format!("{} min", rounded(size, MINUTE)),
        HOUR..DAY => format!("{} h", rounded(size, HOUR)),
        DAY.. if rounded(size, DAY) == 1 => "1 day".to_owned(),
        DAY.. if size < 60 * DAY => format!("{} days", rounded(size, DAY)),
        DAY.. if size < 700 * DAY => format!("{} months", rounded(size, 30 * DAY)),
        _ => format!("{} years", rounded(size, 365 * DAY)),
    };
    if is_past { format!("{span} ago") } else { format!("in {span}") }
}

/// Rounds to the nearest unit: a token that was just issued for 30 days expires in 30 days, not in 29.
fn rounded(size: i64, unit: i64) -> i64 {
    (size + unit / 2) / unit
}

/// Formats a duration in microseconds.
pub(super) fn duration(micros: i64) -> String {
    match micros {
        ..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{} ms", micros / 1_000),
        1_000_000..60_000_000 => format!("{}.{} s", micros / 1_000_000, micros % 1_000_000 / 100_000),
        60_000_000..3_600_000_000 => format!("{} min {} s", micros / 60_000_000, micros / 1_000_000 % 60),
        _ => format!("{} h {} min", micros / 3_600_000_000, micros / 60_000_000 % 60),
    }
}

/// Formats a number with thousands separators.
pub(super) fn number(count: i64) -> String {
    let digits = count.unsigned_abs().to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if count < 0 { format!("-{out}") } else { out }
}

/// Formats a price; small amounts get four decimals.
pub(super) fn dollars(amount: f64) -> String {
    if amount == 0.0 || amount.abs() >= 0.01 { format!("${amount:.2}") } else { format!("${amount:.4}") }
}

/// Formats a count with the singular or plural noun.
pub(super) fn count(count: usize, one: &str, several: &str) -> String {
    let word = if count == 1 { one } else { several };
    format!("{} {word}", number(i64::try_from(count).unwrap_or(i64::MAX)))
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::*;

    #[test]
    fn times_are_relative_and_rounded() {
        let now = OffsetDateTime::UNIX_EPOCH + Duration::days(1000);
        for (seconds, expected) in [
            (0, "just now"),
            (-59, "59 s ago"),
            (-60, "1 min ago"),
            (-3 * HOUR, "3 h ago"),
            (-DAY, "1 day ago"),
            (30 * DAY - 7, "in 30 days"),
            (30 * DAY, "in 30 days"),
            (365 * DAY, "in 12 months"),
            (36_500 * DAY, "in 100 years"),
            (2, "in a moment"),
        ] {
            assert_eq!(relative(now + Duration::seconds(seconds), now), expected);
        }
    }

    #[test]
    fn numbers_durations_and_prices_are_formatted() {
        for (count, expected) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(number(count), expected);
        }
        assert_eq!(duration(1_250_000), "1.2 s");
        assert_eq!(duration(125_000_000), "2 min 5 s");
        assert_eq!([0.0, 0.00123, 1.5].map(dollars), ["$0.00", "$0.0012", "$1.50"]);
    }
}
