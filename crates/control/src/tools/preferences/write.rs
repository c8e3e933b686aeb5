//! `db.preference.create`, `update` and `delete`: change preferences and record their history.

use contract::{
    ValueType,
    preference::{MAX_KEY_BYTES, Preference},
    tool,
};
use schemars::JsonSchema;
use sea_orm::{ActiveModelTrait, ActiveValue::Set, DatabaseExecutor, EntityTrait, QuerySelect};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use subjects::{PreferenceScope, ScopeId};
use uuid::Uuid;

use super::{ScopeRef, into_preference, select};
use policy::Scope;

use store::entity::{preference, preference_history};

use crate::{
    BuiltInTool, Context, Does, ToolError,
    arguments::{check, value::StoredValue},
    confinement::reject_governing,
};

const MAX_REASON_BYTES: usize = 1024;

#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Created,
    Updated,
    Deleted,
}

impl Change {
    fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
        }
    }
}

/// The transaction, author and time of a change.
pub(super) struct Writer<'w> {
    pub(super) db: &'w DatabaseExecutor<'w>,
    /// Microseconds since 1970.
    pub(super) now: i64,
    pub(super) author: String,
}

impl<'w> Writer<'w> {
    fn of(context: &'w Context<'w>) -> Self {
        Self { db: &context.db, now: context.now, author: context.author() }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    scope: PreferenceScope,
    /// The user, group, project or task; not for the system's scope.
    scope_id: Option<ScopeId>,
    #[schemars(length(max = MAX_KEY_BYTES))]
    key: String,
    /// Any JSON of the type that is named. A null hides what wider scopes have.
    value: Value,
    /// The type of the value when not given.
    value_type: Option<ValueType>,
    /// Why, for the history.
    #[schemars(length(max = MAX_REASON_BYTES))]
    reason: Option<String>,
}

tool!("db.preference.create": Create => Preference);

impl BuiltInTool for Create {
    const TITLE: &'static str = "Set a new preference";
    const DESCRIPTION: &'static str = "Sets a preference in a scope where it is not set yet; where it is, \
        that is a conflict and db.preference.update changes it.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Preference, ToolError> {
        let scope = ScopeRef::new(input.scope, input.scope_id)?;
        check_writable(context, &scope, &input.key, input.reason.as_deref()).await?;
        let stored = StoredValue::new(&input.value, input.value_type)?;
        into_preference(create(&Writer::of(context), &scope, input.key, stored, input.reason).await?)
    }
}

