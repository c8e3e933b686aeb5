//! The way into the audit. Whoever has something to say waits until it is committed.

use std::{sync::Arc, time::Duration};

use tokio::sync::{mpsc, oneshot, watch};

use super::{
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
        (Self { notes, head }, Writer::new(store, moved, metrics).run(received))
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
        let (done, answered) = oneshot::channel();
        let until = clock::now().saturating_add(i64::try_from(within.as_micros()).unwrap_or(i64::MAX));
        let note = Note::Begin { record: Box::new(record), until, wish, done };
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
}
