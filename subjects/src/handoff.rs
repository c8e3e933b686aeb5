use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    Chat, CodecError, Continue, Encoding, ErrorCode, HandoffId, Kind, Plan, Schedule, ScopeId, Subject,
    Timestamp, Verify, encode, shape::Body,
};

/// The major version of the contract that this build speaks.
pub const SCHEMA_VERSION: u32 = 1;

/// The longest chain of replays of one handoff.
pub(crate) const MAX_REPLAYS: usize = 64;

/// One piece of work, decoded and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Handoff {
    pub id: HandoffId,
    pub issued_at: Timestamp,
    pub deadline: Option<Timestamp>,
    pub reply_to: Option<String>,
    pub scope: Scope,
    pub context: Context,
    /// The handoffs whose work this one goes on with, oldest first. Empty unless it is a replay.
    pub replays: Vec<HandoffId>,
    pub work: Work,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    Chat(Chat),
    Schedule(Schedule),
    Plan(Plan),
    Continue(Continue),
    Verify(Verify),
}

impl Work {
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Chat(_) => Kind::Chat,
            Self::Schedule(_) => Kind::Schedule,
            Self::Plan(_) => Kind::Plan,
            Self::Continue(_) => Kind::Continue,
            Self::Verify(_) => Kind::Verify,
        }
    }

    pub fn verify(&self) -> Option<&Verify> {
        match self {
            Self::Verify(verify) => Some(verify),
            Self::Chat(_) | Self::Schedule(_) | Self::Plan(_) | Self::Continue(_) => None,
        }
    }
}

/// A handoff as it is written. The subject says which payload to expect, `kind` must agree with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Envelope<P> {
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    /// A UUID, version 7 by preference. Also the `Nats-Msg-Id`.
    pub handoff_id: HandoffId,
    pub kind: Kind,
    pub issued_at: Timestamp,
    /// After this instant nobody wants the answer any more.
    #[serde(default)]
    pub deadline: Option<Timestamp>,
    /// Asks for a copy of the answer on this subject too.
    #[serde(default)]
    pub reply_to: Option<String>,
    #[serde(default)]
    pub scope: Scope,
    #[serde(default)]
    pub context: Context,
    /// For a replayed dead letter: the handoffs whose journals it goes on from, oldest first. Their model turns are not
    /// paid again and their tool calls keep their idempotency keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_REPLAYS))]
    pub replays: Vec<HandoffId>,
    pub payload: P,
}

/// For whom, and about what. Every id is the orchestrator's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Scope {
    pub user_id: Option<ScopeId>,
    pub group_ids: Vec<ScopeId>,
    pub project_id: Option<ScopeId>,
    pub task_id: Option<ScopeId>,
    pub thread_id: Option<ScopeId>,
    pub run_id: Option<ScopeId>,
    pub job_id: Option<ScopeId>,
}

/// What the orchestrator already knows. What is absent but has an id in `scope` is fetched through MCP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Context {
    pub project: Option<Project>,
    pub task: Option<Task>,
    pub preferences: Option<Vec<Preference>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Project {
    pub id: ScopeId,
    pub name: String,
    #[serde(default)]
    pub slug: Option<String>,
    #[serde(default)]
    pub description: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    pub id: ScopeId,
    pub name: String,
    #[serde(default)]
    pub status: Option<String>,
    #[serde(default)]
    pub description: Option<String>,
    #[serde(default)]
    pub acceptance_criteria: Vec<String>,
}

/// One preference entry, before resolution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Preference {
    pub key: String,
    pub value: Value,
    pub value_type: String,
    pub scope: PreferenceScope,
    #[serde(default)]
    pub scope_id: Option<ScopeId>,
    #[serde(default)]
    pub version: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PreferenceScope {
    System,
    Group,
    User,
    Project,
    Task,
}

/// Why a handoff is not accepted, in words that its author can act on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Refusal {
    pub code: ErrorCode,
    pub message: String,
}

