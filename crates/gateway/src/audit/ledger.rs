//! The way into the audit. Whoever has something to say waits until it is committed.

use std::{sync::Arc, time::Duration};

use tokio::sync::{mpsc, oneshot, watch};
use tracing::warn;

use super::{
    begun_log::BegunLog,
    keys::{Begun, Claim, Finish},
    record::Record,
    writer::Writer,
};
use crate::{clock, metrics::Metrics, store::Store};

const WAITING: usize = 4096;

/// The store did not take it. Nothing may be answered, and nothing may be done, that is not written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the audit cannot be written")]
pub struct Unavailable;

pub(super) enum Note {
    Begin { record: Box<Record>, until: i64, wish: Option<Claim>, done: oneshot::Sender<Begun> },
    End { record: Box<Record>, begun: WasBegun, done: oneshot::Sender<()> },
}

/// How a call that ends was begun.
#[derive(Clone, Debug, Default)]
pub enum WasBegun {
    /// It had no effect that it would have had to announce.
    #[default]
    Not,
    Yes,
    /// With a key, of which this became. `None`: nobody knows, and the key stays taken.
    WithKey(Option<Finish>),
}

/// A handle; clones write into the same chain.
#[derive(Clone, Debug)]
pub struct Ledger {
    notes: mpsc::Sender<Note>,
    head: watch::Receiver<(i64, String)>,
    begun: Option<Arc<BegunLog>>,
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
                    warn!(path = %path.display(), %error, "Calls that begin are written to the store alone.");
                    None
                }
            });
        let writer = Writer::new(store, moved, metrics, begun.clone());
        (Self { notes, head, begun }, writer.run(received))
    }

    /// Where the chain ends, as of the last commit of this instance.
    pub fn head(&self) -> watch::Receiver<(i64, String)> {
        self.head.clone()
    }

    /// Says, before it has any effect, that a call begins. If we end before it does, it gets its row all the same.
    pub async fn begin(
        &self,
        record: Record,
        within: Duration,
        wish: Option<Claim>,
    ) -> Result<Begun, Unavailable> {
        let until = clock::now().saturating_add(i64::try_from(within.as_micros()).unwrap_or(i64::MAX));
        let record = match &self.begun {
            // What takes a key is one transaction with that.
            Some(log) if wish.is_none() => match log.begin(record, until) {
                Ok(()) => return Ok(Begun::Fresh),
                Err(record) => record,
            },
            _ => Box::new(record),
        };
        let (done, answered) = oneshot::channel();
        let note = Note::Begin { record, until, wish, done };
        self.notes.send(note).await.map_err(|_| Unavailable)?;
        answered.await.map_err(|_| Unavailable)
    }

    /// Gives a call its row.
    pub async fn end(&self, record: Record, begun: WasBegun) -> Result<(), Unavailable> {
        let (done, answered) = oneshot::channel();
        let note = Note::End { record: Box::new(record), begun, done };
        self.notes.send(note).await.map_err(|_| Unavailable)?;
        answered.await.map_err(|_| Unavailable)
    }

    /// Gives calls that began here and should have ended by now their rows: the store was away when they did.
    pub async fn end_overdue(&self) -> Result<usize, Unavailable> {
        let overdue = self.begun.as_ref().map(|log| log.overdue(clock::now())).unwrap_or_default();
        let count = overdue.len();
        for record in overdue {
            self.end(record, WasBegun::Yes).await?;
        }
        Ok(count)
    }
}
