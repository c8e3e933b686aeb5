//! Group commit: whatever calls have to say at the same time is written together, and each waits for that. What belongs
//! together is one transaction; a plain call is one statement before it and one after.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sea_orm::{ColumnTrait, EntityTrait, QueryFilter};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::timeout,
};
use tracing::{error, warn};

use super::{
    appender::Appender,
    begun_log::BegunLog,
    chain::{Last, append, following, last},
    keys::{Begun, claim, settle},
    ledger::{Note, WasBegun},
    not_written::NotWritten,
    record::Record,
    recovery::intent,
};
use crate::{
    metrics::{Counted, Metrics},
    store::{Store, entity::in_flight},
};

/// More than this in one transaction would make the first wait for the last.
const LARGEST_GROUP: usize = 256;
/// Calls that ended are forgotten to be in flight when there are so many, or when it is quiet.
const FORGET_AT: usize = 256;
const QUIET: Duration = Duration::from_millis(200);
/// Other instances may be faster, but not for ever.
const MOST_TRIES: usize = 100;

pub(super) struct Writer {
    store: Store,
    moved: watch::Sender<(i64, String)>,
    metrics: Arc<Metrics>,
    /// As far as we know.
    last: Option<Last>,
    /// Have their rows, and are still in flight as far as the store knows.
    ended: Vec<String>,
    begun: Option<Arc<BegunLog>>,
    /// Where the store is a file.
    appender: Option<Appender>,
}

impl Writer {
    pub(super) fn new(
        store: Store,
        moved: watch::Sender<(i64, String)>,
        metrics: Arc<Metrics>,
        begun: Option<Arc<BegunLog>>,
    ) -> Self {
        Self { store, moved, metrics, last: None, ended: Vec::new(), begun, appender: None }
    }

    pub(super) async fn run(mut self, mut received: mpsc::Receiver<Note>) {
        let mut group = Vec::with_capacity(LARGEST_GROUP);
        loop {
            let quiet = if self.ended.is_empty() { Duration::MAX } else { QUIET };
            match timeout(quiet, received.recv_many(&mut group, LARGEST_GROUP)).await {
                Ok(0) => break,
                Ok(_) => self.write(&mut group).await,
                Err(_) => self.forget().await,
            }
        }
        self.forget().await;
    }

    async fn write(&mut self, group: &mut Vec<Note>) {
        let (size, begun) = (group.len(), Instant::now());
        for _ in 0..MOST_TRIES {
            match self.commit(group).await {
                Ok(results) => {
                    let counted: Vec<Counted> = group.iter().filter_map(counted).collect();
                    self.metrics.committed(size, begun.elapsed(), &counted);
                    if let (false, Some(last)) = (counted.is_empty(), &self.last) {
                        self.moved.send_replace((last.seq, last.hash.clone()));
                    }
                    self.forget_logged(group);
                    answer(group, results);
                    if self.ended.len() >= FORGET_AT {
                        self.forget().await;
                    }
                    self.tidy().await;
                    return;
                }
                Err(NotWritten::TooLate) => self.last = None,
                Err(error) => {
                    error!(%error, calls = size, "The audit cannot be written; these calls are not answered.");
                    break;
                }
            }
        }
        // Whoever waits for these finds the sender gone, and denies.
        self.last = None;
        self.metrics.not_committed(size);
        group.clear();
    }

    /// What each of those that began found.
    async fn commit(&mut self, group: &[Note]) -> Result<Vec<Begun>, NotWritten> {
        let with_keys = group.iter().any(|note| match note {
            Note::Begin { wish, .. } => wish.is_some(),
            Note::End { begun, .. } => matches!(begun, WasBegun::WithKey(_)),
        });
        if with_keys { self.commit_together(group).await } else { self.commit_plain(group).await }
    }

