//! Validates arguments before they are stored, and reads stored values back.

use sea_orm::{DbErr, TryInsertResult, sea_query::LikeExpr};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::ToolError;

/// Checks that a text has at most `limit` bytes and no NUL. PostgreSQL cannot store a NUL in a text, so it is
/// refused with SQLite as well.
pub(crate) fn text(what: &'static str, text: &str, limit: usize) -> Result<(), ToolError> {
    if text.len() > limit {
        return Err(ToolError::TooLarge { what, size: text.len(), limit });
    }
    if text.contains('\0') {
        return Err(ToolError::Invalid(format!("{what} holds a NUL character")));
    }
    Ok(())
}

/// Checks a text like [`text`], and that it is not blank.
pub(crate) fn non_blank(what: &'static str, given: &str, limit: usize) -> Result<(), ToolError> {
    text(what, given, limit)?;
    if given.trim().is_empty() {
        return Err(ToolError::Invalid(format!("{what} is empty")));
    }
    Ok(())
}

/// Checks that at most `limit` items are given.
pub(crate) fn count(what: &str, count: usize, limit: usize) -> Result<(), ToolError> {
    if count > limit {
        return Err(ToolError::Invalid(format!("{count} {what} are given; at most {limit} are taken")));
    }
    Ok(())
}

/// Returns a value as the JSON text that is stored, of at most `limit` bytes.
pub(crate) fn to_json(what: &'static str, value: &Value, limit: usize) -> Result<String, ToolError> {
    let text = value.to_string();
    if text.len() > limit {
        return Err(ToolError::TooLarge { what, size: text.len(), limit });
    }
    Ok(text)
}

/// Checks a key such as `agents.project_manager.additional_context`.
pub(crate) fn key(key: &str) -> Result<(), ToolError> {
    const MAX_KEY_BYTES: usize = 128;
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
    };
    if key.len() <= MAX_KEY_BYTES && key.split('.').all(is_part) {
        return Ok(());
    }
    Err(ToolError::Invalid(format!(
        "a key is made of a-z, 0-9, `_` and `-` in parts separated by dots, {MAX_KEY_BYTES} bytes at most"
    )))
}

/// Returns a LIKE pattern for keys with this prefix; `None` for an empty prefix. Of the characters in a key
/// only `_` is special in LIKE, and it is escaped.
pub(crate) fn key_prefix(prefix: Option<&str>) -> Result<Option<LikeExpr>, ToolError> {
    const ESCAPE: char = '!';
    let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty()) else { return Ok(None) };
    key(prefix.strip_suffix('.').unwrap_or(prefix))?;
    let pattern = format!("{}%", prefix.replace('_', "!_"));
    Ok(Some(LikeExpr::new(pattern).escape(ESCAPE)))
}

/// Returns whether a text is a name such as `deploy-docs`, of at most `max_bytes` bytes.
pub(crate) fn is_name(name: &str, max_bytes: usize) -> bool {
    let has_valid_ends = !name.starts_with('-') && !name.ends_with('-');
    let is_valid = |c: char| c == '-' || (c.is_alphanumeric() && c.to_lowercase().eq([c]));
    !name.is_empty() && name.len() <= max_bytes && has_valid_ends && name.chars().all(is_valid)
}

/// Optimistic concurrency: fails with a conflict unless the current version is the expected one. `None`
/// accepts any version.
pub(crate) fn version(what: &str, expected: Option<i64>, current: i64) -> Result<(), ToolError> {
    match expected {
        Some(expected) if expected != current => Err(ToolError::Conflict(format!(
            "{what} has version {current}, not {expected}: read it again, then decide again"
        ))),
        _ => Ok(()),
    }
}

/// Parses a stored text as a variant of an enum. Any other text is a store error.
pub(crate) fn parse_stored<T: DeserializeOwned>(what: &str, text: &str) -> Result<T, ToolError> {
    serde_json::from_value(Value::from(text))
        .map_err(|_| ToolError::Store(DbErr::Type(format!("`{text}` is not a {what}"))))
}

/// Returns whether an insert added its row, as opposed to finding the key taken.
pub(crate) fn was_inserted(inserted: &TryInsertResult<u64>) -> bool {
    matches!(inserted, TryInsertResult::Inserted(rows) if *rows > 0)
}
