//! `skills.create`, `update` and `delete`: change skills. Every text is scanned first.

use contract::tool;
use schemars::JsonSchema;
use sea_orm::{ActiveModelTrait, ActiveValue::Set, EntityTrait, QuerySelect};
use serde::{Deserialize, Serialize};
use subjects::ScopeId;
use uuid::Uuid;

use super::{MAX_CONTENT_BYTES, MAX_DESCRIPTION_BYTES, MAX_NAME_BYTES, Skill, SkillScope, scan::scan};
use policy::Scope;

use store::entity::{project, skill};

use crate::{BuiltInTool, Context, Does, ToolError, check, confinement::Confinement};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    /// Short, lowercase, with hyphens: `release-notes`.
    #[schemars(length(max = MAX_NAME_BYTES))]
    name: String,
    /// When to use it.
    #[schemars(length(max = MAX_DESCRIPTION_BYTES))]
    description: String,
    /// The instructions, in Markdown.
    #[schemars(length(max = MAX_CONTENT_BYTES))]
    content: String,
    /// For this user alone.
    user_id: Option<ScopeId>,
    /// For this project alone. Without user and project it is for all.
    project_id: Option<ScopeId>,
}

tool!("skills.create": Create => Skill);

impl BuiltInTool for Create {
    const TITLE: &'static str = "Create a skill";
    const DESCRIPTION: &'static str = "Creates a skill for a user, a project or all. Its text is scanned \
        first and refused if it overrides instructions, hides text, runs downloaded code or leaks \
        credentials.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Skill, ToolError> {
        if !check::is_name(&input.name, MAX_NAME_BYTES) {
            let why =
                format!("a name has lowercase letters, digits and hyphens, {MAX_NAME_BYTES} bytes at most");
            return Err(ToolError::Invalid(why));
        }
        check_texts(&input.description, &input.content)?;
        let (scope, id) = match (input.project_id, input.user_id) {
            (Some(project), None) => (SkillScope::Project, String::from(project)),
            (None, Some(user)) => (SkillScope::User, String::from(user)),
            (None, None) => match context.caller.bounds() {
                Some(bounds) => (SkillScope::User, bounds.user),
                None => (SkillScope::System, String::new()),
            },
            (Some(_), Some(_)) => {
                return Err(ToolError::Invalid(
                    "a skill is of a user or of a project, not of both".to_owned(),
                ));
            }
        };
        let row = skill::Model {
            id: Uuid::now_v7().to_string(),
            name: input.name,
            scope_type: scope.as_str().to_owned(),
            scope_id: id,
            description: input.description,
            content: input.content,
            read_only: false,
            version: 1,
            created_at: context.now,
            updated_at: context.now,
            updated_by: context.author(),
        };
        let insert =
            skill::Entity::insert(skill::ActiveModel::from(row.clone())).on_conflict_do_nothing_on([
                skill::Column::ScopeType,
                skill::Column::ScopeId,
                skill::Column::Name,
            ]);
        if !check::was_inserted(&insert.exec_without_returning(&context.db).await?) {
            return Err(ToolError::Conflict(format!("there is a skill {} already", row.name)));
        }
        row.try_into()
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Update {
    skill_id: ScopeId,
    /// When to use it.
    #[schemars(length(max = MAX_DESCRIPTION_BYTES))]
    description: Option<String>,
    /// The instructions, whole.
    #[schemars(length(max = MAX_CONTENT_BYTES))]
    content: Option<String>,
    /// The version that was read. When the skill has another one by now, nothing is changed.
    expected_version: Option<i64>,
}

tool!("skills.update": Update => Skill);

impl BuiltInTool for Update {
    const TITLE: &'static str = "Change a skill";
    const DESCRIPTION: &'static str =
        "Changes the description or the content of a skill. Its text is scanned as in skills.create.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Skill, ToolError> {
        let row = lock(context, &input.skill_id, input.expected_version).await?;
        if input.description.is_none() && input.content.is_none() {
            return Err(ToolError::Invalid("nothing to change is given".to_owned()));
        }
        let description = input.description.unwrap_or_else(|| row.description.clone());
        let content = input.content.unwrap_or_else(|| row.content.clone());
        check_texts(&description, &content)?;
        let version = row.version + 1;
        let mut change = skill::ActiveModel::from(row);
        change.description = Set(description);
        change.content = Set(content);
        change.version = Set(version);
        change.updated_at = Set(context.now);
        change.updated_by = Set(context.author());
        change.update(&context.db).await?.try_into()
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Delete {
    skill_id: ScopeId,
    /// The version that was read. When the skill has another one by now, nothing is changed.
    expected_version: Option<i64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Deleted {
    skill_id: String,
    name: String,
    deleted: bool,
}

tool!("skills.delete": Delete => Deleted);

impl BuiltInTool for Delete {
    const TITLE: &'static str = "Delete a skill";
    const DESCRIPTION: &'static str = "Deletes a skill. One that is read-only stays.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Deleted, ToolError> {
        let row = lock(context, &input.skill_id, input.expected_version).await?;
        skill::Entity::delete_by_id(&row.id).exec(&context.db).await?;
        Ok(Deleted { skill_id: row.id, name: row.name, deleted: true })
    }
}

/// Locks a skill until the transaction ends. Fails if it is read-only or does not have the expected version.
async fn lock(context: &Context<'_>, id: &ScopeId, expected: Option<i64>) -> Result<skill::Model, ToolError> {
    let row = skill::Entity::find_by_id(id.as_str()).lock_exclusive().one(&context.db).await?;
    let row = row.ok_or_else(|| ToolError::not_found("skill", id.as_str()))?;
    if row.read_only || !is_own(context, &row).await? {
        return Err(ToolError::ReadOnly(format!("the skill {}", row.name)));
    }
    check::version("the skill", expected, row.version)?;
    Ok(row)
}

/// Returns whether the skill is within what the caller acts for.
async fn is_own(context: &Context<'_>, row: &skill::Model) -> Result<bool, ToolError> {
    let Some(confinement) = Confinement::of(context).await? else { return Ok(true) };
    Ok(match check::parse_stored("scope of a skill", &row.scope_type)? {
        SkillScope::System => false,
        SkillScope::User => row.scope_id == confinement.user,
        SkillScope::Project => {
            let found = project::Entity::find_by_id(&row.scope_id).one(&context.db).await?;
            found.is_some_and(|project| confinement.includes_project(&project))
        }
    })
}

/// Checks and scans description and content: agents read both.
fn check_texts(description: &str, content: &str) -> Result<(), ToolError> {
    check::non_blank("description", description, MAX_DESCRIPTION_BYTES)?;
    check::non_blank("content", content, MAX_CONTENT_BYTES)?;
    for text in [description, content] {
        if let Some(found) = scan(text) {
            return Err(ToolError::Malicious(found.to_string()));
        }
    }
    Ok(())
}
