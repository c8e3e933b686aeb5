//! Reads what jobs wrote, from the stream in which nodes store it.

mod cursor;
mod piece;

use std::{collections::BTreeMap, ops::ControlFlow};

use async_nats::jetstream::message::StreamMessage;
use broker::{Broker, Chain, ReadError};
use bytes::Bytes;
use contract::{
    artifact::Encoding,
    sandbox::{JobLog, ReadLog},
};
use cursor::Cursor;
use data_encoding::BASE64;
pub use piece::unfinished_character;
use piece::{Piece, StoredChunk};
use subjects::{
    JobId, NodeId, Pattern, Subject,
    job::{JobResult, LogChunk},
    streams,
};

use super::Sandboxes;
use crate::ToolError;

const DEFAULT_BYTES: usize = 16 * 1024;
const MAX_BYTES: usize = 256 * 1024;
/// The longest UTF-8 character, so that every piece makes progress.
const MIN_BYTES: usize = 4;
/// Chunks that are read at once.
const BATCH: u64 = 256;
/// How much of the end of a log is kept with its job.
const TAIL_BYTES: usize = 4 * 1024;

impl Sandboxes {
    /// Returns a piece of a log. `is_final` says that the job had ended before the log is read.
    pub async fn read_log(&self, wanted: &ReadLog, is_final: bool) -> Result<JobLog, ToolError> {
        let job: JobId = wanted
            .job_id
            .as_str()
            .parse()
            .map_err(|_| ToolError::not_found("job", wanted.job_id.as_str()))?;
        let limit = wanted.limit.map_or(DEFAULT_BYTES, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let limit = limit.clamp(MIN_BYTES, MAX_BYTES);
        let cursor: Cursor = wanted.after.as_deref().map(str::parse).transpose()?.unwrap_or_default();
        let broker = self.broker().await?;
        let found = read_from(&broker, job, &cursor).await?;
        let (is_full, read_to) = (found.len() as u64 >= BATCH, found.last().map(|last| last.sequence));
        let chunks: Vec<StoredChunk> = found.into_iter().filter_map(stored_chunk).collect();
        let mut piece = Piece::new(&chunks, cursor, read_to, limit);
        let mut has_more = piece.has_more || is_full;
        if is_final && !has_more {
            // Any replica may have answered; the leader knows the last chunk.
            let last = last_sequence(&broker, job).await?;
            has_more = last.is_some_and(|last| last > piece.cursor.sequence);
        }
        let is_complete = is_final && !has_more;
        if wanted.encoding == Encoding::Text {
            piece.keep_characters_whole(is_complete);
        }
        Ok(JobLog {
            job_id: job.to_string(),
            attempt: piece.attempt,
            encoding: wanted.encoding,
            content: match wanted.encoding {
                Encoding::Text => String::from_utf8_lossy(&piece.bytes).into_owned(),
                Encoding::Base64 => BASE64.encode(&piece.bytes),
            },
            next: (piece.cursor != Cursor::default()).then(|| piece.cursor.to_string()),
            has_more,
            is_complete,
        })
    }

    /// Returns the end of what the last attempt of a job wrote, as text. `None` if it wrote nothing.
    pub(crate) async fn read_tail(
        &self,
        node: &NodeId,
        result: &JobResult,
    ) -> Result<Option<String>, ToolError> {
        if result.log.bytes == 0 {
            return Ok(None);
        }
        let broker = self.broker().await?;
        let filter = Subject::JobLog(result.job_id, node.clone()).to_string();
        let mut tail = Tail::default();
        let visit = |message: &StreamMessage| {
            let chunk = LogChunk::read(&message.headers, message.payload.clone());
            match chunk.ok().filter(|chunk| chunk.attempt == result.attempt) {
                Some(chunk) => tail.add(chunk),
                None => ControlFlow::Continue(()),
            }
        };
        match broker::scan_newest_first(&broker.jetstream, streams::JOB_LOGS, &filter, visit).await {
            // Without the stream there is no log.
            Ok(()) | Err(ReadError::Stream(..)) => {}
            Err(error) => return Err(unavailable(&error)),
        }
        Ok(tail.text())
    }

    pub(crate) async fn broker(&self) -> Result<Broker, ToolError> {
        let nats = self.nats.as_ref();
        let nats = nats.ok_or_else(|| ToolError::Unavailable("the gateway has no NATS".to_owned()))?;
        nats.broker().await.map_err(|error| ToolError::Unavailable(error.to_string()))
    }
}

/// The last chunks of an attempt by their numbers: one that is stored twice counts once.
#[derive(Debug, Default)]
struct Tail(BTreeMap<u64, Bytes>);

impl Tail {
    /// Adds a chunk, newest first. Breaks when there are enough without a gap: one that is stored again is
    /// found before those that came between.
    fn add(&mut self, chunk: LogChunk) -> ControlFlow<()> {
        self.0.insert(chunk.number, chunk.bytes);
        let (mut size, mut expected) = (0, None);
        for (number, bytes) in self.0.iter().rev() {
            if expected.is_some_and(|expected| expected != *number) {
                return ControlFlow::Continue(());
            }
            size += bytes.len();
            if *number <= 1 || size >= TAIL_BYTES {
                return ControlFlow::Break(());
            }
            expected = Some(*number - 1);
        }
        ControlFlow::Continue(())
    }

