use std::time::Duration;

use super::Error;

const LONGEST_ID: usize = 128;
const LONGEST_LABEL: usize = 200;

/// Ids end up in audit rows and on pages: printable ASCII, and not endless.
pub(super) fn id(field: &'static str, text: &str) -> Result<String, Error> {
    let text = text.trim();
    if (1..=LONGEST_ID).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    let right = format!("must be 1 to {LONGEST_ID} printable ASCII characters without spaces");
    Err(Error::invalid(field, right))
}

/// An empty field of a form is one that was not filled in.
pub(super) fn optional_id(field: &'static str, text: Option<&str>) -> Result<Option<String>, Error> {
    text.map(str::trim).filter(|text| !text.is_empty()).map(|text| id(field, text)).transpose()
}

/// A line for people: something to read, nothing that moves a cursor.
pub(super) fn line(field: &'static str, text: &str) -> Result<String, Error> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Error::invalid(field, "must not be empty"));
    }
    if text.chars().count() > LONGEST_LABEL {
        return Err(Error::invalid(field, format!("must have at most {LONGEST_LABEL} characters")));
    }
    if text.chars().any(char::is_control) || crate::sanitize::text(text) != text {
        return Err(Error::invalid(field, "must be one line without hidden characters"));
    }
    Ok(text.to_owned())
}

pub(super) fn duration(
    field: &'static str,
    text: &str,
    shortest: Duration,
    longest: Duration,
) -> Result<Duration, Error> {
    let parsed = humantime::parse_duration(text.trim());
    let parsed =
        parsed.map_err(|_| Error::invalid(field, "is no duration; write one as 30s, 12h or 30days"))?;
    if parsed < shortest || parsed > longest {
        let (shortest, longest) = (humantime::format_duration(shortest), days(longest));
        return Err(Error::invalid(field, format!("must be between {shortest} and {longest}")));
    }
    Ok(parsed)
}

/// What humantime would call a month and eleven hours.
pub(super) fn days(duration: Duration) -> String {
    const DAY: u64 = 24 * 60 * 60;
    match duration.as_secs() {
        DAY => "1day".to_owned(),
        seconds if seconds % DAY == 0 => format!("{}days", seconds / DAY),
        _ => humantime::format_duration(duration).to_string(),
    }
}
