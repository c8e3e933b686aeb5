//! Marks turns as handed off, several at a time and never on the way of a request. A mark that is lost costs
//! a second publish, which the queue drops.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use broker::Chain;
use contract::thread::{MAX_MARKED, MarkSent};
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
/// More are not kept: the sweep finds them.
const MAX_WAITING: usize = 100_000;
/// Time for the last marks when the process stops.
const LAST_MARKS_TIMEOUT: Duration = Duration::from_secs(2);

/// Turns that were handed off and are not marked yet.
#[derive(Debug, Default)]
pub(super) struct SentMarker {
    waiting: Mutex<Vec<HandoffId>>,
    added: Notify,
}

impl SentMarker {
    pub(super) fn push(&self, id: HandoffId) {
        let mut waiting = self.waiting();
        if waiting.len() < MAX_WAITING {
            waiting.push(id);
        }
        drop(waiting);
        self.added.notify_one();
    }

    fn take(&self) -> Vec<HandoffId> {
        let mut waiting = self.waiting();
        let count = waiting.len().min(MAX_MARKED);
        waiting.drain(..count).collect()
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<HandoffId>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turns {
    pub(super) async fn mark_sent(&self, stop: &CancellationToken) {
        loop {
            select! {
                () = stop.cancelled() => break,
                () = self.sent.added.notified() => {}
            }
            select! {
                () = stop.cancelled() => break,
                () = sleep(COLLECT_FOR) => {}
            }
            self.mark_waiting().await;
        }
        if timeout(LAST_MARKS_TIMEOUT, self.mark_waiting()).await.is_err() {
            debug!("Last handoffs not marked as sent; they are published once more.");
        }
    }

    async fn mark_waiting(&self) {
        loop {
            let handoff_ids = self.sent.take();
            if handoff_ids.is_empty() {
                return;
            }
            if let Err(error) = self.gateway.call(&MarkSent { handoff_ids }).await {
                debug!(error = %Chain(&error), "Handoffs not marked as sent; they are published once more.");
                return;
            }
        }
    }
}
