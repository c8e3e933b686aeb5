use std::collections::{BTreeMap, BTreeSet};

use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};

use crate::{
    store::entity::{task, task_dependency},
    tools::{Context, ToolError},
};

/// Databases limit how many values one statement may name.
pub(super) const AT_ONCE: usize = 500;

/// Which way the dependencies are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Along {
    /// From a task to those it waits for.
    Dependencies,
    /// From a task to those that wait for it.
    Dependents,
}

/// The tasks that this one waits for, directly.
pub(super) async fn dependencies(context: &Context<'_>, id: &str) -> Result<Vec<task::Model>, ToolError> {
    let next = step(context, &[id.to_owned()], Along::Dependencies).await?;
    rows(context, &next.into_iter().collect::<Vec<_>>()).await
}

/// Everything that can be reached, the beginnings among it.
pub(super) async fn reach(
    context: &Context<'_>,
    from: &[String],
    along: Along,
) -> Result<BTreeSet<String>, ToolError> {
    let mut reached: BTreeSet<String> = from.iter().cloned().collect();
    let mut edge: Vec<String> = from.to_vec();
    while !edge.is_empty() {
        let next = step(context, &edge, along).await?;
        edge = next.into_iter().filter(|id| reached.insert(id.clone())).collect();
    }
    Ok(reached)
}

/// The tasks that can be reached, held until the end of the call.
///
/// Dependencies may be added while we wait for a task that somebody else holds, so it looks again until nothing new is
/// found. Adding one holds both of its ends; once all are held here, what is reached stays what it is. They are taken in
/// the order of ids, so that two who want the same ones do not wait for each other.
pub(super) async fn hold(
    context: &Context<'_>,
    from: &[String],
    along: Along,
) -> Result<BTreeMap<String, task::Model>, ToolError> {
    let (mut asked, mut held) = (BTreeSet::new(), BTreeMap::new());
    loop {
        let reached = reach(context, from, along).await?;
        let new: Vec<String> = reached.difference(&asked).cloned().collect();
        if new.is_empty() {
            return Ok(held);
        }
        for row in locked(context, &new).await? {
            held.insert(row.id.clone(), row);
        }
        asked.extend(new);
    }
}

async fn step(context: &Context<'_>, from: &[String], along: Along) -> Result<BTreeSet<String>, ToolError> {
    let (here, there) = match along {
        Along::Dependencies => (task_dependency::Column::TaskId, task_dependency::Column::DependsOn),
        Along::Dependents => (task_dependency::Column::DependsOn, task_dependency::Column::TaskId),
    };
    let mut found = BTreeSet::new();
    for some in from.chunks(AT_ONCE) {
        let query = task_dependency::Entity::find().select_only().column(there).filter(here.is_in(some));
        found.extend(query.into_tuple::<String>().all(&context.db).await?);
    }
    Ok(found)
}

async fn rows(context: &Context<'_>, ids: &[String]) -> Result<Vec<task::Model>, ToolError> {
    let mut found = Vec::new();
    for some in ids.chunks(AT_ONCE) {
        let query = task::Entity::find().filter(task::Column::Id.is_in(some));
        found.extend(query.order_by_asc(task::Column::Id).all(&context.db).await?);
    }
    Ok(found)
}

async fn locked(context: &Context<'_>, ids: &[String]) -> Result<Vec<task::Model>, ToolError> {
    let mut found = Vec::new();
    for some in ids.chunks(AT_ONCE) {
        let query = task::Entity::find().filter(task::Column::Id.is_in(some));
        found.extend(query.order_by_asc(task::Column::Id).lock_exclusive().all(&context.db).await?);
    }
    Ok(found)
}
