//! RFC 3339 timestamps that keep their original text.

use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::text::kept_as_text;

/// An RFC 3339 timestamp that keeps the text it was parsed from.
///
/// A signature covers `issued_at` as text. Parsing and formatting could change that text (`+00:00` becomes
/// `Z`) and so invalidate a correct signature.
#[derive(Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct Timestamp {
    written: Box<str>,
    at: OffsetDateTime,
}

impl Timestamp {
    pub fn new(at: OffsetDateTime) -> Result<Self, TimestampError> {
        let written = at.format(&Rfc3339).map_err(|_| TimestampError)?;
        Ok(Self { written: written.into(), at })
    }

    /// Returns the current time in UTC, truncated to milliseconds.
    pub fn now() -> Self {
        let now = OffsetDateTime::now_utc();
        let now = now.replace_millisecond(now.millisecond()).unwrap_or(now);
        Self::new(now).unwrap_or_else(|_| Self::epoch())
    }

    /// Returns 1970-01-01T00:00:00Z, for when the actual time is not known.
    pub fn epoch() -> Self {
        Self { written: "1970-01-01T00:00:00Z".into(), at: OffsetDateTime::UNIX_EPOCH }
    }

    pub fn at(&self) -> OffsetDateTime {
        self.at
    }
}

kept_as_text!(Timestamp, written, TimestampError);

impl PartialEq for Timestamp {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

impl Eq for Timestamp {}

impl FromStr for Timestamp {
    type Err = TimestampError;

    fn from_str(text: &str) -> Result<Self, TimestampError> {
        let at = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| TimestampError)?;
        Ok(Self { written: text.into(), at })
    }
}

impl JsonSchema for Timestamp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a time is written as RFC 3339, as in 2026-11-14T10:00:00Z")]
pub struct TimestampError;
