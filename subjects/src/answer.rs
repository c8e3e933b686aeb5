//! Answers: completions of project managers and findings of project analysts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ChatMessage, CodecError, Encoding, ErrorCode, HandoffId, InstanceId, Kind, Message, PreferenceScope,
    Role, SCHEMA_VERSION, ScopeId, Subject, Trace, decode, encode,
    workflow::{ReviewDecision, Step},
};

/// The answer to a handoff.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Completion(Completion),
    Findings(Findings),
}

/// The answer of a project manager.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Completion {
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    pub handoff_id: HandoffId,
    pub kind: Kind,
    pub status: Status,
    pub message: Option<ChatMessage>,
    pub finish_reason: FinishReason,
    /// Tasks that this handoff created or changed.
    pub tasks: Vec<TaskChange>,
    /// Results of the verifications that this handoff requested from analysts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verifications: Vec<Verification>,
    /// The steps of a task, for a `plan` that names one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// What a `review` decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<Box<ReviewDecision>>,
    /// Set when `status` is `needs_clarification`: the conversation that a `continue` handoff resumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transcript: Vec<Message>,
    /// Set together with `transcript`: the kind of work that a `continue` handoff resumes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes_as: Option<Kind>,
    /// Set together with `resumes_as` if the steps of this task are planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumes_task: Option<ScopeId>,
    pub usage: Usage,
    pub trace: Trace,
    /// The number of attempts so far, including the one that produced this answer.
    pub attempts: u32,
    pub instance: InstanceId,
    /// Set when `status` is `failed` or `cancelled`.
    pub error: Option<Failure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Completed,
    NeedsClarification,
    Failed,
    Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    Stop,
    Length,
    Error,
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskChange {
    pub task_id: ScopeId,
    pub change: TaskChangeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskChangeKind {
    Created,
    Updated,
}

/// The result of a verification that a project manager requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verification {
    /// The verify handoff. Its own answer contains the complete findings.
    pub handoff_id: HandoffId,
    pub task_id: ScopeId,
    /// Absent when there are no findings; `error` then says why.
    pub status: Option<FindingsStatus>,
    pub findings: Vec<Finding>,
    pub error: Option<Failure>,
}

/// The answer of a project analyst. If `error` is set, no verdict was reached and `status` is
/// `needs_clarification`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Findings {
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    pub handoff_id: HandoffId,
    pub kind: Kind,
    /// Absent only when the handoff was refused before its task id could be read.
    pub task_id: Option<ScopeId>,
    pub status: FindingsStatus,
    pub findings: Vec<Finding>,
    pub recommended_actions: Vec<String>,
    pub preferences_applied: Vec<PreferenceApplied>,
    pub usage: Usage,
    pub trace: Trace,
    pub attempts: u32,
    pub instance: InstanceId,
    pub error: Option<Failure>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FindingsStatus {
    Pass,
    Fail,
    NeedsClarification,
}

/// The verdict on one acceptance criterion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    pub criterion: String,
    pub verdict: Verdict,
    pub severity: Severity,
    pub evidence: Option<String>,
    pub location: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Met,
    NotMet,
    Unclear,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Info,
    Minor,
    Major,
    Critical,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PreferenceApplied {
    pub key: String,
    pub scope: PreferenceScope,
    pub version: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub model_calls: u32,
    pub tool_calls: u32,
    /// `null` when the price of the model is not known.
    pub cost_usd: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    pub code: ErrorCode,
    pub message: String,
    /// Whether the same work, handed off again under a new id, could succeed.
    pub retryable: bool,
}

impl Failure {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retryable: code.retryable() }
    }
}

impl Answer {
    pub fn handoff_id(&self) -> HandoffId {
        match self {
            Self::Completion(completion) => completion.handoff_id,
            Self::Findings(findings) => findings.handoff_id,
        }
    }

    pub fn error(&self) -> Option<&Failure> {
        match self {
            Self::Completion(completion) => completion.error.as_ref(),
            Self::Findings(findings) => findings.error.as_ref(),
        }
    }

    pub fn subject(&self) -> Subject {
        match self {
            Self::Completion(completion) => Subject::Completion(completion.handoff_id),
            Self::Findings(findings) => Subject::Findings(findings.handoff_id),
        }
    }

    pub fn encode(&self, encoding: Encoding) -> Result<Vec<u8>, CodecError> {
        match self {
            Self::Completion(completion) => encode(encoding, completion),
            Self::Findings(findings) => encode(encoding, findings),
        }
    }

    /// Decodes an answer: a completion or findings, by the role of the instance.
    pub fn decode(role: Role, encoding: Encoding, body: &[u8]) -> Result<Self, CodecError> {
        Ok(match role {
            Role::ProjectManager => Self::Completion(decode(encoding, body)?),
            Role::ProjectAnalyst => Self::Findings(decode(encoding, body)?),
        })
    }
}
