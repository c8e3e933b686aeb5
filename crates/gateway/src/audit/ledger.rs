//! The way into the audit. Whoever has something to say waits until it is committed.

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
    begun_log::BegunLog,
    keys::{Begun, Claim},
    notes::{Begin, End, Note, WasBegun},
    record::Record,
    writer::Writer,
};
use crate::{clock, metrics::Metrics, store::Store};

const WAITING: usize = 4096;

/// The store did not take the announcement. Nothing may be done that is not written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the audit is not writable")]
pub struct Unavailable;

/// Why a call may not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAnnounced {
    /// The store was not asked.
    Refused,
    /// The store may have taken the announcement although it did not say so. The call's end takes it out.
    Unconfirmed,
}

/// The store did not take the outcome in time. What happened has happened; its row is written when the store is back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the outcome is not recorded in the audit yet")]
pub struct Unrecorded;

/// A handle; clones write into the same chain.
#[derive(Clone, Debug)]
pub struct Ledger {
    notes: mpsc::Sender<Note>,
    head: watch::Receiver<(i64, String)>,
    begun: Option<Arc<BegunLog>>,
    /// So many outcomes wait for the store that no more calls may begin.
    is_full: Arc<AtomicBool>,
    patience: Duration,
}

impl Ledger {
    /// Writes until every handle is gone.
    pub fn start(store: Store) -> (Self, impl Future<Output = ()> + Send) {
        Self::start_counting(store, Arc::default())
    }

    /// As `start`, and what is written is counted.
    pub fn start_counting(store: Store, metrics: Arc<Metrics>) -> (Self, impl Future<Output = ()> + Send) {
        let (notes, received) = mpsc::channel(WAITING);
        let (moved, head) = watch::channel((0, String::new()));
        let begun =
            store.begun_log().filter(|_| store.takes_lines()).and_then(|path| match BegunLog::open(path) {
                Ok(log) => Some(Arc::new(log)),
                Err(error) => {
                    warn!(path = %path.display(), %error, "Started-call log not available; started calls are recorded in the store.");
                    None
                }
            });
        let (is_full, patience) = (Arc::new(AtomicBool::new(false)), store.patience());
        let writer = Writer::new(store, moved, metrics, begun.clone(), is_full.clone());
        (Self { notes, head, begun, is_full, patience }, writer.run(received))
    }

    /// Where the chain ends, as of the last commit of this instance.
    pub fn head(&self) -> watch::Receiver<(i64, String)> {
        self.head.clone()
    }

    /// Refuses when too many outcomes already wait for the store.
    pub fn accepts(&self) -> Result<(), Unavailable> {
        if self.is_full.load(Ordering::Relaxed) { Err(Unavailable) } else { Ok(()) }
    }

    /// Says, before it has any effect, that a call begins. If we end before it does, it gets its row all the same.
    pub async fn begin(
        &self,
        record: Record,
        within: Duration,
        claim: Option<Claim>,
    ) -> Result<Begun, NotAnnounced> {
        self.accepts().map_err(|Unavailable| NotAnnounced::Refused)?;
        let until = clock::now().saturating_add(i64::try_from(within.as_micros()).unwrap_or(i64::MAX));
        let record = match &self.begun {
            // What takes a key is one transaction with that.
            Some(log) if claim.is_none() => match log.begin(record, until) {
                Ok(()) => return Ok(Begun::Fresh),
                Err(record) => *record,
            },
            _ => record,
        };
        let ((done, answered), deadline) = (oneshot::channel(), self.deadline());
        let note = Note::Begin(Begin { record, until, claim, done, deadline });
        self.notes.send(note).await.map_err(|_| NotAnnounced::Refused)?;
        match timeout_at(deadline, answered).await {
            Ok(Ok(begun)) => Ok(begun),
            Ok(Err(_)) | Err(_) => Err(NotAnnounced::Unconfirmed),
        }
    }

    /// Gives a call its row.
    pub async fn end(&self, record: Record, begun: WasBegun) -> Result<(), Unrecorded> {
        let (done, answered) = oneshot::channel();
        let (done, deadline) = (Some(done), self.deadline());
        let note = Note::End(End { record, begun, done, deadline, was_tried: false });
        self.notes.send(note).await.map_err(|_| Unrecorded)?;
        match timeout_at(deadline, answered).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Unrecorded),
        }
    }

    /// Gives calls that began here and should have ended by now their rows: what became of them was lost.
    pub async fn end_overdue(&self) -> Result<usize, Unrecorded> {
        let (done, answered) = oneshot::channel();
        self.notes.send(Note::Overdue(done)).await.map_err(|_| Unrecorded)?;
        answered.await.map_err(|_| Unrecorded)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.patience
    }
}
