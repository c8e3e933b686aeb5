//! `db.preference.effective`: resolves the preferences that apply to a user, groups, a project and a task.

use schemars::JsonSchema;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use subjects::{PreferenceScope, ScopeId};

use super::{MAX_KEY_BYTES, read::MAX_GROUPS, resolve::resolve, scope::ScopeSet};
use policy::Scope;

use store::entity::preference;

use crate::{
    BuiltInTool, Context, Does, ToolError, check,
    page::{Page, PageRequest},
};

/// More entries than this are not expected to apply to one caller.
const MAX_ENTRIES: u64 = 5_000;
/// Skipped entries that the output names.
const MAX_SKIPPED: usize = 50;

pub(super) struct Effective;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Input {
    /// The user of the task when not given.
    user_id: Option<ScopeId>,
    #[schemars(length(max = MAX_GROUPS))]
    group_ids: Vec<ScopeId>,
    /// The project of the task when not given.
    project_id: Option<ScopeId>,
    task_id: Option<ScopeId>,
    /// Only keys that begin so: `agents.`
    #[schemars(length(max = MAX_KEY_BYTES))]
    key_prefix: Option<String>,
    limit: Option<u64>,
    cursor: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    preferences: Vec<EffectivePreference>,
    /// Keys that a null hides.
    masked: Vec<String>,
    /// Entries that could not be used; those of wider scopes apply instead.
    skipped: Vec<Skipped>,
    /// Give this as `cursor` to get the next piece; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct EffectivePreference {
    key: String,
    value: Value,
    value_type: String,
    /// Where it comes from.
    scope: PreferenceScope,
    scope_id: Option<String>,
    version: i64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Skipped {
    key: String,
    scope: String,
    scope_id: Option<String>,
    why: String,
}

impl BuiltInTool for Effective {
    const NAME: &'static str = "db.preference.effective";
    const TITLE: &'static str = "Resolve preferences";
    const DESCRIPTION: &'static str = "Says which preferences hold for a user, groups, project and task \
        together: task beats project beats user beats group beats system, and a null hides what lies below. \
        Entries that cannot be used are passed over and named.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;
    type Input = Input;
    type Output = Output;

    async fn run(context: &Context<'_>, input: Input) -> Result<Output, ToolError> {
        let request = PageRequest::large(input.limit, input.cursor.as_deref())?;
        check::count("groups", input.group_ids.len(), MAX_GROUPS)?;
        let scopes = match ScopeSet::of_confined(context).await? {
            Some(scopes) => scopes,
            None => {
                let named = ScopeSet {
                    user: input.user_id.map(String::from),
                    groups: input.group_ids.into_iter().map(String::from).collect(),
                    project: input.project_id.map(String::from),
                    task: input.task_id.map(String::from),
                };
                named.completed_from_task(context).await?
            }
        };
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
        let resolved = resolve(entries);
        let effective = resolved.effective.into_iter().map(|(entry, value)| {
            Ok(EffectivePreference {
                scope: check::parse_stored("scope of a preference", &entry.scope_type)?,
                key: entry.key,
                value,
                value_type: entry.value_type,
                scope_id: Some(entry.scope_id).filter(|id| !id.is_empty()),
                version: entry.version,
            })
        });
        let Page { items, next_cursor } = request.paginate(effective.collect::<Result<_, ToolError>>()?);
        let skipped = resolved.skipped.into_iter().take(MAX_SKIPPED).map(|(entry, why)| Skipped {
            key: entry.key,
            scope: entry.scope_type,
            scope_id: Some(entry.scope_id).filter(|id| !id.is_empty()),
            why,
        });
        Ok(Output { preferences: items, masked: resolved.masked, skipped: skipped.collect(), next_cursor })
    }
}
