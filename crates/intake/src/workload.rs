//! The traits by which a program describes the messages that it pulls.

use std::{fmt, future::Future};

/// The messages that a program pulls, and what it does with them. A marker type that binds the
/// generic types of this crate to one program.
pub trait Workload: fmt::Debug + Send + Sync + 'static {
    /// Names a queue in logs and metrics.
    type Kind: Clone + fmt::Debug + fmt::Display + Send + Sync + 'static;
    /// What is attached to a delivery and released when it is handed back.
    type Journal: Releasable;
    type Health: Health;
    type Metrics: Metrics<Self::Kind>;
}

/// Something that a delivery holds.
pub trait Releasable: fmt::Debug + Send + Sync + 'static {
    /// Releases it for its next owner, best effort, and returns how to settle the message.
    fn release(&self) -> impl Future<Output = Release> + Send;
}

/// How to settle the message of something released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Hand it back; it may be redelivered at once.
    HandBack,
    /// Acknowledge it: it is done.
    Acknowledge,
    /// Do nothing: another process owns it and its message.
    LeaveAlone,
}

/// Learns what keeps a program from being ready.
pub trait Health: fmt::Debug + Send + Sync + 'static {
    /// Something that keeps a program from being ready.
    type Blocker: Clone + fmt::Debug + Send + Sync + 'static;

    /// Plural noun for the pulled messages, for logs and readiness reasons.
    const PULLED: &'static str;

    fn block(&self, blocker: Self::Blocker, why: String);

    fn clear(&self, blocker: Self::Blocker);

    /// Reports that the dependency behind the blocker is reachable. Idempotent.
    fn note_connected(&self, _blocker: Self::Blocker) {}

    /// Reports that the dependency behind the blocker is not reachable. Idempotent.
    fn note_lost(&self, _blocker: Self::Blocker, _why: &str) {}
}

/// Counts what pools do.
pub trait Metrics<K>: fmt::Debug + Send + Sync + 'static {
    /// Counts a pull request.
    fn count_pull(&self, kind: &K);

    /// Counts a pull request that failed.
    fn count_pull_failure(&self, kind: &K);

    /// Counts a delivery taken from the queue.
    fn count_delivery(&self, kind: &K, is_redelivery: bool);

    /// Counts a delivery that was dropped and is handed back.
    fn count_returned(&self, kind: &K);
}
