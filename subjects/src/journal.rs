//! The journal of a handoff: what was done, as it was done, so that whoever takes the handoff up next goes on from there.
//!
//! It stands on `<role>.run.<id>.journal`, message by message, each written under a compare-and-set over
//! `<role>.run.<id>.*`. Journal and answer are thus one chain with one writer at a time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Findings, HandoffId, InstanceId, Scope, ScopeId, Timestamp, ToolCall};

/// The newest version of an entry that this build writes. It reads this one and all before it, and it writes each entry
/// in the oldest version that has words for it, so that an older build can go on with what it understands.
///
/// 1. the first; 2. `released`.
pub const VERSION: u32 = 2;

/// A larger entry is kept in the object store, and a reference to it in the journal.
pub const SPILL_OVER: usize = 256 * 1024;

/// Returns the size over which an entry is kept in the object store, for a server that takes `max_payload` bytes at once,
/// headers included.
pub fn spill_over(max_payload: usize) -> usize {
    const HEADERS: usize = 4 * 1024;
    SPILL_OVER.min(max_payload.saturating_sub(HEADERS).max(max_payload / 2))
}

/// One message of the journal: what happened since the last one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    pub v: u32,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<Record>,
    /// Where the entry is kept when it is too large for a message; it then has no records here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spilled: Option<Spilled>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Spilled {
    /// In the object store.
    pub name: String,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// An instance took the handoff up. From here on no other writes to the journal.
    Claimed(Claimed),
    /// What the conversation was begun with.
    Context(Context),
    /// A model answered.
    ModelTurn(ModelTurn),
    /// A tool is about to be called.
    ToolIntent(ToolIntent),
    /// A tool answered.
    ToolResult(ToolResult),
    /// An analyst answered.
    Verified(Box<Verified>),
    /// The instance gives the handoff back, because it stops. The attempt does not count.
    Released,
    /// Nothing happened; the writer made sure that the journal is still its own.
    Still,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Claimed {
    /// Counted from 1.
    pub attempt: u32,
    pub instance: InstanceId,
    /// The version of the program.
    pub build: String,
    /// Which message of the queue it was: a handoff may have been published more than once.
    pub queued: u64,
    /// Which delivery of that message it was, as the server counts them. 0 in entries of builds that did not record it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delivery: u64,
    /// On whose behalf the handoff is worked on. `None` in entries of builds that did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// On whose behalf a handoff is worked on. What it left behind is shown to no other user and no other project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Origin {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<ScopeId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ScopeId>,
}

impl From<&Scope> for Origin {
    fn from(scope: &Scope) -> Self {
        Self { user_id: scope.user_id.clone(), project_id: scope.project_id.clone() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Context {
    /// The tools that were offered to the model, best match first.
    pub tools: Vec<String>,
}

/// Which question to a model it was. Questions are known by their place, not by their words: a later build may put them
/// in other words, and the answer is still the answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// A turn of the conversation, counted from 0.
    Turn(u32),
    /// A typed question beside the conversation.
    Think {
        form: String,
        /// Which of those that run at the same time.
        lane: u32,
        /// How often it was asked before.
        repeat: u32,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelTurn {
    pub question: Question,
    /// SHA-256 of the whole request, for whoever wonders what was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_hash: Option<String>,
    pub reply: Reply,
    pub ms: u64,
}

/// What a model answered, whole.
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
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tokens {
    pub prompt: u64,
    pub completion: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    Stop,
    /// The model's own limit, or the one it was given.
    Length,
    /// Our limit: the rest was not read.
    CutShort,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolIntent {
    pub call: CallId,
    /// What the gateway knows the call by: with the same key it has its effect once.
    pub key: String,
}

/// Which call it was.
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
    /// The gateway said no.
    Rejected {
        why: String,
    },
}

/// What a tool gave back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Returned {
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// The tool ran and says that it failed.
    pub failed: bool,
    pub truncated: bool,
    pub tries: u32,
}

impl Returned {
    /// What was returned as a value: as such, or as text that is one.
    pub fn json(&self) -> Option<Value> {
        self.structured.clone().or_else(|| serde_json::from_str(&self.text).ok())
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verified {
    /// The handoff that was given to an analyst.
    pub handoff_id: HandoffId,
    pub findings: Findings,
    pub ms: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Why an entry cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Written by a newer build than this one, which can read it.
    #[error("version {0} is newer than the latest this build reads ({VERSION})")]
    Newer(u32),
    #[error("{0}")]
    Torn(String),
}

impl Entry {
    pub fn new(records: Vec<Record>) -> Self {
        let v = records.iter().map(Record::since).max().unwrap_or(1);
        Self { v, at: Timestamp::now(), records, spilled: None }
    }

    /// What stands in the journal for an entry that is kept elsewhere.
    pub fn elsewhere(&self, spilled: Spilled) -> Self {
        Self { v: self.v, at: self.at.clone(), records: Vec::new(), spilled: Some(spilled) }
    }

    pub fn encode(&self) -> Vec<u8> {
        // About the size of a claim, which every handoff writes.
        const USUAL: usize = 256;
        let mut out = Vec::with_capacity(USUAL);
        // Every part of it can be written as JSON.
        if serde_json::to_writer(&mut out, self).is_err() {
            out.clear();
        }
        out
    }

    pub fn decode(body: &[u8]) -> Result<Self, Unreadable> {
        /// All that is read before the version is known.
        #[derive(Deserialize)]
        struct Versioned {
            v: u32,
        }
        let torn = |error: serde_json::Error| Unreadable::Torn(error.to_string());
        let Versioned { v } = serde_json::from_slice(body).map_err(torn)?;
        if v > VERSION {
            return Err(Unreadable::Newer(v));
        }
        serde_json::from_slice(body).map_err(torn)
    }

    /// Whether anything was achieved, beyond taking the handoff up and getting ready.
    pub fn is_progress(&self) -> bool {
        self.spilled.is_some() || self.records.iter().any(Record::is_progress)
    }
}

impl Record {
    /// The first version that has it.
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
        })
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
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
    fn what_is_newer_is_told_from_what_is_torn() {
        assert_eq!(Entry::decode(br#"{"v":99,"what":"ever"}"#), Err(Unreadable::Newer(99)));
        for torn in [
            &b""[..],
            b"{",
            br#"{"v":1}"#,
            br#"{"v":1,"at":"2026-01-01T00:00:00Z","records":[{"record":"?"}]}"#,
        ] {
            assert!(matches!(Entry::decode(torn), Err(Unreadable::Torn(_))));
        }
    }

    #[test]
    fn an_entry_is_no_newer_than_it_must_be() {
        assert_eq!(Entry::new(vec![claimed(), Record::Still]).v, 1);
        assert_eq!(Entry::new(vec![Record::Released]).v, VERSION);
    }

    #[test]
    fn taking_a_handoff_up_is_no_progress() {
        let context = Record::Context(Context { tools: Vec::new() });
        assert!(!Entry::new(vec![claimed(), context, Record::Still]).is_progress());
        let call = CallId { number: 0, tool: "t".into(), arguments_hash: String::new() };
        let intent = Record::ToolIntent(ToolIntent { call, key: "k".into() });
        assert!(Entry::new(vec![claimed(), intent]).is_progress());
    }
}
