//! Queries over audit rows. Never writes.

use sea_orm::{ColumnTrait, DbErr, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::Deserialize;
use subjects::audit::Row;

use super::record::{Record, from_model};
use store::{
    Store,
    entity::{audit, in_flight},
};

const MAX_LIMIT: u64 = 1000;

/// Selects rows for which all given conditions hold.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Filter {
    /// A tool, or the beginning of names followed by `*`.
    pub tool: Option<String>,
    /// project_manager, project_analyst, sandbox, orchestrator, node, workflow, admin, user or unknown.
    pub agent: Option<String>,
    /// allow or deny.
    pub decision: Option<String>,
    /// success, failure, denied, replayed or unknown.
    pub status: Option<String>,
    pub error_type: Option<String>,
    /// The id of a token.
    pub subject: Option<String>,
    pub user_id: Option<String>,
    pub task_id: Option<String>,
    pub call_id: Option<String>,
    pub trace_id: Option<String>,
    pub lease_id: Option<String>,
    /// The memory profile; rows of the profile `default` do not name it.
    pub profile: Option<String>,
    /// The node that decided on the call.
    pub node: Option<String>,
    /// Microseconds since 1970.
    pub since: Option<i64>,
    pub until: Option<i64>,
    /// Only rows before this one, for the next page.
    pub before: Option<i64>,
    /// Only rows after this one, oldest first.
    pub after: Option<i64>,
    /// 100 when not given, at most 1000.
    pub limit: Option<u64>,
}

/// Returns the rows that match, newest first unless `after` is given.
pub async fn search(store: &Store, filter: &Filter) -> Result<Vec<Row>, DbErr> {
    let mut query = audit::Entity::find();
    let equal = [
        (audit::Column::Agent, &filter.agent),
        (audit::Column::Decision, &filter.decision),
        (audit::Column::Status, &filter.status),
        (audit::Column::ErrorType, &filter.error_type),
        (audit::Column::Subject, &filter.subject),
        (audit::Column::UserId, &filter.user_id),
        (audit::Column::TaskId, &filter.task_id),
        (audit::Column::CallId, &filter.call_id),
        (audit::Column::TraceId, &filter.trace_id),
        (audit::Column::LeaseId, &filter.lease_id),
        (audit::Column::Profile, &filter.profile),
        (audit::Column::Node, &filter.node),
    ];
    for (column, wanted) in equal {
        if let Some(wanted) = wanted {
            query = query.filter(column.eq(wanted));
        }
    }
    if let Some(tool) = &filter.tool {
        query = match tool.strip_suffix('*') {
            Some(beginning) => query.filter(audit::Column::Tool.starts_with(beginning)),
            None => query.filter(audit::Column::Tool.eq(tool)),
        };
    }
    let bounds = [
        filter.since.map(|since| audit::Column::CreatedAt.gte(since)),
        filter.until.map(|until| audit::Column::CreatedAt.lt(until)),
        filter.before.map(|before| audit::Column::Seq.lt(before)),
        filter.after.map(|after| audit::Column::Seq.gt(after)),
    ];
    for bound in bounds.into_iter().flatten() {
        query = query.filter(bound);
    }
    query = match filter.after {
        Some(_) => query.order_by_asc(audit::Column::Seq),
        None => query.order_by_desc(audit::Column::Seq),
    };
    let found = query.limit(filter.limit.unwrap_or(100).clamp(1, MAX_LIMIT)).all(store.read()).await?;
    Ok(found.into_iter().map(from_model).collect())
}

/// Returns up to `limit` rows after `seq`, in the order of the chain.
pub async fn rows_after(store: &Store, seq: i64, limit: u64) -> Result<Vec<Row>, DbErr> {
    let query = audit::Entity::find().filter(audit::Column::Seq.gt(seq)).order_by_asc(audit::Column::Seq);
    Ok(query.limit(limit).all(store.read()).await?.into_iter().map(from_model).collect())
}

/// Returns the row of a call. One that was announced and has no row yet is returned as it was announced.
pub async fn row_of_call(store: &Store, call_id: &str) -> Result<Option<Row>, DbErr> {
    // First: an announcement is removed when its row is there.
    let announced = in_flight::Entity::find_by_id(call_id).one(store.read()).await?;
    let announced = announced.and_then(|call| serde_json::from_str::<Record>(&call.record).ok());
    if let Some(record) = announced {
        return Ok(Some((*record).clone()));
    }
    let found = audit::Entity::find()
        .filter(audit::Column::CallId.eq(call_id))
        .filter(audit::Column::Node.is_null())
        .one(store.read())
        .await?;
    Ok(found.map(from_model))
}
