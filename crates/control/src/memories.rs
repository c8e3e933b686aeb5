//! Texts that agents keep and find again: rows of the store, and an index of each profile in memory.
//!
//! Each memory profile is for itself: its rows, its counters and its index.

mod author;
mod book;
mod cache;
mod chunks;
mod expiry;
mod loaded;
mod prepared;
mod search;
mod settings;

pub use author::MemoryAuthor;
pub use book::MemoryBook;
pub use cache::Memories;
pub use expiry::delete_expired_memories;
pub use prepared::{MAX_TEXT_BYTES, NewMemory, PreparedMemory};
pub use search::Wanted;
pub use settings::MemorySettings;

use retrieval::{Language, Tokenizer};

/// How texts and queries are read. Another language of the texts costs stems, not correctness.
const TOKENIZER: Tokenizer = Tokenizer { language: Some(Language::English) };