    fn text(&self) -> Option<String> {
        let bytes: Vec<u8> = self.0.values().flat_map(|chunk| chunk.iter().copied()).collect();
        (!bytes.is_empty()).then(|| tail_text(&bytes))
    }
}

/// Returns the last bytes of a log as text that every store takes.
fn tail_text(bytes: &[u8]) -> String {
    let mut from = bytes.len().saturating_sub(TAIL_BYTES);
    let is_inside = |at: usize| bytes.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    while from > 0 && is_inside(from) {
        from += 1;
    }
    String::from_utf8_lossy(&bytes[from..]).replace('\0', "\u{fffd}")
}

async fn read_from(broker: &Broker, job: JobId, cursor: &Cursor) -> Result<Vec<StreamMessage>, ToolError> {
    let from = if cursor.bytes.is_some() { cursor.sequence } else { cursor.sequence.saturating_add(1) };
    let filter = Pattern::JobLog(job).to_string();
    let found = broker::read_batch(&broker.jetstream, streams::JOB_LOGS, &filter, from, BATCH).await;
    found.map_err(|error| unavailable(&error))
}

/// Returns the chunk in a message. `None` if it is none.
fn stored_chunk(message: StreamMessage) -> Option<StoredChunk> {
    let Ok(Subject::JobLog(_, node)) = message.subject.parse() else { return None };
    let chunk = LogChunk::read(&message.headers, message.payload).ok()?;
    Some(StoredChunk { sequence: message.sequence, node, chunk })
}

async fn last_sequence(broker: &Broker, job: JobId) -> Result<Option<u64>, ToolError> {
    let last = broker::last_on(&broker.jetstream, streams::JOB_LOGS, &Pattern::JobLog(job)).await;
    match last {
        Ok(last) => Ok(last.map(|message| message.sequence)),
        Err(ReadError::Stream(..)) => Ok(None),
        Err(error) => Err(unavailable(&error)),
    }
}

fn unavailable(error: &ReadError) -> ToolError {
    ToolError::Unavailable(format!("the log cannot be read: {}", Chain(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_begins_with_a_whole_character_and_has_no_nul() {
        let text = format!("é{}\0", "x".repeat(TAIL_BYTES - 2));
        let tail = tail_text(text.as_bytes());
        assert!(tail.starts_with('x') && tail.ends_with('\u{fffd}'), "{}", tail.len());
        assert_eq!(tail_text(b"short"), "short");
        assert_eq!(tail_text(b"\xff\xfe"), "\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_tail_has_each_chunk_once_and_in_order() {
        let chunk = |number: u64, bytes: &str| LogChunk {
            attempt: 1,
            number,
            bytes: Bytes::copy_from_slice(bytes.as_bytes()),
        };
        let mut tail = Tail::default();
        // Newest first: 2 was stored again after 3.
        for (number, text) in [(4, "d"), (2, "b"), (3, "c"), (2, "b")] {
            assert!(tail.add(chunk(number, text)).is_continue(), "{number}");
        }
        assert!(tail.add(chunk(1, "a")).is_break());
        assert_eq!(tail.text().as_deref(), Some("abcd"));
        let mut tail = Tail::default();
        let long = "x".repeat(TAIL_BYTES);
        assert!(tail.add(chunk(9, "end")).is_continue());
        assert!(tail.add(chunk(7, &long)).is_continue(), "8 is missing");
        assert!(tail.add(chunk(8, &long)).is_break());
    }
}
