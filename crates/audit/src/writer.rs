//! Group commit: messages that arrive at the same time are committed together, and each sender waits for the
//! commit.
//!
//! Announcements and rows are committed separately. Both are identified by their call id, so a write that may
//! or may not have been committed can be repeated. The outcome of a call that may have had an effect is kept
//! until the store accepts it, even after its caller got `in_doubt`.

mod begins;
mod ends;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use broker::retry::RetryDelays;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, timeout},
};
use tracing::{error, warn};

use self::begins::commit_begins;
use super::{
    appender::Appender,
    chain::LastRow,
    in_flight_log::InFlightLog,
    messages::{Announcement, Begin, End, Message},
    write_error::WriteError,
};
use store::{Store, clock, entity::in_flight};

use crate::metrics::{CallSample, Metrics};

/// Messages per transaction. In a larger group the first message would wait too long for the last.
const MAX_GROUP: usize = 256;
/// Announcements of recorded calls are removed when there are this many, or when no message arrives for a
/// while.
const CLEAN_UP_AT: usize = 256;
const CLEAN_UP_IDLE: Duration = Duration::from_millis(200);
/// Retries when another part of this process has taken the sequence number.
const MAX_COLLISIONS: usize = 100;
/// While this many outcomes wait for the store, no call may begin.
const MAX_WAITING_ENDS: usize = 1000;
const MIN_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(1);

pub(super) struct Writer {
    store: Store,
    head_sender: watch::Sender<(i64, String)>,
    metrics: Metrics,
    /// The last row, if known. Only with SQLite: PostgreSQL may have other writers.
    last: Option<LastRow>,
    /// Ids of calls that have their rows and whose announcements are still in the store.
    recorded: Vec<String>,
    in_flight_log: Option<Arc<InFlightLog>>,
    /// The fast path for rows. `None`: rows go through the store like everything else.
    appender: Option<Appender>,
    begins: Vec<Begin>,
    ends: Vec<End>,
    is_full: Arc<AtomicBool>,
    retry_delays: RetryDelays,
}

impl Writer {
    pub(super) fn new(
        store: Store,
        fast_append: bool,
        head_sender: watch::Sender<(i64, String)>,
        metrics: Metrics,
        in_flight_log: Option<Arc<InFlightLog>>,
        is_full: Arc<AtomicBool>,
    ) -> Self {
        Self {
            appender: Appender::for_store(&store).filter(|_| fast_append),
            store,
            head_sender,
            metrics,
            last: None,
            recorded: Vec::new(),
            in_flight_log,
            begins: Vec::new(),
            ends: Vec::new(),
            is_full,
            retry_delays: RetryDelays::forever(MIN_RETRY_DELAY, MAX_RETRY_DELAY),
        }
    }

    /// Writes messages until every sender is dropped, then waits up to the store's patience for what is left.
    pub(super) async fn run(mut self, mut received: mpsc::Receiver<Message>) {
        let mut messages = Vec::with_capacity(MAX_GROUP);
        loop {
            let waits = !self.begins.is_empty() || !self.ends.is_empty();
            let pause = match (waits, self.recorded.is_empty()) {
                (true, _) => self.next_retry(),
                (false, false) => CLEAN_UP_IDLE,
                (false, true) => Duration::MAX,
            };
            match timeout(pause, received.recv_many(&mut messages, MAX_GROUP)).await {
                Ok(0) => break,
                Ok(_) => messages.drain(..).for_each(|message| self.enqueue(message)),
                Err(_) if waits => {}
                Err(_) => self.clean_up().await,
            }
            self.write().await;
        }
        let until = Instant::now() + self.store.patience();
        while !self.ends.is_empty() && Instant::now() < until {
            tokio::time::sleep(self.next_retry()).await;
            self.write().await;
        }
        if !self.ends.is_empty() {
            let calls = self.ends.len();
            error!(
                calls,
                "Audit not writable; these calls are recorded with an unknown outcome after a restart."
            );
        }
        self.clean_up().await;
    }

