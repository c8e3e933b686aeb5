//! Stores what a job writes, in numbered chunks.

use std::time::Duration;

use broker::PublishError;
use bytes::{Buf, Bytes, BytesMut};
use subjects::{
    JobId, NodeId, Subject,
    job::{LogChunk, LogExtent, MAX_CHUNK_BYTES},
    streams,
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use crate::Streams;

/// How long output waits for more before it is stored, so that a job that writes line by line does not make
/// a message of each.
const GATHER_TIME: Duration = Duration::from_millis(100);

/// The smallest message that is tried: with less, a log would be more headers than text.
const MIN_CHUNK_BYTES: usize = 64;

/// Stores the output of one attempt.
#[derive(Debug)]
pub(super) struct LogWriter {
    pub(super) streams: Streams,
    pub(super) job: JobId,
    pub(super) node: NodeId,
    pub(super) attempt: u32,
}

/// How the output of a job was stored.
#[derive(Debug, Default)]
pub(super) struct WrittenLog {
    pub(super) extent: LogExtent,
    /// Bytes that the stream does not take in any message.
    pub(super) refused: u64,
}

impl LogWriter {
    /// Stores what arrives, in order, until the job's output ends. Returns how much it was. Waits for the
    /// stream as long as it takes, which slows the job: nothing is dropped.
    pub(super) async fn run(self, mut output: mpsc::Receiver<Bytes>) -> WrittenLog {
        let mut written = WrittenLog::default();
        let mut gathered = BytesMut::new();
        // A server may accept only small messages.
        let max_payload = self.streams.broker.client.server_info().max_payload;
        let mut max_bytes = MAX_CHUNK_BYTES.min(max_payload / 2).max(MIN_CHUNK_BYTES);
        while let Some(first) = output.recv().await {
            gathered.extend_from_slice(&first);
            let until = Instant::now() + GATHER_TIME;
            while gathered.len() < max_bytes {
                tokio::select! {
                    biased;
                    more = output.recv() => match more {
                        Some(more) => gathered.extend_from_slice(&more),
                        None => break,
                    },
                    () = sleep_until(until) => break,
                }
            }
            let mut rest = gathered.split().freeze();
            while !rest.is_empty() {
                let bytes = rest.slice(..rest.len().min(max_bytes));
                let size = bytes.len();
                if !self.store(&mut written.extent, bytes).await {
                    // The server or the stream takes less than it said, or was changed meanwhile.
                    if size > MIN_CHUNK_BYTES {
                        max_bytes = (size / 2).max(MIN_CHUNK_BYTES);
                        continue;
                    }
                    written.refused += size as u64;
                }
                rest.advance(size);
            }
        }
        written
    }

    /// Stores a chunk. Returns false if it is too large.
    async fn store(&self, extent: &mut LogExtent, bytes: Bytes) -> bool {
        let chunk = LogChunk { attempt: self.attempt, number: extent.chunks + 1, bytes };
        let subject = Subject::JobLog(self.job, self.node.clone());
        let headers = || chunk.headers(self.job, &self.node);
        let stored = self.streams.publish(streams::JOB_LOGS, &subject, headers, &chunk.bytes, None).await;
        // A conflict is none: nothing is expected.
        if let Err(PublishError::TooLarge) = stored {
            return false;
        }
        extent.chunks += 1;
        extent.bytes += chunk.bytes.len() as u64;
        true
    }
}
