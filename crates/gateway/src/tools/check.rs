//! What every argument goes through before it is kept.

use sea_orm::{DbErr, TryInsertResult, sea_query::LikeExpr};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::ToolError;

/// A text of at most `limit` bytes. PostgreSQL keeps no NUL in a text, so none is taken for SQLite either.
pub(super) fn text(what: &'static str, text: &str, limit: usize) -> Result<(), ToolError> {
    if text.len() > limit {
        return Err(ToolError::TooLarge { what, size: text.len(), limit });
    }
    if text.contains('\0') {
        return Err(ToolError::Invalid(format!("{what} holds a NUL character")));
    }
    Ok(())
}

/// A text that says something.
pub(super) fn words(what: &'static str, given: &str, limit: usize) -> Result<(), ToolError> {
    text(what, given, limit)?;
    if given.trim().is_empty() {
        return Err(ToolError::Invalid(format!("{what} is empty")));
    }
    Ok(())
}

pub(super) fn count(what: &'static str, count: usize, limit: usize) -> Result<(), ToolError> {
    if count > limit {
        return Err(ToolError::Invalid(format!("{count} {what} are given; at most {limit} are taken")));
    }
    Ok(())
}

/// A value as it is kept.
pub(super) fn json(what: &'static str, value: &Value, limit: usize) -> Result<String, ToolError> {
    let text = value.to_string();
    if text.len() > limit {
        return Err(ToolError::TooLarge { what, size: text.len(), limit });
    }
    Ok(text)
}

/// A key like `agents.project_manager.additional_context`.
pub(super) fn key(key: &str) -> Result<(), ToolError> {
    const LONGEST: usize = 128;
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
    };
    if key.len() <= LONGEST && key.split('.').all(is_part) {
        return Ok(());
    }
    Err(ToolError::Invalid(format!(
        "a key is made of a-z, 0-9, `_` and `-` in parts separated by dots, {LONGEST} bytes at most"
    )))
}

/// The beginning of a key, as a pattern. Nothing in a key but `_` means anything to LIKE, and that is made to mean itself.
pub(super) fn prefix(prefix: Option<&str>) -> Result<Option<LikeExpr>, ToolError> {
    const ESCAPE: char = '!';
    let Some(prefix) = prefix.filter(|prefix| !prefix.is_empty()) else { return Ok(None) };
    key(prefix.strip_suffix('.').unwrap_or(prefix))?;
    let pattern = format!("{}%", prefix.replace('_', "!_"));
    Ok(Some(LikeExpr::new(pattern).escape(ESCAPE)))
}

/// A name like `deploy-docs`.
pub(super) fn is_name(name: &str, longest: usize) -> bool {
    let ends_well = !name.starts_with('-') && !name.ends_with('-');
    let is_fine = |c: char| c == '-' || (c.is_alphanumeric() && c.to_lowercase().eq([c]));
    !name.is_empty() && name.len() <= longest && ends_well && name.chars().all(is_fine)
}

/// Optimistic concurrency: who decided on an older state decides again.
pub(super) fn version(what: &str, expected: Option<i64>, current: i64) -> Result<(), ToolError> {
    match expected {
        Some(expected) if expected != current => Err(ToolError::Conflict(format!(
            "{what} has version {current}, not {expected}: read it again, then decide again"
        ))),
        _ => Ok(()),
    }
}

/// What the store has of a closed set of words.
pub(super) fn stored<T: DeserializeOwned>(what: &str, text: &str) -> Result<T, ToolError> {
    serde_json::from_value(Value::from(text))
        .map_err(|_| ToolError::Store(DbErr::Type(format!("`{text}` is no {what}"))))
}

/// Whether the row is in, or something of the same name was there before.
pub(super) fn is_in(inserted: &TryInsertResult<u64>) -> bool {
    matches!(inserted, TryInsertResult::Inserted(rows) if *rows > 0)
}
