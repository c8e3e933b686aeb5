//! `db.system_setting.*`: settings of the whole system. Only managers see them; no agent changes a governing
//! key.

use contract::{Page, ValueType, tool};
use schemars::JsonSchema;
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, EntityTrait, ExprTrait, QueryFilter, QueryOrder,
    QuerySelect, sea_query::Expr,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    BuiltInTool, Context, Does, Entry, ToolError,
    arguments::{check, value::StoredValue},
    confinement::{reject_governing, require_unconfined},
    queries::page::PageRequest,
};
use policy::{AgentKind, Scope};

use store::{
    clock,
    entity::{revision, system_setting},
};

const MAX_KEY_BYTES: usize = 128;
const WHAT: &str = "a system setting";

pub(super) fn tools() -> Vec<Entry> {
    vec![
        Entry::of::<Get>(),
        Entry::of::<List>(),
        Entry::of::<Create>(),
        Entry::of::<Update>(),
        Entry::of::<Delete>(),
    ]
}

#[derive(Debug, Serialize, JsonSchema)]
struct Setting {
    key: String,
    value: Value,
    value_type: String,
    version: i64,
    updated_at: String,
    updated_by: String,
}

impl From<system_setting::Model> for Setting {
    fn from(row: system_setting::Model) -> Self {
        Self {
            key: row.key,
            value: serde_json::from_str(&row.value).unwrap_or_default(),
            value_type: row.value_type,
            version: row.version,
            updated_at: clock::text(row.updated_at),
            updated_by: row.updated_by,
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Get {
    #[schemars(length(max = MAX_KEY_BYTES))]
    key: String,
}

tool!("db.system_setting.get": Get => Setting);

impl BuiltInTool for Get {
    const TITLE: &'static str = "Get a system setting";
    const DESCRIPTION: &'static str = "Returns a system setting by key.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Setting, ToolError> {
        check::key(&input.key)?;
        let missing = || ToolError::not_found("system setting", &input.key);
        if context.caller.agent.kind() != AgentKind::ProjectManager {
            return Err(missing());
        }
        let found = system_setting::Entity::find_by_id(&input.key).one(&context.db).await?;
        found.map(Setting::from).ok_or_else(missing)
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct List {
    /// Only keys with this prefix.
    #[schemars(length(max = MAX_KEY_BYTES))]
    key_prefix: Option<String>,
    limit: Option<u64>,
    cursor: Option<String>,
}

tool!("db.system_setting.list": List => Page<Setting>);

impl BuiltInTool for List {
    const TITLE: &'static str = "List system settings";
    const DESCRIPTION: &'static str = "Lists system settings by key.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Page<Setting>, ToolError> {
        let request = PageRequest::new(input.limit, input.cursor.as_deref())?;
        if context.caller.agent.kind() != AgentKind::ProjectManager {
            return Ok(request.build_page(Vec::new()));
        }
        let mut query = system_setting::Entity::find().order_by_asc(system_setting::Column::Key);
        if let Some(prefix) = check::key_prefix(input.key_prefix.as_deref())? {
            query = query.filter(system_setting::Column::Key.like(prefix));
        }
        request.fetch(query, context, Setting::from).await
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Create {
    #[schemars(length(max = MAX_KEY_BYTES))]
    key: String,
    /// JSON value; must match `value_type`.
    value: Value,
    /// Defaults to the JSON type of `value`.
    value_type: Option<ValueType>,
}

tool!("db.system_setting.create": Create => Setting);

impl BuiltInTool for Create {
    const TITLE: &'static str = "Create a system setting";
    const DESCRIPTION: &'static str = "Creates a system setting; fails with a conflict if the key exists.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Setting, ToolError> {
        require_unconfined(context, WHAT)?;
        check::key(&input.key)?;
        reject_governing(&input.key)?;
        let stored = StoredValue::new(&input.value, input.value_type)?;
        let row = system_setting::Model {
            key: input.key,
            value: stored.value,
            value_type: stored.value_type.to_owned(),
            version: 1,
            updated_at: context.now,
            updated_by: context.author(),
        };
        let insert = system_setting::Entity::insert(system_setting::ActiveModel::from(row.clone()))
            .on_conflict_do_nothing_on([system_setting::Column::Key]);
        if !check::was_inserted(&insert.exec_without_returning(&context.db).await?) {
            return Err(ToolError::Conflict(format!("system setting {} already exists", row.key)));
        }
        bump_revision(context).await?;
        Ok(row.into())
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Update {
    #[schemars(length(max = MAX_KEY_BYTES))]
    key: String,
    /// JSON value; must match `value_type`.
    value: Value,
    /// Defaults to the JSON type of `value`.
    value_type: Option<ValueType>,
    /// The version that was read. Nothing changes if the current version differs.
    expected_version: Option<i64>,
}

tool!("db.system_setting.update": Update => Setting);

impl BuiltInTool for Update {
    const TITLE: &'static str = "Change a system setting";
    const DESCRIPTION: &'static str = "Changes the value of a system setting.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Setting, ToolError> {
        require_unconfined(context, WHAT)?;
        let stored = StoredValue::new(&input.value, input.value_type)?;
        let row = lock(context, &input.key, input.expected_version).await?;
        let version = row.version + 1;
        let mut change = system_setting::ActiveModel::from(row);
        change.value = Set(stored.value);
        change.value_type = Set(stored.value_type.to_owned());
        change.version = Set(version);
        change.updated_at = Set(context.now);
        change.updated_by = Set(context.author());
        let row = change.update(&context.db).await?;
        bump_revision(context).await?;
        Ok(row.into())
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Delete {
    #[schemars(length(max = MAX_KEY_BYTES))]
    key: String,
    /// The version that was read. Nothing changes if the current version differs.
    expected_version: Option<i64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Deleted {
    key: String,
    deleted: bool,
}

tool!("db.system_setting.delete": Delete => Deleted);

impl BuiltInTool for Delete {
    const TITLE: &'static str = "Delete a system setting";
    const DESCRIPTION: &'static str = "Deletes a system setting; its default applies again.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Deleted, ToolError> {
        require_unconfined(context, WHAT)?;
        let row = lock(context, &input.key, input.expected_version).await?;
        system_setting::Entity::delete_by_id(&row.key).exec(&context.db).await?;
        bump_revision(context).await?;
        Ok(Deleted { key: row.key, deleted: true })
    }
}

/// Locks a setting that agents may change until the transaction ends, and checks its version.
async fn lock(
    context: &Context<'_>,
    key: &str,
    expected: Option<i64>,
) -> Result<system_setting::Model, ToolError> {
    check::key(key)?;
    reject_governing(key)?;
    let row = system_setting::Entity::find_by_id(key).lock_exclusive().one(&context.db).await?;
    let row = row.ok_or_else(|| ToolError::not_found("system setting", key))?;
    check::version("the system setting", expected, row.version)?;
    Ok(row)
}

/// Increments the revision, so that every instance reloads its catalogue: a setting may be the gate of a
/// tool.
async fn bump_revision(context: &Context<'_>) -> Result<(), ToolError> {
    revision::Entity::update_many()
        .col_expr(revision::Column::Value, Expr::col(revision::Column::Value).add(1))
        .exec(&context.db)
        .await?;
    Ok(())
}
