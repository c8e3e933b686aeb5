//! The journal of a handoff: a record of the work, from which the next owner of the handoff resumes.
//!
//! Entries are messages on `<role>.run.<id>.journal`. Each is written under a compare-and-set over
//! `<role>.run.<id>.*`, so journal and answer form one sequence with one writer at a time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{Findings, HandoffId, InstanceId, Scope, ScopeId, Timestamp, ToolCall, encode_json};

/// The newest entry version that this build writes. It reads this version and all older ones, and writes each
/// entry in the oldest version that can express it, so that older builds can read as much as possible.
///
/// Version 1 is the first; version 2 adds `released`.
pub const VERSION: u32 = 2;

/// The size in bytes above which an entry is stored in the object store; the journal then holds a reference
/// to it.
pub const SPILL_THRESHOLD: usize = 256 * 1024;

/// Returns the size in bytes above which an entry is stored in the object store, for a server that accepts
/// messages of up to `max_payload` bytes including headers.
pub fn spill_threshold(max_payload: usize) -> usize {
    const HEADERS: usize = 4 * 1024;
    SPILL_THRESHOLD.min(max_payload.saturating_sub(HEADERS).max(max_payload / 2))
}

/// One message of the journal: the records since the previous entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    pub v: u32,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<Record>,
    /// The location of an entry that is too large for a message. `records` is then empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spilled: Option<Spilled>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Spilled {
    /// The name of the object in the object store.
    pub name: String,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// An instance claimed the handoff. From here on it is the only writer of the journal.
    Claimed(Claimed),
    /// The context with which the conversation started.
    Context(Context),
    /// A model call returned.
    ModelTurn(ModelTurn),
    /// A tool call is about to start.
    ToolIntent(ToolIntent),
    /// A tool call returned.
    ToolResult(ToolResult),
    /// An analyst returned findings.
    Verified(Box<Verified>),
    /// The instance shuts down and hands the handoff back. The attempt does not count.
    Released,
    /// No progress: the writer confirmed that it still owns the journal.
    Still,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Claimed {
    /// Counted from 1.
    pub attempt: u32,
    pub instance: InstanceId,
    /// The version of the worker binary.
    pub build: String,
    /// The stream sequence of the queue message. Copies of a handoff have different sequences.
    pub queued: u64,
    /// The delivery count of that message. 0 in entries of builds that did not record it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delivery: u64,
    /// The user and project of the handoff. Absent in entries of builds that did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// What the handoff asks for, cut short. In the first claim only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// The user and project on whose behalf a handoff runs. Its journal is not used for any other user or
/// project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Origin {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<ScopeId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ScopeId>,
    /// Whether the handoff carries a lease. Absent in entries of builds that did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased: Option<bool>,
}

impl Origin {
    pub fn new(scope: &Scope, leased: bool) -> Self {
        let (user_id, project_id) = (scope.user_id.clone(), scope.project_id.clone());
        Self { user_id, project_id, leased: Some(leased) }
    }

    /// Returns whether both are of the same user and project.
    pub fn has_same_owner(&self, other: &Self) -> bool {
        (&self.user_id, &self.project_id) == (&other.user_id, &other.project_id)
    }

