//! `db.preference.get` and `db.preference.list`: read preferences as they are set in each scope.

use contract::{
    Page,
    preference::{List, MAX_GROUPS, MAX_KEY_BYTES, Preference, PreferenceList},
    tool,
};
use schemars::JsonSchema;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use subjects::{PreferenceScope, ScopeId};

use super::{ScopeRef, into_preference, scope::ScopeSet, select, with_effect};
use policy::Scope;

use store::{
    clock,
    entity::{preference, preference_history},
};

use crate::{BuiltInTool, Context, Does, ToolError, arguments::check, queries::page::PageRequest};

/// Versions of a preference that its history shows.
const MAX_HISTORY: u64 = 20;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Get {
    scope: PreferenceScope,
    /// The user, group, project or task; not for the system's scope.
    scope_id: Option<ScopeId>,
    #[schemars(length(max = MAX_KEY_BYTES))]
    key: String,
    /// Also return its last 20 versions.
    #[serde(default)]
    history: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct GetOutput {
    #[serde(flatten)]
    preference: Preference,
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<Vec<Change>>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Change {
    version: i64,
    /// created, updated or deleted.
    change: String,
    value: Value,
    value_type: String,
    reason: Option<String>,
    updated_at: String,
    updated_by: String,
}

impl From<preference_history::Model> for Change {
    fn from(row: preference_history::Model) -> Self {
        Self {
            version: row.version,
            change: row.change,
            value: serde_json::from_str(&row.value).unwrap_or_default(),
            value_type: row.value_type,
            reason: row.reason,
            updated_at: clock::text(row.updated_at),
            updated_by: row.updated_by,
        }
    }
}

tool!("db.preference.get": Get => GetOutput);

impl BuiltInTool for Get {
    const TITLE: &'static str = "Get a preference";
    const DESCRIPTION: &'static str = "Gives one preference as it is set in one scope, with its version.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<GetOutput, ToolError> {
        check::key(&input.key)?;
        let scope = ScopeRef::new(input.scope, input.scope_id)?;
        let missing = || ToolError::not_found("preference", &input.key);
        if !scope.is_readable(context).await? {
            return Err(missing());
        }
        let found = select(&scope, &input.key).filter(preference::Column::Deleted.eq(false));
        let found = found.one(&context.db).await?.ok_or_else(missing)?;
        let history = match input.history {
            true => Some(history(context, &found.id).await?),
            false => None,
        };
        Ok(GetOutput { preference: into_preference(found)?, history })
    }
}

async fn history(context: &Context<'_>, id: &str) -> Result<Vec<Change>, ToolError> {
    let rows = preference_history::Entity::find()
        .filter(preference_history::Column::PreferenceId.eq(id))
        .order_by_desc(preference_history::Column::Version)
        .limit(MAX_HISTORY);
    let request = PageRequest { limit: MAX_HISTORY, offset: 0 };
    Ok(request.build_page(rows.all(&context.db).await?.into_iter().map(Change::from).collect()).items)
}

impl BuiltInTool for List {
    const TITLE: &'static str = "List preferences";
    const DESCRIPTION: &'static str = "Lists preferences by key, as they are set in each scope: those of the \
        system and of the user, groups, project and task that are named, or all when none is. \
        db.preference.effective says which of them hold.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<PreferenceList, ToolError> {
        // Agents tend to treat the first page as the whole list.
        let request = PageRequest::large(input.limit, input.cursor.as_deref())?;
        check::count("groups", input.group_ids.len(), MAX_GROUPS)?;
        let named = ScopeSet {
            user: input.user_id.map(String::from),
            groups: input.group_ids.into_iter().map(String::from).collect(),
            project: input.project_id.map(String::from),
            task: input.task_id.map(String::from),
        };
        let names_none = named.user.is_none()
            && named.groups.is_empty()
            && named.project.is_none()
            && named.task.is_none();
        let mut query =
            preference::Entity::find().filter(preference::Column::Deleted.eq(false)).filter(with_effect()?);
        if !names_none || context.caller.bounds().is_some() {
            query = query.filter(named.narrowed(context).await?.condition());
        }
        if let Some(wanted) = input.scope {
            query = query.filter(preference::Column::ScopeType.eq(wanted.as_str()));
        }
        if let Some(prefix) = check::key_prefix(input.key_prefix.as_deref())? {
            query = query.filter(preference::Column::Key.like(prefix));
        }
        let ordered = query
            .order_by_asc(preference::Column::Key)
            .order_by_asc(preference::Column::ScopeType)
            .order_by_asc(preference::Column::ScopeId);
        let found = ordered.offset(request.offset).limit(request.fetch_limit()).all(&context.db).await?;
        let found = found.into_iter().map(into_preference).collect::<Result<_, _>>()?;
        let Page { items, next_cursor } = request.build_page(found);
        Ok(PreferenceList { preferences: items, next_cursor })
    }
}
