use std::time::Duration;

use async_nats::HeaderMap;
use broker::{Broker, Expect, PublishError, ReadError, SpillError};
use bytes::Bytes;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use subjects::{
    HandoffId, Pattern, Role, Subject,
    journal::{Entry, SPILL_OVER, Spilled},
};

/// How long an entry is tried to be stored before the handoff is left to come back.
const APPEND_WITHIN: Duration = Duration::from_secs(60);

/// Why a handoff is not ours any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Loss {
    /// Another has taken it up, or answered it. Nothing may be done about it any more.
    #[error("another has taken the handoff up")]
    Fenced,
    #[error("writing the journal")]
    Publish(#[source] PublishError),
    #[error("reading the journal")]
    Read(#[from] ReadError),
    #[error("storing what is too large for a message")]
    Spill(#[from] SpillError),
}

/// The end of the journal, as far as we know.
#[derive(Debug)]
pub(super) struct Tail {
    sequence: u64,
    /// Sent since, and not known whether one of them was stored, or still will be.
    unheard: Vec<Bytes>,
}

impl Tail {
    pub(super) fn at(sequence: u64) -> Self {
        Self { sequence, unheard: Vec::new() }
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether nothing is under way that could still come after it.
    pub(super) fn is_certain(&self) -> bool {
        self.unheard.is_empty()
    }

    pub(super) async fn append(
        &mut self,
        broker: &Broker,
        role: Role,
        id: HandoffId,
        entry: &Entry,
    ) -> Result<(), Loss> {
        // What happens seldom is boxed: every handoff in work would hold room for it.
        if !self.is_certain() {
            Box::pin(self.settle(broker, role, id)).await?;
        }
        let was_certain = self.is_certain();
        let mut body = entry.encode();
        if body.len() > SPILL_OVER {
            body = Box::pin(spill(broker, role, id, entry, &body)).await?;
        }
        let body = Bytes::from(body);
        match self.store(broker, role, id, &body).await {
            // What was sent before may have been stored just after we looked for it.
            Err(Loss::Fenced) if !was_certain => {
                Box::pin(async {
                    let before = self.sequence;
                    self.settle(broker, role, id).await?;
                    if self.sequence == before {
                        Err(Loss::Fenced)
                    } else {
                        self.store(broker, role, id, &body).await
                    }
                })
                .await
            }
            stored => stored,
        }
    }

    async fn store(&mut self, broker: &Broker, role: Role, id: HandoffId, body: &Bytes) -> Result<(), Loss> {
        let expect = Expect { over: Pattern::Run(role, id), sequence: self.sequence };
        // Dropped while it is under way, or never answered, nobody knows: the next one finds out first.
        self.unheard.push(body.clone());
        let subject = Subject::Journal(role, id);
        let stored = broker::publish_within(
            &broker.client,
            &subject,
            HeaderMap::new,
            body,
            Some(&expect),
            APPEND_WITHIN,
        );
        match stored.await {
            Ok(stored) => {
                *self = Self::at(stored.sequence);
                Ok(())
            }
            Err(PublishError::Conflict { unheard_before: false }) => Err(Loss::Fenced),
            // An earlier try of ours may have been stored though its confirmation was lost.
            Err(PublishError::Conflict { unheard_before: true }) => {
                let before = self.sequence;
                Box::pin(self.settle(broker, role, id)).await?;
                if self.sequence == before { Err(Loss::Fenced) } else { Ok(()) }
            }
            Err(error) => Err(Loss::Publish(error)),
        }
    }

    /// Looks where the journal ends: whether something that was sent is stored by now, to go on behind it, and whether
    /// it is still ours.
    pub(super) async fn settle(&mut self, broker: &Broker, role: Role, id: HandoffId) -> Result<(), Loss> {
        let over = Pattern::Run(role, id);
        let last = broker::last_under(&broker.jetstream, broker.layout.runs(role), &over).await?;
        match last {
            Some(last) if self.unheard.contains(&last.payload) => *self = Self::at(last.sequence),
            // Not yet, or never: whatever is appended next decides.
            Some(last) if last.sequence == self.sequence => {}
            None if self.sequence == 0 => {}
            _ => return Err(Loss::Fenced),
        }
        Ok(())
    }
}

/// Stores an entry beside the journal, and gives what stands in the journal for it.
async fn spill(
    broker: &Broker,
    role: Role,
    id: HandoffId,
    entry: &Entry,
    body: &[u8],
) -> Result<Vec<u8>, Loss> {
    // Named by what is in it, so that two owners never overwrite each other's.
    let digest = HEXLOWER.encode(&Sha256::digest(body));
    let name = format!("journal-{id}-{digest}");
    broker::spill(broker, role, &name, body).await?;
    Ok(entry.elsewhere(Spilled { name, bytes: body.len() as u64 }).encode())
}
