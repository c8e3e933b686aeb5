use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter};

use crate::{
    policy::{Caller, Facts, Named, TaskFacts},
    store::{
        Store,
        entity::{job, task},
    },
};

/// Looks up what the decision may need, and no more: a manager's call that names one id needs nothing.
pub(super) async fn about(store: &Store, caller: &Caller, named: &Named) -> Result<Facts, DbErr> {
    let mut facts = Facts::default();
    let bound = caller.agent.bound();
    let db = store.read();
    if let Some(bound) = bound
        && let Some(own) = task::Entity::find_by_id(&bound.task).one(db).await?
    {
        facts.tasks.insert(own.id, TaskFacts { user: own.user_id, project: own.project_id });
    }
    if bound.is_none() && named.task.is_none() {
        return Ok(facts);
    }
    if let Some(id) = &named.job
        && let Some(found) = job::Entity::find_by_id(id).one(db).await?
    {
        facts.jobs.insert(found.id, found.task_id);
    }
    if let Some(id) = &named.run
        && let Some(owner) = task_of_run(store, id).await?
    {
        facts.runs.insert(id.clone(), owner);
    }
    Ok(facts)
}

async fn task_of_run(store: &Store, run: &str) -> Result<Option<String>, DbErr> {
    let db = store.read();
    let by_job = job::Entity::find().filter(job::Column::RunId.eq(run)).one(db).await?;
    if let Some(found) = by_job {
        return Ok(Some(found.task_id));
    }
    Ok(task::Entity::find().filter(task::Column::RunId.eq(run)).one(db).await?.map(|found| found.id))
}
