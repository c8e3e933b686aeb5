//! Logs the standard error of an upstream process, with limits on the length and rate of lines.

use std::time::{Duration, Instant};

use mcp::sanitize;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::ChildStderr,
};
use tracing::debug;

use super::Secrets;

const MAX_LINE_BYTES: usize = 1000;
const LINES_PER_SECOND: u32 = 20;

/// Logs lines until the end of the stream. Never stops reading, so that the process does not block on a full
/// pipe.
pub(super) async fn log(stderr: ChildStderr, upstream: String, secrets: Secrets) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    let mut quota = Quota::new(Instant::now());
    while let Ok(chunk) = stderr.fill_buf().await {
        if chunk.is_empty() {
            break;
        }
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let part = &chunk[..end.unwrap_or(chunk.len())];
        line.extend_from_slice(&part[..part.len().min(MAX_LINE_BYTES - line.len())]);
        let read = end.map_or(chunk.len(), |end| end + 1);
        stderr.consume(read);
        if end.is_some() {
            if let Some(left_out) = quota.take(Instant::now()) {
                let text = sanitize(&secrets.mask(String::from_utf8_lossy(&line).into_owned()));
                debug!(upstream, left_out, text, "Upstream process wrote to stderr.");
            }
            line.clear();
        }
    }
}

/// Limits the number of logged lines per second.
struct Quota {
    since: Instant,
    used: u32,
    left_out: u64,
}

impl Quota {
    fn new(now: Instant) -> Self {
        Self { since: now, used: 0, left_out: 0 }
    }

    /// Returns `None` if the line must not be logged, else the number of lines that were left out before it.
    fn take(&mut self, now: Instant) -> Option<u64> {
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            (self.since, self.used) = (now, 0);
        }
        if self.used == LINES_PER_SECOND {
            self.left_out += 1;
            return None;
        }
        self.used += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_quota_are_counted_not_logged() {
        let start = Instant::now();
        let mut quota = Quota::new(start);
        let logged = (0..100).filter(|_| quota.take(start).is_some()).count();
        assert_eq!(logged, 20);
        assert_eq!(quota.take(start + Duration::from_secs(1)), Some(80));
        assert_eq!(quota.take(start + Duration::from_secs(1)), Some(0));
    }
}
