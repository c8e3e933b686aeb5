//! A text that was checked, split and read, before a transaction begins.

use contract::memory::{MAX_LIFE_SECONDS, MAX_PATH_BYTES, MAX_TAG_BYTES, MAX_TAGS};
use data_encoding::HEXLOWER;
use policy::MemoryProfile;
use retrieval::Features;
use sha2::{Digest, Sha256};

use super::{TOKENIZER, chunks};
use crate::{
    ToolError,
    arguments::{characters::is_hidden, check, path},
};

/// The largest text that is kept.
pub const MAX_TEXT_BYTES: usize = 4 << 20;
const MAX_SOURCE_BYTES: usize = 256;
/// Upper bound on the index memory of a row and its path, without its chunks.
const BYTES_OF_SOURCE: usize = 512 + 4 * MAX_PATH_BYTES;
/// Bytes of a digest that name a chunk.
const ID_BYTES: usize = 16;

/// A text to be kept under its path.
#[derive(Clone, Debug, Default)]
pub struct NewMemory {
    pub path: String,
    pub text: String,
    /// Where it comes from.
    pub source: String,
    pub tags: Vec<String>,
    /// Microseconds since 1970.
    pub expires_at: Option<i64>,
}

impl NewMemory {
    /// Returns when a text expires that lives for so many seconds.
    pub fn expiry(seconds: Option<u64>, now: i64) -> Result<Option<i64>, ToolError> {
        let Some(seconds) = seconds else { return Ok(None) };
        if !(1..=MAX_LIFE_SECONDS).contains(&seconds) {
            let why = format!("`expires_in_seconds` must be 1 to {MAX_LIFE_SECONDS}; without it, never");
            return Err(ToolError::Invalid(why));
        }
        Ok(Some(now.saturating_add(i64::try_from(seconds * 1_000_000).unwrap_or(i64::MAX))))
    }
}

/// A text that can be kept.
#[derive(Clone, Debug)]
pub struct PreparedMemory {
    pub(super) new: NewMemory,
    pub(super) profile: MemoryProfile,
    pub(super) digest: String,
    pub(super) chunks: Vec<PreparedChunk>,
    pub(super) index_bytes: u64,
}

#[derive(Clone, Debug)]
pub(super) struct PreparedChunk {
    pub(super) id: String,
    pub(super) first_line: usize,
    pub(super) last_line: usize,
    pub(super) text: String,
    pub(super) features: Vec<u8>,
}

impl PreparedMemory {
    /// Checks a text, splits it, and reads its words on a thread for such work.
    pub async fn new(profile: &MemoryProfile, new: NewMemory) -> Result<Self, ToolError> {
        check_new(&new)?;
        let profile = profile.clone();
        let prepared = tokio::task::spawn_blocking(move || prepare(profile, new)).await;
        prepared.map_err(|error| ToolError::Invalid(format!("the text cannot be read: {error}")))
    }

    pub fn path(&self) -> &str {
        &self.new.path
    }
}

fn prepare(profile: MemoryProfile, new: NewMemory) -> PreparedMemory {
    let digest = HEXLOWER.encode(&Sha256::digest(&new.text));
    let (mut index_bytes, mut prepared) = (BYTES_OF_SOURCE, Vec::new());
    for (number, chunk) in chunks::split(&new.text).into_iter().enumerate() {
        let place = format!("{number} {}-{}", chunk.first_line, chunk.last_line);
        let id = [profile.as_str(), &new.path, &digest, &place].join("\0");
        let id = HEXLOWER.encode(Sha256::digest(id).get(..ID_BYTES).unwrap_or_default());
        let features = Features::of(&TOKENIZER, chunk.text);
        index_bytes += features.index_bytes(&id) + super::loaded::BYTES_OF_CHUNK;
        let (first_line, last_line) = (chunk.first_line, chunk.last_line);
        let (text, features) = (chunk.text.to_owned(), features.to_bytes());
        prepared.push(PreparedChunk { id, first_line, last_line, text, features });
    }
    PreparedMemory { new, profile, digest, chunks: prepared, index_bytes: index_bytes as u64 }
}

fn check_new(new: &NewMemory) -> Result<(), ToolError> {
    path::check_citable(&new.path)?;
    check::non_blank("text", &new.text, MAX_TEXT_BYTES)?;
    check_characters(&new.text)?;
    check::non_blank("source", &new.source, MAX_SOURCE_BYTES)?;
    check::count("tags", new.tags.len(), MAX_TAGS)?;
    for tag in &new.tags {
        check::non_blank("tag", tag, MAX_TAG_BYTES)?;
    }
    let names = new.tags.iter().chain([&new.source]);
    if names.flat_map(|name| name.chars()).any(|c| c.is_control() || is_hidden(c)) {
        return Err(ToolError::Invalid("a tag or the source has an invisible character; remove it".into()));
    }
    Ok(())
}

/// Refuses control characters: a terminal or a prompt may take them for something else than text.
fn check_characters(text: &str) -> Result<(), ToolError> {
    let is_wrong = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    for (number, line) in text.split('\n').enumerate() {
        if let Some(wrong) = line.chars().find(|c| is_wrong(*c)) {
            let (code, line) = (u32::from(wrong), number + 1);
            let why = format!("the text has the control character U+{code:04X} in line {line}; remove it");
            return Err(ToolError::Invalid(why));
        }
    }
    Ok(())
}