/// Sets a preference that is not set in the scope. A deleted one continues from its last version. Fails with
/// a conflict if it is set.
pub(super) async fn create(
    writer: &Writer<'_>,
    scope: &ScopeRef,
    key: String,
    value: StoredValue,
    reason: Option<String>,
) -> Result<preference::Model, ToolError> {
    let row = preference::Model {
        id: Uuid::now_v7().to_string(),
        scope_type: scope.scope_type().to_owned(),
        scope_id: scope.id().to_owned(),
        key,
        value: value.value.clone(),
        value_type: value.value_type.to_owned(),
        version: 1,
        deleted: false,
        updated_at: writer.now,
        updated_by: writer.author.clone(),
    };
    let insert = preference::Entity::insert(preference::ActiveModel::from(row.clone()))
        .on_conflict_do_nothing_on([
            preference::Column::ScopeType,
            preference::Column::ScopeId,
            preference::Column::Key,
        ]);
    if check::was_inserted(&insert.exec_without_returning(writer.db).await?) {
        record_history(writer, &row, Change::Created, reason).await?;
        return Ok(row);
    }
    let before = select(scope, &row.key).lock_exclusive().one(writer.db).await?;
    match before {
        Some(before) if before.deleted => {
            let new = NewVersion { value: Some(value), change: Change::Created, reason };
            write_version(writer, before, new).await
        }
        before => {
            let version = before.map_or(0, |before| before.version);
            Err(ToolError::Conflict(format!("{} is already set here, in version {version}", row.key)))
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Update {
    scope: PreferenceScope,
    /// The user, group, project or task; not for the system's scope.
    scope_id: Option<ScopeId>,
    #[schemars(length(max = MAX_KEY_BYTES))]
    key: String,
    /// Any JSON of the type that is named. A null hides what wider scopes have.
    value: Value,
    /// The type of the value when not given.
    value_type: Option<ValueType>,
    /// The version that was read. When the preference has another one by now, nothing is changed.
    expected_version: Option<i64>,
    /// Why, for the history.
    #[schemars(length(max = MAX_REASON_BYTES))]
    reason: Option<String>,
}

tool!("db.preference.update": Update => Preference);

impl BuiltInTool for Update {
    const TITLE: &'static str = "Change a preference";
    const DESCRIPTION: &'static str =
        "Gives a preference another value. What it was before stays in its history.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Preference, ToolError> {
        let scope = ScopeRef::new(input.scope, input.scope_id)?;
        check_writable(context, &scope, &input.key, input.reason.as_deref()).await?;
        let stored = StoredValue::new(&input.value, input.value_type)?;
        let before = lock(context, &scope, &input.key, input.expected_version).await?;
        let new = NewVersion { value: Some(stored), change: Change::Updated, reason: input.reason };
        into_preference(write_version(&Writer::of(context), before, new).await?)
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Delete {
    scope: PreferenceScope,
    /// The user, group, project or task; not for the system's scope.
    scope_id: Option<ScopeId>,
    #[schemars(length(max = MAX_KEY_BYTES))]
    key: String,
    /// The version that was read. When the preference has another one by now, nothing is changed.
    expected_version: Option<i64>,
    /// Why, for the history.
    #[schemars(length(max = MAX_REASON_BYTES))]
    reason: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Deleted {
    key: String,
    deleted: bool,
    /// The version of the deletion. When the preference is set again, versions continue from here.
    version: i64,
}

tool!("db.preference.delete": Delete => Deleted);

impl BuiltInTool for Delete {
    const TITLE: &'static str = "Delete a preference";
    const DESCRIPTION: &'static str = "Takes a preference out of a scope, so that the wider scopes show \
        through. Its history stays.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Deleted, ToolError> {
        let scope = ScopeRef::new(input.scope, input.scope_id)?;
        check_writable(context, &scope, &input.key, input.reason.as_deref()).await?;
        let before = lock(context, &scope, &input.key, input.expected_version).await?;
        let new = NewVersion { value: None, change: Change::Deleted, reason: input.reason };
        let row = write_version(&Writer::of(context), before, new).await?;
        Ok(Deleted { key: row.key, deleted: true, version: row.version })
    }
}

/// Checks that the caller may change this key in this scope, and the length of the reason.
async fn check_writable(
    context: &Context<'_>,
    scope: &ScopeRef,
    key: &str,
    reason: Option<&str>,
) -> Result<(), ToolError> {
    if !scope.is_own(context).await? {
        let what = format!("a preference of {} {}", scope.scope_type(), scope.id());
        return Err(ToolError::ReadOnly(what.trim_end().to_owned()));
    }
    check::key(key)?;
    reject_governing(key)?;
    check::text("reason", reason.unwrap_or_default(), MAX_REASON_BYTES)
}

/// Locks a preference that is set until the transaction ends, and checks its version.
async fn lock(
    context: &Context<'_>,
    scope: &ScopeRef,
    key: &str,
    expected: Option<i64>,
) -> Result<preference::Model, ToolError> {
    let row = select(scope, key).lock_exclusive().one(&context.db).await?;
    let row = row.filter(|row| !row.deleted).ok_or_else(|| ToolError::not_found("preference", key))?;
    check::version("the preference", expected, row.version)?;
    Ok(row)
}

/// The next version of a preference.
pub(super) struct NewVersion {
    /// `None` deletes the preference.
    pub(super) value: Option<StoredValue>,
    pub(super) change: Change,
    pub(super) reason: Option<String>,
}

/// Writes the next version of a preference and records it in the history.
pub(super) async fn write_version(
    writer: &Writer<'_>,
    before: preference::Model,
    new: NewVersion,
) -> Result<preference::Model, ToolError> {
    let version = before.version + 1;
    let mut change = preference::ActiveModel::from(before);
    change.deleted = Set(new.value.is_none());
    if let Some(value) = new.value {
        change.value = Set(value.value);
        change.value_type = Set(value.value_type.to_owned());
    }
    change.version = Set(version);
    change.updated_at = Set(writer.now);
    change.updated_by = Set(writer.author.clone());
    let row = change.update(writer.db).await?;
    record_history(writer, &row, new.change, new.reason).await?;
    Ok(row)
}

async fn record_history(
    writer: &Writer<'_>,
    row: &preference::Model,
    change: Change,
    reason: Option<String>,
) -> Result<(), ToolError> {
    let entry = preference_history::Model {
        preference_id: row.id.clone(),
        version: row.version,
        value: row.value.clone(),
        value_type: row.value_type.clone(),
        change: change.as_str().to_owned(),
        reason,
        updated_at: row.updated_at,
        updated_by: row.updated_by.clone(),
    };
    let insert = preference_history::Entity::insert(preference_history::ActiveModel::from(entry));
    insert.exec_without_returning(writer.db).await?;
    Ok(())
}
