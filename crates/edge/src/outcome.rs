//! The outcome of a call to a tool of this node, for the audit, for the agent and for the call's key.

use rmcp::model::{CallToolResult, ContentBlock, MetaObject, ResultType};
use serde_json::json;
use subjects::edge::Outcome;

use crate::keys::{Kept, Refusal};

/// Key in `_meta` that marks a result as content of an MCP server.
const UNTRUSTED: &str = "dev.cynode/untrusted";

/// The outcome of a call.
#[derive(Debug)]
pub(crate) struct CallOutcome {
    pub(crate) outcome: Outcome,
    pub(crate) error_type: Option<&'static str>,
    pub(crate) result: CallToolResult,
}

impl CallOutcome {
    /// Creates an error result with a code for programs and a message for the agent.
    pub(crate) fn failure(code: &'static str, message: &str) -> Self {
        let mut result = CallToolResult::error(vec![ContentBlock::text(message)]);
        result.structured_content = Some(json!({ "code": code, "message": message }));
        Self { outcome: Outcome::Failure, error_type: Some(code), result }
    }

    /// Reads what a server answered, or why it did not. Returns what is kept for repeated calls, too; `None`
    /// if the call had no effect.
    pub(crate) fn of(called: Result<CallToolResult, upstream::Failure>) -> (Self, Option<Kept>) {
        let failed = match called {
            Ok(result) => {
                let answered = Self::answered(result);
                let kept = answered.kept();
                return (answered, Some(kept));
            }
            Err(failure) => failure,
        };
        let mut message = failed.error.to_string();
        let code = match &failed.error {
            upstream::Error::TimedOut => "upstream_timeout",
            upstream::Error::Rejected { .. } => "upstream_refused",
            upstream::Error::TooLarge(_) => "too_large",
            upstream::Error::InputRequired => "asks_for_input",
            upstream::Error::Busy | upstream::Error::BreakerOpen => "upstream_busy",
            _ => "upstream_unavailable",
        };
        if failed.fate == upstream::Fate::Unknown {
            message.push_str(". It is unknown whether the call had its effect.");
        }
        let failure = Self::failure(code, &message);
        let kept = match failed.fate {
            upstream::Fate::Answered => Some(failure.kept()),
            upstream::Fate::NotRun => None,
            upstream::Fate::Unknown => Some(Kept::InDoubt),
        };
        (failure, kept)
    }

    fn answered(result: CallToolResult) -> Self {
        let mut result = upstream::sanitize::result(result);
        result.result_type = Some(ResultType::COMPLETE);
        result.meta.get_or_insert_with(MetaObject::default).0.insert(UNTRUSTED.to_owned(), true.into());
        let is_error = result.is_error == Some(true);
        let outcome = if is_error { Outcome::Failure } else { Outcome::Success };
        Self { outcome, error_type: is_error.then_some("tool_error"), result }
    }

    /// Returns the answer for repeated calls.
    fn kept(&self) -> Kept {
        serde_json::to_string(&self.result).map_or(Kept::Forgotten, |text| Kept::Answered(text.into()))
    }

    /// Answers a call that is not made because of its key, as the gateway does.
    pub(crate) fn of_refused(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::Made(Kept::Answered(text)) => match serde_json::from_str(text) {
                Ok(result) => Self { outcome: Outcome::Replayed, error_type: None, result },
                Err(_) => Self::forgotten(),
            },
            Refusal::Made(Kept::Forgotten) => Self::forgotten(),
            Refusal::Made(Kept::InDoubt) => Self::failure(
                "in_doubt",
                "An earlier call with this key was started, and it is unknown whether it had its effect. \
                 Check before you try again.",
            ),
            Refusal::Reused => Self::failure(
                "key_reused",
                "This idempotency key was used for another call. Nothing was done; \
                 use a different key for each call.",
            ),
            Refusal::Full => Self::failure(
                "too_many_keys",
                "Too many idempotency keys were used under this lease. Nothing was done.",
            ),
        }
    }

    fn forgotten() -> Self {
        Self::failure(
            "in_doubt",
            "The call with this key was made, but its answer is not kept any more. It is not repeated: \
             check before you try again.",
        )
    }
}
