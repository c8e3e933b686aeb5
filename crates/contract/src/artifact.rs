//! `artifact.*`: the files of a task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use subjects::ScopeId;

use crate::{Page, tool};

pub const MAX_PATH_BYTES: usize = 512;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Artifact {
    pub artifact_id: String,
    pub task_id: String,
    pub run_id: Option<String>,
    pub path: String,
    pub media_type: String,
    /// In bytes.
    pub size: i64,
    pub sha256: String,
    pub version: i64,
    pub created_at: String,
    pub updated_at: String,
}

/// How a content is written in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    #[default]
    Text,
    Base64,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Get {
    pub task_id: ScopeId,
    /// Either this or `path`; when both are given, they must be of the same artifact.
    pub artifact_id: Option<ScopeId>,
    #[schemars(length(max = MAX_PATH_BYTES))]
    pub path: Option<String>,
    /// Where to begin, in bytes.
    pub offset: Option<u64>,
    /// How many bytes: 16384 when not given, 65536 at most.
    pub limit: Option<u64>,
    /// Defaults to text when the content is text, else to base64.
    pub encoding: Option<Encoding>,
}

tool!("artifact.get": Get => ArtifactContent);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArtifactContent {
    #[serde(flatten)]
    pub artifact: Artifact,
    pub encoding: Encoding,
    pub content: String,
    pub offset: usize,
    /// There is more: read on from `next_offset`.
    pub truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<usize>,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct List {
    pub task_id: ScopeId,
    /// Only artifacts with this text in their path.
    #[schemars(length(max = 200))]
    pub text: Option<String>,
    pub limit: Option<u64>,
    pub cursor: Option<String>,
}

tool!("artifact.list": List => Page<Artifact>);
