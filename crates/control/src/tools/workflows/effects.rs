//! What workflows began: a job or a handoff for each key.

use std::collections::BTreeMap;

use contract::workflow::{Effect, EndReason, MAX_KEY_BYTES};
use sea_orm::{
    ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder, QuerySelect, sea_query::Expr,
};
use serde_json::Value;
use store::{
    clock,
    entity::{job, workflow_effect},
};

use crate::{ToolError, arguments::check};

const MAX_STEP_BYTES: usize = 128;
/// First character of the keys that a restarted workflow used before.
const SET_ASIDE: char = '~';

/// Checks the key of an effect and the step that it is for.
pub(super) fn check(key: &str, step: Option<&str>) -> Result<(), ToolError> {
    check::non_blank("key", key, MAX_KEY_BYTES)?;
    if key.starts_with(SET_ASIDE) {
        return Err(ToolError::Invalid(format!("`key` begins with `{SET_ASIDE}`, which is reserved")));
    }
    check::text("step", step.unwrap_or_default(), MAX_STEP_BYTES)
}

/// Returns what was begun with a key.
pub(super) async fn find(
    db: &DatabaseExecutor<'_>,
    task: &str,
    key: &str,
) -> Result<Option<workflow_effect::Model>, ToolError> {
    let id = (task.to_owned(), key.to_owned());
    Ok(workflow_effect::Entity::find_by_id(id).one(db).await?)
}

/// Returns why a job or a handoff was ended before it ended by itself.
pub(super) fn end_reason(effect: &workflow_effect::Model) -> Result<Option<EndReason>, ToolError> {
    let parse = |text: &String| check::parse_stored("reason of an end", text);
    effect.end_reason.as_ref().map(parse).transpose()
}

pub(super) async fn insert(
    db: &DatabaseExecutor<'_>,
    effect: workflow_effect::Model,
) -> Result<(), ToolError> {
    let insert = workflow_effect::Entity::insert(workflow_effect::ActiveModel::from(effect));
    insert.exec_without_returning(db).await?;
    Ok(())
}

/// Renames the effects of a workflow before its restart, so that their keys are free. People still see them.
pub(super) async fn set_aside(db: &DatabaseExecutor<'_>, task: &str, restarts: i64) -> Result<(), ToolError> {
    let keys = workflow_effect::Entity::find()
        .select_only()
        .column(workflow_effect::Column::Key)
        .filter(workflow_effect::Column::TaskId.eq(task))
        .into_tuple::<String>();
    for key in keys.all(db).await?.into_iter().filter(|key| !key.starts_with(SET_ASIDE)) {
        workflow_effect::Entity::update_many()
            .col_expr(workflow_effect::Column::Key, Expr::value(format!("{SET_ASIDE}{restarts}/{key}")))
            .filter(workflow_effect::Column::TaskId.eq(task))
            .filter(workflow_effect::Column::Key.eq(&key))
            .exec(db)
            .await?;
    }
    Ok(())
}

/// Returns the latest effects of a workflow, in order.
pub(super) async fn latest(
    db: &DatabaseExecutor<'_>,
    task: &str,
    limit: u64,
) -> Result<Vec<Effect>, ToolError> {
    let rows = workflow_effect::Entity::find()
        .filter(workflow_effect::Column::TaskId.eq(task))
        .order_by_desc(workflow_effect::Column::BeganAt)
        .order_by_desc(workflow_effect::Column::Key)
        .limit(limit)
        .all(db)
        .await?;
    let ids = rows.iter().map(|row| row.id.as_str());
    let jobs = job::Entity::find()
        .select_only()
        .columns([job::Column::Id, job::Column::Status, job::Column::EndedAt])
        .filter(job::Column::TaskId.eq(task))
        .filter(job::Column::Id.is_in(ids))
        .into_tuple::<(String, String, Option<i64>)>();
    let jobs = jobs.all(db).await?.into_iter().map(|(id, status, ended)| (id, (status, ended)));
    let mut jobs: BTreeMap<String, (String, Option<i64>)> = jobs.collect();
    let into_effect = |row: workflow_effect::Model| {
        let (outcome, ended_at) = match jobs.remove(&row.id) {
            Some((status, ended_at)) => (Some(status), ended_at),
            None => (row.answer.as_deref().and_then(status_of_answer), row.ended_at),
        };
        Ok(Effect {
            kind: check::parse_stored("kind of an effect", &row.kind)?,
            key: row.key,
            id: row.id,
            step: row.step,
            outcome,
            epoch: row.epoch,
            began_at: clock::text(row.began_at),
            ended_at: ended_at.map(clock::text),
            cost_usd: row.cost_usd,
        })
    };
    rows.into_iter().rev().map(into_effect).collect()
}

fn status_of_answer(answer: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    answer.get("status").and_then(Value::as_str).map(str::to_owned)
}
