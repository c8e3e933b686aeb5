//! Publishes handoffs of workflows again that the streams have lost, such as with a restore of an older
//! backup.

use broker::Chain;
use operate::lost::HandoffQueue;
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder,
    QuerySelect, sea_query::Query,
};
use store::{
    Store, clock,
    entity::{lease, outbox, workflow_effect, workflow_handoff},
};
use subjects::{Body, Encoding, Handoff, HandoffId, Kind, Role, streams::ANSWER_RETENTION};
use tracing::{debug, warn};

use super::{answers, publish};
use crate::{LeaseIssuer, Sandboxes, ToolError, lease_issuer::to_lease, resend};

const MAX_AT_ONCE: u64 = 500;

/// A handoff that was published and may have to be again.
struct Sent {
    id: HandoffId,
    task: String,
    kind: Kind,
    began_at: i64,
    sent_at: i64,
}

/// Publishes handoffs again that were published some time ago, that the queue has lost and that have no
/// answer. What of them is answered is stored. Returns how many were published.
pub async fn resend_lost_handoffs(
    store: &Store,
    sandboxes: &Sandboxes,
    leases: &LeaseIssuer,
) -> Result<u64, ToolError> {
    note_sent(store).await?;
    let now = clock::now();
    let due = due(store, now).await?;
    if due.is_empty() {
        return Ok(0);
    }
    let Ok(broker) = sandboxes.broker().await else { return Ok(0) };
    // Before the answers are read. One request for all of them.
    let queue = match HandoffQueue::look_at(&broker, Role::ProjectManager).await {
        Ok(queue) => queue,
        Err(error) => {
            debug!(error = %Chain(&error), "Handoff queue not read; retrying.");
            return Ok(0);
        }
    };
    let at = clock::from_micros;
    let mut published = 0;
    for sent in due {
        if !queue.has_lost(sent.kind, at(sent.began_at), at(sent.sent_at), at(now)) {
            continue;
        }
        // One that cannot be read may be there.
        let Ok(answer) = sandboxes.read_answer(sent.id).await else { continue };
        match answer {
            Some(answer) => {
                answers::keep_unless_ended(store, sandboxes, leases, &sent.task, sent.id, answer).await?;
                debug!(handoff.id = %sent.id, "Unrecorded answer found.");
            }
            None => match publish_again(store, sandboxes, leases, &sent).await {
                Ok(is_published) => published += u64::from(is_published),
                Err(ToolError::Store(error)) => return Err(ToolError::Store(error)),
                // The others do not wait for that.
                Err(error) => {
                    warn!(handoff.id = %sent.id, error = %Chain(&error), "Lost handoff not published again.");
                }
            },
        }
    }
    Ok(published)
}

/// Records that handoffs were published which are not in the outbox any more.
async fn note_sent(store: &Store) -> Result<(), ToolError> {
    let waiting = Query::select().column(outbox::Column::Ordering).from(outbox::Entity).to_owned();
    let unnoted = workflow_handoff::Entity::find()
        .select_only()
        .column(workflow_handoff::Column::Id)
        .filter(workflow_handoff::Column::SentAt.is_null())
        .filter(workflow_handoff::Column::Id.not_in_subquery(waiting))
        .limit(MAX_AT_ONCE)
        .into_tuple::<String>();
    for id in unnoted.all(store.read()).await? {
        let note = workflow_handoff::ActiveModel { sent_at: Set(Some(clock::now())), ..Default::default() };
        workflow_handoff::Entity::update_many()
            .set(note)
            .filter(workflow_handoff::Column::Id.eq(id))
            .filter(workflow_handoff::Column::SentAt.is_null())
            .exec(&*store.acquire_writer().await)
            .await?;
    }
    Ok(())
}

/// Returns what was published some time ago, the oldest first: if the queue has lost some of it, it is that.
async fn due(store: &Store, now: i64) -> Result<Vec<Sent>, ToolError> {
    use workflow_handoff::Column;
    // A worker refuses one that is older: its answer may have been deleted.
    let kept = i64::try_from(ANSWER_RETENTION.as_micros()).unwrap_or(i64::MAX);
    let found = workflow_handoff::Entity::find()
        .select_only()
        .columns([Column::Id, Column::TaskId, Column::Kind, Column::BeganAt, Column::SentAt])
        .filter(resend::is_due(Column::BeganAt, Column::SentAt, now))
        .filter(Column::BeganAt.gt(now.saturating_sub(kept)))
        .order_by_asc(Column::SentAt)
        .limit(MAX_AT_ONCE)
        .into_tuple::<(String, String, String, i64, i64)>();
    let parse = |(id, task, kind, began_at, sent_at): (String, String, String, i64, i64)| {
        Some(Sent { id: id.parse().ok()?, task, kind: kind.parse().ok()?, began_at, sent_at })
    };
    Ok(found.all(store.read()).await?.into_iter().filter_map(parse).collect())
}

/// Publishes a handoff again, unless it was answered, ended or published meanwhile.
async fn publish_again(
    store: &Store,
    sandboxes: &Sandboxes,
    leases: &LeaseIssuer,
    sent: &Sent,
) -> Result<bool, ToolError> {
    let id = sent.id.to_string();
    let write = store.write().await?;
    let db = DatabaseExecutor::from(&*write);
    let effect = workflow_effect::Entity::find()
        .filter(workflow_effect::Column::Id.eq(&id))
        .filter(workflow_effect::Column::TaskId.eq(&sent.task))
        .filter(workflow_effect::Column::EndedAt.is_null())
        .lock_exclusive()
        .one(&db)
        .await?;
    let kept = workflow_handoff::Entity::find_by_id(&id)
        .filter(workflow_handoff::Column::SentAt.eq(sent.sent_at))
        .lock_exclusive()
        .one(&db)
        .await?;
    let (Some(effect), Some(kept)) = (effect, kept) else {
        drop(db);
        write.roll_back().await?;
        return Ok(false);
    };
    let body = Body::inspect(Encoding::Json, kept.body.as_bytes());
    let handoff = Handoff::decode(sent.kind, &body).ok();
    let lease = renewed_lease(&db, leases, effect.lease_id.as_deref()).await?;
    let is_possible = match (handoff, lease) {
        (Some(handoff), Some(lease)) => {
            publish::send(&db, sandboxes, &handoff, &lease, kept.traceparent.clone()).await?;
            let mut change = workflow_handoff::ActiveModel::from(kept);
            change.sent_at = Set(None);
            change.update(&db).await?;
            true
        }
        // No manager could work on it.
        _ => {
            publish::forget(&db, &id).await?;
            warn!(handoff.id = id, "Lost handoff not published again: its lease was revoked or has ended.");
            false
        }
    };
    drop(db);
    write.commit().await?;
    Ok(is_possible)
}

/// Returns the lease of a handoff, for as long as a new one. It stays the same lease: a worker may have the
/// handoff after all. `None` if it was revoked or cannot be renewed any more.
async fn renewed_lease(
    db: &DatabaseExecutor<'_>,
    leases: &LeaseIssuer,
    id: Option<&str>,
) -> Result<Option<String>, ToolError> {
    let Some(id) = id else { return Ok(None) };
    let Some(row) = lease::Entity::find_by_id(id).one(db).await? else { return Ok(None) };
    match leases.renew(db, &to_lease(&row)?).await {
        Ok((_, issued)) => Ok(Some(issued.lease)),
        Err(ToolError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
