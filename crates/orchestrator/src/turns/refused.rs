//! Finds handoffs that workers refused without an answer, such as those that are signed by a key which they
//! do not trust. They are in the stream of dead letters, and no worker ever answers them.

use std::{collections::HashMap, time::Duration};

use async_nats::{
    HeaderMap,
    jetstream::{self, message::StreamMessage},
};
use broker::{Broker, Chain, ReadError};
use contract::thread::TurnAnswer;
use secrets::redact_by_kind;
use subjects::{
    Body, DeadLetter, Encoding, ErrorCode, Handoff, HandoffId, Pattern, Role, Subject, headers,
    signature::{self, SignatureBase, TrustedProducer},
    streams,
};
use time::OffsetDateTime;
use tokio::time::timeout;
use tracing::warn;

use super::{Turns, outcome};

const READ_TIMEOUT: Duration = Duration::from_secs(15);
/// How many of the newest dead letters are read.
const MAX_LETTERS: u64 = 1_000;
/// How much the clocks of gateways and NATS may differ.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);

/// Handoffs that workers refused without an answer, each with the time of its newest dead letter and what is
/// stored as its answer.
#[derive(Debug, Default)]
pub(crate) struct Refused(HashMap<HandoffId, (OffsetDateTime, TurnAnswer)>);

impl Refused {
    /// Returns the answer of a handoff that was refused after it was last published.
    pub(super) fn of(&self, id: HandoffId, sent_at: OffsetDateTime) -> Option<&TurnAnswer> {
        let (refused_at, answer) = self.0.get(&id)?;
        (*refused_at >= sent_at - CLOCK_TOLERANCE).then_some(answer)
    }
}

#[derive(Debug, thiserror::Error)]
enum LettersError {
    #[error("reading the state of the dead-letter stream")]
    Stream(#[from] jetstream::context::GetStreamError),
    #[error("reading dead letters")]
    Read(#[from] ReadError),
    #[error("dead letters are not read in time")]
    TimedOut,
}

impl Turns {
    /// Returns those of some handoffs that workers refused. None if the dead letters cannot be read.
    pub(crate) async fn refused_among(&self, broker: &Broker, handoffs: &[Handoff]) -> Refused {
        let Some(since) = handoffs.iter().map(|handoff| handoff.issued_at.at()).min() else {
            return Refused::default();
        };
        let reading = self.read_letters(broker, handoffs, since - CLOCK_TOLERANCE);
        let read = timeout(READ_TIMEOUT, reading).await.unwrap_or(Err(LettersError::TimedOut));
        read.unwrap_or_else(|error| {
            let error = Chain(&error);
            warn!(%error, "Dead letters not read; refused handoffs count as lost.");
            Refused::default()
        })
    }

    async fn read_letters(
        &self,
        broker: &Broker,
        handoffs: &[Handoff],
        since: OffsetDateTime,
    ) -> Result<Refused, LettersError> {
        let wanted: HashMap<_, _> = handoffs.iter().map(|handoff| (handoff.id, handoff)).collect();
        let filter = Pattern::Dead(Role::ProjectManager).to_string();
        let stream = broker.jetstream.get_stream(streams::DEAD).await?;
        let state = &stream.cached_info().state;
        let last = state.last_sequence;
        let mut from = state.first_sequence.max(last.saturating_sub(MAX_LETTERS - 1)).max(1);
        let mut refused = Refused::default();
        while from <= last {
            let limit = last - from + 1;
            let batch = broker::read_batch(&broker.jetstream, streams::DEAD, &filter, from, limit).await?;
            let Some(newest) = batch.last() else { break };
            from = newest.sequence + 1;
            refused.0.extend(
                batch
                    .iter()
                    .filter(|message| message.time >= since)
                    .filter_map(|message| self.refusal(message, &wanted)),
            );
        }
        Ok(refused)
    }

    /// Returns what a dead letter says about one of the handoffs; `None` if another message was refused.
    fn refusal(
        &self,
        message: &StreamMessage,
        wanted: &HashMap<HandoffId, &Handoff>,
    ) -> Option<(HandoffId, (OffsetDateTime, TurnAnswer))> {
        let letter = DeadLetter::read(&message.subject, &message.headers).ok()?;
        if !is_refusal(letter.reason) {
            return None;
        }
        let body = Body::inspect(Encoding::Json, &message.payload);
        let handoff = wanted.get(&body.envelope_fields().handoff_id?)?;
        if letter.kind != handoff.kind() || !self.has_published(handoff, &letter, &body, &message.payload) {
            return None;
        }
        let text = format!("the workers refused it: {}", redact_by_kind(&letter.message));
        Some((handoff.id, (message.time, outcome::failed(letter.reason, text))))
    }

    /// Returns whether a message that was refused is one that an orchestrator with this key published.
    /// Another producer may have used the id of a handoff to have it ended.
    fn has_published(&self, handoff: &Handoff, letter: &DeadLetter, body: &Body<'_>, bytes: &[u8]) -> bool {
        let Some(key) = &self.key else {
            return handoff.encode(Encoding::Json).is_ok_and(|own| own == bytes);
        };
        let own = TrustedProducer { key: key.public_key(), subjects: None };
        let subject = Subject::Handoff(letter.kind).to_string();
        let header = |name: &str| header_of(&letter.original, name);
        SignatureBase::new(&subject, body.envelope_fields(), bytes).is_some_and(|signed| {
            let signed = signed.with_lease(header(headers::LEASE));
            signature::verify(&[own], header(headers::SIGNATURE), &signed).is_ok()
        })
    }
}

fn header_of<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers::get_any_case(Some(headers), name)
}

/// Returns whether a handoff with a dead letter of this reason is not worked on any more. With the others it
/// is, if its worker died before it had answered.
fn is_refusal(reason: ErrorCode) -> bool {
    match reason {
        ErrorCode::InvalidHandoff
        | ErrorCode::UnsupportedVersion
        | ErrorCode::UntrustedProducer
        | ErrorCode::NotForPma
        | ErrorCode::StaleHandoff
        | ErrorCode::Poisoned => true,
        // Of a copy: another message has the id.
        ErrorCode::ScopeMismatch
        | ErrorCode::DeadlineExceeded
        | ErrorCode::Cancelled
        | ErrorCode::ToolRejected
        | ErrorCode::ToolFailed
        | ErrorCode::InferenceFailed
        | ErrorCode::InferenceUnavailable
        | ErrorCode::BudgetExceeded
        | ErrorCode::Internal => false,
    }
}
