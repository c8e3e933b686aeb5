//! What is given up: a whole copy with the reason, stored before the handoff is settled.
//!
//! The worker is the authority. For handoffs that kill every worker that takes them there is a net: the
//! [`mover`] acts on the server's word, the [`sweeper`] on what it finds left behind.

mod mover;
mod sweeper;

use std::sync::Arc;

use async_nats::{HeaderMap, jetstream};
use broker::{Broker, PublishError};
use bytes::Bytes;
use protocol::Holder;
use subjects::{DeadLetter, ErrorCode, Failure, HandoffId, InstanceId, Kind, Refusal, Role, Stop, Timestamp};
use time::OffsetDateTime;
use tracing::warn;

use crate::{
    admission::{Arrived, Identity, Policy},
    agent::Account,
    journal::{self, Standing},
    reply::{self, Committed, Run},
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
}

/// A message that is given up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Casualty<'a> {
    pub(crate) kind: Kind,
    pub(crate) sequence: u64,
    pub(crate) deliveries: u64,
    /// The server will not deliver it again, so no later delivery of it can hold its handoff.
    pub(crate) is_exhausted: bool,
    pub(crate) published_at: OffsetDateTime,
    pub(crate) headers: Option<&'a HeaderMap>,
    pub(crate) body: &'a Bytes,
}

impl Casualty<'_> {
    fn holder(&self) -> Holder {
        let delivery = if self.is_exhausted { u64::MAX } else { self.deliveries };
        Holder { message: self.sequence, delivery }
    }
}

/// What became of a message that was to be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenUp {
    Yes,
    /// Its handoff has an answer.
    AlreadyAnswered,
    /// Another message of the queue holds its handoff.
    Held,
    /// A later delivery of the same message holds its handoff.
    Superseded,
}

/// Whoever gives up: who, with what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Undertaker<'a> {
    pub(crate) storage: &'a Storage,
    pub(crate) instance: &'a InstanceId,
    pub(crate) metrics: &'a Metrics,
}

