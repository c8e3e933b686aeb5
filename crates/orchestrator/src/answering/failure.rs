//! Why a turn has no answer, as an error of the API.

use contract::thread::{AnswerState, TurnAnswer};
use http::StatusCode;
use subjects::ErrorCode;

use crate::error::ApiError;

/// Returns the error of a turn that failed or was cancelled. It is final: a repeated request joins the same
/// turn.
pub(crate) fn failure(answer: &TurnAnswer) -> Option<ApiError> {
    match answer.state {
        AnswerState::Completed | AnswerState::Question => return None,
        AnswerState::Failed | AnswerState::Cancelled => {}
    }
    let code = answer.error_code.as_deref().and_then(|code| code.parse().ok());
    let code = code.unwrap_or(match answer.state {
        AnswerState::Cancelled => ErrorCode::Cancelled,
        _ => ErrorCode::Internal,
    });
    let message = if answer.text.is_empty() { "The request failed." } else { &answer.text };
    Some(ApiError::new(status(code), code.as_str(), message).not_retryable())
}

/// Returns the error of a request whose orchestrator stops before the answer is there. `path` is where it can
/// be fetched.
pub(super) fn stopping(path: &str) -> ApiError {
    let message = format!(
        "This orchestrator is stopping; the work goes on. Repeat the request elsewhere to join it, or fetch \
         the answer with GET {path}."
    );
    ApiError::unavailable("stopping", message)
}

fn status(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::Cancelled => StatusCode::CONFLICT,
        // What was asked for does not fit into the limits of a turn.
        ErrorCode::BudgetExceeded => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorCode::ScopeMismatch | ErrorCode::ToolRejected => StatusCode::FORBIDDEN,
        ErrorCode::ToolFailed | ErrorCode::InferenceFailed => StatusCode::BAD_GATEWAY,
        ErrorCode::InferenceUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::DeadlineExceeded | ErrorCode::StaleHandoff => StatusCode::GATEWAY_TIMEOUT,
        // Not the client's fault: it did not write the handoff.
        ErrorCode::InvalidHandoff
        | ErrorCode::UnsupportedVersion
        | ErrorCode::UntrustedProducer
        | ErrorCode::NotForPma
        | ErrorCode::Poisoned
        | ErrorCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(state: AnswerState, code: Option<&str>) -> TurnAnswer {
        TurnAnswer {
            state,
            text: "no".to_owned(),
            error_code: code.map(str::to_owned),
            is_cut: false,
            prompt_tokens: 0,
            completion_tokens: 0,
        }
    }

    #[test]
    fn every_code_has_a_status_and_no_failure_is_retried() {
        for code in ErrorCode::ALL {
            let error = failure(&answer(AnswerState::Failed, Some(code.as_str()))).unwrap();
            assert!(error.status.is_client_error() || error.status.is_server_error(), "{code:?}");
            assert_eq!((&*error.code, error.should_retry), (code.as_str(), Some(false)));
        }
        let unknown = failure(&answer(AnswerState::Failed, Some("from_the_future"))).unwrap();
        assert_eq!(unknown.status.as_u16(), 500);
        let cancelled = failure(&answer(AnswerState::Cancelled, None)).unwrap();
        assert_eq!((cancelled.status.as_u16(), &*cancelled.code), (409, "cancelled"));
        assert_eq!(failure(&answer(AnswerState::Question, None)), None);
    }
}
