//! Counts commits, and says when the write-ahead log of SQLite is to be checkpointed or emptied.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Commits after which the log is checkpointed. A commit writes about eight pages, so that is ten megabytes.
pub(crate) const CHECKPOINT_AFTER: usize = 250;

/// The commits since the last checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    since_checkpoint: AtomicUsize,
    due: Notify,
    /// Something was written since the log was emptied.
    since_emptied: AtomicBool,
}

impl Commits {
    pub(crate) fn add(&self) {
        self.since_emptied.store(true, Ordering::Relaxed);
        if self.since_checkpoint.fetch_add(1, Ordering::Relaxed) + 1 >= CHECKPOINT_AFTER {
            self.due.notify_one();
        }
    }

    /// Waits until a checkpoint is due, and counts from zero again.
    pub(crate) async fn wait_until_due(&self) {
        self.due.notified().await;
        self.since_checkpoint.store(0, Ordering::Relaxed);
    }

    pub(crate) fn has_any_since_emptied(&self) -> bool {
        self.since_emptied.load(Ordering::Relaxed)
    }

    pub(crate) fn set_emptied(&self) {
        self.since_emptied.store(false, Ordering::Relaxed);
    }
}