    fn next_retry(&mut self) -> Duration {
        self.retry_delays.next_delay().unwrap_or(MAX_RETRY_DELAY)
    }

    fn enqueue(&mut self, message: Message) {
        match message {
            Message::Begin(begin) => self.begins.push(begin),
            Message::End(end) => self.enqueue_end(end),
            Message::Overdue(done) => {
                let log = self.in_flight_log.as_ref();
                let overdue = log.map(|log| log.overdue(clock::now())).unwrap_or_default();
                let waiting = |id: &str| self.ends.iter().any(|end| end.record.call_id == id);
                let overdue: Vec<_> = overdue.into_iter().filter(|it| !waiting(&it.call_id)).collect();
                let count = overdue.len();
                let deadline = Instant::now();
                self.ends.extend(overdue.into_iter().map(|record| End {
                    record,
                    announcement: Announcement::Made,
                    done: None,
                    deadline,
                    was_tried: true,
                    is_overdue: true,
                }));
                reply(done, count);
            }
        }
    }

    /// Adds the row of a call. If the call was overdue and that row still waits, it takes its place.
    fn enqueue_end(&mut self, end: End) {
        let is_replaced = |other: &End| other.is_overdue && other.record.call_id == end.record.call_id;
        let place = self.ends.iter().position(is_replaced);
        match place.and_then(|place| self.ends.get_mut(place)) {
            // The row that waited may have been committed.
            Some(overdue) => *overdue = End { was_tried: true, ..end },
            None => self.ends.push(end),
        }
    }

    /// Writes the waiting messages, as far as the store accepts them.
    async fn write(&mut self) {
        let begins_written = self.write_begins().await;
        let ends_written = self.write_ends().await;
        if begins_written && ends_written {
            self.retry_delays.reset();
        }
        self.is_full.store(self.ends.len() >= MAX_WAITING_ENDS, Ordering::Relaxed);
    }

    /// Writes all announcements; returns whether the store accepted them. The others wait until their
    /// deadline.
    async fn write_begins(&mut self) -> bool {
        let mut limit = MAX_GROUP;
        let now = Instant::now();
        // The end of an abandoned call may be among the messages already, so its announcement must not be
        // written.
        self.begins.retain(|begin| begin.is_awaited(now));
        while !self.begins.is_empty() {
            self.begins.sort_by(|one, other| one.order().cmp(&other.order()));
            let count = self.begins.len().min(limit);
            let group: Vec<Begin> = self.begins.drain(..count).collect();
            let began = Instant::now();
            match within_patience(&self.store, commit_begins(&self.store, &group)).await {
                Ok(outcomes) => {
                    self.metrics.record_commit(count, began.elapsed(), &[]);
                    for (begin, outcome) in group.into_iter().zip(outcomes) {
                        reply(begin.done, outcome);
                    }
                }
                // Retried one by one, to find the message that the store rejects.
                Err(WriteError::Rejected(_)) if count > 1 => {
                    self.begins.splice(0..0, group);
                    limit = 1;
                }
                Err(WriteError::Rejected(error)) => {
                    error!(%error, "Audit refused the start of a call; the call is not made.");
                    self.metrics.record_failures(count);
                }
                Err(error) => {
                    let now = Instant::now();
                    let calls = group.len();
                    self.begins.splice(0..0, group);
                    // Dropping the sender tells the caller not to make the call.
                    self.begins.retain(|begin| begin.is_awaited(now));
                    let waiting = self.begins.len();
                    warn!(%error, calls, waiting, "Audit not writable; calls wait to start.");
                    self.metrics.record_failures(calls.saturating_sub(waiting));
                    return false;
                }
            }
        }
        true
    }

