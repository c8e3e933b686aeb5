//! Parses log lines of our programs, in text or JSON format.

use serde_json::Value;

/// Returns the lines with this message.
pub(crate) fn lines_with<'l>(log: &'l str, message: &str) -> impl Iterator<Item = &'l str> {
    let (json, text) = (format!("\"message\":\"{message}\""), format!(" {message}"));
    log.lines()
        .filter(move |line| if line.starts_with('{') { line.contains(&json) } else { line.contains(&text) })
}

/// Returns a field of a line.
pub(crate) fn field(line: &str, name: &str) -> Option<String> {
    if line.starts_with('{') {
        let line: Value = serde_json::from_str(line).ok()?;
        return Some(line[name].as_str()?.to_owned());
    }
    line.split(' ')
        .find_map(|word| Some(word.strip_prefix(name)?.strip_prefix('=')?.trim_matches('"').to_owned()))
}
