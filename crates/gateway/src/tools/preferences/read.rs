use schemars::JsonSchema;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use subjects::{PreferenceScope, ScopeId};

use super::{
    KEY, Place, Preference, at,
    scope::{self, Reach},
};
use crate::{
    clock,
    policy::Scope,
    store::entity::{preference, preference_history},
    tools::{
        Context, Does, OwnTool, ToolError, check,
        page::{Page, Piece},
    },
};

/// Versions that are shown of one preference.
const HISTORY: u64 = 20;
pub(super) const GROUPS: usize = 100;

pub(super) struct Get;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GetInput {
    scope: PreferenceScope,
    /// The user, group, project or task; not for the system's scope.
    scope_id: Option<ScopeId>,
    #[schemars(length(max = KEY))]
    key: String,
    /// Also what it was in its last 20 versions.
    #[serde(default)]
    history: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Got {
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

impl OwnTool for Get {
    const NAME: &'static str = "db.preference.get";
    const TITLE: &'static str = "Get a preference";
    const DESCRIPTION: &'static str = "Gives one preference as it is set in one scope, with its version.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;
    type Input = GetInput;
    type Output = Got;

    async fn run(context: &Context<'_>, input: GetInput) -> Result<Got, ToolError> {
        check::key(&input.key)?;
        let place = Place::new(input.scope, input.scope_id)?;
        let missing = || ToolError::not_found("preference", &input.key);
        if Reach::confined(context).await?.is_some_and(|own| !own.covers(&place)) {
            return Err(missing());
        }
        let found = at(&place, &input.key).filter(preference::Column::Deleted.eq(false));
        let found = found.one(&context.db).await?.ok_or_else(missing)?;
        let history = match input.history {
            true => Some(history(context, &found.id).await?),
            false => None,
        };
        Ok(Got { preference: found.try_into()?, history })
    }
}

async fn history(context: &Context<'_>, id: &str) -> Result<Vec<Change>, ToolError> {
    let rows = preference_history::Entity::find()
        .filter(preference_history::Column::PreferenceId.eq(id))
        .order_by_desc(preference_history::Column::Version)
        .limit(HISTORY);
    let whole = Page { limit: HISTORY, offset: 0 };
    Ok(whole.cut(rows.all(&context.db).await?.into_iter().map(Change::from).collect()).items)
}

pub(super) struct List;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ListInput {
    user_id: Option<ScopeId>,
    #[schemars(length(max = GROUPS))]
    group_ids: Vec<ScopeId>,
    project_id: Option<ScopeId>,
    task_id: Option<ScopeId>,
    /// Only entries of this scope.
    scope: Option<PreferenceScope>,
    /// Only keys that begin so: `agents.`
    #[schemars(length(max = KEY))]
    key_prefix: Option<String>,
    limit: Option<u64>,
    cursor: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Listed {
    preferences: Vec<Preference>,
    /// Give this as `cursor` to get the next piece; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl OwnTool for List {
    const NAME: &'static str = "db.preference.list";
    const TITLE: &'static str = "List preferences";
    const DESCRIPTION: &'static str = "Lists preferences by key, as they are set in each scope: those of the system and of \
        the user, groups, project and task that are named, or all when none is. db.preference.effective says which of them \
        hold.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;
    type Input = ListInput;
    type Output = Listed;

    async fn run(context: &Context<'_>, input: ListInput) -> Result<Listed, ToolError> {
        // Agents take the first piece for all there is.
        let page = Page::large(input.limit, input.cursor.as_deref())?;
        check::count("groups", input.group_ids.len(), GROUPS)?;
        let named = Reach {
            user: input.user_id.map(String::from),
            groups: input.group_ids.into_iter().map(String::from).collect(),
            project: input.project_id.map(String::from),
            task: input.task_id.map(String::from),
        };
        let names_none = named.user.is_none()
            && named.groups.is_empty()
            && named.project.is_none()
            && named.task.is_none();
        let mut query = preference::Entity::find().filter(preference::Column::Deleted.eq(false));
        match Reach::confined(context).await? {
            Some(own) => query = query.filter(own.condition()),
            None if names_none => {}
            None => query = query.filter(named.condition()),
        }
        if let Some(wanted) = input.scope {
            query = query.filter(preference::Column::ScopeType.eq(scope::text(wanted)));
        }
        if let Some(prefix) = check::prefix(input.key_prefix.as_deref())? {
            query = query.filter(preference::Column::Key.like(prefix));
        }
        let ordered = query
            .order_by_asc(preference::Column::Key)
            .order_by_asc(preference::Column::ScopeType)
            .order_by_asc(preference::Column::ScopeId);
        let found = ordered.offset(page.offset).limit(page.fetch()).all(&context.db).await?;
        let found = found.into_iter().map(Preference::try_from).collect::<Result<_, _>>()?;
        let Piece { items, next_cursor } = page.cut(found);
        Ok(Listed { preferences: items, next_cursor })
    }
}
