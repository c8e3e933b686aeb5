//! Marks turns as handed off and as delivered, several at a time and never on the way of a request.
//!
//! A mark that is lost does little harm: the handoff is published once more, and the queue drops it; or a
//! client that asks the same again is taken for one that repeats its request.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use broker::Chain;
use contract::thread::{MAX_MARKED, MarkDelivered, MarkSent};
use subjects::HandoffId;
use tokio::{
    select,
    sync::Notify,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::Turns;

/// How long marks are collected.
const COLLECT_FOR: Duration = Duration::from_millis(100);
/// More are not kept.
const MAX_WAITING: usize = 100_000;
/// Time for the last marks when the process stops.
const LAST_MARKS_TIMEOUT: Duration = Duration::from_secs(2);

/// Turns that are not marked yet.
#[derive(Debug, Default)]
pub(super) struct Marks {
    sent: Waiting,
    delivered: Waiting,
    added: Notify,
}

#[derive(Debug, Default)]
struct Waiting(Mutex<Vec<HandoffId>>);

impl Marks {
    pub(super) fn push_sent(&self, id: HandoffId) {
        self.sent.push(id);
        self.added.notify_one();
    }

    pub(super) fn push_delivered(&self, id: HandoffId) {
        self.delivered.push(id);
        self.added.notify_one();
    }
}

impl Waiting {
    fn push(&self, id: HandoffId) {
        let mut waiting = self.lock();
        if waiting.len() < MAX_WAITING {
            waiting.push(id);
        }
    }

    /// Removes as many as one call marks; `None` if there are none.
    fn take(&self) -> Option<Vec<HandoffId>> {
        let mut waiting = self.lock();
        let count = waiting.len().min(MAX_MARKED);
        (count > 0).then(|| waiting.drain(..count).collect())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<HandoffId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turns {
    pub(super) async fn mark(&self, stop: &CancellationToken) {
        loop {
            select! {
                () = stop.cancelled() => break,
                () = self.marks.added.notified() => {}
            }
            select! {
                () = stop.cancelled() => break,
                () = sleep(COLLECT_FOR) => {}
            }
            self.mark_waiting().await;
        }
        if timeout(LAST_MARKS_TIMEOUT, self.mark_waiting()).await.is_err() {
            debug!("Last turns not marked.");
        }
    }

    async fn mark_waiting(&self) {
        while let Some(handoff_ids) = self.marks.sent.take() {
            if let Err(error) = self.gateway.call(&MarkSent { handoff_ids }).await {
                debug!(error = %Chain(&error), "Handoffs not marked as sent; they are published once more.");
                break;
            }
        }
        while let Some(handoff_ids) = self.marks.delivered.take() {
            if let Err(error) = self.gateway.call(&MarkDelivered { handoff_ids }).await {
                debug!(error = %Chain(&error), "Answers not marked as delivered.");
                break;
            }
        }
    }
}
