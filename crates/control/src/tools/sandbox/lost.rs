//! Queues jobs again whose message the queue lost, such as with a stream that was restored from an older
//! backup, ends those that were lost while they ran, and repeats requests that jobs end.

use std::collections::{BTreeMap, BTreeSet};

use broker::{Broker, Chain};
use contract::sandbox::JobStatus;
use operate::lost::ids_not_in;
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, Condition, DatabaseExecutor, EntityTrait, QueryFilter,
    QueryOrder, QuerySelect,
};
use store::{
    SendIf, Store, clock,
    entity::{job, node, outbox},
};
use subjects::{
    JobId, Subject,
    job::{End, Job, MAX_WAIT},
    node::PRESENCE_SECONDS,
    streams,
};
use tracing::debug;

use super::{JobBook, Sandboxes, cancel, run};
use crate::{
    LeaseIssuer, ToolError,
    known_node::{KnownNode, away_before},
    resend,
};

/// Time after which a job that was sent or handed back is checked in its queue. Its message was published
/// long before, if there is a server.
const LOST_AFTER_US: i64 = resend::AFTER_US;
const MAX_AT_ONCE: u64 = 500;
/// A report that came so long after a job was claimed names the job if the node still has it.
const REPORTED_AFTER_US: i64 = 2 * PRESENCE_SECONDS as i64 * 1_000_000;

/// Queues jobs again that wait for the database, and are not in their queue. One that has a message after all
/// runs once, too: nodes see in its chain who has it. A job that runs has a message until it ends; if its
/// chain is lost too, no node can store its result any more, and it ends. It also ends if its node no longer
/// has it: no other node is given it. Jobs that were asked to end and whose nodes are away are asked again.
/// Returns how many were queued.
pub async fn requeue_lost_jobs(
    store: &Store,
    sandboxes: &Sandboxes,
    leases: &LeaseIssuer,
) -> Result<u64, ToolError> {
    cancel_again(store, sandboxes).await?;
    let waits = Condition::all()
        .add(job::Column::Status.is_in([JobStatus::Queued.as_str(), JobStatus::Running.as_str()]))
        .add(job::Column::Queue.is_not_null())
        .add(job::Column::EndedAt.is_null())
        .add(job::Column::UpdatedAt.lt(clock::now().saturating_sub(LOST_AFTER_US)));
    let waiting = job::Entity::find()
        .select_only()
        .columns([job::Column::Id, job::Column::Queue])
        .filter(waits.clone())
        .order_by_asc(job::Column::UpdatedAt)
        .order_by_asc(job::Column::Id)
        .limit(MAX_AT_ONCE)
        .into_tuple::<(String, String)>()
        .all(store.read())
        .await?;
    if waiting.is_empty() {
        return Ok(0);
    }
    let Ok(broker) = sandboxes.broker().await else { return Ok(0) };
    let mut queues: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (id, queue) in waiting {
        queues.entry(queue).or_default().insert(id);
    }
    let mut queued = 0;
    for (queue, jobs) in queues {
        for id in not_in(&broker, &queue, jobs).await {
            queued += u64::from(requeue(store, sandboxes, leases, &id, &waits).await?);
        }
    }
    Ok(queued)
}

/// Asks jobs again to end that go on, although they were asked long ago, if their nodes are away.
async fn cancel_again(store: &Store, sandboxes: &Sandboxes) -> Result<(), ToolError> {
    let found = job::Entity::find()
        .select_only()
        .column(job::Column::Id)
        .filter(job::Column::Status.eq(JobStatus::Running.as_str()))
        .filter(job::Column::CancelRequestedAt.is_not_null())
        .filter(job::Column::UpdatedAt.lt(clock::now().saturating_sub(LOST_AFTER_US)))
        .order_by_asc(job::Column::UpdatedAt)
        .limit(MAX_AT_ONCE)
        .into_tuple::<String>();
    for id in found.all(store.read()).await? {
        let write = store.write().await?;
        let db = DatabaseExecutor::from(&*write);
        JobBook::new(&db, sandboxes, clock::now()).cancel_again(&id).await?;
        drop(db);
        write.commit().await?;
    }
    Ok(())
}

