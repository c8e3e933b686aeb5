//! The answers to handoffs of workflows: waited for, and stored with what began them.

use std::time::Duration;

use contract::workflow::EndReason;
use futures_util::{StreamExt, future::pending};
use sea_orm::{
    ColumnTrait, Condition, DatabaseExecutor, EntityTrait, QueryFilter,
    sea_query::{Expr, SimpleExpr},
};
use serde_json::{Map, Value, json};
use store::{Store, clock, entity::workflow_effect};
use subjects::HandoffId;
use tokio::{
    select,
    time::{Instant, sleep},
};

use super::{publish, wait};
use crate::{
    JobBook, LeaseIssuer, Sandboxes, ToolError,
    sandboxes::{StoredAnswer, Unread},
};

/// How often the stream is polled, in case the notification of an answer is lost.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// A larger answer is stored without what only people read.
const MAX_WHOLE_BYTES: usize = 512 * 1024;
/// Recorded as who ended the lease and the jobs of a failed handoff.
const GATEWAY: &str = "gateway";

/// A handoff whose answer is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Awaited<'a> {
    pub(super) task: &'a str,
    pub(super) epoch: i64,
    pub(super) key: &'a str,
    pub(super) id: HandoffId,
    /// The call gives the handoff up, and waits for a last word of its manager.
    pub(super) is_giving_up: bool,
}

/// Returns the answer to a handoff that was ended before it had one. It depends on why that was, which is
/// stored, and not on the call that asks: the runner that gave it up may be gone.
fn answer_of_ended(effect: &workflow_effect::Model) -> StoredAnswer {
    let is_given_up = effect.end_reason.as_deref() == Some(EndReason::GivenUp.as_str());
    let completion = if is_given_up {
        let seconds = effect.ended_at.unwrap_or_default().saturating_sub(effect.began_at) / 1_000_000;
        let message = format!("no answer within {seconds} seconds; is a project manager running?");
        let error = json!({ "code": "deadline_exceeded", "message": message, "retryable": false });
        json!({ "status": "failed", "error": error })
    } else {
        json!({ "status": "cancelled" })
    };
    let completion = match completion {
        Value::Object(completion) => completion,
        _ => Map::new(),
    };
    StoredAnswer { completion, cost_usd: None }
}

/// Returns whether a project manager did what a handoff asks for, or asks back.
fn is_result(answer: &StoredAnswer) -> bool {
    let status = answer.completion.get("status").and_then(Value::as_str);
    matches!(status, Some("completed" | "needs_clarification"))
}

/// Returns the answer that is stored with a handoff.
pub(super) fn of(effect: &workflow_effect::Model) -> Option<Map<String, Value>> {
    effect.answer.as_deref().and_then(|answer| serde_json::from_str(answer).ok())
}

/// Waits for an answer until a time. Fails if the runner loses the workflow meanwhile.
pub(super) async fn wait(
    store: &Store,
    sandboxes: &Sandboxes,
    leases: &LeaseIssuer,
    awaited: &Awaited<'_>,
    until: Instant,
) -> Result<Option<Map<String, Value>>, ToolError> {
    let (mut news, mut look_at) = (None, None::<Instant>);
    loop {
        // Both before anything is read, so that no later change is missed.
        let change = sandboxes.change();
        if news.is_none() && until > Instant::now() {
            news = sandboxes.listen_for_answer(awaited.id).await;
        }
        wait::check_held(store, awaited.task, awaited.epoch).await?;
        let effect = stored(store, awaited).await?;
        if let Some(answer) = effect.as_ref().and_then(of) {
            return Ok(Some(answer));
        }
        let ended = effect.filter(|effect| effect.ended_at.is_some()).as_ref().map(answer_of_ended);
        let is_over = Instant::now() >= until;
        // Other changes do not require a read of the stream.
        if is_over || look_at.is_none_or(|at| Instant::now() >= at) {
            match (sandboxes.read_answer(awaited.id).await, ended) {
                // What came of a handoff that was ended is that it was, unless it was done before.
                (Ok(Some(answer)), Some(ended)) if !is_result(&answer) => {
                    return keep(store, sandboxes, leases, awaited, ended).await.map(Some);
                }
                (Ok(Some(answer)), _) => {
                    return keep(store, sandboxes, leases, awaited, answer).await.map(Some);
                }
                // No person may be there to answer it.
                (Ok(None), Some(ended)) if is_over || !awaited.is_giving_up => {
                    return keep(store, sandboxes, leases, awaited, ended).await.map(Some);
                }
                // A stream that cannot be read may have an answer.
                (Ok(None) | Err(Unread), _) => look_at = Some(Instant::now() + LOOK_INTERVAL),
            }
        }
        if is_over {
            return Ok(None);
        }
        let heard = async {
            match &mut news {
                Some(news) => news.next().await.is_some(),
                None => pending().await,
            }
        };
        select! {
            is_running = change => if !is_running {
                return Ok(None);
            },
            is_heard = heard => {
                look_at = None;
                if !is_heard {
                    news = None;
                    sleep(Duration::from_millis(100)).await;
                }
            }
            () = tokio::time::sleep_until(until) => look_at = None,
        }
    }
}

