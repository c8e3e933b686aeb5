use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use async_nats::Client;
use futures_util::FutureExt;
use serde::Serialize;
use subjects::{Delta, Event, InstanceId, Kind, Progress, Subject};
use tokio::time::Instant;
use tracing::debug;

use crate::{inference::Listener, journal::Journal};

/// Tells whoever listens how a handoff is coming along. Best effort: nothing waits for it, nothing depends on it.
#[derive(Clone, Debug)]
pub(crate) struct Live<'a> {
    pub(crate) client: &'a Client,
    pub(crate) instance: &'a InstanceId,
    pub(crate) kind: Kind,
    pub(crate) journal: &'a Journal,
    pub(crate) since: Instant,
    /// Whether text is wanted as it arrives.
    pub(crate) streams: bool,
}

impl Live<'_> {
    pub(crate) fn tell(&self, progress: Progress, name: Option<&str>) {
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

    /// Hears one turn of the model and passes it on.
    pub(super) fn turn(&self, turn: u32) -> Deltas<'_> {
        Deltas { live: self, turn, count: AtomicU32::new(1), sequence: AtomicU64::new(0) }
    }

    fn send(&self, subject: &Subject, message: &impl Serialize) {
        // Another may have the handoff by now, and tells of it.
        if !self.journal.is_sure() {
            return;
        }
        let body = serde_json::to_vec(message).unwrap_or_default();
        // Waiting would only be for a connection that is away, and then nobody listens.
        let publish = self.client.publish(subject.to_string(), body.into());
        // Not at the task's expense: one that has run for long would be told to wait even though there is room.
        let sent = tokio::task::unconstrained(publish).now_or_never();
        if !matches!(sent, Some(Ok(()))) {
            debug!(%subject, "Live message not sent.");
        }
    }
}

#[derive(Debug)]
pub(super) struct Deltas<'l> {
    live: &'l Live<'l>,
    turn: u32,
    count: AtomicU32,
    sequence: AtomicU64,
}

impl Listener for Deltas<'_> {
    fn trying(&self, count: u32) {
        self.count.store(count, Ordering::Relaxed);
        self.sequence.store(0, Ordering::Relaxed);
    }

    fn said(&self, text: &str) {
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

/// For questions whose answers nobody reads along.
#[derive(Debug)]
pub(super) struct Silence;

impl Listener for Silence {
    fn trying(&self, _count: u32) {}
    fn said(&self, _text: &str) {}
}
