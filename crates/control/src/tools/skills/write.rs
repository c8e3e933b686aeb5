//! `skills.create`, `update` and `delete`: change skills.

use contract::tool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subjects::ScopeId;

use super::{MAX_CONTENT_BYTES, MAX_DESCRIPTION_BYTES, MAX_NAME_BYTES, Skill, writer::SkillWriter};
use policy::Scope;

use crate::{BuiltInTool, Context, Does, ToolError};

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
        let writer = SkillWriter::of(context).await?;
        let (user, project) = (input.user_id.map(String::from), input.project_id.map(String::from));
        let target = writer.target(input.name, user, project)?;
        writer.create(target, input.description, input.content).await?.try_into()
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
        let writer = SkillWriter::of(context).await?;
        let (id, expected) = (input.skill_id.as_str(), input.expected_version);
        writer.update(id, expected, input.description, input.content).await?.try_into()
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
        let writer = SkillWriter::of(context).await?;
        let row = writer.delete(input.skill_id.as_str(), input.expected_version).await?;
        Ok(Deleted { skill_id: row.id, name: row.name, deleted: true })
    }
}
