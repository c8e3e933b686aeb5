//! Chunks of a job's log: raw bytes, numbered, with their number in headers.

use async_nats::HeaderMap;
use bytes::Bytes;

use crate::{JobId, NodeId, headers};

/// The size of the largest chunk in bytes.
pub const MAX_CHUNK_BYTES: usize = 64 * 1024;

/// A piece of what a job wrote to its standard output and standard error, in the order of writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    pub attempt: u32,
    /// Counted from 1 in each attempt, without gaps.
    pub number: u64,
    pub bytes: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message has no {} or no {} header", headers::LOG_ATTEMPT, headers::LOG_NUMBER)]
pub struct NotALogChunk;

impl LogChunk {
    /// Returns the headers of the chunk. A stream stores a chunk once, however often it is published.
    pub fn headers(&self, job: JobId, node: &NodeId) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let (attempt, number) = (self.attempt, self.number);
        headers.insert(headers::LOG_ATTEMPT, attempt.to_string());
        headers.insert(headers::LOG_NUMBER, number.to_string());
        headers.insert(headers::MSG_ID, format!("{job}/{node}/{attempt}/{number}"));
        headers
    }

    pub fn read(found: &HeaderMap, bytes: Bytes) -> Result<Self, NotALogChunk> {
        let attempt = found.get(headers::LOG_ATTEMPT).and_then(|value| value.as_str().parse().ok());
        let number = found.get(headers::LOG_NUMBER).and_then(|value| value.as_str().parse().ok());
        match (attempt, number) {
            (Some(attempt), Some(number)) => Ok(Self { attempt, number, bytes }),
            _ => Err(NotALogChunk),
        }
    }
}
