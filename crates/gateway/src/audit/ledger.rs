//! Group commit. Whatever calls have to say at the same time is written in one transaction, and each waits for that.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sea_orm::{
    ActiveValue::Set,
    ColumnTrait, DbErr, EntityTrait, ExprTrait, QueryFilter, QuerySelect, TryInsertResult,
    sea_query::{Expr, LockType},
};
use subjects::audit::Row;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{error, warn};

use super::record::{Record, Status, to_model};
use crate::{
    clock,
    metrics::{Counted, Metrics},
    store::{
        Store, Write,
        entity::{audit, audit_head, idempotency, in_flight},
    },
};

/// More than this in one transaction would make the first wait for the last.
const LARGEST_GROUP: usize = 256;
const WAITING: usize = 4096;
const HEAD: i32 = 1;

/// The store did not take it. Nothing may be answered, and nothing may be done, that is not written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the audit cannot be written")]
pub struct Unavailable;

/// The wish that a call have its effect once.
#[derive(Clone, Debug)]
pub struct Claim {
    pub holder: String,
    pub key: String,
    pub tool: String,
    pub arguments_digest: String,
    pub expires_at: i64,
}

/// What a claim found.
#[derive(Clone, Debug)]
pub enum Begun {
    /// Nobody was here before: the call may have its effect.
    Fresh,
    /// Somebody was.
    Known(Box<idempotency::Model>),
}

/// What became of a claim.
#[derive(Clone, Debug)]
pub struct Finish {
    pub holder: String,
    pub key: String,
    /// `None`: it had no effect, so the key is free again.
    pub result: Option<String>,
}

enum Note {
    Begin { record: Box<Record>, until: i64, wish: Option<Claim>, done: oneshot::Sender<Begun> },
    End { record: Box<Record>, was_begun: bool, finish: Option<Finish>, done: oneshot::Sender<()> },
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
        (Self { notes, head }, write(store, received, moved, metrics))
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
    pub async fn end(
        &self,
        record: Record,
        was_begun: bool,
        finish: Option<Finish>,
    ) -> Result<(), Unavailable> {
        let (done, answered) = oneshot::channel();
        let note = Note::End { record: Box::new(record), was_begun, finish, done };
        self.notes.send(note).await.map_err(|_| Unavailable)?;
        answered.await.map_err(|_| Unavailable)
    }
}

async fn write(
    store: Store,
    mut received: mpsc::Receiver<Note>,
    moved: watch::Sender<(i64, String)>,
    metrics: Arc<Metrics>,
) {
    let mut group = Vec::with_capacity(LARGEST_GROUP);
    while received.recv_many(&mut group, LARGEST_GROUP).await > 0 {
        let (size, begun) = (group.len(), Instant::now());
        match commit(&store, &mut group).await {
            Ok((answers, head, counted)) => {
                metrics.committed(size, begun.elapsed(), &counted);
                if let Some(head) = head {
                    moved.send_replace(head);
                }
                answers.into_iter().for_each(Answer::give);
            }
            // Whoever waits for these finds the sender gone, and denies.
            Err(error) => {
                metrics.not_committed(size);
                error!(%error, calls = size, "The audit cannot be written; these calls are not answered.");
                group.clear();
            }
        }
    }
}

/// What to tell a caller once the transaction is committed.
enum Answer {
    Begun(oneshot::Sender<Begun>, Begun),
    Ended(oneshot::Sender<()>),
}

impl Answer {
    /// A caller that is gone needs no answer.
    fn give(self) {
        match self {
            Self::Begun(done, begun) => drop(done.send(begun)),
            Self::Ended(done) => drop(done.send(())),
        }
    }
}

type Committed = (Vec<Answer>, Option<(i64, String)>, Vec<Counted>);

async fn commit(store: &Store, group: &mut Vec<Note>) -> Result<Committed, DbErr> {
    let write = store.write().await?;
    let mut answers = Vec::with_capacity(group.len());
    let (mut begun, mut ended, mut closed, mut finished) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for note in group.drain(..) {
        match note {
            Note::Begin { record, until, wish, done } => {
                let result = match wish {
                    Some(wish) => claim(&write, wish, &record.call_id).await?,
                    None => Begun::Fresh,
                };
                if matches!(result, Begun::Fresh) {
                    begun.push(intent(*record, until)?);
                }
                answers.push(Answer::Begun(done, result));
            }
            Note::End { record, was_begun, finish, done } => {
                if was_begun {
                    closed.push(record.call_id.clone());
                }
                finished.extend(finish);
                ended.push(*record);
                answers.push(Answer::Ended(done));
            }
        }
    }
    if !begun.is_empty() {
        in_flight::Entity::insert_many(begun).exec_without_returning(&*write).await?;
    }
    for finish in finished {
        settle(&write, finish).await?;
    }
    if !closed.is_empty() {
        in_flight::Entity::delete_many()
            .filter(in_flight::Column::CallId.is_in(closed))
            .exec(&*write)
            .await?;
    }
    let counted = ended.iter().map(Counted::of).collect();
    let head = if ended.is_empty() { None } else { Some(append(&write, ended).await?) };
    write.commit().await?;
    Ok((answers, head, counted))
}

