//! `db.project.*`: projects.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subjects::IdError;

use crate::{Page, tool};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Project {
    pub project_id: String,
    pub name: String,
    pub title: String,
    pub description: String,
    pub user_id: Option<String>,
    pub updated_at: String,
}

// The project as the context of a handoff has it.
impl TryFrom<Project> for subjects::Project {
    type Error = IdError;

    fn try_from(project: Project) -> Result<Self, IdError> {
        Ok(Self {
            id: project.project_id.parse()?,
            name: project.name,
            slug: None,
            description: Some(project.description),
        })
    }
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Get {
    pub project_id: String,
}

tool!("db.project.get": Get => Project);

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct List {
    /// Only projects of this user.
    pub user_id: Option<String>,
    pub limit: Option<u64>,
    pub cursor: Option<String>,
}

tool!("db.project.list": List => Page<Project>);
