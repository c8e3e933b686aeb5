//! Live progress events and text deltas of a running handoff, published best effort over core NATS.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use async_nats::Client;
use futures_util::FutureExt;
use serde::Serialize;
use subjects::{Delta, Event, InstanceId, Kind, Progress, Subject};
use tokio::time::Instant;
use tracing::debug;

use crate::{inference::Listener, journal::Journal};

/// Publishes progress events and text deltas of one handoff. Best effort: the work never waits for it and
/// never depends on it.
#[derive(Clone, Debug)]
pub(crate) struct LivePublisher<'a> {
    pub(crate) client: &'a Client,
    pub(crate) instance: &'a InstanceId,
    pub(crate) kind: Kind,
    pub(crate) journal: &'a Journal,
    pub(crate) since: Instant,
    /// Whether text deltas were requested.
    pub(crate) streams: bool,
}

impl LivePublisher<'_> {
    pub(crate) fn publish_progress(&self, progress: Progress, name: Option<&str>) {
        let event = Event {
            handoff_id: self.journal.handoff(),
            kind: self.kind,
            instance: self.instance.clone(),
            attempt: self.journal.attempt(),
            progress,
            name: name.map(str::to_owned),
            elapsed_ms: u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        self.send(&Subject::Event(self.journal.handoff()), &event);
    }

    /// Returns a listener that publishes the text of one turn as deltas.
    pub(super) fn deltas(&self, turn: u32) -> DeltaListener<'_> {
        DeltaListener { live: self, turn, count: AtomicU32::new(1), sequence: AtomicU64::new(0) }
    }

    fn send(&self, subject: &Subject, message: &impl Serialize) {
        // Another instance may own the handoff by now and publish for it.
        if !self.journal.is_ownership_fresh() {
            return;
        }
        let body = subjects::encode_json(message);
        // The future is polled once: it would only wait for a lost connection, and then no subscriber can be
        // reached.
        let publish = self.client.publish(subject.to_string(), body.into());
        // Unconstrained, since a task that has used up its cooperative budget would be told to wait even
        // though the client has room.
        let sent = tokio::task::unconstrained(publish).now_or_never();
        if !matches!(sent, Some(Ok(()))) {
            debug!(%subject, "Live message not sent.");
        }
    }
}

/// Publishes the text of one turn as numbered deltas. Each try starts its numbering anew.
#[derive(Debug)]
pub(super) struct DeltaListener<'l> {
    live: &'l LivePublisher<'l>,
    turn: u32,
    count: AtomicU32,
    sequence: AtomicU64,
}

impl Listener for DeltaListener<'_> {
    fn on_try(&self, count: u32) {
        self.count.store(count, Ordering::Relaxed);
        self.sequence.store(0, Ordering::Relaxed);
    }

    fn on_text(&self, text: &str) {
        if !self.live.streams {
            return;
        }
        let delta = Delta {
            handoff_id: self.live.journal.handoff(),
            attempt: self.live.journal.attempt(),
            turn: self.turn,
            r#try: self.count.load(Ordering::Relaxed),
            sequence: self.sequence.fetch_add(1, Ordering::Relaxed),
            text: text.to_owned(),
        };
        self.live.send(&Subject::Delta(self.live.journal.handoff()), &delta);
    }
}

/// Discards everything, for requests whose text is not streamed.
#[derive(Debug)]
pub(super) struct NullListener;

impl Listener for NullListener {
    fn on_try(&self, _count: u32) {}
    fn on_text(&self, _text: &str) {}
}
