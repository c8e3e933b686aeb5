//! Decodes answers, from a stream or from a subscription.

use async_nats::HeaderMap;
use subjects::{Answer, CodecError, Encoding, Role, Subject, headers};

/// Decodes an answer. Returns `None` if the subject is not that of an answer or the content type is unknown.
pub fn read(subject: &str, headers: Option<&HeaderMap>, body: &[u8]) -> Option<Result<Answer, CodecError>> {
    let role = match subject.parse() {
        Ok(Subject::Completion(_)) => Role::ProjectManager,
        Ok(Subject::Findings(_)) => Role::ProjectAnalyst,
        _ => return None,
    };
    let encoding = Encoding::from_content_type(headers::get_any_case(headers, headers::CONTENT_TYPE)).ok()?;
    Some(Answer::decode(role, encoding, body))
}
