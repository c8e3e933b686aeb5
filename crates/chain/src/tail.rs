//! The end of a chain: compare-and-set appends, and recovery when their result is unknown or when the stream
//! has lost entries.
//!
//! A stream that was purged, created again or restored from an older backup holds only the first entries of a
//! chain, or none of them. The owner of the chain writes the others again, in order.
//!
//! The last stored entry says which process that is. While it is an entry that this process knows, no other
//! process has claimed the chain since. That holds for a chain without entries, too: a process that claims
//! it anew leaves its claim there. All appends stay under the compare-and-set, so of the two the first one
//! wins: a claim that is stored before fences this process, and one that comes after is refused, so that its
//! process reads what was written again and decides by that. Nothing is written again once the queue no
//! longer holds the message that the chain was claimed with: then another process has settled it, and the
//! stream may have lost the result.

use std::fmt;

use async_nats::{HeaderMap, jetstream::message::StreamMessage};
use broker::{Expect, PublishError, ReadError};
use bytes::Bytes;
use subjects::{Pattern, Subject, streams::Layout};
use tokio::time::Instant;

use crate::{Outages, Streams, ownership::TAIL_CONFIRMATION_LIFETIME};

/// Describes a chain and says what belongs to it.
pub trait Description: fmt::Debug + Send + Sync {
    /// Returns the name of the stream that holds the chain.
    fn stream(&self, layout: &Layout) -> &'static str;

    /// Returns the pattern of all messages of the chain, over which the compare-and-set goes.
    fn over(&self) -> Pattern;

    /// Returns the subject to which this process appends.
    fn subject(&self) -> Subject;

    /// Returns whether a message on this subject is the last one of a chain.
    fn is_end(&self, subject: &str) -> bool;

    /// Reads whether the queue still holds the message that the chain was claimed with. Waits for the server
    /// as long as it takes.
    fn check_queued<O: Outages>(&self, streams: &Streams<O>) -> impl Future<Output = bool> + Send;

    /// Logs that the stream has lost entries of the chain, which are written again.
    fn log_rewriting(&self, stream: &str);
}

/// Why this process no longer owns a chain.
#[derive(Debug, thiserror::Error)]
pub enum Loss {
    /// Another process has claimed or ended it. Nothing may be published to it any more.
    #[error("another process has claimed or ended it")]
    Fenced,
    #[error("writing the journal")]
    Publish(#[source] PublishError),
}

/// The end of a chain as far as this process knows.
#[derive(Debug)]
pub struct Tail<D> {
    description: D,
    sequence: u64,
    /// Entries that were sent since the last confirmation. Each may be stored, or still will be.
    unconfirmed: Vec<Bytes>,
    /// All entries in order, to write them again if the stream loses them.
    entries: Vec<Bytes>,
    /// How many of them the stream holds. Fewer than all while they are being rewritten.
    in_stream: usize,
    /// The sequence of the message that `entries` follow; 0 if they are all of the chain.
    follows: u64,
    /// When the stream last confirmed that the chain ends at `sequence` with our own entry.
    confirmed_at: Instant,
}

/// Where the chain ends, compared with the known end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// At the last known entry.
    Unchanged,
    /// At this entry of ours, whose confirmation was lost.
    Ours(Bytes),
    /// The stream has lost entries: it holds only the first `in_stream`, up to `sequence`.
    Lost { in_stream: usize, sequence: u64 },
    /// At one of the entries, but not at the last known one. What precedes it decides.
    Known,
    /// At an entry of another process, or at a last message.
    Foreign,
}

impl End {
    /// The stream holds nothing of the chain: it was purged or recreated.
    const GONE: Self = Self::Lost { in_stream: 0, sequence: 0 };
}

impl<D: Description> Tail<D> {
    /// Creates the tail of a chain that ends at `sequence`, 0 if it is empty. `entries` are written again
    /// with those that this process appends, should the stream lose them. They are all of the chain, or none
    /// of it: then only what this process appends is written again. `looked_at` is when the end was read.
    pub fn new(description: D, entries: Vec<Bytes>, sequence: u64, looked_at: Instant) -> Self {
        let in_stream = entries.len();
        let follows = if entries.is_empty() { sequence } else { 0 };
        Self {
            description,
            sequence,
            unconfirmed: Vec::new(),
            entries,
            in_stream,
            follows,
            confirmed_at: looked_at,
        }
    }

    pub fn description(&self) -> &D {
        &self.description
    }

    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns whether no sent entry is unconfirmed and the stream holds all entries.
    pub fn is_settled(&self) -> bool {
        self.unconfirmed.is_empty() && self.in_stream == self.entries.len()
    }

