//! Stores handoffs that failed: the whole message with the reason, before the handoff is settled.
//!
//! Workers dead-letter handoffs themselves. For handoffs that kill every worker there are two fallbacks: the
//! [`mover`] acts on advisories of the server, the [`sweeper`] on messages left in the queue.

mod mover;
mod sweeper;

use std::sync::Arc;

use async_nats::{HeaderMap, jetstream};
use broker::{Broker, PublishError};
use bytes::Bytes;
use chain::Committed;
use protocol::Holder;
use subjects::{
    DeadLetter, ErrorCode, Failure, HandoffId, InstanceId, Kind, Refusal, Role, Stop, Timestamp, streams,
};
use time::OffsetDateTime;
use tracing::warn;

use crate::{
    admission::{Identity, IncomingMessage, Policy},
    agent::LedgerSummary,
    journal::{self, RunState},
    reply::{self, Run},
    storage::Storage,
    telemetry::Metrics,
};

pub(crate) use mover::run as run_mover;
pub(crate) use sweeper::{Schedule, run as run_sweeper};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("writing a dead letter")]
    Publish(#[from] PublishError),
    #[error("storing the answer of a dead-lettered handoff")]
    Answer(#[from] reply::Error),
    #[error("a worker still runs the handoff")]
    StillRuns,
}

/// A message to be dead-lettered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailedHandoff<'a> {
    pub(crate) kind: Kind,
    pub(crate) sequence: u64,
    pub(crate) deliveries: u64,
    /// The server will not redeliver it, so no later delivery can hold its handoff.
    pub(crate) is_exhausted: bool,
    pub(crate) published_at: OffsetDateTime,
    pub(crate) headers: Option<&'a HeaderMap>,
    pub(crate) body: &'a Bytes,
}

impl FailedHandoff<'_> {
    fn holder(&self) -> Holder {
        let delivery = if self.is_exhausted { u64::MAX } else { self.deliveries };
        Holder { message: self.sequence, delivery }
    }
}

/// The outcome of dead-lettering a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeadLetterOutcome {
    Written,
    /// Its handoff is already answered.
    AlreadyAnswered,
    /// A copy of its handoff, another message in the queue, holds it.
    HeldByCopy,
    /// A later delivery of the same message holds its handoff.
    Superseded,
}

/// Writes dead letters and the answers of dead-lettered handoffs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeadLetterWriter<'a> {
    pub(crate) storage: &'a Storage,
    pub(crate) instance: &'a InstanceId,
    pub(crate) metrics: &'a Metrics,
}