    /// Two statements at most. Should we end between them, some calls have begun that nobody was told to make.
    async fn commit_plain(&mut self, group: &[Note]) -> Result<Vec<Begun>, NotWritten> {
        let mut begin = Vec::new();
        for note in group {
            if let Note::Begin { record, until, .. } = note {
                begin.push(intent((**record).clone(), *until)?);
            }
        }
        let results = vec![Begun::Fresh; begin.len()];
        let records: Vec<Record> = group.iter().filter_map(ended).cloned().collect();
        let turn = self.store.turn().await;
        if !begin.is_empty() {
            in_flight::Entity::insert_many(begin).exec_without_returning(&*turn).await?;
        }
        if !records.is_empty() {
            let after = match self.last.take() {
                Some(last) => last,
                None => last(&*turn).await?,
            };
            self.last = Some(match self.store.file() {
                Some(file) => {
                    let appender = match self.appender.take() {
                        Some(appender) => appender,
                        None => Appender::open(file, self.store.durability())?,
                    };
                    let (rows, last) = following(&after, records);
                    self.appender = Some(appender.add(rows).await?);
                    last
                }
                None => append(&*turn, &after, records).await?,
            });
        }
        drop(turn);
        let in_table = group.iter().filter_map(begun).filter(|id| !self.is_logged(id)).map(str::to_owned);
        let in_table: Vec<String> = in_table.collect();
        self.ended.extend(in_table);
        Ok(results)
    }

    /// A key is taken together with the word that its call begins, and gets its answer together with the call's row.
    async fn commit_together(&mut self, group: &[Note]) -> Result<Vec<Begun>, NotWritten> {
        let write = self.store.write().await?;
        let (mut results, mut begin, mut over) = (Vec::new(), Vec::new(), Vec::new());
        for note in group {
            match note {
                Note::Begin { record, until, wish, .. } => {
                    let result = match wish {
                        Some(wish) => claim(&*write, wish, &record.call_id).await?,
                        None => Begun::Fresh,
                    };
                    if matches!(result, Begun::Fresh) {
                        begin.push(intent((**record).clone(), *until)?);
                    }
                    results.push(result);
                }
                Note::End { begun: WasBegun::Not, .. } => {}
                Note::End { record, begun: WasBegun::Yes, .. } => {
                    if !self.is_logged(&record.call_id) {
                        over.push(record.call_id.clone());
                    }
                }
                Note::End { record, begun: WasBegun::WithKey(finish), .. } => {
                    over.push(record.call_id.clone());
                    if let Some(finish) = finish {
                        settle(&*write, finish).await?;
                    }
                }
            }
        }
        if !begin.is_empty() {
            in_flight::Entity::insert_many(begin).exec_without_returning(&*write).await?;
        }
        if !over.is_empty() {
            in_flight::Entity::delete_many()
                .filter(in_flight::Column::CallId.is_in(over))
                .exec(&*write)
                .await?;
        }
        let records: Vec<Record> = group.iter().filter_map(ended).cloned().collect();
        let mut now = None;
        if !records.is_empty() {
            let after = match self.last.take() {
                Some(last) => last,
                None => last(&*write).await?,
            };
            now = Some(append(&*write, &after, records).await?);
        }
        write.commit().await?;
        if now.is_some() {
            self.last = now;
        }
        Ok(results)
    }

    fn is_logged(&self, call_id: &str) -> bool {
        self.begun.as_ref().is_some_and(|log| log.has(call_id))
    }

    /// What has its row is done with, and the file of what began may be begun anew.
    fn forget_logged(&self, group: &[Note]) {
        if let Some(log) = &self.begun {
            group.iter().filter_map(begun).for_each(|call_id| log.end(call_id));
        }
    }

    async fn tidy(&mut self) {
        if let Some(appender) = self.appender.take() {
            match appender.tidy().await {
                Ok(appender) => self.appender = Some(appender),
                Err(error) => warn!(%error, "The log of the store grows; it is tried again."),
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
            warn!(%error, "Calls that ended are still in flight as far as the store knows; it is tried again.");
            self.ended = ended;
        }
    }
}

fn ended(note: &Note) -> Option<&Record> {
    match note {
        Note::End { record, .. } => Some(record),
        Note::Begin { .. } => None,
    }
}

/// The call that ends, if it said before that it began.
fn begun(note: &Note) -> Option<&str> {
    match note {
        Note::End { record, begun: WasBegun::Yes, .. } => Some(&record.call_id),
        _ => None,
    }
}

fn counted(note: &Note) -> Option<Counted> {
    ended(note).map(Counted::of)
}

/// A caller that is gone needs no answer.
fn answer(group: &mut Vec<Note>, results: Vec<Begun>) {
    let mut results = results.into_iter();
    for note in group.drain(..) {
        match note {
            Note::Begin { done, .. } => {
                if let Some(result) = results.next() {
                    tell(done, result);
                }
            }
            Note::End { done, .. } => tell(done, ()),
        }
    }
}

fn tell<T>(done: oneshot::Sender<T>, what: T) {
    drop(done.send(what));
}
