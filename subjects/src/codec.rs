//! JSON and MessagePack encoding of message bodies.

use std::fmt;

use serde::{Serialize, de::DeserializeOwned};

/// The encoding of a message body. An answer uses the encoding of its handoff.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    #[default]
    Json,
    /// MessagePack with named fields.
    MessagePack,
}

impl Encoding {
    pub const ALL: [Self; 2] = [Self::Json, Self::MessagePack];

    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::MessagePack => "application/msgpack",
        }
    }

    /// Parses a `Content-Type` header. No header means JSON; parameters such as `charset` are ignored.
    pub fn from_content_type(header: Option<&str>) -> Result<Self, UnknownContentType> {
        let Some(header) = header else { return Ok(Self::Json) };
        let essence = header.split(';').next().unwrap_or_default().trim();
        Self::ALL
            .into_iter()
            .find(|encoding| essence.eq_ignore_ascii_case(encoding.content_type()))
            .ok_or(UnknownContentType)
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.content_type())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the content type is neither application/json nor application/msgpack")]
pub struct UnknownContentType;

#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    #[error("unexpected JSON")]
    Json(#[from] serde_json::Error),
    #[error("unexpected MessagePack")]
    ReadMessagePack(#[from] rmp_serde::decode::Error),
    #[error("encoding MessagePack")]
    WriteMessagePack(#[from] rmp_serde::encode::Error),
}

impl CodecError {
    /// Returns the underlying error as one line, for the author of the body.
    pub fn describe(&self) -> String {
        match self {
            Self::Json(error) => error.to_string(),
            Self::ReadMessagePack(error) => error.to_string(),
            Self::WriteMessagePack(error) => error.to_string(),
        }
    }
}

pub fn encode<T: Serialize>(encoding: Encoding, value: &T) -> Result<Vec<u8>, CodecError> {
    // The size of a typical message, to avoid reallocations.
    const TYPICAL_BYTES: usize = 2048;
    Ok(match encoding {
        Encoding::Json => {
            let mut out = Vec::with_capacity(TYPICAL_BYTES);
            serde_json::to_writer(&mut out, value)?;
            out
        }
        Encoding::MessagePack => rmp_serde::to_vec_named(value)?,
    })
}

/// Decodes a body from a trusted source, such as an answer or an event, without checking structural limits.
/// Handoffs are decoded with [`crate::Handoff::decode`].
pub fn decode<T: DeserializeOwned>(encoding: Encoding, body: &[u8]) -> Result<T, CodecError> {
    Ok(match encoding {
        // Validating UTF-8 once for the whole body is faster than once for each string.
        Encoding::Json => match std::str::from_utf8(body) {
            Ok(text) => serde_json::from_str(text)?,
            Err(_) => serde_json::from_slice(body)?,
        },
        Encoding::MessagePack => rmp_serde::from_slice(body)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types_are_parsed_without_regard_to_case_and_parameters() {
        let read = Encoding::from_content_type;
        assert_eq!(read(None), Ok(Encoding::Json));
        assert_eq!(read(Some("application/json; charset=utf-8")), Ok(Encoding::Json));
        assert_eq!(read(Some("Application/MsgPack")), Ok(Encoding::MessagePack));
        assert_eq!(read(Some("text/plain")), Err(UnknownContentType));
        assert_eq!(read(Some("")), Err(UnknownContentType));
    }
}
