//! Marks turns as handed off and as delivered, several at a time and never on the way of a request.
//!
//! A mark that is lost does little harm: the handoff is published once more, and the queue drops it; or a
//! client that asks the same again counts as one that repeats its request.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use broker::Chain;
use contract::thread::{MAX_MARKED, MarkDelivered, MarkSent};
use subjects::HandoffId;
use tokio::{
    select,
    sync::Notify,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::Turns;

/// How long marks are collected.
const COLLECT_FOR: Duration = Duration::from_millis(100);
/// How long an answer that was written may be on its way to the client.
const ON_ITS_WAY: Duration = Duration::from_secs(5);
/// Maximum number of pending marks.
const MAX_WAITING: usize = 100_000;
/// Time for the last marks when the process stops.
const LAST_MARKS_TIMEOUT: Duration = Duration::from_secs(2);

/// Turns that are not marked yet.
#[derive(Debug, Default)]
pub(super) struct Marks {
    sent: Mutex<VecDeque<HandoffId>>,
    /// With the time from which on each is marked, in its order.
    delivered: Mutex<VecDeque<(Instant, HandoffId)>>,
    added: Notify,
}

impl Marks {
    pub(super) fn push_sent(&self, id: HandoffId) {
        push(&self.sent, id);
        self.added.notify_one();
    }

    /// Marks a turn after a while: if this process dies at once, the last bytes may be lost with it.
    pub(super) fn push_delivered(&self, id: HandoffId) {
        push(&self.delivered, (Instant::now() + ON_ITS_WAY, id));
        self.added.notify_one();
    }

    fn take_sent(&self) -> Option<Vec<HandoffId>> {
        let mut waiting = lock(&self.sent);
        let count = waiting.len().min(MAX_MARKED);
        (count > 0).then(|| waiting.drain(..count).collect())
    }

    fn take_delivered(&self) -> Option<Vec<HandoffId>> {
        let (mut waiting, now) = (lock(&self.delivered), Instant::now());
        let count = waiting.iter().take(MAX_MARKED).take_while(|(due, _)| *due <= now).count();
        (count > 0).then(|| waiting.drain(..count).map(|(_, id)| id).collect())
    }

    /// Waits until an answer that was delivered is to be marked.
    async fn delivery_is_due(&self) {
        let due = lock(&self.delivered).front().map(|(due, _)| *due);
        match due {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
    }
}

fn push<T>(waiting: &Mutex<VecDeque<T>>, mark: T) {
    let mut waiting = lock(waiting);
    if waiting.len() < MAX_WAITING {
        waiting.push_back(mark);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Turns {
    pub(super) async fn mark(&self, stop: &CancellationToken) {
        loop {
            select! {
                () = stop.cancelled() => break,
                () = self.marks.added.notified() => {}
                () = self.marks.delivery_is_due() => {}
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
        while let Some(handoff_ids) = self.marks.take_sent() {
            if let Err(error) = self.gateway.call(&MarkSent { handoff_ids }).await {
                debug!(error = %Chain(&error), "Handoffs not marked as sent; they are published once more.");
                break;
            }
        }
        while let Some(handoff_ids) = self.marks.take_delivered() {
            if let Err(error) = self.gateway.call(&MarkDelivered { handoff_ids }).await {
                debug!(error = %Chain(&error), "Answers not marked as delivered.");
                break;
            }
        }
    }
}
