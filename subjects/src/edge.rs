//! The audit of calls that a node decided on, under one lease: lines in a hash chain of their own.
//!
//! A line is `<hash> <JSON>`. The hash is the SHA-256 of the JSON, and the JSON holds the hash of the line
//! before it, so a line that is changed, removed or moved is found. The node signs the chain every
//! [`HEAD_EVERY`] lines and at its end. A message on [`Subject::EdgeAudit`](crate::Subject::EdgeAudit) holds
//! one or more whole lines.

mod verifier;

use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER};
use nkeys::KeyPair;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
pub use verifier::{EdgeVerifier, Problem};

use crate::{NodeId, encode_json, text::named_enum};

/// After so many lines, the next one signs the chain.
pub const HEAD_EVERY: u64 = 64;
/// Largest body of a message with lines.
pub const MAX_BODY_BYTES: usize = 128 * 1024;

/// One line of the audit of a lease, without its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Line {
    /// Counted from 1, without gaps.
    pub n: u64,
    /// The hash of the line before; empty for the first.
    pub prev: String,
    /// Microseconds since 1970, UTC, by the clock of the node.
    pub at: i64,
    #[serde(flatten)]
    pub record: Record,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// The first line: the lease, and for which node it is.
    Opened { lease_id: String, node: NodeId, holder: String, lease: String },
    /// The node continues after it was restarted.
    Resumed,
    /// The last line was incomplete after a crash; this many bytes were removed.
    Repaired { bytes: u64 },
    /// The lease was renewed; this is its new text.
    Renewed { lease: String },
    /// A call that was permitted is about to be made.
    Began(EdgeCall),
    /// The call that began with line `of` has ended.
    Ended { of: u64, outcome: Outcome, error_type: Option<String>, duration_us: i64 },
    /// A permitted call that was not made, because an earlier one had its idempotency key.
    Answered { call: EdgeCall, outcome: Outcome, error_type: Option<String>, duration_us: i64 },
    /// A call that was not made.
    Refused { call: EdgeCall, denied: bool, error_type: String },
    /// The node signs all lines before this one.
    Head(Signature),
    /// The last line. The node signs all lines before it.
    Closed {
        why: CloseReason,
        #[serde(flatten)]
        head: Signature,
    },
}

/// A call, as the audit names it. Holds neither arguments nor results.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EdgeCall {
    pub call_id: String,
    pub tool: String,
    /// SHA-256 of the arguments in canonical JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments_digest: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// SHA-256 of the idempotency key. A key that began a call is not used for another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_digest: Option<String>,
}

named_enum! {
    /// How a call ended, as rows of the audit have it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Outcome {
        Success = "success",
        Failure = "failure",
        /// Answered with the result of an earlier call.
        Replayed = "replayed",
        /// The node ended during the call.
        Unknown = "unknown",
    }

    #[error("`{0}` is not a call outcome")]
    pub struct UnknownOutcome;
}

named_enum! {
    /// Why nothing follows under a lease.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum CloseReason {
        /// What the lease was for has ended.
        Done = "done",
        Expired = "expired",
        Revoked = "revoked",
        /// The audit of the lease has no more room.
        Full = "full",
        /// The node was restarted and does not continue what the lease was for.
        Restarted = "restarted",
    }

    #[error("`{0}` is not a close reason")]
    pub struct UnknownCloseReason;
}

/// A signature over all lines before the one that holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Signature {
    /// The public nkey of the node.
    pub key: String,
    /// Ed25519, in Base64.
    pub signature: String,
}

impl Signature {
    /// Signs the lines of a lease before line `n`, the last of which has the hash `prev`.
    pub fn sign(key: &KeyPair, lease_id: &str, n: u64, prev: &str) -> Result<Self, nkeys::error::Error> {
        let signature = key.sign(signed_text(lease_id, n, prev).as_bytes())?;
        Ok(Self { key: key.public_key(), signature: BASE64.encode(&signature) })
    }

    fn is_valid(&self, lease_id: &str, n: u64, prev: &str) -> bool {
        match (KeyPair::from_public_key(&self.key), BASE64.decode(self.signature.as_bytes())) {
            (Ok(key), Ok(signature)) => {
                key.verify(signed_text(lease_id, n, prev).as_bytes(), &signature).is_ok()
            }
            _ => false,
        }
    }
}

fn signed_text(lease_id: &str, n: u64, prev: &str) -> String {
    format!("cynode edge head\n{lease_id}\n{n}\n{prev}")
}

impl Line {
    /// Returns the text of the line, with its end, and its hash.
    pub fn encode(&self) -> (Vec<u8>, String) {
        let json = encode_json(self);
        let hash = hash(&json);
        let mut text = Vec::with_capacity(json.len() + hash.len() + 2);
        text.extend_from_slice(hash.as_bytes());
        text.push(b' ');
        text.extend_from_slice(&json);
        text.push(b'\n');
        (text, hash)
    }

    /// Reads a line without its end. Returns it with the hash that it claims, and whether that is its hash.
    /// `None` if it is not a line.
    pub fn decode(text: &[u8]) -> Option<(Self, String, bool)> {
        let at = text.iter().position(|byte| *byte == b' ')?;
        let (claimed, json) = (std::str::from_utf8(text.get(..at)?).ok()?, text.get(at + 1..)?);
        let line = serde_json::from_slice(json).ok()?;
        Some((line, claimed.to_owned(), claimed == hash(json)))
    }
}

/// Returns the lines of a message or file, without their ends. The last one may be incomplete.
pub fn split_lines(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

/// Returns a digest of definitions or rules, as a lease pins them.
pub fn digest(bytes: &[u8]) -> String {
    BASE64URL_NOPAD.encode(&Sha256::digest(bytes))
}

fn hash(json: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(json))
}

#[cfg(test)]
mod tests;