impl Refusal {
    /// The message may quote what was found, so it is cut: the rest is in the handoff itself.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        const LONGEST: usize = 256;
        let mut message: String = message.into();
        if message.len() > LONGEST {
            message.truncate(message.floor_char_boundary(LONGEST));
            message.push('…');
        }
        Self { code, message }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidHandoff, message)
    }
}

impl Handoff {
    pub fn kind(&self) -> Kind {
        self.work.kind()
    }

    /// Where a handoff of this kind is published.
    pub fn subject(&self) -> Subject {
        Subject::Handoff(self.kind())
    }

    /// Reads and checks a body that arrived on the subject of `kind`. Unknown fields are passed over.
    pub fn decode(kind: Kind, body: &Body<'_>) -> Result<Self, Refusal> {
        body.shape().map_err(|fault| Refusal::invalid(fault.to_string()))?;
        match body.glimpse().schema_version {
            Some(version) if version == u64::from(SCHEMA_VERSION) => {}
            Some(version) => {
                let message =
                    format!("schema_version {version} is not {SCHEMA_VERSION}, the one spoken here");
                return Err(Refusal::new(ErrorCode::UnsupportedVersion, message));
            }
            None => return Err(Refusal::invalid("schema_version is missing or not a whole number")),
        }
        match kind {
            Kind::Chat => Self::open(kind, body, Work::Chat),
            Kind::Schedule => Self::open(kind, body, Work::Schedule),
            Kind::Plan => Self::open(kind, body, Work::Plan),
            Kind::Continue => Self::open(kind, body, Work::Continue),
            Kind::Verify => Self::open(kind, body, Work::Verify),
        }
    }

    fn open<P: DeserializeOwned>(kind: Kind, body: &Body<'_>, work: fn(P) -> Work) -> Result<Self, Refusal> {
        let envelope: Envelope<P> = body.decode().map_err(|error| Refusal::invalid(error.in_words()))?;
        if envelope.kind != kind {
            let message = format!("kind is `{}` but the subject is for `{kind}`", envelope.kind);
            return Err(Refusal::invalid(message));
        }
        let handoff = Self {
            id: envelope.handoff_id,
            issued_at: envelope.issued_at,
            deadline: envelope.deadline,
            reply_to: envelope.reply_to,
            scope: envelope.scope,
            context: envelope.context,
            replays: envelope.replays,
            work: work(envelope.payload),
        };
        handoff.check()?;
        Ok(handoff)
    }

    /// What types alone cannot say.
    fn check(&self) -> Result<(), Refusal> {
        if self.replays.len() > MAX_REPLAYS {
            return Err(Refusal::invalid(format!(
                "replays names more than {MAX_REPLAYS} handoffs; publish a new handoff"
            )));
        }
        // So a handoff has one replay, however often it is made.
        if self.replays.last().is_some_and(|last| last.replayed() != self.id) {
            return Err(Refusal::invalid(
                "handoff_id is not the one that a replay of the last of replays has",
            ));
        }
        match &self.work {
            Work::Chat(chat) => chat.check(),
            Work::Schedule(schedule) => schedule.check(),
            Work::Plan(plan) => plan.check(),
            Work::Continue(input) => input.check(self.id),
            Work::Verify(_) => Ok(()),
        }
    }

    pub fn encode(&self, encoding: Encoding) -> Result<Vec<u8>, CodecError> {
        match &self.work {
            Work::Chat(payload) => encode(encoding, &self.envelope(payload)),
            Work::Schedule(payload) => encode(encoding, &self.envelope(payload)),
            Work::Plan(payload) => encode(encoding, &self.envelope(payload)),
            Work::Continue(payload) => encode(encoding, &self.envelope(payload)),
            Work::Verify(payload) => encode(encoding, &self.envelope(payload)),
        }
    }

    fn envelope<P>(&self, payload: P) -> Envelope<P> {
        Envelope {
            schema_version: SCHEMA_VERSION,
            handoff_id: self.id,
            kind: self.kind(),
            issued_at: self.issued_at.clone(),
            deadline: self.deadline.clone(),
            reply_to: self.reply_to.clone(),
            scope: self.scope.clone(),
            context: self.context.clone(),
            replays: self.replays.clone(),
            payload,
        }
    }
}
