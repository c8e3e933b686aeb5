//! Validation of input fields, shared by the operations.

use std::time::Duration;

use subjects::ScopeId;

use super::Error;

const MAX_ID_BYTES: usize = 128;
const MAX_LABEL_CHARS: usize = 200;

/// Trims and checks an id. Ids appear in audit rows and on pages, so only printable ASCII is accepted.
pub(super) fn id(field: &'static str, text: &str) -> Result<String, Error> {
    let text = text.trim();
    if (1..=MAX_ID_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    let message = format!("must be 1 to {MAX_ID_BYTES} printable ASCII characters without spaces");
    Err(Error::invalid(field, message))
}

/// Trims an optional text that narrows what is made. An empty one is refused: it is more likely a variable
/// that is not set than the wish for the wider thing.
pub(super) fn narrowing<'t>(field: &'static str, text: Option<&'t str>) -> Result<Option<&'t str>, Error> {
    match text.map(str::trim) {
        Some("") => Err(Error::invalid(field, "is empty: omit it, or name one")),
        text => Ok(text),
    }
}

/// Like [`id`], for an optional field, which may not be empty.
pub(super) fn optional_id(field: &'static str, text: Option<&str>) -> Result<Option<String>, Error> {
    narrowing(field, text)?.map(|text| id(field, text)).transpose()
}

/// Parses the id of a user, project or task, if it is given.
pub(super) fn scope_id(field: &'static str, text: Option<&str>) -> Result<Option<ScopeId>, Error> {
    let parsed = narrowing(field, text)?.map(str::parse::<ScopeId>).transpose();
    parsed.map_err(|error| Error::invalid(field, error.to_string()))
}

/// Trims and checks a text for people: one line, not empty, without control or hidden characters.
pub(super) fn line(field: &'static str, text: &str) -> Result<String, Error> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Error::invalid(field, "must not be empty"));
    }
    if text.chars().count() > MAX_LABEL_CHARS {
        return Err(Error::invalid(field, format!("must have at most {MAX_LABEL_CHARS} characters")));
    }
    if text.chars().any(char::is_control) || registry::sanitize::text(text) != text {
        return Err(Error::invalid(field, "must be one line without hidden characters"));
    }
    Ok(text.to_owned())
}

/// Refuses a name that contains a secret: names are stored as they are. Does not repeat it.
pub(super) fn no_secret(field: &'static str, name: &str) -> Result<(), Error> {
    match secrets::find_in_name(name) {
        None => Ok(()),
        Some(kind) => {
            let why = format!("contains a secret ({kind}); names are stored as they are, so choose another");
            Err(Error::invalid(field, why))
        }
    }
}

/// Parses a duration such as `30s` and checks that it lies between `min` and `max`.
pub(super) fn duration(
    field: &'static str,
    text: &str,
    min: Duration,
    max: Duration,
) -> Result<Duration, Error> {
    let parsed = humantime::parse_duration(text.trim());
    let parsed =
        parsed.map_err(|_| Error::invalid(field, "is not a duration; use for example 30s, 12h or 30days"))?;
    if parsed < min || parsed > max {
        let (min, max) = (humantime::format_duration(min), format_days(max));
        return Err(Error::invalid(field, format!("must be between {min} and {max}")));
    }
    Ok(parsed)
}

/// Formats whole days as days, where humantime would use months and hours.
pub(super) fn format_days(duration: Duration) -> String {
    const DAY: u64 = 24 * 60 * 60;
    match duration.as_secs() {
        DAY => "1day".to_owned(),
        seconds if seconds % DAY == 0 => format!("{}days", seconds / DAY),
        _ => humantime::format_duration(duration).to_string(),
    }
}
