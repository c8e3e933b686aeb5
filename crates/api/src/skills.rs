//! Skills: instructions that agents load when they need them.

use serde::{Deserialize, Serialize};

/// For whom a skill is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkillScope {
    /// For all.
    System,
    User,
    Project,
}

impl SkillScope {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Project => "project",
        }
    }
}

/// A skill without its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Skill {
    pub id: String,
    pub name: String,
    /// system, user or project.
    pub scope: String,
    /// The user or the project; absent for a skill of the system.
    pub scope_id: Option<String>,
    /// When to use it.
    pub description: String,
    /// It comes with the gateway and cannot be changed.
    pub read_only: bool,
    /// Of the content, in bytes.
    pub size: usize,
    pub version: i64,
    pub created_at: String,
    pub updated_at: String,
    pub updated_by: String,
}

/// A skill with its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SkillDetails {
    #[serde(flatten)]
    pub skill: Skill,
    /// The instructions, in Markdown.
    pub content: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PutSkill {
    /// Lowercase letters, digits and hyphens, such as release-notes.
    pub name: String,
    /// Only for this user.
    #[serde(default)]
    pub user_id: Option<String>,
    /// Only for this project. Without user and project the skill is for all.
    #[serde(default)]
    pub project_id: Option<String>,
    /// When to use it. Required for a new skill; otherwise the present one is kept if it is omitted.
    #[serde(default)]
    pub description: Option<String>,
    /// The instructions, in Markdown.
    pub content: String,
    /// Put only if this is the current version; 0 means that there is none.
    #[serde(default)]
    pub version: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct SkillFilter {
    /// system, user or project.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub scope: Option<SkillScope>,
    /// Id of the user or the project.
    pub scope_id: Option<String>,
    /// Only skills of exactly this name.
    pub name: Option<String>,
    /// Default 100, at most 200.
    pub limit: Option<u64>,
    /// How many skills to skip.
    pub offset: Option<u32>,
}