async fn stored(store: &Store, awaited: &Awaited<'_>) -> Result<Option<workflow_effect::Model>, ToolError> {
    let id = (awaited.task.to_owned(), awaited.key.to_owned());
    Ok(workflow_effect::Entity::find_by_id(id).one(store.read()).await?)
}

/// Stores an answer with what began it.
async fn keep(
    store: &Store,
    sandboxes: &Sandboxes,
    leases: &LeaseIssuer,
    awaited: &Awaited<'_>,
    answer: StoredAnswer,
) -> Result<Map<String, Value>, ToolError> {
    let is_of_key = workflow_effect::Column::Key.eq(awaited.key);
    store_answer(store, sandboxes, leases, (awaited.task, awaited.id), is_of_key, answer).await
}

/// Stores an answer that no call waits for, unless its handoff was ended before.
pub(super) async fn keep_unless_ended(
    store: &Store,
    sandboxes: &Sandboxes,
    leases: &LeaseIssuer,
    task: &str,
    id: HandoffId,
    answer: StoredAnswer,
) -> Result<(), ToolError> {
    let is_open = workflow_effect::Column::EndedAt.is_null();
    store_answer(store, sandboxes, leases, (task, id), is_open, answer).await.map(drop)
}

/// Stores an answer. A handoff without a result loses its lease, and its jobs end: the workflow decides what
/// is tried again, under another key, and a replay of the dead letter would do it a second time.
async fn store_answer(
    store: &Store,
    sandboxes: &Sandboxes,
    leases: &LeaseIssuer,
    (task, id): (&str, HandoffId),
    matching: SimpleExpr,
    answer: StoredAnswer,
) -> Result<Map<String, Value>, ToolError> {
    let is_result = is_result(&answer);
    let StoredAnswer { mut completion, cost_usd } = answer;
    let mut text = subjects::encode_json_text(&completion);
    if text.len() > MAX_WHOLE_BYTES {
        completion.remove("transcript");
        if let Some(Value::Object(trace)) = completion.get_mut("trace") {
            // The runner goes by why the work stopped.
            trace.retain(|name, _| name == "stop");
        }
        text = subjects::encode_json_text(&completion);
    }
    let (write, id, now) = (store.write().await?, id.to_string(), clock::now());
    let db = DatabaseExecutor::from(&*write);
    let is_this = Condition::all()
        .add(workflow_effect::Column::TaskId.eq(task))
        .add(workflow_effect::Column::Id.eq(&id));
    let stored = workflow_effect::Entity::update_many()
        .col_expr(workflow_effect::Column::Answer, Expr::value(text))
        .col_expr(workflow_effect::Column::EndedAt, Expr::value(now))
        .col_expr(workflow_effect::Column::CostUsd, Expr::value(cost_usd))
        .filter(is_this.clone())
        .filter(matching)
        .filter(workflow_effect::Column::Answer.is_null())
        .exec(&db)
        .await?;
    if stored.rows_affected > 0 && !is_result {
        let effect = workflow_effect::Entity::find().filter(is_this).one(&db).await?;
        if let Some(lease) = effect.and_then(|effect| effect.lease_id) {
            leases.revoke(&db, &lease, now, GATEWAY).await?;
        }
        JobBook::new(&db, sandboxes, now).cancel_of_handoff(&id, GATEWAY).await?;
    }
    publish::forget(&db, &id).await?;
    drop(db);
    write.commit().await?;
    Ok(completion)
}
