//! The end of a journal: compare-and-set appends, and recovery when their result is unknown.

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

use super::queued::check_queued;
use crate::storage::Storage;

/// Why this instance no longer owns a handoff.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Loss {
    /// Another instance has claimed or answered it. Nothing may be published for it any more.
    #[error("another instance has claimed or answered the handoff")]
    Fenced,
    /// This instance cannot work on any handoff now; another may.
    #[error("returned to the queue: {0}")]
    HandedBack(String),
    #[error("writing the journal")]
    Publish(#[source] PublishError),
}

/// The end of the journal as far as this instance knows.
#[derive(Debug)]
pub(super) struct Tail {
    role: Role,
    id: HandoffId,
    /// Sequence of the queue message that the handoff was claimed with.
    message: u64,
    sequence: u64,
    /// Entries that were sent since the last confirmation. Each may be stored, or still will be.
    unconfirmed: Vec<Bytes>,
    /// All entries in order, to write them again if the stream loses them.
    entries: Vec<Bytes>,
    /// How many of them the stream holds. Fewer than all while they are being rewritten.
    in_stream: usize,
}

/// Where the journal ends, compared with the known end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// At the last known entry.
    Unchanged,
    /// At this entry of ours, whose confirmation was lost.
    Ours(Bytes),
    /// The stream holds nothing of it any more: it was purged or recreated.
    Gone,
    /// At an entry of another instance, or at an answer.
    Foreign,
}

impl Tail {
    /// Creates the tail of a journal with these entries, the last of which is at `sequence`.
    pub(super) fn new(role: Role, id: HandoffId, message: u64, entries: Vec<Bytes>, sequence: u64) -> Self {
        let in_stream = entries.len();
        Self { role, id, message, sequence, unconfirmed: Vec::new(), entries, in_stream }
    }

    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns whether no sent entry is unconfirmed and the stream holds all entries.
    pub(super) fn is_settled(&self) -> bool {
        self.unconfirmed.is_empty() && self.in_stream == self.entries.len()
    }

    /// Appends an entry. Waits for the stream as long as it takes.
    pub(super) async fn append(&mut self, storage: &Storage, entry: &Entry) -> Result<(), Loss> {
        // Rare paths are boxed to keep the future of a running handoff small.
        if !self.is_settled() {
            Box::pin(self.settle(storage)).await?;
        }
        let mut body = entry.encode();
        if body.len() > storage.spill_threshold() {
            body = Box::pin(self.spill(storage, entry, &body)).await;
        }
        self.store(storage, Some(&Bytes::from(body))).await
    }

    /// Stores the entries that the stream lacks, then `new`.
    async fn store(&mut self, storage: &Storage, new: Option<&Bytes>) -> Result<(), Loss> {
        let subject = Subject::Journal(self.role, self.id);
        loop {
            let missing = self.entries.get(self.in_stream).cloned();
            let is_new = missing.is_none();
            let Some(body) = missing.or_else(|| new.cloned()) else { return Ok(()) };
            let expect = Expect { over: Pattern::Run(self.role, self.id), sequence: self.sequence };
            // If this is dropped during the publish, its result is unknown: the next append finds out first.
            self.unconfirmed.push(body.clone());
            let is_stored = match storage.publish(&subject, HeaderMap::new, &body, Some(&expect)).await {
                Ok(stored) => {
                    self.advance(body, stored.sequence);
                    true
                }
                // An earlier try may have been stored although its confirmation was lost, or may be stored
                // only now.
                Err(PublishError::Conflict { .. }) => match Box::pin(self.find_end(storage)).await? {
                    End::Ours(found) => found == body,
                    End::Gone => false,
                    End::Unchanged | End::Foreign => return Err(Loss::Fenced),
                },
                Err(error) => return Err(Loss::Publish(error)),
            };
            if is_stored && is_new {
                return Ok(());
            }
        }
    }

    /// Finds out where the journal ends and rewrites what the stream has lost. Waits for the stream as long
    /// as it takes.
    pub(super) async fn settle(&mut self, storage: &Storage) -> Result<(), Loss> {
        match self.find_end(storage).await? {
            End::Foreign => Err(Loss::Fenced),
            End::Unchanged | End::Ours(_) | End::Gone => Box::pin(self.store(storage, None)).await,
        }
    }

    /// Reads the end of the journal and moves to it if it is ours.
    async fn find_end(&mut self, storage: &Storage) -> Result<End, Loss> {
        let stream = storage.broker.layout.runs(self.role);
        let over = Pattern::Run(self.role, self.id);
        let last = storage.read(stream, || broker::last_on(&storage.broker.jetstream, stream, &over)).await;
        let end = self.compare(last.as_ref());
        match &end {
            End::Ours(found) => {
                let sequence = last.map_or(0, |last| last.sequence);
                self.advance(found.clone(), sequence);
            }
            End::Gone => {
                // If the message is no longer in the queue, another instance has settled the handoff.
                if !check_queued(storage, self.role, self.id, self.message).await {
                    return Err(Loss::Fenced);
                }
                warn!(handoff.id = %self.id, stream, "Journal is missing from the stream; writing it again.");
                (self.sequence, self.unconfirmed, self.in_stream) = (0, Vec::new(), 0);
            }
            End::Unchanged | End::Foreign => {}
        }
        Ok(end)
    }

    /// Reads once whether another instance has written to the journal or answered the handoff.
    pub(super) async fn check_overtaken(&self, storage: &Storage) -> Result<bool, ReadError> {
        let stream = storage.broker.layout.runs(self.role);
        let over = Pattern::Run(self.role, self.id);
        let last = broker::last_on(&storage.broker.jetstream, stream, &over).await?;
        Ok(self.compare(last.as_ref()) == End::Foreign)
    }

    /// Reads once whether the handoff is answered.
    pub(super) async fn check_answered(&self, storage: &Storage) -> Result<bool, ReadError> {
        let stream = storage.broker.layout.runs(self.role);
        let over = Pattern::Run(self.role, self.id);
        let last = broker::last_on(&storage.broker.jetstream, stream, &over).await?;
        let journal = Subject::Journal(self.role, self.id).to_string();
        Ok(last.is_some_and(|last| last.subject.as_str() != journal))
    }

    /// Compares the last stored message with what was sent.
    fn compare(&self, last: Option<&StreamMessage>) -> End {
        match last {
            Some(last) if self.unconfirmed.contains(&last.payload) => End::Ours(last.payload.clone()),
            // Not stored yet, or never: the next append decides.
            Some(last) if last.sequence == self.sequence => End::Unchanged,
            Some(_) => End::Foreign,
            None if self.sequence == 0 => End::Unchanged,
            None => End::Gone,
        }
    }

    /// Moves to an entry of ours that the stream holds.
    fn advance(&mut self, entry: Bytes, sequence: u64) {
        if self.entries.get(self.in_stream) != Some(&entry) {
            self.entries.push(entry);
        }
        self.in_stream += 1;
        (self.sequence, self.unconfirmed) = (sequence, Vec::new());
    }

    /// Stores an entry in the object store and returns the reference that is appended instead.
    async fn spill(&self, storage: &Storage, entry: &Entry, body: &[u8]) -> Vec<u8> {
        // Named by its content, so that two owners never overwrite each other's entries.
        let digest = HEXLOWER.encode(&Sha256::digest(body));
        let name = format!("journal-{}-{digest}", self.id);
        storage.spill(self.role, &name, body).await;
        entry.to_reference(Spilled { name, bytes: body.len() as u64 }).encode()
    }
}
