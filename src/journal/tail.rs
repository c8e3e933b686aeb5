use async_nats::HeaderMap;
use broker::{Expect, PublishError, ReadError};
use bytes::Bytes;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use subjects::{
    HandoffId, Pattern, Role, Subject,
    journal::{Entry, Spilled},
};

use crate::storage::Storage;

/// Why a handoff is not ours any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Loss {
    /// Another has taken it up, or answered it. Nothing may be done about it any more.
    #[error("another instance has claimed or answered the handoff")]
    Fenced,
    /// This instance cannot work on any handoff now; another may.
    #[error("handed back: {0}")]
    HandedBack(String),
    #[error("cannot write the journal")]
    Publish(#[source] PublishError),
}

/// The end of the journal, as far as we know.
#[derive(Debug)]
pub(super) struct Tail {
    role: Role,
    id: HandoffId,
    sequence: u64,
    /// Sent since, and not known whether one of them was stored, or still will be.
    unheard: Vec<Bytes>,
}

/// Where the journal ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// At our own last entry, as far as we know of it.
    Ours,
    Elsewhere,
}

impl Tail {
    pub(super) fn at(role: Role, id: HandoffId, sequence: u64) -> Self {
        Self { role, id, sequence, unheard: Vec::new() }
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether nothing is under way that could still come after it.
    pub(super) fn is_certain(&self) -> bool {
        self.unheard.is_empty()
    }

    /// Stores an entry behind the last one, however long that takes.
    pub(super) async fn append(&mut self, storage: &Storage, entry: &Entry) -> Result<(), Loss> {
        // What happens seldom is boxed: every handoff in work would hold room for it.
        if !self.is_certain() {
            Box::pin(self.settle(storage)).await?;
        }
        let was_certain = self.is_certain();
        let mut body = entry.encode();
        if body.len() > storage.spill_over() {
            body = Box::pin(self.spill(storage, entry, &body)).await;
        }
        let body = Bytes::from(body);
        match self.store(storage, &body).await {
            // What was sent before may have been stored just after we looked for it.
            Err(Loss::Fenced) if !was_certain => {
                Box::pin(async {
                    let before = self.sequence;
                    self.settle(storage).await?;
                    if self.sequence == before { Err(Loss::Fenced) } else { self.store(storage, &body).await }
                })
                .await
            }
            stored => stored,
        }
    }

    async fn store(&mut self, storage: &Storage, body: &Bytes) -> Result<(), Loss> {
        let expect = Expect { over: Pattern::Run(self.role, self.id), sequence: self.sequence };
        // Dropped while it is under way, its outcome is unknown: the next append finds out first.
        self.unheard.push(body.clone());
        let subject = Subject::Journal(self.role, self.id);
        match storage.publish(&subject, HeaderMap::new, body, Some(&expect)).await {
            Ok(stored) => {
                (self.sequence, self.unheard) = (stored.sequence, Vec::new());
                Ok(())
            }
            Err(PublishError::Conflict { unheard_before: false }) => Err(Loss::Fenced),
            // An earlier try of ours may have been stored though its confirmation was lost.
            Err(PublishError::Conflict { unheard_before: true }) => {
                let before = self.sequence;
                Box::pin(self.settle(storage)).await?;
                if self.sequence == before { Err(Loss::Fenced) } else { Ok(()) }
            }
            Err(error) => Err(Loss::Publish(error)),
        }
    }

    /// Finds out where the journal ends, however long that takes.
    pub(super) async fn settle(&mut self, storage: &Storage) -> Result<(), Loss> {
        let stream = storage.broker.layout.runs(self.role);
        let over = Pattern::Run(self.role, self.id);
        let last =
            storage.read(stream, || broker::last_under(&storage.broker.jetstream, stream, &over)).await;
        match self.compare(last) {
            End::Ours => Ok(()),
            End::Elsewhere => Err(Loss::Fenced),
        }
    }

    /// Looks once whether the journal still ends with our entry.
    pub(super) async fn look(&mut self, storage: &Storage) -> Result<bool, ReadError> {
        let stream = storage.broker.layout.runs(self.role);
        let over = Pattern::Run(self.role, self.id);
        let last = broker::last_under(&storage.broker.jetstream, stream, &over).await?;
        Ok(self.compare(last) == End::Ours)
    }

    /// Looks once whether the handoff has its answer.
    pub(super) async fn ends_with_answer(&self, storage: &Storage) -> Result<bool, ReadError> {
        let stream = storage.broker.layout.runs(self.role);
        let over = Pattern::Run(self.role, self.id);
        let last = broker::last_under(&storage.broker.jetstream, stream, &over).await?;
        let journal = Subject::Journal(self.role, self.id).to_string();
        Ok(last.is_some_and(|last| last.subject.as_str() != journal))
    }

    /// Compares the last message with what we sent. If one of ours is stored by now, we go on behind it.
    fn compare(&mut self, last: Option<async_nats::jetstream::message::StreamMessage>) -> End {
        match last {
            Some(last) if self.unheard.contains(&last.payload) => {
                (self.sequence, self.unheard) = (last.sequence, Vec::new());
                End::Ours
            }
            // Not yet, or never: whatever is appended next decides.
            Some(last) if last.sequence == self.sequence => End::Ours,
            None if self.sequence == 0 => End::Ours,
            _ => End::Elsewhere,
        }
    }

    /// Stores an entry beside the journal, and returns what stands in the journal for it.
    async fn spill(&self, storage: &Storage, entry: &Entry, body: &[u8]) -> Vec<u8> {
        // Named by what is in it, so that two owners never overwrite each other's.
        let digest = HEXLOWER.encode(&Sha256::digest(body));
        let name = format!("journal-{}-{digest}", self.id);
        storage.spill(self.role, &name, body).await;
        entry.elsewhere(Spilled { name, bytes: body.len() as u64 }).encode()
    }
}