    /// Appends an entry. Waits for the stream as long as it takes.
    ///
    /// The bytes of an entry must differ from those that another process may append, as by the time and the
    /// name of the process, since they tell whose entry is found in the stream.
    pub async fn append<O: Outages>(&mut self, streams: &Streams<O>, body: Bytes) -> Result<(), Loss> {
        // Rare paths are boxed to keep the future of running work small.
        if self.is_settled() {
            self.check_sequence(streams).await?;
        } else {
            Box::pin(self.settle(streams)).await?;
        }
        self.store(streams, Some(&body)).await
    }

    /// Stores the entries that the stream lacks, then `new`.
    async fn store<O: Outages>(&mut self, streams: &Streams<O>, new: Option<&Bytes>) -> Result<(), Loss> {
        let (stream, subject) = (self.stream(streams), self.description.subject());
        loop {
            let missing = self.entries.get(self.in_stream).cloned();
            let is_new = missing.is_none();
            let Some(body) = missing.or_else(|| new.cloned()) else { return Ok(()) };
            let expect = Expect { over: self.description.over(), sequence: self.sequence };
            // If this is dropped during the publish, its result is unknown: the next append finds out first.
            self.unconfirmed.push(body.clone());
            let sent = Instant::now();
            let is_stored =
                match streams.publish(stream, &subject, HeaderMap::new, &body, Some(&expect)).await {
                    Ok(stored) => {
                        self.advance(body, stored.sequence);
                        self.confirmed_at = sent;
                        true
                    }
                    // An earlier try may have been stored although its confirmation was lost, or may be
                    // stored only now.
                    Err(PublishError::Conflict { .. }) => match Box::pin(self.find_end(streams)).await? {
                        End::Ours(found) => found == body,
                        End::Lost { .. } => false,
                        End::Unchanged | End::Known | End::Foreign => return Err(Loss::Fenced),
                    },
                    Err(error) => return Err(Loss::Publish(error)),
                };
            if is_stored && is_new {
                return Ok(());
            }
        }
    }

    /// Finds out where the chain ends and rewrites what the stream has lost. Waits for the stream as long
    /// as it takes.
    pub async fn settle<O: Outages>(&mut self, streams: &Streams<O>) -> Result<(), Loss> {
        self.find_end_and_rewrite(streams).await.map(drop)
    }

    /// Does what [`Self::settle`] does, and returns where the chain ended before.
    async fn find_end_and_rewrite<O: Outages>(&mut self, streams: &Streams<O>) -> Result<End, Loss> {
        let end = self.find_end(streams).await?;
        match end {
            End::Known | End::Foreign => Err(Loss::Fenced),
            End::Unchanged | End::Ours(_) | End::Lost { .. } => {
                Box::pin(self.store(streams, None)).await?;
                Ok(end)
            }
        }
    }

    /// Reads the end of the chain and moves to it if it is ours.
    async fn find_end<O: Outages>(&mut self, streams: &Streams<O>) -> Result<End, Loss> {
        let (stream, over) = (self.stream(streams), self.description.over());
        let looked_at = Instant::now();
        let last = streams.last_on(stream, &over).await;
        let end = match self.compare(last.as_ref()) {
            End::Known => self.compare_all(&Box::pin(streams.messages_under(stream, &over)).await),
            end => end,
        };
        match &end {
            End::Ours(found) => {
                let sequence = last.map_or(0, |last| last.sequence);
                self.advance(found.clone(), sequence);
                self.confirmed_at = looked_at;
            }
            End::Unchanged => self.confirmed_at = looked_at,
            End::Lost { in_stream, sequence } => {
                // If the message is no longer in the queue, another process has settled it.
                if !self.description.check_queued(streams).await {
                    return Err(Loss::Fenced);
                }
                self.description.log_rewriting(stream);
                (self.sequence, self.unconfirmed, self.in_stream) = (*sequence, Vec::new(), *in_stream);
                if end == End::GONE {
                    self.follows = 0;
                }
            }
            End::Known | End::Foreign => {}
        }
        Ok(end)
    }

    /// Fails if the message at the known sequence is another process's. A restored stream gives out sequences
    /// again, which the compare-and-set cannot tell apart. A confirmation of a moment ago is enough, and a
    /// failed read proves nothing.
    async fn check_sequence<O: Outages>(&self, streams: &Streams<O>) -> Result<(), Loss> {
        if self.confirmed_at.elapsed() < TAIL_CONFIRMATION_LIFETIME {
            return Ok(());
        }
        // Boxed like all rare paths.
        match Box::pin(self.check_overtaken(streams)).await {
            Ok(true) => Err(Loss::Fenced),
            Ok(false) | Err(_) => Ok(()),
        }
    }

