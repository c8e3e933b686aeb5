//! The handle through which calls write to the audit. Each write waits until it is committed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, timeout_at},
};
use tracing::warn;

use super::{
    in_flight_log::InFlightLog,
    keys::{ClaimOutcome, KeyClaim},
    messages::{Announcement, Begin, End, Message},
    record::Record,
    writer::Writer,
};
use store::{Store, clock};

use crate::metrics::Metrics;

/// Messages that may wait for the writer.
const QUEUE_LENGTH: usize = 4096;

/// The audit accepts no announcement, so no call may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the audit is not writable")]
pub struct Unavailable;

/// Why a call may not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeginError {
    /// The announcement was not sent to the store.
    Refused,
    /// The store did not confirm the announcement in time and may still hold it. [`Ledger::end`] removes it.
    Unconfirmed,
}

/// The store did not confirm the outcome in time. The call may have had its effect; its row is written when
/// the store is available again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the outcome is not recorded in the audit yet")]
pub struct Unrecorded;

/// A handle on the audit; clones write to the same chain.
#[derive(Clone, Debug)]
pub struct Ledger {
    messages: mpsc::Sender<Message>,
    head: watch::Receiver<(i64, String)>,
    in_flight_log: Option<Arc<InFlightLog>>,
    /// Set while so many outcomes wait for the store that no call may begin.
    is_full: Arc<AtomicBool>,
    store: Store,
}

impl Ledger {
    /// Returns a handle and the writer task, which runs until every handle is dropped.
    pub fn start(store: Store) -> (Self, impl Future<Output = ()> + Send) {
        Self::start_with(store, true, Metrics::default())
    }

    /// Like [`Ledger::start`], and counts commits and calls in `metrics`. With `fast_append`, rows are
    /// appended to a SQLite file without sea-orm.
    pub fn start_with(
        store: Store,
        fast_append: bool,
        metrics: Metrics,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (messages, received) = mpsc::channel(QUEUE_LENGTH);
        let (head_sender, head) = watch::channel((0, String::new()));
        let log_path = store.in_flight_log().filter(|_| store.uses_in_flight_log());
        let in_flight_log = log_path.and_then(|path| match InFlightLog::open(path) {
            Ok(log) => Some(Arc::new(log)),
            Err(error) => {
                warn!(
                    path = %path.display(), %error,
                    "In-flight log not available; started calls are recorded in the store."
                );
                None
            }
        });
        let is_full = Arc::new(AtomicBool::new(false));
        let (log, store_of_writer) = (in_flight_log.clone(), store.clone());
        let writer = Writer::new(store_of_writer, fast_append, head_sender, metrics, log, is_full.clone());
        (Self { messages, head, in_flight_log, is_full, store }, writer.run(received))
    }

    /// Returns the sequence number and hash of the last row that this instance committed.
    pub fn head(&self) -> watch::Receiver<(i64, String)> {
        self.head.clone()
    }

    /// Fails while too many outcomes wait for the store.
    pub fn ensure_accepting(&self) -> Result<(), Unavailable> {
        if self.is_full.load(Ordering::Relaxed) { Err(Unavailable) } else { Ok(()) }
    }

    /// Announces a call before it has any effect, and claims its key if it has one. If this process ends
    /// before the call does, recovery writes the call's row. Other gateways consider the call lost after
    /// `within`.
    pub async fn begin(
        &self,
        record: Record,
        within: Duration,
        claim: Option<KeyClaim>,
    ) -> Result<ClaimOutcome, BeginError> {
        self.ensure_accepting().map_err(|Unavailable| BeginError::Refused)?;
        let within = i64::try_from(within.as_micros()).unwrap_or(i64::MAX);
        let until = clock::now().saturating_add(within);
        let record = match &self.in_flight_log {
            // A claim and its announcement are one transaction, so calls with a key go to the store.
            Some(log) if claim.is_none() => match log.begin(record, until) {
                Ok(()) => return Ok(ClaimOutcome::Fresh),
                Err(record) => *record,
            },
            _ => record,
        };
        let ((done, answered), deadline) = (oneshot::channel(), self.deadline());
        let message = Message::Begin(Begin { record, until, claim, done, deadline });
        self.messages.send(message).await.map_err(|_| BeginError::Refused)?;
        match timeout_at(deadline, answered).await {
            Ok(Ok(outcome)) => Ok(outcome),
            Ok(Err(_)) | Err(_) => Err(BeginError::Unconfirmed),
        }
    }

    /// Writes the row of a call that has ended, and removes its announcement.
    pub async fn end(&self, record: Record, announcement: Announcement) -> Result<(), Unrecorded> {
        let (done, answered) = oneshot::channel();
        let (done, deadline) = (Some(done), self.deadline());
        let (was_tried, is_overdue) = (false, false);
        let message = Message::End(End { record, announcement, done, deadline, was_tried, is_overdue });
        self.messages.send(message).await.map_err(|_| Unrecorded)?;
        match timeout_at(deadline, answered).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Unrecorded),
        }
    }

    /// Writes rows with an unknown outcome for calls of this process that are overdue; returns their number.
    pub async fn end_overdue(&self) -> Result<usize, Unrecorded> {
        let (done, answered) = oneshot::channel();
        self.messages.send(Message::Overdue(done)).await.map_err(|_| Unrecorded)?;
        answered.await.map_err(|_| Unrecorded)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.store.patience()
    }
}
