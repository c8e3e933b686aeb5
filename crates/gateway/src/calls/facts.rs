use std::collections::BTreeSet;

use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect};

use crate::{
    policy::{Caller, Facts, Named, Origin, ScopedId, TaskFacts},
    store::{
        Store,
        entity::{job, project, task},
    },
};

/// Looks up what the decision may need, and no more: a manager's call of an own tool that names one id needs nothing, since
/// that tool looks it up itself.
pub(super) async fn about(
    store: &Store,
    caller: &Caller,
    origin: &Origin,
    named: &Named,
) -> Result<Facts, DbErr> {
    let mut facts = Facts::default();
    let bound = caller.agent.bound();
    let count = ScopedId::ALL.iter().filter(|id| named.get(**id).is_some()).count();
    if bound.is_none() && (count == 0 || (count == 1 && *origin == Origin::Own)) {
        return Ok(facts);
    }
    let db = store.read();
    if let Some(id) = &named.job
        && let Some(found) = job::Entity::find_by_id(id).one(db).await?
    {
        facts.jobs.insert(found.id, found.task_id);
    }
    if let Some(id) = &named.run {
        let tasks = tasks_of_run(store, id).await?;
        if !tasks.is_empty() {
            facts.runs.insert(id.clone(), tasks);
        }
    }
    if let Some(id) = &named.project
        && project::Entity::find_by_id(id).one(db).await?.is_some()
    {
        facts.projects.insert(id.clone());
    }
    // The tasks that the call may be about, and the caller's own.
    let mut tasks: BTreeSet<&str> = named.task.iter().map(String::as_str).collect();
    tasks.extend(bound.map(|bound| bound.task.as_str()));
    tasks.extend(facts.jobs.values().map(String::as_str));
    tasks.extend(facts.runs.values().flatten().map(String::as_str));
    if !tasks.is_empty() {
        let found = task::Entity::find().filter(task::Column::Id.is_in(tasks)).all(db).await?;
        let known = |row: task::Model| (row.id, TaskFacts { user: row.user_id, project: row.project_id });
        facts.tasks = found.into_iter().map(known).collect();
    }
    Ok(facts)
}

/// The tasks with this run, and those with a job in it.
async fn tasks_of_run(store: &Store, run: &str) -> Result<BTreeSet<String>, DbErr> {
    let db = store.read();
    let jobs =
        job::Entity::find().filter(job::Column::RunId.eq(run)).select_only().column(job::Column::TaskId);
    let mut tasks: BTreeSet<String> = jobs.distinct().into_tuple().all(db).await?.into_iter().collect();
    let own = task::Entity::find().filter(task::Column::RunId.eq(run)).select_only().column(task::Column::Id);
    tasks.extend(own.into_tuple::<String>().all(db).await?);
    Ok(tasks)
}
