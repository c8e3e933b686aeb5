//! Memories: texts that agents search, by memory profile.

use serde::{Deserialize, Serialize};

/// A text to be kept under its path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PutMemory {
    /// Relative, with forward slashes, such as docs/setup.md.
    pub path: String,
    /// The whole text, 4 MiB at most, without control characters.
    pub text: String,
    /// Where it comes from. Agents cannot change what begins with `ingest:`.
    pub source: String,
    #[serde(default)]
    pub tags: Vec<String>,
    /// After as many seconds the text is deleted; never if omitted.
    #[serde(default)]
    pub expires_in_seconds: Option<u64>,
}

/// Changes of a memory profile. All of them are made, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MemoryChanges {
    #[serde(default)]
    pub put: Vec<PutMemory>,
    /// Paths. One that is not there counts as deleted.
    #[serde(default)]
    pub delete: Vec<String>,
    /// The ingested folder that is brought up to date. If another one has texts there, nothing is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<MemoryFolder>,
}

/// A folder whose texts are ingested.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MemoryFolder {
    /// How all of its paths begin, such as docs/.
    pub prefix: String,
    /// What its texts have as source, now or from before.
    pub sources: Vec<String>,
}

/// How many texts a set of changes wrote and deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChangedMemories {
    /// Texts that were new or different.
    pub changed: usize,
    /// Texts that were there as given.
    pub unchanged: usize,
    pub deleted: usize,
}

/// How much a memory profile holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MemoryProfileSize {
    pub profile: String,
    pub chunks: i64,
    /// Of all its texts.
    pub bytes: i64,
}

/// A text without its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MemorySource {
    pub path: String,
    pub profile: String,
    pub source: String,
    pub tags: Vec<String>,
    /// SHA-256 of the text.
    pub digest: String,
    /// Of the text.
    pub bytes: i64,
    pub chunks: i64,
    pub created_at: String,
    pub updated_at: String,
    pub expires_at: Option<String>,
}

/// A text, or the next piece of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MemoryContent {
    #[serde(flatten)]
    pub source: MemorySource,
    pub first_line: i64,
    pub last_line: i64,
    pub text: String,
    /// There is more: the cursor of the next piece.
    pub next_cursor: Option<String>,
}

/// A chunk that a search found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FoundMemory {
    pub id: String,
    pub path: String,
    pub first_line: i64,
    pub last_line: i64,
    pub text: String,
    /// From 1 for the best in all respects down to 0; orders one answer, and says nothing across answers.
    pub score: f64,
    pub source: String,
    pub tags: Vec<String>,
    pub digest: String,
    pub created_at: String,
    pub expires_at: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct MemorySearch {
    pub query: String,
    /// Only texts whose path begins with this.
    pub prefix: Option<String>,
    /// Default 5, at most 50.
    pub limit: Option<u64>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct MemoryFilter {
    /// Only texts whose path begins with this.
    pub prefix: Option<String>,
    /// Only texts whose path is greater.
    pub after: Option<String>,
    /// Default and at most 10,000.
    pub limit: Option<usize>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct MemoryAddress {
    pub path: String,
    /// The `next_cursor` of the piece before.
    pub cursor: Option<String>,
}
