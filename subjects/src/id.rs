//! Ids of handoffs and jobs, of orchestrator objects (scope ids), of worker instances and of nodes.

use std::{fmt, str::FromStr, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::text::kept_as_text;

/// Identifies one handoff, permanently. Written as a lowercase hyphenated UUID, which is one subject token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "Uuid")]
pub struct HandoffId(Uuid);

impl HandoffId {
    /// Returns a new UUID version 7, which sorts by time of issue.
    pub fn now() -> Self {
        Self(Uuid::now_v7())
    }

    /// Returns the id under which this handoff is replayed. Deterministic: a handoff has one replay, however
    /// many dead letters it left and however often they are replayed, so its work is not done twice.
    pub fn replay_id(self) -> Self {
        self.derive("replay", 0)
    }

    /// Returns the id of the journal that counts the deliveries of a queue message that was delivered often
    /// and never claimed. `queue` is the name of the stream; `published_ns` distinguishes the message from
    /// one with the same sequence in an earlier stream of that name.
    pub fn for_queue_message(queue: &str, sequence: u64, published_ns: i128) -> Self {
        Self::from_hash(&format!("queued\n{queue}\n{sequence}\n{published_ns}"))
    }

    /// Returns the id of the `number`th verification that this handoff requests, where `of` identifies what
    /// is verified. Deterministic, so that the same request after a crash is the same verification.
    pub fn verification_id(self, number: u64, of: &str) -> Self {
        self.derive(&format!("verification\n{of}"), number)
    }

    /// Returns the id of the run of a schedule that is due at `slot_us`, in microseconds since 1970, or that
    /// a person started then. Deterministic, so that a slot is one handoff, however often it is published.
    pub fn for_scheduled_run(schedule: &str, trigger: &str, slot_us: i64) -> Self {
        Self::from_hash(&format!("schedule\n{schedule}\n{trigger}\n{slot_us}"))
    }

    fn derive(self, what: &str, number: u64) -> Self {
        Self::from_hash(&format!("{what}\n{self}\n{number}"))
    }

    fn from_hash(text: &str) -> Self {
        let digest = Sha256::digest(text);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// Returns when the id was issued, as time since 1970. `None` if the id does not tell.
    pub fn issued_at(self) -> Option<Duration> {
        let (seconds, nanoseconds) = self.0.get_timestamp()?.to_unix();
        Some(Duration::new(seconds, nanoseconds))
    }

    /// Returns the id as a 128-bit trace id in hex, for a handoff that arrived without a `traceparent`.
    pub fn trace_id(self) -> String {
        self.0.simple().to_string()
    }

    /// Returns a span id for the handoff in hex. Deterministic, and never zero, which is not a valid span id.
    pub fn span_id(self) -> String {
        let (high, low) = self.0.as_u64_pair();
        format!("{:016x}", if low == 0 { high } else { low })
    }
}

/// Implements what an id that is a UUID needs: it is written hyphenated, in lower case, and read only so.
macro_rules! written_as_uuid {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self.0.as_hyphenated(), f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                // `Uuid` also parses other spellings (braces, urn:, no hyphens), which would give one id
                // several names.
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

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.0.as_hyphenated().encode_lower(&mut Uuid::encode_buffer()))
            }
        }
    };
}

written_as_uuid!(HandoffId);
written_as_uuid!(JobId);

/// Identifies one job, permanently. Written as a lowercase hyphenated UUID, which is one subject token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "Uuid")]
pub struct JobId(Uuid);

impl JobId {
    /// Returns a new UUID version 7, which sorts by time of issue.
    pub fn now() -> Self {
        Self(Uuid::now_v7())
    }
}

/// An id. The orchestrator assigns it to a user, group, project, task or run. Opaque, but never empty, never
/// the nil UUID, and made only of characters that are safe in a log line, a file name or a prompt.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct ScopeId(#[schemars(length(min = 1, max = 128), regex(pattern = r"^[A-Za-z0-9_.:@-]+$"))] Box<str>);

