//! `sandbox.job.store`: stores a file that a job left, for nodes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{artifact::MAX_PATH_BYTES, tool};

/// The size of the largest piece in bytes, before it is encoded.
pub const MAX_PIECE_BYTES: usize = 1024 * 1024;

/// `sandbox.job.store`: stores one piece of a file that a job left. Pieces are stored in order; a piece that
/// is there already is left as it is. The files become artifacts when the job ends and its result names them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreFile {
    /// The attempt that left the file. Pieces of earlier attempts are removed.
    pub attempt: u32,
    /// Relative to the job's folder.
    #[schemars(length(max = MAX_PATH_BYTES))]
    pub path: String,
    /// Of the whole file, in bytes.
    pub size: u64,
    /// Of the whole file, in lower-case hexadecimal digits.
    #[schemars(length(equal = 64))]
    pub sha256: String,
    /// Where the piece begins, in bytes.
    #[serde(default)]
    pub offset: u64,
    /// The piece in base64: 1 MiB at most, after decoding.
    pub content: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreProgress {
    /// How much of the file is stored, in bytes: where the next piece begins.
    pub stored: u64,
    /// Whether the whole file is stored and has the digest.
    pub is_complete: bool,
}

tool!("sandbox.job.store": StoreFile => StoreProgress);
