use schemars::JsonSchema;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QuerySelect};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use subjects::{PreferenceScope, ScopeId};

use super::{KEY, read::GROUPS, resolve::resolve, scope::Reach};
use crate::{
    policy::Scope,
    store::entity::preference,
    tools::{
        Context, Does, OwnTool, ToolError, check,
        page::{Page, Piece},
    },
};

/// More than this apply to nobody.
const MOST: u64 = 5_000;
/// Entries passed over that are named.
const SKIPPED: usize = 50;

pub(super) struct Effective;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Input {
    /// That of the task when not given.
    user_id: Option<ScopeId>,
    #[schemars(length(max = GROUPS))]
    group_ids: Vec<ScopeId>,
    /// That of the task when not given.
    project_id: Option<ScopeId>,
    task_id: Option<ScopeId>,
    /// Only keys that begin so: `agents.`
    #[schemars(length(max = KEY))]
    key_prefix: Option<String>,
    limit: Option<u64>,
    cursor: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    preferences: Vec<Holding>,
    /// Keys that a null hides.
    masked: Vec<String>,
    /// Entries that could not be used; what lies below them holds.
    skipped: Vec<Skipped>,
    /// Give this as `cursor` to get the next piece; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Holding {
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

impl OwnTool for Effective {
    const NAME: &'static str = "db.preference.effective";
    const TITLE: &'static str = "Resolve preferences";
    const DESCRIPTION: &'static str = "Says which preferences hold for a user, groups, project and task together: task beats \
        project beats user beats group beats system, and a null hides what lies below. Entries that cannot be used are \
        passed over and named.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;
    type Input = Input;
    type Output = Output;

    async fn run(context: &Context<'_>, input: Input) -> Result<Output, ToolError> {
        let page = Page::large(input.limit, input.cursor.as_deref())?;
        check::count("groups", input.group_ids.len(), GROUPS)?;
        let reach = match Reach::confined(context).await? {
            Some(own) => own,
            None => {
                let named = Reach {
                    user: input.user_id.map(String::from),
                    groups: input.group_ids.into_iter().map(String::from).collect(),
                    project: input.project_id.map(String::from),
                    task: input.task_id.map(String::from),
                };
                named.completed(context).await?
            }
        };
        let mut query = preference::Entity::find()
            .filter(preference::Column::Deleted.eq(false))
            .filter(reach.condition());
        if let Some(prefix) = check::prefix(input.key_prefix.as_deref())? {
            query = query.filter(preference::Column::Key.like(prefix));
        }
        let entries = query.limit(MOST + 1).all(&context.db).await?;
        if entries.len() as u64 > MOST {
            // Resolving a part could let something hold that is overridden.
            return Err(ToolError::Invalid(format!("more than {MOST} entries apply; name a `key_prefix`")));
        }
        let resolved = resolve(entries);
        let holding = resolved.held.into_iter().map(|(entry, value)| {
            Ok(Holding {
                scope: check::stored("scope of a preference", &entry.scope_type)?,
                key: entry.key,
                value,
                value_type: entry.value_type,
                scope_id: Some(entry.scope_id).filter(|id| !id.is_empty()),
                version: entry.version,
            })
        });
        let Piece { items, next_cursor } = page.of_all(holding.collect::<Result<_, ToolError>>()?);
        let skipped = resolved.skipped.into_iter().take(SKIPPED).map(|(entry, why)| Skipped {
            key: entry.key,
            scope: entry.scope_type,
            scope_id: Some(entry.scope_id).filter(|id| !id.is_empty()),
            why,
        });
        Ok(Output { preferences: items, masked: resolved.masked, skipped: skipped.collect(), next_cursor })
    }
}
