//! Group commit: whatever calls have to say at the same time is written together, and each waits for that.
//!
//! Calls that begin and calls that end are committed apart, and what is committed is never written again. Everything is
//! told apart by its call id, so what may or may not have been committed can be written once more. The outcome of a call
//! that may have had an effect is kept until the store takes it, also when its caller has been told that it is in doubt.

mod begins; // announcements
mod ends; // rows

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, timeout},
};
use tracing::{error, warn};

use self::begins::commit_begins;
use super::{
    appender::Appender,
    begun_log::BegunLog,
    chain::Last,
    not_written::NotWritten,
    notes::{Begin, End, Note, WasBegun},
};
use crate::{
    clock,
    metrics::{Counted, Metrics},
    store::{Store, entity::in_flight},
};

/// More than this in one transaction would make the first wait for the last.
const LARGEST_GROUP: usize = 256;
/// Calls that ended are forgotten to be in flight when there are so many, or when it is quiet.
const FORGET_AT: usize = 256;
const QUIET: Duration = Duration::from_millis(200);
/// Rows that this process adds elsewhere can take a number at the same time, but not for ever.
const MOST_COLLISIONS: usize = 100;
/// With so many outcomes waiting for the store, no more calls may begin.
const MOST_WAITING: usize = 1000;
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(1);

pub(super) struct Writer {
    store: Store,
    moved: watch::Sender<(i64, String)>,
    metrics: Arc<Metrics>,
    /// As far as we know. Only where the store is a file: a server may have other writers.
    last: Option<Last>,
    /// Have their rows, and are still in flight as far as the store knows.
    ended: Vec<String>,
    begun: Option<Arc<BegunLog>>,
    /// Where the store is a file.
    appender: Option<Appender>,
    begins: Vec<Begin>,
    ends: Vec<End>,
    is_full: Arc<AtomicBool>,
    retry: Duration,
}

impl Writer {
    pub(super) fn new(
        store: Store,
        moved: watch::Sender<(i64, String)>,
        metrics: Arc<Metrics>,
        begun: Option<Arc<BegunLog>>,
        is_full: Arc<AtomicBool>,
    ) -> Self {
        Self {
            store,
            moved,
            metrics,
            last: None,
            ended: Vec::new(),
            begun,
            appender: None,
            begins: Vec::new(),
            ends: Vec::new(),
            is_full,
            retry: FIRST_RETRY,
        }
    }

    pub(super) async fn run(mut self, mut received: mpsc::Receiver<Note>) {
        let mut notes = Vec::with_capacity(LARGEST_GROUP);
        loop {
            let waits = !self.begins.is_empty() || !self.ends.is_empty();
            let pause = match (waits, self.ended.is_empty()) {
                (true, _) => self.retry,
                (false, false) => QUIET,
                (false, true) => Duration::MAX,
            };
            match timeout(pause, received.recv_many(&mut notes, LARGEST_GROUP)).await {
                Ok(0) => break,
                Ok(_) => notes.drain(..).for_each(|note| self.take(note)),
                Err(_) if waits => {}
                Err(_) => self.forget().await,
            }
            self.write().await;
        }
        let until = Instant::now() + self.store.patience();
        while !self.ends.is_empty() && Instant::now() < until {
            tokio::time::sleep(self.retry).await;
            self.write().await;
        }
        if !self.ends.is_empty() {
            let calls = self.ends.len();
            error!(
                calls,
                "Audit not writable; these calls are recorded with an unknown outcome after a restart."
            );
        }
        self.forget().await;
    }

    fn take(&mut self, note: Note) {
        match note {
            Note::Begin(begin) => self.begins.push(begin),
            Note::End(end) => self.ends.push(end),
            Note::Overdue(done) => {
                let overdue = self.begun.as_ref().map(|log| log.overdue(clock::now())).unwrap_or_default();
                let waiting = |id: &str| self.ends.iter().any(|end| end.record.call_id == id);
                let overdue: Vec<_> = overdue.into_iter().filter(|it| !waiting(&it.call_id)).collect();
                let count = overdue.len();
                let deadline = Instant::now();
                self.ends.extend(overdue.into_iter().map(|record| End {
                    record,
                    begun: WasBegun::Yes,
                    done: None,
                    deadline,
                    was_tried: true,
                }));
                tell(done, count);
            }
        }
    }

    /// Writes what waits, as far as the store takes it.
    async fn write(&mut self) {
        let begun = self.write_begins().await;
        let ended = self.write_ends().await;
        self.retry = if begun && ended { FIRST_RETRY } else { (self.retry * 2).min(LAST_RETRY) };
        self.is_full.store(self.ends.len() >= MOST_WAITING, Ordering::Relaxed);
    }