impl DeadLetterWriter<'_> {
    /// Stores the whole message as a dead letter. Idempotent: its message id is derived from the stored
    /// message, so the server drops a second copy.
    pub(crate) async fn write_dead_letter(
        &self,
        failed: &FailedHandoff<'_>,
        why: &Refusal,
    ) -> Result<(), Error> {
        let mut letter = DeadLetter {
            kind: failed.kind,
            reason: why.code,
            message: why.message.clone(),
            sequence: failed.sequence,
            deliveries: failed.deliveries,
            published_at: Timestamp::new(failed.published_at).unwrap_or_else(|_| Timestamp::epoch()),
            instance: self.instance.to_string(),
            spilled: None,
            spilled_headers: None,
            original: failed.headers.cloned().unwrap_or_default(),
        };
        if let Some(taken) = letter.split_off_headers() {
            let name = format!("{}-headers", letter.name());
            let text = subjects::encode_json(&taken);
            self.storage.spill(failed.kind.role(), &name, &text).await;
            letter.spilled_headers = Some(name);
        }
        let stored = match self.store(&letter, failed.body).await {
            // With the added headers it no longer fits into one message: the body goes to the object store.
            Err(Error::Publish(PublishError::TooLarge)) => {
                let name = letter.name();
                self.storage.spill(failed.kind.role(), &name, failed.body).await;
                letter.spilled = Some(name);
                self.store(&letter, &Bytes::new()).await
            }
            other => other,
        };
        stored?;
        self.metrics.count_dead_letter(failed.kind, why.code);
        Ok(())
    }

    async fn store(&self, letter: &DeadLetter, body: &Bytes) -> Result<(), Error> {
        let streams = &self.storage.streams;
        streams.publish(streams::DEAD, &letter.subject(), || letter.headers(), body, None).await?;
        Ok(())
    }

    /// Writes a dead letter, then answers the handoff if its id is known and may be answered. Does neither if
    /// a copy or a later delivery holds the handoff.
    pub(crate) async fn dead_letter(
        &self,
        failed: &FailedHandoff<'_>,
        why: &Refusal,
        identity: &Identity,
        stop: Stop,
    ) -> Result<DeadLetterOutcome, Error> {
        let state = match identity.answer_to {
            Some(id) => journal::read_run_state(self.storage, failed.kind, id, failed.holder()).await,
            None => RunState::Open(0),
        };
        let after = match state {
            RunState::Open(sequence) => sequence,
            RunState::Answered => return Ok(DeadLetterOutcome::AlreadyAnswered),
            RunState::HeldByCopy => return Ok(DeadLetterOutcome::HeldByCopy),
            RunState::Superseded => return Ok(DeadLetterOutcome::Superseded),
        };
        self.write_dead_letter(failed, why).await?;
        // The reason may quote the handoff, so it is stored in the letter but not logged.
        match identity.answer_to {
            Some(id) => {
                let committed = self.answer(failed, id, identity, why, stop, after).await?;
                if matches!(committed, Committed::Fenced) {
                    return Ok(self.find_owner(failed, id).await);
                }
                warn!(handoff.id = %id, kind = %failed.kind, reason = %why.code, "Handoff dead-lettered.");
            }
            None => {
                warn!(
                    sequence = failed.sequence,
                    kind = %failed.kind,
                    reason = %why.code,
                    "Handoff dead-lettered without an answer."
                );
            }
        }
        Ok(DeadLetterOutcome::Written)
    }

    /// Returns what became of a handoff whose run went on while it was dead-lettered.
    async fn find_owner(&self, failed: &FailedHandoff<'_>, id: HandoffId) -> DeadLetterOutcome {
        match journal::read_run_state(self.storage, failed.kind, id, failed.holder()).await {
            RunState::Answered => DeadLetterOutcome::AlreadyAnswered,
            RunState::HeldByCopy => DeadLetterOutcome::HeldByCopy,
            RunState::Superseded | RunState::Open(_) => DeadLetterOutcome::Superseded,
        }
    }

    async fn answer(
        &self,
        failed: &FailedHandoff<'_>,
        id: HandoffId,
        identity: &Identity,
        why: &Refusal,
        stop: Stop,
        after: u64,
    ) -> Result<Committed, reply::Error> {
        let run = || Run {
            kind: failed.kind,
            id,
            instance: self.instance,
            attempts: u32::try_from(failed.deliveries).unwrap_or(u32::MAX),
            trace_id: identity.trace_id.clone().unwrap_or_else(|| id.trace_id()),
            task: None,
        };
        // What earlier attempts did is part of the truth, also if no attempt comes to an end.
        let recorded = match after {
            0 => Vec::new(),
            _ => journal::read_records(self.storage, failed.kind.role(), id, after).await,
        };
        let summary = LedgerSummary::from_records(&recorded);
        let answer_with = |summary| run().failure(Failure::new(why.code, &why.message), stop, summary);
        let mut answer = answer_with(summary);
        let mut shorter = LedgerSummary::shorten(&answer).into_iter();
        // Fenced means that the handoff already has an answer, or that another instance works on it.
        let committed = loop {
            match reply::commit(self.storage, failed.kind, &answer, identity.encoding, after).await {
                Err(error @ reply::Error::Publish(PublishError::TooLarge)) => {
                    answer = answer_with(shorter.next().ok_or(error)?);
                }
                committed => break committed?,
            }
        };
        if let (Committed::Ours(stored), Some(reply_to)) = (&committed, &identity.reply_to) {
            let stored = stored.clone();
            reply::send_copy(&self.storage.streams.broker, &answer, identity.encoding, stored, reply_to)
                .await;
        }
        Ok(committed)
    }
}

/// Resources shared by the mover and the sweeper.
#[derive(Clone, Debug)]
pub(crate) struct DeadLetterResources {
    pub(crate) storage: Storage,
    pub(crate) role: Role,
    pub(crate) policy: Arc<Policy>,
    pub(crate) instance: InstanceId,
    pub(crate) metrics: Arc<Metrics>,
}

impl DeadLetterResources {
    fn writer(&self) -> DeadLetterWriter<'_> {
        DeadLetterWriter { storage: &self.storage, instance: &self.instance, metrics: &self.metrics }
    }
}

/// Dead-letters a message that the server will not deliver again, as read from the stream.
///
/// Idempotent and safe under concurrency: letter and answer are stored once, and removing a message that is
/// gone changes nothing.
async fn dead_letter_stored(
    writer: &DeadLetterWriter<'_>,
    policy: &Policy,
    kind: Kind,
    message: &jetstream::message::StreamMessage,
    deliveries: u64,
) -> Result<(), Error> {
    let failed = FailedHandoff {
        kind,
        sequence: message.sequence,
        deliveries,
        is_exhausted: true,
        published_at: message.time,
        headers: Some(&message.headers),
        body: &message.payload,
    };
    let incoming = IncomingMessage {
        kind,
        subject: &message.subject,
        headers: Some(&message.headers),
        body: &message.payload,
    };
    let why = Refusal::new(
        ErrorCode::Poisoned,
        format!(
            "delivered {deliveries} times, the server's limit, without an outcome: its workers died or \
             handed it back"
        ),
    );
    match writer.dead_letter(&failed, &why, &policy.identity(&incoming), Stop::GivenUp).await? {
        DeadLetterOutcome::Written | DeadLetterOutcome::AlreadyAnswered | DeadLetterOutcome::HeldByCopy => {
            Ok(())
        }
        DeadLetterOutcome::Superseded => Err(Error::StillRuns),
    }
}

/// Removes a message from the queue. Succeeds if it is already gone.
async fn remove_from_queue(
    broker: &Broker,
    role: Role,
    sequence: u64,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let queue = broker.layout.handoffs(role);
    let stream = broker.jetstream.get_stream_no_info(queue).await?;
    match stream.delete_message(sequence).await {
        Ok(_) => Ok(()),
        Err(error) => match broker::message_at(&broker.jetstream, queue, sequence).await? {
            None => Ok(()),
            Some(_) => Err(Box::new(error)),
        },
    }
}
