//! `skills.*`: instructions that agents may load.

mod read;
mod scan;
mod seed;
mod write;
mod writer;

use schemars::JsonSchema;
use sea_orm::{ColumnTrait, Condition, ExprTrait};
use serde::{Deserialize, Serialize};
use subjects::ScopeId;

pub use seed::seed;
pub use writer::{SkillTarget, SkillWriter};

use crate::{Entry, ToolError, arguments::check, confinement::Confinement};
use store::{clock, entity::skill};

const MAX_NAME_BYTES: usize = 64;
const MAX_DESCRIPTION_BYTES: usize = 1024;
const MAX_CONTENT_BYTES: usize = 64 * 1024;

pub(super) fn tools() -> Vec<Entry> {
    vec![
        Entry::of::<read::List>(),
        Entry::of::<read::Get>(),
        Entry::of::<write::Create>(),
        Entry::of::<write::Update>(),
        Entry::of::<write::Delete>(),
    ]
}

/// For whom a skill is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SkillScope {
    System,
    User,
    Project,
}

impl SkillScope {
    fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Project => "project",
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct Skill {
    skill_id: String,
    name: String,
    scope: SkillScope,
    /// The user or the project; absent for a skill of the system.
    scope_id: Option<String>,
    description: String,
    /// It cannot be changed with tools.
    read_only: bool,
    /// Of the content, in bytes.
    size: usize,
    version: i64,
    updated_at: String,
    updated_by: String,
}

impl TryFrom<skill::Model> for Skill {
    type Error = ToolError;

    fn try_from(row: skill::Model) -> Result<Self, ToolError> {
        Ok(Self {
            scope: check::parse_stored("scope of a skill", &row.scope_type)?,
            skill_id: row.id,
            name: row.name,
            scope_id: Some(row.scope_id).filter(|id| !id.is_empty()),
            description: row.description,
            read_only: row.read_only,
            size: row.content.len(),
            version: row.version,
            updated_at: clock::text(row.updated_at),
            updated_by: row.updated_by,
        })
    }
}

/// Returns a condition for the skills of the system, of this user and of this project.
fn in_scopes(user: Option<&str>, project: Option<&str>) -> Condition {
    let scope = |scope: SkillScope| skill::Column::ScopeType.eq(scope.as_str());
    let mut any = Condition::any().add(scope(SkillScope::System));
    for (kind, id) in [(SkillScope::User, user), (SkillScope::Project, project)] {
        if let Some(id) = id {
            any = any.add(scope(kind).and(skill::Column::ScopeId.eq(id)));
        }
    }
    any
}

/// Returns a condition for the skills that a confined caller may read. The decision has checked that the
/// named project is the caller's.
fn within(confinement: &Confinement, named: Option<&ScopeId>) -> Condition {
    in_scopes(Some(&confinement.user), confinement.project_or(named.map(ScopeId::as_str)))
}
