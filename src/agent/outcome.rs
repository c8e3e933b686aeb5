use subjects::{
    ErrorCode, Failure, Finding, FindingsStatus, FinishReason, HandoffId, Kind, Message, PreferenceApplied,
    ScopeId, Status, Stop,
};

use crate::{
    context::{self, Budget},
    inference,
    tools::CallError,
};

/// About 200 KiB.
const MOST_TRANSCRIPT_TOKENS: usize = 60_000;

/// What the work came to, before it is put into words for the wire.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) said: Said,
    pub(crate) stop: Stop,
    /// Set when it came to nothing.
    pub(crate) failure: Option<Failure>,
    /// Handed off anew, it could succeed: it is kept among the dead letters.
    pub(crate) keep: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    /// A manager's message.
    Message {
        status: Status,
        content: String,
        finish: FinishReason,
    },
    /// A question, and what a `continue` goes on from: as which kind, with what was said.
    Question {
        content: String,
        resumes_as: Kind,
        transcript: Vec<Message>,
    },
    /// An analyst's judgement.
    Judgement(Box<Judged>),
    Nothing,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Judged {
    pub(crate) task: ScopeId,
    pub(crate) status: FindingsStatus,
    pub(crate) findings: Vec<Finding>,
    pub(crate) actions: Vec<String>,
    pub(crate) preferences: Vec<PreferenceApplied>,
}

impl Outcome {
    pub(crate) fn completed(content: String, finish: FinishReason) -> Self {
        let said = Said::Message { status: Status::Completed, content, finish };
        Self { said, stop: Stop::GoalMet, failure: None, keep: false }
    }

    pub(crate) fn asks(resumes_as: Kind, question: String, messages: &[Message]) -> Self {
        // An answer must fit into a message, so what it carries is bounded; the oldest goes first.
        let fitted = Budget { tokens: MOST_TRANSCRIPT_TOKENS }.fit(0, messages);
        let mut transcript = fitted.map(|fitted| fitted.messages.into_owned()).unwrap_or_default();
        transcript.push(Message::Assistant { content: question.clone(), calls: Vec::new() });
        let said = Said::Question { content: question, resumes_as, transcript };
        Self { said, stop: Stop::NeedsClarification, failure: None, keep: false }
    }
}

/// Why the work could not be brought to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    #[error(transparent)]
    Inference(#[from] inference::Error),
    #[error("the model's answer to `{name}` did not match the requested schema in two attempts: {why}")]
    WrongForm { name: &'static str, why: String },
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("{tool} failed: {why}")]
    Tool { tool: String, why: String },
    #[error("{count} rounds of tool calls failed in a row; the last error: {why}")]
    KeepsFailing { count: u32, why: String },
    #[error("step limit reached: {steps} steps without reaching the goal")]
    MaxSteps { steps: u32 },
    #[error("token budget exceeded: {used} of {allowed} tokens for one handoff")]
    Tokens { used: u64, allowed: u64 },
    #[error(transparent)]
    Context(#[from] context::TooLarge),
    #[error("cannot read the earlier answer: {0}")]
    EarlierAnswer(String),
    /// It goes on from a handoff of another user or project.
    #[error("handoff {0} belongs to another user or project and cannot be continued; publish a new handoff")]
    Foreign(HandoffId),
    /// The handoff asks for what makes no sense.
    #[error("{0}")]
    Senseless(String),
}

impl Broken {
    /// What follows from it: code, stop, and whether the same handoff could succeed later.
    fn consequence(&self) -> (ErrorCode, Stop, bool) {
        match self {
            Self::Inference(inference::Error::Unavailable { .. }) => {
                (ErrorCode::InferenceUnavailable, Stop::InferenceFailure, true)
            }
            Self::Inference(
                inference::Error::TokenRefused(_)
                | inference::Error::StillAway(_)
                | inference::Error::Refused { .. }
                | inference::Error::NoRoute(_)
                | inference::Error::NotRecorded(_),
            )
            | Self::WrongForm { .. } => (ErrorCode::InferenceFailed, Stop::InferenceFailure, true),
            Self::Call(CallError::Rejected { .. }) => (ErrorCode::ToolRejected, Stop::ToolFailure, false),
            Self::Call(
                CallError::Unavailable { .. } | CallError::TokenRefused { .. } | CallError::NotRecorded(_),
            ) => (ErrorCode::ToolFailed, Stop::ToolFailure, true),
            Self::Tool { .. } | Self::KeepsFailing { .. } => {
                (ErrorCode::ToolFailed, Stop::ToolFailure, false)
            }
            Self::MaxSteps { .. } => (ErrorCode::BudgetExceeded, Stop::MaxSteps, false),
            Self::Tokens { .. } | Self::Context(_) => (ErrorCode::BudgetExceeded, Stop::Budget, false),
            Self::EarlierAnswer(_) => (ErrorCode::Internal, Stop::GivenUp, true),
            Self::Foreign(_) => (ErrorCode::ScopeMismatch, Stop::Refused, false),
            Self::Senseless(_) => (ErrorCode::InvalidHandoff, Stop::Refused, false),
        }
    }
}

impl From<Broken> for Outcome {
    fn from(broken: Broken) -> Self {
        let (code, stop, keep) = broken.consequence();
        Self { said: Said::Nothing, stop, failure: Some(Failure::new(code, broken.to_string())), keep }
    }
}
