//! Reads and decodes answers, from a stream or from a subscription.

use async_nats::{HeaderMap, jetstream::message::StreamMessage};
use broker::Broker;
use subjects::{Answer, CodecError, Encoding, HandoffId, Role, Subject, headers};

use crate::Error;

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

/// Reads the stored answer to a handoff. Returns `None` if there is none yet.
pub async fn stored(
    broker: &Broker,
    role: Role,
    id: HandoffId,
) -> Result<Option<(StreamMessage, Answer)>, Error> {
    let subject = match role {
        Role::ProjectManager => Subject::Completion(id),
        Role::ProjectAnalyst => Subject::Findings(id),
    };
    let found = broker::last_on(&broker.jetstream, broker.layout.runs(role), &subject).await?;
    let Some(message) = found else { return Ok(None) };
    let answer = read(&message.subject, Some(&message.headers), &message.payload);
    Ok(answer.transpose().map_err(Error::nats)?.map(|answer| (message, answer)))
}