    /// Writes all rows; returns whether the store accepted them. Rows that must be written stay for the next
    /// attempt.
    async fn write_ends(&mut self) -> bool {
        let (mut limit, mut collisions) = (MAX_GROUP, 0);
        while !self.ends.is_empty() {
            let count = self.ends.len().min(limit);
            let group: Vec<End> = self.ends.drain(..count).collect();
            let began = Instant::now();
            match self.commit_ends(&group).await {
                Ok(last) => self.confirm_written(group, last, began.elapsed()).await,
                Err(WriteError::SequenceTaken) if collisions < MAX_COLLISIONS => {
                    collisions += 1;
                    self.last = None;
                    self.ends.splice(0..0, group);
                }
                // Retried one by one, to find the row that the store rejects.
                Err(WriteError::Rejected(_)) if count > 1 => {
                    self.ends.splice(0..0, group);
                    limit = 1;
                }
                Err(WriteError::Rejected(error)) => {
                    let call_id = group.first().map(|end| end.record.call_id.as_str());
                    error!(
                        %error, call_id,
                        "Audit refused a row; a started call is recorded with an unknown outcome."
                    );
                    self.metrics.record_failures(count);
                }
                Err(error) => {
                    self.ends.splice(0..0, group);
                    self.retain_required(&error);
                    return false;
                }
            }
        }
        true
    }

    /// Drops rows that are past their deadline and need not be written; the others are retried.
    fn retain_required(&mut self, error: &WriteError) {
        self.last = None;
        let (now, before) = (Instant::now(), self.ends.len());
        self.ends.retain_mut(|end| {
            end.was_tried = true;
            if end.deadline > now {
                return true;
            }
            // Dropping the sender tells the caller that the outcome is not recorded.
            end.done = None;
            end.must_be_written()
        });
        let waiting = self.ends.len();
        self.metrics.record_failures(before - waiting);
        error!(%error, waiting, dropped = before - waiting, "Audit not writable; retrying.");
    }

    /// Publishes the new head, confirms the rows to their callers, and cleans up if that is due.
    async fn confirm_written(&mut self, group: Vec<End>, last: Option<LastRow>, took: Duration) {
        let counted: Vec<CallSample> = group.iter().map(|end| CallSample::of(&end.record)).collect();
        self.metrics.record_commit(group.len(), took, &counted);
        if let Some(last) = last {
            self.head_sender.send_replace((last.seq, last.hash.clone()));
            self.last = Some(last).filter(|_| !self.store.is_postgres());
        }
        for end in group {
            if let (Some(log), Some(call_id)) = (&self.in_flight_log, end.announced()) {
                log.end(call_id);
            }
            if let Some(done) = end.done {
                reply(done, ());
            }
        }
        if self.recorded.len() >= CLEAN_UP_AT {
            self.clean_up().await;
        }
    }

    fn is_logged(&self, call_id: &str) -> bool {
        self.in_flight_log.as_ref().is_some_and(|log| log.contains(call_id))
    }

    /// Removes the announcements of recorded calls from the store.
    async fn clean_up(&mut self) {
        let recorded = std::mem::take(&mut self.recorded);
        if recorded.is_empty() {
            return;
        }
        let writer = self.store.acquire_writer().await;
        let ids = in_flight::Column::CallId.is_in(recorded.clone());
        if let Err(error) = in_flight::Entity::delete_many().filter(ids).exec(&*writer).await {
            warn!(%error, "In-flight rows of completed calls not removed; retrying.");
            self.recorded = recorded;
        }
    }
}

/// Sends a reply; a caller that no longer waits needs none.
fn reply<T>(done: oneshot::Sender<T>, value: T) {
    drop(done.send(value));
}

/// Runs `work` with the store's patience as timeout if the store is PostgreSQL. SQLite answers or fails by
/// itself.
async fn within_patience<T>(
    store: &Store,
    work: impl Future<Output = Result<T, WriteError>>,
) -> Result<T, WriteError> {
    if !store.is_postgres() {
        return work.await;
    }
    let patience = store.patience();
    timeout(patience, work).await.unwrap_or(Err(WriteError::TimedOut(patience)))
}

#[cfg(test)]
mod tests;
