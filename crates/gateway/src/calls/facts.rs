//! Reads from the store what a decision needs to know about the ids that a call names.

use std::collections::BTreeSet;

use policy::{CallIds, Caller, Facts, Origin, ScopedId, TaskFacts};
use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QuerySelect};

use store::{
    Store,
    entity::{job, project, task},
};

/// Reads only what the decision may need. A call of a built-in tool that names a single id needs nothing if
/// the caller acts for the whole system, because the tool itself looks that id up.
pub(super) async fn look_up(
    store: &Store,
    caller: &Caller,
    origin: &Origin,
    ids: &CallIds,
) -> Result<Facts, DbErr> {
    let mut facts = Facts::default();
    let bound = caller.bounds();
    let bound = bound.as_ref();
    let count = ScopedId::ALL.iter().filter(|id| ids.get(**id).is_some()).count();
    if bound.is_none() && (count == 0 || (count == 1 && *origin == Origin::BuiltIn)) {
        return Ok(facts);
    }
    let db = store.read();
    if let Some(id) = &ids.job
        && let Some(found) = job::Entity::find_by_id(id).one(db).await?
    {
        facts.jobs.insert(found.id, found.task_id);
    }
    if let Some(id) = &ids.run {
        let tasks = tasks_of_run(store, id).await?;
        if !tasks.is_empty() {
            facts.runs.insert(id.clone(), tasks);
        }
    }
    let of_bounds = bound.and_then(|bound| bound.project.as_ref());
    for id in ids.project.iter().chain(of_bounds.filter(|id| ids.project.as_ref() != Some(id))) {
        if let Some(found) = project::Entity::find_by_id(id).one(db).await? {
            facts.projects.insert(found.id, found.user_id);
        }
    }
    // The tasks that the ids belong to, and the task of the caller's token or lease.
    let mut tasks: BTreeSet<&str> = ids.task.iter().map(String::as_str).collect();
    tasks.extend(bound.and_then(|bound| bound.task.as_deref()));
    tasks.extend(facts.jobs.values().map(String::as_str));
    tasks.extend(facts.runs.values().flatten().map(String::as_str));
    if !tasks.is_empty() {
        let found = task::Entity::find().filter(task::Column::Id.is_in(tasks)).all(db).await?;
        let known = |row: task::Model| (row.id, TaskFacts { user: row.user_id, project: row.project_id });
        facts.tasks = found.into_iter().map(known).collect();
    }
    Ok(facts)
}

/// Returns the tasks of the run, and the tasks that have a job in it.
async fn tasks_of_run(store: &Store, run: &str) -> Result<BTreeSet<String>, DbErr> {
    let db = store.read();
    let jobs =
        job::Entity::find().filter(job::Column::RunId.eq(run)).select_only().column(job::Column::TaskId);
    let mut tasks: BTreeSet<String> = jobs.distinct().into_tuple().all(db).await?.into_iter().collect();
    let own = task::Entity::find().filter(task::Column::RunId.eq(run)).select_only().column(task::Column::Id);
    tasks.extend(own.into_tuple::<String>().all(db).await?);
    Ok(tasks)
}
