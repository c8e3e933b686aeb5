//! Handoffs: the envelope on the wire, the decoded form, and the checks in between.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    Chat, ChatRole, CodecError, Continue, Encoding, ErrorCode, HandoffId, Kind, Plan, Refusal, Schedule,
    ScopeId, Subject, Timestamp, Verify, encode, shape::Body, workflow::Review,
};

/// The major version of the contract that this build implements.
pub const SCHEMA_VERSION: u32 = 1;

/// How often a handoff can be replayed, one replay after the other.
pub(crate) const MAX_REPLAYS: usize = 64;

/// A decoded and validated handoff.
#[derive(Clone, Debug, PartialEq)]
pub struct Handoff {
    pub id: HandoffId,
    pub issued_at: Timestamp,
    pub deadline: Option<Timestamp>,
    pub reply_to: Option<String>,
    pub scope: Scope,
    pub context: Context,
    /// The handoffs whose work this one continues, oldest first. Empty unless this is a replay.
    pub replays: Vec<HandoffId>,
    pub work: Work,
}

/// The payload of a handoff, by kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    Chat(Chat),
    Schedule(Schedule),
    Plan(Plan),
    Continue(Continue),
    Review(Box<Review>),
    Verify(Verify),
}

impl Work {
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Chat(_) => Kind::Chat,
            Self::Schedule(_) => Kind::Schedule,
            Self::Plan(_) => Kind::Plan,
            Self::Continue(_) => Kind::Continue,
            Self::Review(_) => Kind::Review,
            Self::Verify(_) => Kind::Verify,
        }
    }

    /// Returns what is asked for, in the words of the handoff, cut to at most `max_bytes`.
    pub fn request_excerpt(&self, max_bytes: usize) -> String {
        let text = match self {
            Self::Chat(chat) => {
                let last = chat.messages.iter().rfind(|message| message.role == ChatRole::User);
                Cow::from(last.map_or("", |message| &message.content))
            }
            Self::Schedule(schedule) => match &schedule.payload {
                Value::String(prompt) => Cow::from(prompt),
                other => Cow::from(other.to_string()),
            },
            Self::Plan(plan) => Cow::from(&plan.goal),
            Self::Continue(work) => Cow::from(&work.input),
            Self::Review(review) => {
                Cow::from(format!("{}: review of `{}`", review.task_id, review.step.name))
            }
            Self::Verify(verify) => {
                let criteria = verify.acceptance_criteria.join("; ");
                Cow::from(format!("{}: {criteria}", verify.task_id))
            }
        };
        let text = text.trim();
        match text.floor_char_boundary(max_bytes) {
            all if all == text.len() => text.to_owned(),
            cut => format!("{}…", &text[..text.floor_char_boundary(cut.saturating_sub('…'.len_utf8()))]),
        }
    }

    pub fn verify(&self) -> Option<&Verify> {
        match self {
            Self::Verify(verify) => Some(verify),
            Self::Chat(_) | Self::Schedule(_) | Self::Plan(_) | Self::Continue(_) | Self::Review(_) => None,
        }
    }
}

/// A handoff on the wire. The subject determines the type of the payload; `kind` must match the subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Envelope<P> {
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    /// A UUID, preferably version 7. Also used as the `Nats-Msg-Id`.
    pub handoff_id: HandoffId,
    pub kind: Kind,
    pub issued_at: Timestamp,
    /// After this instant the answer is no longer of use; the handoff fails with `deadline_exceeded`.
    #[serde(default)]
    pub deadline: Option<Timestamp>,
    /// A subject to which a copy of the answer is also published.
    #[serde(default)]
    pub reply_to: Option<String>,
    #[serde(default)]
    pub scope: Scope,
    #[serde(default)]
    pub context: Context,
    /// For a replayed dead letter: the handoffs whose journals it continues, oldest first. Their model turns
    /// are not repeated and their tool calls keep their idempotency keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_REPLAYS))]
    pub replays: Vec<HandoffId>,
    pub payload: P,
}