    /// Whether the store took all announcements; those that it did not take wait until their deadline.
    async fn write_begins(&mut self) -> bool {
        let mut most = LARGEST_GROUP;
        let now = Instant::now();
        // The end of a call that is not made any more may be next in line.
        self.begins.retain(|begin| begin.is_awaited(now));
        while !self.begins.is_empty() {
            self.begins.sort_by(|one, other| one.order().cmp(&other.order()));
            let count = self.begins.len().min(most);
            let group: Vec<Begin> = self.begins.drain(..count).collect();
            let began = Instant::now();
            match within_patience(&self.store, commit_begins(&self.store, &group)).await {
                Ok(found) => {
                    self.metrics.committed(count, began.elapsed(), &[]);
                    for (begin, found) in group.into_iter().zip(found) {
                        // A caller that is gone needs no answer.
                        tell(begin.done, found);
                    }
                }
                Err(NotWritten::Refused(_)) if count > 1 => {
                    self.begins.splice(0..0, group);
                    most = 1;
                }
                Err(NotWritten::Refused(error)) => {
                    error!(%error, "Audit refused the start of a call; the call is not made.");
                    self.metrics.not_committed(count);
                }
                Err(error) => {
                    let now = Instant::now();
                    let calls = group.len();
                    self.begins.splice(0..0, group);
                    // Their callers find the sender gone, and make no call.
                    self.begins.retain(|begin| begin.is_awaited(now));
                    let waiting = self.begins.len();
                    warn!(%error, calls, waiting, "Audit not writable; calls wait to start.");
                    self.metrics.not_committed(calls.saturating_sub(waiting));
                    return false;
                }
            }
        }
        true
    }

    /// Whether the store took all rows. Of those that it did not take, the ones that have to be written stay.
    async fn write_ends(&mut self) -> bool {
        let (mut most, mut collisions) = (LARGEST_GROUP, 0);
        while !self.ends.is_empty() {
            let count = self.ends.len().min(most);
            let group: Vec<End> = self.ends.drain(..count).collect();
            let began = Instant::now();
            match self.commit_ends(&group).await {
                Ok(last) => self.is_written(group, last, began.elapsed()).await,
                Err(NotWritten::TooLate) if collisions < MOST_COLLISIONS => {
                    collisions += 1;
                    self.last = None;
                    self.ends.splice(0..0, group);
                }
                Err(NotWritten::Refused(_)) if count > 1 => {
                    self.ends.splice(0..0, group);
                    most = 1;
                }
                Err(NotWritten::Refused(error)) => {
                    let call_id = group.first().map(|end| end.record.call_id.as_str());
                    error!(%error, call_id, "Audit refused a row; a started call is recorded with an unknown outcome.");
                    self.metrics.not_committed(count);
                }
                Err(error) => {
                    self.ends.splice(0..0, group);
                    self.keep_what_must_be_written(&error);
                    return false;
                }
            }
        }
        true
    }

    fn keep_what_must_be_written(&mut self, error: &NotWritten) {
        self.last = None;
        let (now, before) = (Instant::now(), self.ends.len());
        self.ends.retain_mut(|end| {
            end.was_tried = true;
            if end.deadline > now {
                return true;
            }
            // Its caller finds the sender gone.
            end.done = None;
            end.must_be_written()
        });
        let waiting = self.ends.len();
        self.metrics.not_committed(before - waiting);
        error!(%error, waiting, dropped = before - waiting, "Audit not writable; retrying.");
    }

    async fn is_written(&mut self, group: Vec<End>, last: Option<Last>, took: Duration) {
        let counted: Vec<Counted> = group.iter().map(|end| Counted::of(&end.record)).collect();
        self.metrics.committed(group.len(), took, &counted);
        if let Some(last) = last {
            self.moved.send_replace((last.seq, last.hash.clone()));
            self.last = Some(last).filter(|_| !self.store.is_postgres());
        }
        for end in group {
            // What has its row is done with, and the file of what began may be begun anew.
            if let (Some(log), Some(call_id)) = (&self.begun, end.announced()) {
                log.end(call_id);
            }
            if let Some(done) = end.done {
                // A caller that is gone needs no answer.
                tell(done, ());
            }
        }
        if self.ended.len() >= FORGET_AT {
            self.forget().await;
        }
        self.tidy().await;
    }

    fn is_logged(&self, call_id: &str) -> bool {
        self.begun.as_ref().is_some_and(|log| log.has(call_id))
    }

    async fn tidy(&mut self) {
        if let Some(appender) = self.appender.take() {
            match appender.tidy().await {
                Ok(appender) => self.appender = Some(appender),
                Err(error) => warn!(%error, "WAL checkpoint failed; retrying."),
            }
        }
    }

    async fn forget(&mut self) {
        let ended = std::mem::take(&mut self.ended);
        if ended.is_empty() {
            return;
        }
        let turn = self.store.turn().await;
        let gone = in_flight::Entity::delete_many().filter(in_flight::Column::CallId.is_in(ended.clone()));
        if let Err(error) = gone.exec(&*turn).await {
            warn!(%error, "In-flight rows of completed calls not removed; retrying.");
            self.ended = ended;
        }
    }
}

fn tell<T>(done: oneshot::Sender<T>, what: T) {
    drop(done.send(what));
}

/// A file answers or fails by itself; a server may do neither.
async fn within_patience<T>(
    store: &Store,
    work: impl Future<Output = Result<T, NotWritten>>,
) -> Result<T, NotWritten> {
    if !store.is_postgres() {
        return work.await;
    }
    let patience = store.patience();
    timeout(patience, work).await.unwrap_or(Err(NotWritten::TimedOut(patience)))
}
