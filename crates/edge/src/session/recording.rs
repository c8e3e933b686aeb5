//! What a session writes to the audit of its lease, and what becomes of its calls if it cannot.

use std::sync::atomic::Ordering;

use broker::Chain;
use subjects::edge::{CloseReason, Record};
use tracing::{error, warn};

use super::Session;
use crate::{Answer, AppendError, AuditFile};

/// The progress of a session, as far as it decides whether another node may repeat the job.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Set when a call was made or passed on: it may have had its effect.
    has_acted: bool,
    /// Why a call was not made whose line could not be written. If none was made before, none is made any
    /// more.
    unrecorded: Option<String>,
}

/// A call was not made, because this node could not write its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unrecorded {
    pub why: String,
    /// Whether another call of the job may have had its effect. If not, no call will have one.
    pub has_acted: bool,
}

impl Progress {
    fn is_abandoned(&self) -> bool {
        self.unrecorded.is_some() && !self.has_acted
    }

    fn to_unrecorded(&self) -> Option<Unrecorded> {
        let why = self.unrecorded.clone()?;
        Some(Unrecorded { why, has_acted: self.has_acted })
    }
}

impl Session {
    /// Returns whether a call was not made because this node could not write its line.
    pub(crate) fn unrecorded(&self) -> Option<Unrecorded> {
        self.progress.borrow().to_unrecorded()
    }

    /// Records that an earlier process may have made calls.
    pub(crate) fn note_earlier_calls(&self) {
        self.progress.send_modify(|progress| progress.has_acted = true);
    }

    /// Waits until there is such a call.
    pub(crate) async fn wait_for_unrecorded(&self) -> Unrecorded {
        let mut progress = self.progress.subscribe();
        let found = progress.wait_for(|progress| progress.unrecorded.is_some()).await;
        let found = found.ok().and_then(|progress| progress.to_unrecorded());
        match found {
            Some(found) => found,
            // The session holds the sender.
            None => std::future::pending().await,
        }
    }

    /// Appends the line that must be there before a call is made, or answered without being made.
    pub(super) fn record_first(&self, record: Record) -> Result<u64, AppendError> {
        let is_made = matches!(record, Record::Began(_));
        let mut recorded = Err(AppendError::Abandoned);
        // One at a time: after the first that fails, none may begin.
        self.progress.send_if_modified(|progress| {
            if progress.is_abandoned() {
                return false;
            }
            recorded = self.record(record);
            match &recorded {
                Ok(_) => progress.has_acted |= is_made,
                Err(error) if error.is_of_this_node() => {
                    progress.unrecorded = Some(Chain(error).to_string());
                    return true;
                }
                Err(_) => {}
            }
            false
        });
        recorded
    }

    /// Returns whether a call may be passed on to the gateway, which records it. It counts as made then.
    pub(super) fn begin_passing_on(&self) -> bool {
        let mut may_begin = false;
        self.progress.send_if_modified(|progress| {
            may_begin = !progress.is_abandoned();
            progress.has_acted |= may_begin;
            false
        });
        may_begin
    }

    /// Appends a line.
    pub(crate) fn record(&self, record: Record) -> Result<u64, AppendError> {
        let appended = self.file.append(self.shared.clock.latest(), record);
        self.shared.appended.notify_one();
        self.note_failure(&appended);
        appended
    }

    pub(super) fn not_recorded(&self, error: &AppendError) -> Answer {
        match error {
            AppendError::Full => {
                warn!(lease.id = self.lease_id, "Audit of a lease is full; its calls are denied.");
                self.is_full.store(true, Ordering::Release);
                self.shared.counts.full.fetch_add(1, Ordering::Relaxed);
                Answer::Unavailable("the audit of this lease is full")
            }
            AppendError::Closed => Answer::Unavailable("the lease has ended"),
            AppendError::Abandoned => Answer::Unavailable(super::NOT_WRITABLE),
            AppendError::Write(_) | AppendError::Sign(_) => {
                error!(
                    lease.id = self.lease_id,
                    error = %Chain(error),
                    "Audit not writable; calls are denied."
                );
                Answer::Unavailable(super::NOT_WRITABLE)
            }
        }
    }

    /// Writes the last line. If it fails, it can be repeated.
    pub(crate) fn close(&self) -> Result<(), AppendError> {
        self.close_with(AuditFile::close)
    }

    pub(super) fn close_with(
        &self,
        close: impl Fn(&AuditFile, i64, CloseReason) -> Result<(), AppendError>,
    ) -> Result<(), AppendError> {
        let why = *self.ending.get_or_init(|| {
            if self.is_revoked() {
                CloseReason::Revoked
            } else if self.is_full.load(Ordering::Acquire) {
                CloseReason::Full
            } else if !self.lock().is_valid(&self.shared.clock) {
                CloseReason::Expired
            } else {
                CloseReason::Done
            }
        });
        let closed = close(&self.file, self.shared.clock.latest(), why);
        self.shared.appended.notify_one();
        self.note_failure(&closed);
        closed
    }

    fn note_failure<T>(&self, written: &Result<T, AppendError>) {
        if let Err(error) = written
            && error.is_of_this_node()
        {
            self.shared.note_write_failure(error);
        }
    }
}
