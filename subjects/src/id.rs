use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Names one handoff for ever. Written as a lowercase hyphenated UUID, so that it is one subject token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "Uuid")]
pub struct HandoffId(Uuid);

impl HandoffId {
    /// A fresh id that sorts by time of issue.
    pub fn now() -> Self {
        Self(Uuid::now_v7())
    }

    /// Returns the id under which this handoff is replayed. A handoff has one replay, however many dead letters it left
    /// and however often they are replayed, so its work is not done twice.
    pub fn replayed(self) -> Self {
        self.derived("replay", 0)
    }

    /// Returns the id of the journal that counts the deliveries of one queue message that was delivered often and never
    /// claimed. `queue` names the stream, `published_ns` tells a message from one in an earlier stream of that name.
    pub fn of_queue_message(queue: &str, sequence: u64, published_ns: i128) -> Self {
        Self::hashed(&format!("queued\n{queue}\n{sequence}\n{published_ns}"))
    }

    /// The id of the `number`th verification that this handoff asks for, of just this. Asked for again after a crash, it
    /// is the same verification.
    pub fn verification(self, number: u64, of: &str) -> Self {
        self.derived(&format!("verification\n{of}"), number)
    }

    fn derived(self, what: &str, number: u64) -> Self {
        Self::hashed(&format!("{what}\n{self}\n{number}"))
    }

    fn hashed(text: &str) -> Self {
        let digest = Sha256::digest(text);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// The id as a 128-bit trace id, for a handoff that came without one of its own.
    pub fn trace_id(self) -> String {
        self.0.simple().to_string()
    }

    /// The handoff as a span of its trace: deterministic, and never zero, which would be no span.
    pub fn span_id(self) -> String {
        let (high, low) = self.0.as_u64_pair();
        format!("{:016x}", if low == 0 { high } else { low })
    }
}

impl fmt::Display for HandoffId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0.as_hyphenated(), f)
    }
}

impl fmt::Debug for HandoffId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for HandoffId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        // The other spellings that `Uuid` reads (braces, urn:, no hyphens) would give one id two names.
        if text.len() != 36 {
            return Err(IdError::NotHyphenated);
        }
        match Uuid::try_parse(text) {
            Ok(uuid) if uuid.is_nil() => Err(IdError::Nil),
            Ok(uuid) => Ok(Self(uuid)),
            Err(_) => Err(IdError::NotHyphenated),
        }
    }
}

impl TryFrom<String> for HandoffId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl Serialize for HandoffId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.as_hyphenated().encode_lower(&mut Uuid::encode_buffer()))
    }
}

/// An id of the orchestrator's: a user, a group, a project, a task, a run. Opaque, but never empty, never
/// nil, and made only of characters that are safe in a log line, a file name or a prompt.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct ScopeId(#[schemars(length(min = 1, max = 128), regex(pattern = r"^[A-Za-z0-9_.:@-]+$"))] Box<str>);

impl ScopeId {
    pub const MAX_LEN: usize = 128;

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ScopeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ScopeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ScopeId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let safe =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b':' | b'@' | b'-');
        if text.is_empty() || text.len() > Self::MAX_LEN || !text.bytes().all(safe) {
            return Err(IdError::NotAToken);
        }
        if Uuid::try_parse(text).is_ok_and(|uuid| uuid.is_nil()) {
            return Err(IdError::Nil);
        }
        Ok(Self(text.into()))
    }
}

impl TryFrom<String> for ScopeId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<ScopeId> for String {
    fn from(id: ScopeId) -> Self {
        id.0.into()
    }
}

impl Serialize for ScopeId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// Names a running process. One token, so that it can be part of a subject.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct InstanceId(#[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9_-]+$"))] Box<str>);

impl InstanceId {
    pub const MAX_LEN: usize = 64;

    /// A fresh id that starts with `prefix`, which must itself be a token.
    pub fn random(prefix: &str) -> Result<Self, IdError> {
        let random = Uuid::new_v4().simple().to_string();
        format!("{prefix}-{}", &random[..12]).parse()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for InstanceId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let safe = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if text.is_empty() || text.len() > Self::MAX_LEN || !text.bytes().all(safe) {
            return Err(IdError::NotAnInstance);
        }
        Ok(Self(text.into()))
    }
}

impl TryFrom<String> for InstanceId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl Serialize for InstanceId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("a handoff id is a hyphenated UUID of 36 characters")]
    NotHyphenated,
    #[error("the nil UUID is not a valid id")]
    Nil,
    #[error("an id is 1 to 128 characters of A-Z a-z 0-9 _ . : @ -")]
    NotAToken,
    #[error("an instance is named with 1 to 64 characters of A-Z a-z 0-9 _ -")]
    NotAnInstance,
}
