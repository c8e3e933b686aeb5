//! `db.preference.effective`: resolves the preferences that apply to a user, groups, a project and a task.

use contract::{
    Page,
    preference::{Effective, EffectivePreferences, Entry, MAX_GROUPS, Skipped, resolve},
};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};

use super::scope::ScopeSet;
use policy::{Scope, has_effect};

use store::entity::preference;

use crate::{BuiltInTool, Context, Does, ToolError, arguments::check, queries::page::PageRequest};

/// More entries than this are not expected to apply to one caller.
const MAX_ENTRIES: u64 = 5_000;
/// Skipped entries that the output names.
const MAX_SKIPPED: usize = 50;

impl BuiltInTool for Effective {
    const TITLE: &'static str = "Resolve preferences";
    const DESCRIPTION: &'static str = "Says which preferences hold for a user, groups, project and task \
        together: task beats project beats user beats group beats system, and a null hides what lies below. \
        Entries that cannot be used are passed over and named.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<EffectivePreferences, ToolError> {
        let request = PageRequest::large(input.limit, input.cursor.as_deref())?;
        check::count("groups", input.group_ids.len(), MAX_GROUPS)?;
        let named = ScopeSet {
            user: input.user_id.map(String::from),
            groups: input.group_ids.into_iter().map(String::from).collect(),
            project: input.project_id.map(String::from),
            task: input.task_id.map(String::from),
        };
        let scopes = named.narrowed(context).await?.completed_from_task(context).await?;
        let mut query = preference::Entity::find()
            .filter(preference::Column::Deleted.eq(false))
            .filter(scopes.condition());
        if let Some(prefix) = check::key_prefix(input.key_prefix.as_deref())? {
            query = query.filter(preference::Column::Key.like(prefix));
        }
        let entries = query.limit(MAX_ENTRIES + 1).all(&context.db).await?;
        if entries.len() as u64 > MAX_ENTRIES {
            // Resolving only some of the entries could return a value that another entry overrides.
            return Err(ToolError::Invalid(format!(
                "more than {MAX_ENTRIES} entries apply; name a `key_prefix`"
            )));
        }
        let mut resolved = resolve(entries.into_iter().map(parse_entry));
        let Page { items, next_cursor } = request.paginate(resolved.effective.into_values().collect());
        resolved.skipped.truncate(MAX_SKIPPED);
        let (masked, skipped) = (resolved.masked, resolved.skipped);
        Ok(EffectivePreferences { preferences: items, masked, skipped, next_cursor })
    }
}

/// Reads a stored entry. Returns why it cannot be used if another program stored an unknown scope or no JSON,
/// or if only an administrator may write it and another wrote it.
pub(crate) fn parse_entry(row: preference::Model) -> Result<Entry, Skipped> {
    let scope_id = Some(row.scope_id).filter(|id| !id.is_empty());
    let skip = |why: String| Skipped {
        key: row.key.clone(),
        scope: row.scope_type.clone(),
        scope_id: scope_id.clone(),
        why,
    };
    let scope = check::parse_stored("scope", &row.scope_type)
        .map_err(|_| skip(format!("`{}` is not a scope", row.scope_type)))?;
    if !has_effect(&row.key, &row.updated_by) {
        return Err(skip("only an administrator can write it".to_owned()));
    }
    let value = serde_json::from_str(&row.value).map_err(|_| skip("the value is not JSON".to_owned()))?;
    Ok(Entry { key: row.key, value, value_type: row.value_type, scope, scope_id, version: row.version })
}