impl ScopeId {
    const MAX_LEN: usize = 128;

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

kept_as_text!(ScopeId, 0, IdError);

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

impl From<JobId> for ScopeId {
    fn from(id: JobId) -> Self {
        Self(id.to_string().into())
    }
}

/// The run of a schedule has the id of its handoff.
impl From<HandoffId> for ScopeId {
    fn from(id: HandoffId) -> Self {
        Self(id.to_string().into())
    }
}

impl From<ScopeId> for String {
    fn from(id: ScopeId) -> Self {
        id.0.into()
    }
}

/// Identifies a running worker process. One token, so that it can be part of a subject.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct InstanceId(#[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9_-]+$"))] Box<str>);

impl InstanceId {
    const MAX_LEN: usize = 64;

    /// Returns a new random id that starts with `prefix`. Fails if `prefix` is not a valid token.
    pub fn random(prefix: &str) -> Result<Self, IdError> {
        let random = Uuid::new_v4().simple().to_string();
        format!("{prefix}-{}", &random[..12]).parse()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

kept_as_text!(InstanceId, 0, IdError);

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

/// Identifies a node. One token, so that it can be part of a subject.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct NodeId(#[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-z0-9][a-z0-9-]*$"))] Box<str>);

impl NodeId {
    const MAX_LEN: usize = 64;
    /// The writer of what the gateway adds to the chain of a job. No node has this id.
    pub const GATEWAY: &str = "gateway";

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns a new random id for a process of this node.
    pub fn new_instance(&self) -> InstanceId {
        let random = Uuid::new_v4().simple().to_string();
        let longest = InstanceId::MAX_LEN - 13;
        InstanceId(format!("{}-{}", &self.0[..self.0.len().min(longest)], &random[..12]).into())
    }

    /// Returns the name under which the gateway writes to the chains of jobs.
    pub fn gateway() -> Self {
        Self(Self::GATEWAY.into())
    }
}

/// `node`, for a machine whose name cannot be an id.
impl Default for NodeId {
    fn default() -> Self {
        Self("node".into())
    }
}

kept_as_text!(NodeId, 0, IdError);

impl FromStr for NodeId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if is_name(text, Self::MAX_LEN) { Ok(Self(text.into())) } else { Err(IdError::NotANode) }
    }
}

/// Names a group of nodes that are equal to a job. One token, so that it can be part of a subject.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct PoolName(
    #[schemars(length(min = 1, max = 32), regex(pattern = r"^[a-z0-9][a-z0-9-]*$"))] Box<str>,
);

impl PoolName {
    const MAX_LEN: usize = 32;
    /// The pool of nodes and jobs that name none.
    pub const DEFAULT: &str = "default";

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for PoolName {
    fn default() -> Self {
        Self(Self::DEFAULT.into())
    }
}

kept_as_text!(PoolName, 0, IdError);

impl FromStr for PoolName {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if is_name(text, Self::MAX_LEN) { Ok(Self(text.into())) } else { Err(IdError::NotAPool) }
    }
}

fn is_name(text: &str, max_len: usize) -> bool {
    let safe = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.len() <= max_len && !text.starts_with('-') && text.bytes().all(safe)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("an id of a handoff or job is a hyphenated UUID of 36 characters")]
    NotHyphenated,
    #[error("the nil UUID is not a valid id")]
    Nil,
    #[error("an id is 1 to 128 characters of A-Z a-z 0-9 _ . : @ -")]
    NotAToken,
    #[error("a node is named with 1 to 64 characters of a-z 0-9 -, the first of which is not -")]
    NotANode,
    #[error("a pool is named with 1 to 32 characters of a-z 0-9 -, the first of which is not -")]
    NotAPool,
    #[error("an instance is named with 1 to 64 characters of A-Z a-z 0-9 _ -")]
    NotAnInstance,
}