    /// Reads once whether another process has appended to the chain or ended it.
    pub async fn check_overtaken<O: Outages>(&self, streams: &Streams<O>) -> Result<bool, ReadError> {
        let last = self.read_last(streams).await?;
        Ok(self.compare(last.as_ref()) == End::Foreign)
    }

    /// Reads once whether the chain has its last message.
    pub async fn check_ended<O: Outages>(&self, streams: &Streams<O>) -> Result<bool, ReadError> {
        let last = self.read_last(streams).await?;
        Ok(last.is_some_and(|last| self.description.is_end(&last.subject)))
    }

    async fn read_last<O: Outages>(&self, streams: &Streams<O>) -> Result<Option<StreamMessage>, ReadError> {
        let over = self.description.over();
        broker::last_on(&streams.broker.jetstream, self.stream(streams), &over).await
    }

    fn stream<O: Outages>(&self, streams: &Streams<O>) -> &'static str {
        self.description.stream(&streams.broker.layout)
    }

    /// Compares the last stored message with what was sent. Its sequence alone proves nothing: a stream that
    /// was created again or restored gives the same sequences to other messages.
    fn compare(&self, last: Option<&StreamMessage>) -> End {
        match last {
            Some(last) if self.unconfirmed.contains(&last.payload) => End::Ours(last.payload.clone()),
            // Not stored yet, or never: the next append decides.
            Some(last) if last.sequence == self.sequence && self.is_last_known(&last.payload) => {
                End::Unchanged
            }
            Some(last) if self.entries.contains(&last.payload) => End::Known,
            Some(_) => End::Foreign,
            None if self.sequence == 0 => End::Unchanged,
            None => End::GONE,
        }
    }

    /// Compares all stored messages of the chain with the entries.
    fn compare_all(&self, found: &[StreamMessage]) -> End {
        let follows = self.follows;
        let from = match found {
            [] => return End::GONE,
            _ if follows == 0 => Some(0),
            _ => found.iter().position(|message| message.sequence == follows).map(|at| at + 1),
        };
        let ours = from.and_then(|from| found.get(from..)).unwrap_or_default();
        let is_entry = |(message, entry): (&StreamMessage, &Bytes)| message.payload == *entry;
        match ours.last() {
            Some(last)
                if ours.len() <= self.entries.len() && ours.iter().zip(&self.entries).all(is_entry) =>
            {
                End::Lost { in_stream: ours.len(), sequence: last.sequence }
            }
            Some(_) | None => End::Foreign,
        }
    }

    /// Returns whether a message is the last one that the stream is known to hold, as far as that is known.
    fn is_last_known(&self, payload: &Bytes) -> bool {
        self.in_stream.checked_sub(1).and_then(|at| self.entries.get(at)).is_none_or(|entry| entry == payload)
    }

    /// Moves to an entry of ours that the stream holds.
    fn advance(&mut self, entry: Bytes, sequence: u64) {
        if self.entries.get(self.in_stream) != Some(&entry) {
            self.entries.push(entry);
        }
        self.in_stream += 1;
        (self.sequence, self.unconfirmed) = (sequence, Vec::new());
    }

    /// Settles the chain and returns the sequence that its last message must follow. `still` makes an entry
    /// without meaning, which is appended if the outcome of an earlier append is unknown: that one may still
    /// be stored after a read, but not after a further append.
    pub async fn close<O: Outages>(
        &mut self,
        streams: &Streams<O>,
        still: impl FnOnce() -> Bytes,
    ) -> Result<u64, Loss> {
        if self.is_settled() {
            self.check_sequence(streams).await?;
        } else {
            Box::pin(self.append(streams, still())).await?;
        }
        Ok(self.sequence)
    }

    /// Returns the sequence that the last message must follow after it was refused at `refused`. Rewrites
    /// the chain if the stream has lost it. Fails with [`Loss::Fenced`] if another process owns it.
    pub async fn close_after_conflict<O: Outages>(
        &mut self,
        streams: &Streams<O>,
        refused: u64,
    ) -> Result<u64, Loss> {
        let is_unchanged = self.find_end_and_rewrite(streams).await? == End::Unchanged;
        // What was written again may have the sequences of before.
        if is_unchanged && self.sequence == refused { Err(Loss::Fenced) } else { Ok(self.sequence) }
    }
}