/// The user, project and task that a handoff belongs to. The orchestrator assigns all these ids.
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

/// Context that the orchestrator sends along. What is absent here but has an id in `scope` is fetched through
/// MCP.
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

impl PreferenceScope {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Group => "group",
            Self::User => "user",
            Self::Project => "project",
            Self::Task => "task",
        }
    }
}

impl Handoff {
    pub fn kind(&self) -> Kind {
        self.work.kind()
    }

    /// Returns the subject on which this handoff is published.
    pub fn subject(&self) -> Subject {
        Subject::Handoff(self.kind())
    }

    /// Decodes and validates a body that arrived on the subject of `kind`. Unknown fields are ignored.
    pub fn decode(kind: Kind, body: &Body<'_>) -> Result<Self, Refusal> {
        body.shape().map_err(|fault| Refusal::invalid(fault.to_string()))?;
        match body.envelope_fields().schema_version {
            Some(version) if version == u64::from(SCHEMA_VERSION) => {}
            Some(version) => {
                let message = format!(
                    "schema_version {version} is not supported; this build supports {SCHEMA_VERSION}"
                );
                return Err(Refusal::new(ErrorCode::UnsupportedVersion, message));
            }
            None => return Err(Refusal::invalid("schema_version is missing or not a whole number")),
        }
        match kind {
            Kind::Chat => Self::open(kind, body, Work::Chat),
            Kind::Schedule => Self::open(kind, body, Work::Schedule),
            Kind::Plan => Self::open(kind, body, Work::Plan),
            Kind::Continue => Self::open(kind, body, Work::Continue),
            Kind::Review => Self::open(kind, body, Work::Review),
            Kind::Verify => Self::open(kind, body, Work::Verify),
        }
    }

    fn open<P: DeserializeOwned>(kind: Kind, body: &Body<'_>, work: fn(P) -> Work) -> Result<Self, Refusal> {
        let envelope: Envelope<P> = body.decode().map_err(|error| Refusal::invalid(error.describe()))?;
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

    /// Checks the constraints that the types do not express.
    fn check(&self) -> Result<(), Refusal> {
        if self.replays.len() > MAX_REPLAYS {
            return Err(Refusal::invalid(format!(
                "replays names more than {MAX_REPLAYS} handoffs; publish a new handoff"
            )));
        }
        // Guarantees that a handoff has one replay, however often it is replayed.
        if self.replays.last().is_some_and(|last| last.replay_id() != self.id) {
            return Err(Refusal::invalid(
                "handoff_id is not the one that a replay of the last of replays has",
            ));
        }
        match &self.work {
            Work::Chat(chat) => chat.check(),
            Work::Schedule(schedule) => schedule.check(),
            Work::Plan(plan) => plan.check(),
            Work::Continue(input) => input.check(self.id),
            Work::Review(review) => review.check(),
            Work::Verify(_) => Ok(()),
        }
    }

    pub fn encode(&self, encoding: Encoding) -> Result<Vec<u8>, CodecError> {
        match &self.work {
            Work::Chat(payload) => encode(encoding, &self.envelope(payload)),
            Work::Schedule(payload) => encode(encoding, &self.envelope(payload)),
            Work::Plan(payload) => encode(encoding, &self.envelope(payload)),
            Work::Continue(payload) => encode(encoding, &self.envelope(payload)),
            Work::Review(payload) => encode(encoding, &self.envelope(payload)),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(goal: &str) -> Work {
        Work::Plan(Plan {
            goal: goal.to_owned(),
            acceptance_criteria: Vec::new(),
            constraints: Vec::new(),
            task_id: None,
        })
    }

    #[test]
    fn excerpt_of_a_request_is_cut_between_characters() {
        assert_eq!(plan(" Publish the site. ").request_excerpt(400), "Publish the site.");
        let long = plan(&"é".repeat(300)).request_excerpt(400);
        assert!(long.len() <= 400 && long.ends_with("é…"), "{long}");
        assert_eq!(plan("").request_excerpt(400), "");
    }
}