    /// Returns whether work of one may be continued for the other: they have the same owner, and both or
    /// neither have a lease. The gateway keeps idempotency keys by the user of the lease, so a call that is
    /// repeated with and without one would have its effect twice, and without one it would be made for the
    /// whole system.
    pub fn may_continue(&self, other: &Self) -> bool {
        let same_leased = match (self.leased, other.leased) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        same_leased && self.has_same_owner(other)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Context {
    /// The tools that were offered to the model, best match first.
    pub tools: Vec<String>,
}

/// Identifies a model call by its position in the run, not by its content. A later build may phrase the
/// request differently and can still reuse the recorded reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// A turn of the conversation, counted from 0.
    Turn(u32),
    /// A structured output: a typed answer requested outside the conversation.
    Think {
        /// The name of the structured output.
        form: String,
        /// The lane, one of those that run concurrently.
        lane: u32,
        /// How often this structured output was requested before in the lane.
        repeat: u32,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelTurn {
    pub question: Question,
    /// SHA-256 of the whole request, for debugging.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_hash: Option<String>,
    pub reply: Reply,
    pub ms: u64,
}

/// The complete reply of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reply {
    pub content: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    pub finish: Finish,
    pub tokens: Tokens,
    /// The route and model that answered.
    pub model: String,
    pub tries: u32,
    pub cost_usd: Option<f64>,
    /// What had to be done to get the reply, for the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tokens {
    pub prompt: u64,
    pub completion: u64,
    /// Tokens of the prompt that the server had in its cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    Stop,
    /// The token limit of the model or of the request was reached.
    Length,
    /// The worker's size limit was reached and the rest of the reply was not read.
    CutShort,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolIntent {
    pub call: CallId,
    /// The idempotency key. Calls with the same key take effect once.
    pub key: String,
}

/// Identifies a tool call within a handoff.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallId {
    /// Counted from 0 over the whole handoff.
    pub number: u32,
    pub tool: String,
    /// SHA-256 of the arguments.
    pub arguments_hash: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolResult {
    pub call: CallId,
    pub key: String,
    pub outcome: ToolOutcome,
    pub ms: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutcome {
    Returned(Returned),
    /// The gateway rejected the call.
    Rejected {
        why: String,
    },
}

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Returned {
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// Whether the tool ran and reported an error.
    pub failed: bool,
    pub truncated: bool,
    pub tries: u32,
}

impl Returned {
    /// Parses the structured result, or the text as JSON if there is none.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        match &self.structured {
            Some(value) => T::deserialize(value),
            None => serde_json::from_str(&self.text),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verified {
    /// The verify handoff.
    pub handoff_id: HandoffId,
    pub findings: Findings,
    pub ms: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Why an entry cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The entry was written by a newer build, and only such a build can read it.
    #[error("version {0} is newer than the latest this build reads ({VERSION})")]
    Newer(u32),
    #[error("{0}")]
    Malformed(String),
}

impl Entry {
    pub fn new(records: Vec<Record>) -> Self {
        let v = records.iter().map(Record::since).max().unwrap_or(1);
        Self { v, at: Timestamp::now(), records, spilled: None }
    }

    /// Returns the journal entry that refers to this entry in the object store.
    pub fn to_reference(&self, spilled: Spilled) -> Self {
        Self { v: self.v, at: self.at.clone(), records: Vec::new(), spilled: Some(spilled) }
    }

    pub fn encode(&self) -> Vec<u8> {
        encode_json(self)
    }

    pub fn decode(body: &[u8]) -> Result<Self, Unreadable> {
        /// The only field that may be read before the version is known.
        #[derive(Deserialize)]
        struct Versioned {
            v: u32,
        }
        let malformed = |error: serde_json::Error| Unreadable::Malformed(error.to_string());
        let Versioned { v } = serde_json::from_slice(body).map_err(malformed)?;
        if v > VERSION {
            return Err(Unreadable::Newer(v));
        }
        serde_json::from_slice(body).map_err(malformed)
    }

    /// Returns whether the entry records progress: more than a claim, the context or a confirmation of
    /// ownership.
    pub fn is_progress(&self) -> bool {
        self.spilled.is_some() || self.records.iter().any(Record::is_progress)
    }
}

impl Record {
    /// Returns the entry version that introduced this record.
    fn since(&self) -> u32 {
        match self {
            Self::Released => 2,
            _ => 1,
        }
    }

    fn is_progress(&self) -> bool {
        match self {
            Self::ModelTurn(_) | Self::ToolIntent(_) | Self::ToolResult(_) | Self::Verified(_) => true,
            Self::Claimed(_) | Self::Context(_) | Self::Released | Self::Still => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimed() -> Record {
        let instance = "worker-1".parse().expect("a name");
        Record::Claimed(Claimed {
            attempt: 1,
            instance,
            build: "0.1.0".into(),
            queued: 7,
            delivery: 1,
            origin: None,
            request: None,
        })
    }

    #[test]
    fn encoding_then_decoding_an_entry_is_the_identity() {
        let call = CallId { number: 3, tool: "db.task.create".into(), arguments_hash: "ab".into() };
        let returned =
            Returned { text: "done".into(), structured: None, failed: false, truncated: false, tries: 1 };
        let entry = Entry::new(vec![
            claimed(),
            Record::Context(Context { tools: vec!["db.task.create".into()] }),
            Record::ToolIntent(ToolIntent { call: call.clone(), key: "k/3".into() }),
            Record::ToolResult(ToolResult {
                call,
                key: "k/3".into(),
                outcome: ToolOutcome::Returned(returned),
                ms: 4,
            }),
            Record::Still,
        ]);
        assert_eq!(Entry::decode(&entry.encode()), Ok(entry));
    }

    #[test]
    fn newer_entries_are_distinguished_from_malformed_ones() {
        assert_eq!(Entry::decode(br#"{"v":99,"what":"ever"}"#), Err(Unreadable::Newer(99)));
        for malformed in [
            &b""[..],
            b"{",
            br#"{"v":1}"#,
            br#"{"v":1,"at":"2026-01-01T00:00:00Z","records":[{"record":"?"}]}"#,
        ] {
            assert!(matches!(Entry::decode(malformed), Err(Unreadable::Malformed(_))));
        }
    }

    #[test]
    fn an_entry_has_the_oldest_version_that_can_express_it() {
        assert_eq!(Entry::new(vec![claimed(), Record::Still]).v, 1);
        assert_eq!(Entry::new(vec![Record::Released]).v, VERSION);
    }

    #[test]
    fn a_claim_alone_is_no_progress() {
        let context = Record::Context(Context { tools: Vec::new() });
        assert!(!Entry::new(vec![claimed(), context, Record::Still]).is_progress());
        let call = CallId { number: 0, tool: "t".into(), arguments_hash: String::new() };
        let intent = Record::ToolIntent(ToolIntent { call, key: "k".into() });
        assert!(Entry::new(vec![claimed(), intent]).is_progress());
    }
}
