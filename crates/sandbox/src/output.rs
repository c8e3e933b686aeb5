//! Carries what a job prints to its consumer: in order, byte by byte, no faster than the consumer takes it.

use std::{io, sync::Arc};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::AsyncReadExt,
    net::unix::pipe,
    sync::{Notify, mpsc},
};

/// The most that one chunk holds.
const CHUNK_BYTES: usize = 64 * 1024;

/// Reads until all writers are gone, and returns how many bytes were delivered and whether there were more.
///
/// What is over the limit is dropped and `over` is notified. Output that no consumer wants is dropped too.
pub(crate) async fn pump(
    mut pipe: pipe::Receiver,
    sink: mpsc::Sender<Bytes>,
    limit: u64,
    over: Arc<Notify>,
) -> io::Result<(u64, bool)> {
    let mut buffer = BytesMut::new();
    let (mut delivered, mut exceeded) = (0_u64, false);
    loop {
        buffer.reserve(CHUNK_BYTES);
        if pipe.read_buf(&mut buffer).await? == 0 {
            return Ok((delivered, exceeded));
        }
        let mut chunk = buffer.split().freeze();
        let left = limit - delivered;
        if u64::try_from(chunk.len()).is_ok_and(|length| length > left) {
            chunk.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            exceeded = true;
            over.notify_one();
        }
        delivered += u64::try_from(chunk.len()).unwrap_or(u64::MAX);
        if !chunk.is_empty() && sink.send(chunk).await.is_err() {
            tracing::debug!("Output dropped; no consumer.");
        }
    }
}
