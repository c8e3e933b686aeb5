//! Answers as they are stored or heard.

use async_nats::HeaderMap;
use subjects::{Answer, CodecError, Encoding, Role, Subject, headers};

/// `None` when it is something else.
pub fn read(subject: &str, headers: Option<&HeaderMap>, body: &[u8]) -> Option<Result<Answer, CodecError>> {
    let role = match subject.parse() {
        Ok(Subject::Completion(_)) => Role::ProjectManager,
        Ok(Subject::Findings(_)) => Role::ProjectAnalyst,
        _ => return None,
    };
    let encoding = Encoding::from_content_type(headers::get_any_case(headers, headers::CONTENT_TYPE)).ok()?;
    Some(Answer::decode(role, encoding, body))
}