/// Adds rows at the end of the chain. Instances that share a store take turns at its head.
pub(super) async fn append(write: &Write, records: Vec<Record>) -> Result<(i64, String), DbErr> {
    let head = audit_head::Entity::find_by_id(HEAD).lock(LockType::Update).one(&**write).await?;
    let head = head.ok_or_else(|| DbErr::RecordNotFound("the head of the audit".to_owned()))?;
    let (mut seq, mut hash) = (head.seq, head.hash);
    let mut rows = Vec::with_capacity(records.len());
    for record in records {
        seq += 1;
        let row: Row = record.chained(seq, &hash);
        hash.clone_from(&row.hash);
        rows.push(audit::ActiveModel::from(to_model(row)));
    }
    audit::Entity::insert_many(rows).exec_without_returning(&**write).await?;
    audit_head::Entity::update_many()
        .col_expr(audit_head::Column::Seq, Expr::value(seq))
        .col_expr(audit_head::Column::Hash, Expr::value(hash.clone()))
        .filter(audit_head::Column::Id.eq(HEAD))
        .exec(&**write)
        .await?;
    Ok((seq, hash))
}

/// A call that may have an effect, written down before it has.
pub(crate) fn intent(mut record: Record, until: i64) -> Result<in_flight::ActiveModel, DbErr> {
    record.status = Status::Unknown;
    record.error_type = Some("gateway_ended".to_owned());
    let text = serde_json::to_string(&record).map_err(|error| DbErr::Custom(error.to_string()))?;
    Ok(in_flight::ActiveModel { call_id: Set(record.call_id), expires_at: Set(until), record: Set(text) })
}

/// Takes a key, unless it is taken.
pub(crate) async fn claim(write: &Write, claim: Claim, call_id: &str) -> Result<Begun, DbErr> {
    let (holder, key) = (claim.holder.clone(), claim.key.clone());
    let row = idempotency::ActiveModel {
        holder: Set(claim.holder),
        key: Set(claim.key),
        tool: Set(claim.tool),
        arguments_digest: Set(claim.arguments_digest),
        state: Set(idempotency::RUNNING.to_owned()),
        result: Set(None),
        call_id: Set(call_id.to_owned()),
        created_at: Set(clock::now()),
        expires_at: Set(claim.expires_at),
    };
    let taken = idempotency::Entity::insert(row)
        .on_conflict_do_nothing_on([idempotency::Column::Holder, idempotency::Column::Key])
        .exec_without_returning(&**write)
        .await?;
    if let TryInsertResult::Inserted(1) = taken {
        return Ok(Begun::Fresh);
    }
    let known = idempotency::Entity::find_by_id((holder, key)).one(&**write).await?;
    known.map(|known| Begun::Known(Box::new(known))).ok_or_else(|| {
        // It was there a moment ago and expired in between; the caller may come again.
        DbErr::RecordNotFound("an idempotency record".to_owned())
    })
}

/// Says what became of a key.
pub(crate) async fn settle(write: &Write, finish: Finish) -> Result<(), DbErr> {
    let of = idempotency::Column::Holder.eq(finish.holder).and(idempotency::Column::Key.eq(finish.key));
    match finish.result {
        Some(result) => {
            idempotency::Entity::update_many()
                .col_expr(idempotency::Column::State, Expr::value(idempotency::DONE))
                .col_expr(idempotency::Column::Result, Expr::value(result))
                .filter(of)
                .exec(&**write)
                .await?;
        }
        None => {
            idempotency::Entity::delete_many().filter(of).exec(&**write).await?;
        }
    }
    Ok(())
}

/// Gives calls that nobody will end any more their rows: those of a gateway that was killed. With `all`, whoever calls
/// knows that no other instance is there.
pub async fn recover(store: &Store, all: bool) -> Result<usize, DbErr> {
    let write = store.write().await?;
    let mut query = in_flight::Entity::find();
    if !all {
        query = query.filter(in_flight::Column::ExpiresAt.lt(clock::now()));
    }
    let lost = query.lock(LockType::Update).all(&*write).await?;
    let mut records = Vec::new();
    let mut ids = Vec::new();
    for call in lost {
        match serde_json::from_str::<Record>(&call.record) {
            Ok(record) => records.push(record),
            Err(error) => warn!(%error, call_id = call.call_id, "What was begun cannot be read any more."),
        }
        ids.push(call.call_id);
    }
    let count = records.len();
    if !records.is_empty() {
        append(&write, records).await?;
    }
    if !ids.is_empty() {
        in_flight::Entity::delete_many().filter(in_flight::Column::CallId.is_in(ids)).exec(&*write).await?;
    }
    write.commit().await?;
    Ok(count)
}