impl Undertaker<'_> {
    /// Stores the whole message. Doing it twice stores it once: the letter has a name of its own.
    pub(crate) async fn bury(&self, casualty: &Casualty<'_>, why: &Refusal) -> Result<(), Error> {
        let mut letter = DeadLetter {
            kind: casualty.kind,
            reason: why.code,
            message: why.message.clone(),
            sequence: casualty.sequence,
            deliveries: casualty.deliveries,
            published_at: Timestamp::new(casualty.published_at).unwrap_or_else(|_| Timestamp::epoch()),
            instance: self.instance.to_string(),
            spilled: None,
            spilled_headers: None,
            original: casualty.headers.cloned().unwrap_or_default(),
        };
        if let Some(taken) = letter.lighten() {
            let name = format!("{}-headers", letter.name());
            let text = serde_json::to_vec(&taken).unwrap_or_default();
            self.storage.spill(casualty.kind.role(), &name, &text).await;
            letter.spilled_headers = Some(name);
        }
        let stored = match self.store(&letter, casualty.body).await {
            // With the reason added it no longer fits into one message: the body goes beside it.
            Err(Error::Publish(PublishError::TooLarge)) => {
                let name = letter.name();
                self.storage.spill(casualty.kind.role(), &name, casualty.body).await;
                letter.spilled = Some(name);
                self.store(&letter, &Bytes::new()).await
            }
            other => other,
        };
        stored?;
        self.metrics.dead_letter(casualty.kind, why.code);
        Ok(())
    }

    async fn store(&self, letter: &DeadLetter, body: &Bytes) -> Result<(), Error> {
        self.storage.publish(&letter.subject(), || letter.headers(), body, None).await?;
        Ok(())
    }

    /// Stores the message, then answers its handoff, if that is known and may be answered. Does neither when another
    /// message of the queue, or a later delivery, holds the handoff.
    pub(crate) async fn give_up(
        &self,
        casualty: &Casualty<'_>,
        why: &Refusal,
        identity: &Identity,
        stop: Stop,
    ) -> Result<GivenUp, Error> {
        let standing = match identity.answer_to {
            Some(id) => journal::standing(self.storage, casualty.kind, id, casualty.holder()).await,
            None => Standing::Open(0),
        };
        let after = match standing {
            Standing::Open(sequence) => sequence,
            Standing::Answered => return Ok(GivenUp::AlreadyAnswered),
            Standing::Held => return Ok(GivenUp::Held),
            Standing::Superseded => return Ok(GivenUp::Superseded),
        };
        self.bury(casualty, why).await?;
        // The words may quote the handoff, so they are in the letter and not in the log.
        match identity.answer_to {
            Some(id) => {
                self.answer(casualty, id, identity, why, stop, after).await?;
                warn!(handoff.id = %id, kind = %casualty.kind, reason = %why.code, "Handoff dead-lettered.");
            }
            None => {
                warn!(sequence = casualty.sequence, kind = %casualty.kind, reason = %why.code, "Handoff dead-lettered without an answer.");
            }
        }
        Ok(GivenUp::Yes)
    }

    async fn answer(
        &self,
        casualty: &Casualty<'_>,
        id: HandoffId,
        identity: &Identity,
        why: &Refusal,
        stop: Stop,
        after: u64,
    ) -> Result<(), reply::Error> {
        let run = Run {
            kind: casualty.kind,
            id,
            instance: self.instance,
            attempts: u32::try_from(casualty.deliveries).unwrap_or(u32::MAX),
            trace_id: identity.trace_id.clone().unwrap_or_else(|| id.trace_id()),
            task: None,
        };
        let answer = run.failure(Failure::new(why.code, &why.message), stop, Account::default());
        // Fenced means that it had its answer already, which stands, or that somebody goes on with it, which is better.
        let committed = reply::commit(self.storage, casualty.kind, &answer, identity.encoding, after).await?;
        if let (Committed::Ours(stored), Some(reply_to)) = (committed, &identity.reply_to) {
            reply::copy(&self.storage.broker, &answer, identity.encoding, stored, reply_to).await;
        }
        Ok(())
    }
}

/// What the mover and the sweeper work with.
#[derive(Clone, Debug)]
pub(crate) struct Net {
    pub(crate) storage: Storage,
    pub(crate) role: Role,
    pub(crate) policy: Arc<Policy>,
    pub(crate) instance: InstanceId,
    pub(crate) metrics: Arc<Metrics>,
}

impl Net {
    fn undertaker(&self) -> Undertaker<'_> {
        Undertaker { storage: &self.storage, instance: &self.instance, metrics: &self.metrics }
    }
}

/// Gives up a message that the server will not deliver any more, found in the stream by its sequence.
///
/// Safe to repeat and to race with others: the letter and the answer are stored once, and removing what is
/// gone changes nothing.
async fn give_up_stored(
    undertaker: &Undertaker<'_>,
    policy: &Policy,
    kind: Kind,
    message: &jetstream::message::StreamMessage,
    deliveries: u64,
) -> Result<(), Error> {
    let casualty = Casualty {
        kind,
        sequence: message.sequence,
        deliveries,
        is_exhausted: true,
        published_at: message.time,
        headers: Some(&message.headers),
        body: &message.payload,
    };
    let arrived =
        Arrived { kind, subject: &message.subject, headers: Some(&message.headers), body: &message.payload };
    let why = Refusal::new(
        ErrorCode::Poisoned,
        format!("delivered {deliveries} times and never settled: it ends whatever works on it"),
    );
    undertaker.give_up(&casualty, &why, &policy.identity(&arrived), Stop::GivenUp).await?;
    Ok(())
}

/// Takes a message out of the queue. One that is gone already is as good.
async fn remove(
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
