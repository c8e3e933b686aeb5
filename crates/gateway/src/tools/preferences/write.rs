use schemars::JsonSchema;
use sea_orm::{ActiveModelTrait, ActiveValue::Set, DatabaseExecutor, EntityTrait, QuerySelect};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use subjects::{PreferenceScope, ScopeId};
use uuid::Uuid;

use super::{KEY, Place, Preference, at};
use crate::{
    policy::Scope,
    store::entity::{preference, preference_history},
    tools::{
        Context, Does, OwnTool, ToolError, check,
        own::{managers_only, not_governing},
        value::{Kept, ValueType},
    },
};

const REASON: usize = 1024;

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

/// Who writes a preference, when, and in which transaction.
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

pub(super) struct Create;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateInput {
    scope: PreferenceScope,
    /// The user, group, project or task; not for the system's scope.
    scope_id: Option<ScopeId>,
    #[schemars(length(max = KEY))]
    key: String,
    /// Any JSON of the type that is named. A null hides what wider scopes have.
    value: Value,
    /// That of the value when not given.
    value_type: Option<ValueType>,
    /// Why, for the history.
    #[schemars(length(max = REASON))]
    reason: Option<String>,
}

impl OwnTool for Create {
    const NAME: &'static str = "db.preference.create";
    const TITLE: &'static str = "Set a new preference";
    const DESCRIPTION: &'static str = "Sets a preference in a scope where it is not set yet; where it is, that is a \
        conflict and db.preference.update changes it.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;
    type Input = CreateInput;
    type Output = Preference;

    async fn run(context: &Context<'_>, input: CreateInput) -> Result<Preference, ToolError> {
        let place = Place::new(input.scope, input.scope_id)?;
        may_be_changed(context, &place, &input.key, input.reason.as_deref())?;
        let kept = Kept::new(&input.value, input.value_type)?;
        create(&Writer::of(context), &place, input.key, kept, input.reason).await?.try_into()
    }
}

/// Sets a preference that is not set there. One that was deleted goes on from the version it had.
pub(super) async fn create(
    writer: &Writer<'_>,
    place: &Place,
    key: String,
    kept: Kept,
    reason: Option<String>,
) -> Result<preference::Model, ToolError> {
    let row = preference::Model {
        id: Uuid::now_v7().to_string(),
        scope_type: place.scope_type().to_owned(),
        scope_id: place.id().to_owned(),
        key,
        value: kept.value.clone(),
        value_type: kept.value_type.to_owned(),
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
    if check::is_in(&insert.exec_without_returning(writer.db).await?) {
        remember(writer, &row, Change::Created, reason).await?;
        return Ok(row);
    }
    let before = at(place, &row.key).lock_exclusive().one(writer.db).await?;
    match before {
        Some(before) if before.deleted => {
            put(writer, before, Next { kept: Some(kept), change: Change::Created, reason }).await
        }
        before => {
            let version = before.map_or(0, |before| before.version);
            Err(ToolError::Conflict(format!("{} is set there already, in version {version}", row.key)))
        }
    }
}

pub(super) struct Update;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UpdateInput {
    scope: PreferenceScope,
    /// The user, group, project or task; not for the system's scope.
    scope_id: Option<ScopeId>,
    #[schemars(length(max = KEY))]
    key: String,
    /// Any JSON of the type that is named. A null hides what wider scopes have.
    value: Value,
    /// That of the value when not given.
    value_type: Option<ValueType>,
    /// The version that was read. When the preference has another one by now, nothing is changed.
    expected_version: Option<i64>,
    /// Why, for the history.
    #[schemars(length(max = REASON))]
    reason: Option<String>,
}

impl OwnTool for Update {
    const NAME: &'static str = "db.preference.update";
    const TITLE: &'static str = "Change a preference";
    const DESCRIPTION: &'static str =
        "Gives a preference another value. What it was before stays in its history.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;
    type Input = UpdateInput;
    type Output = Preference;

    async fn run(context: &Context<'_>, input: UpdateInput) -> Result<Preference, ToolError> {
        let place = Place::new(input.scope, input.scope_id)?;
        may_be_changed(context, &place, &input.key, input.reason.as_deref())?;
        let kept = Kept::new(&input.value, input.value_type)?;
        let before = hold(context, &place, &input.key, input.expected_version).await?;
        let new = Next { kept: Some(kept), change: Change::Updated, reason: input.reason };
        put(&Writer::of(context), before, new).await?.try_into()
    }
}

pub(super) struct Delete;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteInput {
    scope: PreferenceScope,
    /// The user, group, project or task; not for the system's scope.
    scope_id: Option<ScopeId>,
    #[schemars(length(max = KEY))]
    key: String,
    /// The version that was read. When the preference has another one by now, nothing is changed.
    expected_version: Option<i64>,
    /// Why, for the history.
    #[schemars(length(max = REASON))]
    reason: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Deleted {
    key: String,
    deleted: bool,
    /// Of the deletion. When it is set again, versions go on from here.
    version: i64,
}

impl OwnTool for Delete {
    const NAME: &'static str = "db.preference.delete";
    const TITLE: &'static str = "Delete a preference";
    const DESCRIPTION: &'static str = "Takes a preference out of a scope, so that the wider scopes show through. Its history \
        stays.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;
    type Input = DeleteInput;
    type Output = Deleted;

    async fn run(context: &Context<'_>, input: DeleteInput) -> Result<Deleted, ToolError> {
        let place = Place::new(input.scope, input.scope_id)?;
        may_be_changed(context, &place, &input.key, input.reason.as_deref())?;
        let before = hold(context, &place, &input.key, input.expected_version).await?;
        let new = Next { kept: None, change: Change::Deleted, reason: input.reason };
        let row = put(&Writer::of(context), before, new).await?;
        Ok(Deleted { key: row.key, deleted: true, version: row.version })
    }
}

fn may_be_changed(
    context: &Context<'_>,
    place: &Place,
    key: &str,
    reason: Option<&str>,
) -> Result<(), ToolError> {
    if place.is_system() {
        managers_only(context, "a preference of the system")?;
    }
    check::key(key)?;
    not_governing(key)?;
    check::text("reason", reason.unwrap_or_default(), REASON)
}

async fn hold(
    context: &Context<'_>,
    place: &Place,
    key: &str,
    expected: Option<i64>,
) -> Result<preference::Model, ToolError> {
    let row = at(place, key).lock_exclusive().one(&context.db).await?;
    let row = row.filter(|row| !row.deleted).ok_or_else(|| ToolError::not_found("preference", key))?;
    check::version("the preference", expected, row.version)?;
    Ok(row)
}

/// What becomes of a preference.
pub(super) struct Next {
    /// `None`: it is deleted.
    pub(super) kept: Option<Kept>,
    pub(super) change: Change,
    pub(super) reason: Option<String>,
}

pub(super) async fn put(
    writer: &Writer<'_>,
    before: preference::Model,
    next: Next,
) -> Result<preference::Model, ToolError> {
    let version = before.version + 1;
    let mut change = preference::ActiveModel::from(before);
    change.deleted = Set(next.kept.is_none());
    if let Some(kept) = next.kept {
        change.value = Set(kept.value);
        change.value_type = Set(kept.value_type.to_owned());
    }
    change.version = Set(version);
    change.updated_at = Set(writer.now);
    change.updated_by = Set(writer.author.clone());
    let row = change.update(writer.db).await?;
    remember(writer, &row, next.change, next.reason).await?;
    Ok(row)
}

async fn remember(
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
