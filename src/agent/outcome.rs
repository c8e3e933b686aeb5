//! The outcome of the work, before it is encoded as an answer, and the errors that end it.

use subjects::{
    ErrorCode, Failure, Finding, FindingsStatus, FinishReason, HandoffId, Kind, Message, PreferenceApplied,
    ScopeId, Status, Stop,
    workflow::{ReviewDecision, Step},
};

use crate::{
    context::{self, Budget},
    inference,
    tools::CallError,
};

/// Maximum size of the transcript in an answer; about 200 KiB.
const MAX_TRANSCRIPT_TOKENS: usize = 60_000;

/// The outcome of the work on a handoff.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) body: AnswerBody,
    pub(crate) stop: Stop,
    /// Set when the work failed.
    pub(crate) failure: Option<Failure>,
    /// Whether the handoff is also dead-lettered, because a replay could succeed.
    pub(crate) dead_letter: bool,
}

/// The part of an answer that depends on the role and on how the work ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum AnswerBody {
    /// A manager's message.
    Message {
        status: Status,
        content: String,
        finish: FinishReason,
    },
    /// A manager's question, with the kind and transcript from which a `continue` resumes.
    Question {
        content: String,
        resumes_as: Kind,
        /// The task whose steps are planned.
        task: Option<ScopeId>,
        transcript: Vec<Message>,
    },
    /// The steps of a task.
    Steps {
        content: String,
        steps: Vec<Step>,
    },
    /// The decision of a manager on the result of a step.
    Review {
        content: String,
        decision: Box<ReviewDecision>,
    },
    /// An analyst's findings.
    Findings(Box<TaskFindings>),
    Empty,
}

/// The findings of an analyst on one task.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TaskFindings {
    pub(crate) task: ScopeId,
    pub(crate) status: FindingsStatus,
    pub(crate) findings: Vec<Finding>,
    pub(crate) actions: Vec<String>,
    pub(crate) preferences: Vec<PreferenceApplied>,
}

impl Outcome {
    pub(crate) fn completed(content: String, finish: FinishReason) -> Self {
        let body = AnswerBody::Message { status: Status::Completed, content, finish };
        Self::answered(body)
    }

    /// Ends the work with what was asked for.
    pub(crate) fn answered(body: AnswerBody) -> Self {
        Self { body, stop: Stop::GoalMet, failure: None, dead_letter: false }
    }

    /// Makes a question resume as the planning of the steps of this task.
    pub(crate) fn about_task(mut self, task_id: ScopeId) -> Self {
        if let AnswerBody::Question { task, .. } = &mut self.body {
            *task = Some(task_id);
        }
        self
    }

    /// Ends the work with a question to the user. The transcript includes the question.
    pub(crate) fn question(resumes_as: Kind, question: String, messages: &[Message]) -> Self {
        // The answer must fit into one NATS message, so the oldest turns are left out.
        let fitted = Budget { tokens: MAX_TRANSCRIPT_TOKENS }.fit(0, messages);
        let mut transcript = fitted.map(|fitted| fitted.messages.into_owned()).unwrap_or_default();
        transcript.push(Message::Assistant { content: question.clone(), calls: Vec::new() });
        let body = AnswerBody::Question { content: question, resumes_as, task: None, transcript };
        Self { body, stop: Stop::NeedsClarification, failure: None, dead_letter: false }
    }
}

/// Why the work failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WorkError {
    #[error(transparent)]
    Inference(#[from] inference::Error),
    #[error("the model's answer to `{name}` did not match the requested schema in two attempts: {why}")]
    InvalidOutput { name: &'static str, why: String },
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("{tool} failed: {why}")]
    ToolFailed { tool: String, why: String },
    #[error("{count} rounds of tool calls failed in a row; the last error: {why}")]
    RepeatedFailures { count: u32, why: String },
    #[error("step limit reached: {steps} steps without reaching the goal")]
    MaxSteps { steps: u32 },
    #[error("token budget exceeded: {used} of {allowed} tokens for one handoff")]
    TokenBudget { used: u64, allowed: u64 },
    #[error(transparent)]
    ContextTooLarge(#[from] context::TooLarge),
    #[error("cannot read the earlier answer: {0}")]
    EarlierAnswer(String),
    /// A `continue` names a handoff of another user or project.
    #[error("handoff {0} belongs to another user or project and cannot be continued; publish a new handoff")]
    OtherScope(HandoffId),
    /// The handoff contradicts itself.
    #[error("{0}")]
    InvalidHandoff(String),
}

impl WorkError {
    /// Returns the error code, the stop reason and whether the handoff is dead-lettered, because a replay
    /// could succeed.
    fn consequence(&self) -> (ErrorCode, Stop, bool) {
        match self {
            Self::Inference(inference::Error::Unavailable { .. }) => {
                (ErrorCode::InferenceUnavailable, Stop::InferenceFailure, true)
            }
            Self::Inference(inference::Error::NoLease(_)) => (ErrorCode::ToolFailed, Stop::ToolFailure, true),
            Self::Inference(
                inference::Error::TokenRefused(_)
                | inference::Error::OutageContinues(_)
                | inference::Error::Unusable { .. }
                | inference::Error::Refused { .. }
                | inference::Error::TooLong { .. }
                | inference::Error::NoRoute(_)
                | inference::Error::NotRecorded(_),
            )
            | Self::InvalidOutput { .. } => (ErrorCode::InferenceFailed, Stop::InferenceFailure, true),
            Self::Call(CallError::Rejected { .. }) => (ErrorCode::ToolRejected, Stop::ToolFailure, false),
            Self::Call(
                CallError::Unavailable { .. } | CallError::TokenRefused { .. } | CallError::NotRecorded(_),
            ) => (ErrorCode::ToolFailed, Stop::ToolFailure, true),
            Self::ToolFailed { .. } | Self::RepeatedFailures { .. } => {
                (ErrorCode::ToolFailed, Stop::ToolFailure, false)
            }
            Self::MaxSteps { .. } => (ErrorCode::BudgetExceeded, Stop::MaxSteps, false),
            Self::TokenBudget { .. } | Self::ContextTooLarge(_) => {
                (ErrorCode::BudgetExceeded, Stop::Budget, false)
            }
            Self::EarlierAnswer(_) => (ErrorCode::Internal, Stop::GivenUp, true),
            Self::OtherScope(_) => (ErrorCode::ScopeMismatch, Stop::Refused, false),
            Self::InvalidHandoff(_) => (ErrorCode::InvalidHandoff, Stop::Refused, false),
        }
    }
}

impl From<WorkError> for Outcome {
    fn from(error: WorkError) -> Self {
        let (code, stop, dead_letter) = error.consequence();
        Self {
            body: AnswerBody::Empty,
            stop,
            failure: Some(Failure::new(code, error.to_string())),
            dead_letter,
        }
    }
}
