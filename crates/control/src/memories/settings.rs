//! How much a memory profile may hold, and how much memory indexes may take.

/// Limits of memories.
#[derive(Clone, Copy, Debug)]
pub struct MemorySettings {
    /// Chunks of one profile.
    pub max_chunks: u64,
    /// Bytes of the texts of one profile.
    pub max_bytes: u64,
    /// Bytes that all indexes of the process may take together.
    pub index_bytes: u64,
}

impl Default for MemorySettings {
    fn default() -> Self {
        Self { max_chunks: 200_000, max_bytes: 512 << 20, index_bytes: 4 << 30 }
    }
}