/// Returns those of the jobs that a queue does not hold; none if that is not known.
async fn not_in(broker: &Broker, queue: &str, jobs: BTreeSet<String>) -> BTreeSet<String> {
    let missing = ids_not_in(broker, streams::JOBS, queue, jobs, |message| {
        Job::decode(&message.payload).ok().map(|job| job.job_id.to_string())
    });
    missing.await.unwrap_or_else(|error| {
        debug!(queue, error = %Chain(&error), "Queue of jobs not read.");
        BTreeSet::new()
    })
}

async fn requeue(
    store: &Store,
    sandboxes: &Sandboxes,
    leases: &LeaseIssuer,
    id: &str,
    waits: &Condition,
) -> Result<bool, ToolError> {
    let write = store.write().await?;
    let db = DatabaseExecutor::from(&*write);
    let row = job::Entity::find_by_id(id).filter(waits.clone()).lock_exclusive().one(&db).await?;
    let queue = row.as_ref().and_then(|row| row.queue.as_deref()?.parse::<Subject>().ok());
    // What is about to be published is not lost.
    let unsent = outbox::Entity::find().filter(outbox::Column::Ordering.eq(id)).one(&db).await?;
    let (Some(row), Some(queue), None) = (row, queue, unsent) else {
        drop(db);
        write.roll_back().await?;
        return Ok(false);
    };
    // Another version is another message id: the stream remembers that of the lost message for a day.
    let (now, version) = (clock::now(), row.version + 1);
    let max_wait = i64::try_from(MAX_WAIT.as_micros()).unwrap_or(i64::MAX);
    let is_running = row.status == JobStatus::Running.as_str();
    if is_running {
        let (why, only_if) = if has_left(&db, sandboxes, &row, now).await? {
            ("the queue lost the job, and its node no longer runs it", SendIf::Unended)
        } else {
            ("the streams lost the job while it ran, and its result with it", SendIf::Unclaimed)
        };
        cancel::end(&db, sandboxes, &row, End::NodeLost { why: Some(why.to_owned()) }, only_if).await?;
    }
    let why = if is_running {
        None
    } else if now.saturating_sub(row.created_at) > max_wait {
        Some("the job waited for a node for more than six days")
    } else if run::send_again(&db, sandboxes, leases, &row, &queue, version).await? {
        None
    } else {
        Some("the queue lost the job, and its lease was revoked, without which no node can run it")
    };
    if let Some(why) = why {
        let end = End::EngineFailed { why: why.to_owned() };
        cancel::end(&db, sandboxes, &row, end, SendIf::Unclaimed).await?;
    }
    let mut change = job::ActiveModel::from(row);
    change.version = Set(version);
    change.updated_at = Set(now);
    change.update(&db).await?;
    drop(db);
    write.commit().await?;
    Ok(why.is_none() && !is_running)
}

/// Returns whether the node of a running job no longer has it: it was removed, has been silent for long, or
/// has since reported that it runs only others. A node names a job until its result is stored, or until it
/// has handed the job back.
async fn has_left(
    db: &DatabaseExecutor<'_>,
    sandboxes: &Sandboxes,
    row: &job::Model,
    now: i64,
) -> Result<bool, ToolError> {
    let id = row.node_id.as_deref().unwrap_or_default();
    let Some(node) = node::Entity::find_by_id(id).one(db).await?.map(KnownNode::new) else {
        return Ok(true);
    };
    let seen_at = node.row.seen_at;
    // Apart from what is noted of jobs that wait too long: that is looked at more often.
    let noted = format!("{}/lost", row.id);
    if sandboxes.silent.confirms(&noted, seen_at.max(row.updated_at) < away_before(now)) {
        return Ok(true);
    }
    let is_newer = seen_at > row.updated_at.saturating_add(REPORTED_AFTER_US);
    let runs_others = |running: &[JobId]| running.iter().all(|job| job.to_string() != row.id);
    Ok(is_newer && node.report.is_some_and(|report| runs_others(&report.running)))
}
