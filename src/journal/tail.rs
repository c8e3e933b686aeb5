use async_nats::{HeaderMap, jetstream::message::StreamMessage};
use broker::{Expect, PublishError, ReadError};
use bytes::Bytes;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use subjects::{
    HandoffId, Pattern, Role, Subject,
    journal::{Entry, Spilled},
};
use tracing::warn;

use super::queued::is_in_queue;
use crate::storage::Storage;

/// Why a handoff is not ours any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Loss {
    /// Another has taken it up, or answered it. Nothing may be done about it any more.
    #[error("another instance has claimed or answered the handoff")]
    Fenced,
    /// This instance cannot work on any handoff now; another may.
    #[error("returned to the queue: {0}")]
    HandedBack(String),
    #[error("writing the journal")]
    Publish(#[source] PublishError),
}

/// The end of the journal, as far as we know.
#[derive(Debug)]
pub(super) struct Tail {
    role: Role,
    id: HandoffId,
    /// The message of the queue that the handoff was claimed with.
    message: u64,
    sequence: u64,
    /// Sent since, and not known whether one of them was stored, or still will be.
    unheard: Vec<Bytes>,
    /// All entries in their order, so that they can be written anew should the stream lose them.
    entries: Vec<Bytes>,
    /// How many of these the stream has. Fewer than all while they are being written anew.
    in_stream: usize,
}

/// Where the journal ends, compared with what we know.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// At our last entry.
    Unchanged,
    /// At this entry of ours, of which we had not heard.
    Ours(Bytes),
    /// The stream has nothing of it any more: it was purged, or made anew.
    Gone,
    Elsewhere,
}

impl Tail {
    /// The end of a journal with these entries, the last of which has this sequence.
    pub(super) fn behind(
        role: Role,
        id: HandoffId,
        message: u64,
        entries: Vec<Bytes>,
        sequence: u64,
    ) -> Self {
        let in_stream = entries.len();
        Self { role, id, message, sequence, unheard: Vec::new(), entries, in_stream }
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether nothing is under way that could still come after it, and nothing is missing before it.
    pub(super) fn is_certain(&self) -> bool {
        self.unheard.is_empty() && self.in_stream == self.entries.len()
    }

    /// Stores an entry behind the last one, however long that takes.
    pub(super) async fn append(&mut self, storage: &Storage, entry: &Entry) -> Result<(), Loss> {
        // What happens seldom is boxed: every handoff in work would hold room for it.
        if !self.is_certain() {
            Box::pin(self.settle(storage)).await?;
        }
        let mut body = entry.encode();
        if body.len() > storage.spill_over() {
            body = Box::pin(self.spill(storage, entry, &body)).await;
        }
        self.store(storage, Some(&Bytes::from(body))).await
    }

    /// Stores what the stream lacks of the journal, and then this entry.
    async fn store(&mut self, storage: &Storage, new: Option<&Bytes>) -> Result<(), Loss> {
        let subject = Subject::Journal(self.role, self.id);
        loop {
            let missing = self.entries.get(self.in_stream).cloned();
            let is_new = missing.is_none();
            let Some(body) = missing.or_else(|| new.cloned()) else { return Ok(()) };
            let expect = Expect { over: Pattern::Run(self.role, self.id), sequence: self.sequence };
            // Dropped while it is under way, its outcome is unknown: the next append finds out first.
            self.unheard.push(body.clone());
            let is_stored = match storage.publish(&subject, HeaderMap::new, &body, Some(&expect)).await {
                Ok(stored) => {
                    self.move_behind(body, stored.sequence);
                    true
                }
                // An earlier try may have been stored though its confirmation was lost, or be stored only now.
                Err(PublishError::Conflict { .. }) => match Box::pin(self.find(storage)).await? {
                    End::Ours(found) => found == body,
                    End::Gone => false,
                    End::Unchanged | End::Elsewhere => return Err(Loss::Fenced),
                },
                Err(error) => return Err(Loss::Publish(error)),
            };
            if is_stored && is_new {
                return Ok(());
            }
        }
    }

    /// Finds out where the journal ends, however long that takes, and writes anew what the stream has lost of it.
    pub(super) async fn settle(&mut self, storage: &Storage) -> Result<(), Loss> {
        match self.find(storage).await? {
            End::Elsewhere => Err(Loss::Fenced),
            End::Unchanged | End::Ours(_) | End::Gone => Box::pin(self.store(storage, None)).await,
        }
    }

    async fn find(&mut self, storage: &Storage) -> Result<End, Loss> {
        let stream = storage.broker.layout.runs(self.role);
        let over = Pattern::Run(self.role, self.id);
        let last =
            storage.read(stream, || broker::last_under(&storage.broker.jetstream, stream, &over)).await;
        let end = self.compare(last.as_ref());
        match &end {
            End::Ours(found) => {
                let sequence = last.map_or(0, |last| last.sequence);
                self.move_behind(found.clone(), sequence);
            }
            End::Gone => {
                // Without our message in the queue, the handoff was ended by another instance.
                if !is_in_queue(storage, self.role, self.id, self.message).await {
                    return Err(Loss::Fenced);
                }
                warn!(handoff.id = %self.id, stream, "Journal is missing from the stream; writing it again.");
                (self.sequence, self.unheard, self.in_stream) = (0, Vec::new(), 0);
            }
            End::Unchanged | End::Elsewhere => {}
        }
        Ok(end)
    }

    /// Looks once whether another instance has written to the journal.
    pub(super) async fn is_followed(&self, storage: &Storage) -> Result<bool, ReadError> {
        let stream = storage.broker.layout.runs(self.role);
        let over = Pattern::Run(self.role, self.id);
        let last = broker::last_under(&storage.broker.jetstream, stream, &over).await?;
        Ok(self.compare(last.as_ref()) == End::Elsewhere)
    }

    /// Looks once whether the handoff has its answer.
    pub(super) async fn ends_with_answer(&self, storage: &Storage) -> Result<bool, ReadError> {
        let stream = storage.broker.layout.runs(self.role);
        let over = Pattern::Run(self.role, self.id);
        let last = broker::last_under(&storage.broker.jetstream, stream, &over).await?;
        let journal = Subject::Journal(self.role, self.id).to_string();
        Ok(last.is_some_and(|last| last.subject.as_str() != journal))
    }

    /// Compares the last message with what we sent.
    fn compare(&self, last: Option<&StreamMessage>) -> End {
        match last {
            Some(last) if self.unheard.contains(&last.payload) => End::Ours(last.payload.clone()),
            // Not yet, or never: whatever is appended next decides.
            Some(last) if last.sequence == self.sequence => End::Unchanged,
            Some(_) => End::Elsewhere,
            None if self.sequence == 0 => End::Unchanged,
            None => End::Gone,
        }
    }

    /// Goes on behind an entry of ours that the stream has.
    fn move_behind(&mut self, entry: Bytes, sequence: u64) {
        if self.entries.get(self.in_stream) != Some(&entry) {
            self.entries.push(entry);
        }
        self.in_stream += 1;
        (self.sequence, self.unheard) = (sequence, Vec::new());
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
