//! The chain of a handoff: its journal and its answer.

use bytes::Bytes;
use chain::{Description, Outages, Streams, Tail};
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use subjects::{
    HandoffId, Pattern, Role, Subject,
    journal::{Entry, Spilled},
    streams::Layout,
};
use tracing::warn;

use super::{loss::Loss, queued::check_queued};
use crate::storage::Storage;

/// The chain of a claimed handoff.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunChain {
    pub(super) role: Role,
    pub(super) id: HandoffId,
    /// Sequence of the queue message that the handoff was claimed with.
    pub(super) message: u64,
}

impl Description for RunChain {
    fn stream(&self, layout: &Layout) -> &'static str {
        layout.runs(self.role)
    }

    fn over(&self) -> Pattern {
        Pattern::Run(self.role, self.id)
    }

    fn subject(&self) -> Subject {
        Subject::Journal(self.role, self.id)
    }

    fn is_end(&self, subject: &str) -> bool {
        subject != self.subject().to_string()
    }

    async fn check_queued<O: Outages>(&self, streams: &Streams<O>) -> bool {
        check_queued(streams, self.role, self.id, self.message).await
    }

    fn log_rewriting(&self, stream: &str) {
        warn!(handoff.id = %self.id, stream, "Stream has lost journal entries; writing them again.");
    }
}

/// Appends an entry to a journal. One that is too large for a message goes to the object store. Waits for the
/// streams as long as it takes.
pub(super) async fn append(storage: &Storage, tail: &mut Tail<RunChain>, entry: &Entry) -> Result<(), Loss> {
    let mut body = entry.encode();
    if body.len() > storage.spill_threshold() {
        // Rare paths are boxed to keep the future of a running handoff small.
        if !tail.is_settled() {
            Box::pin(tail.settle(&storage.streams)).await?;
        }
        body = Box::pin(spill(storage, tail.description(), entry, &body)).await;
    }
    Ok(tail.append(&storage.streams, Bytes::from(body)).await?)
}

/// Stores an entry in the object store and returns the reference that is appended instead.
async fn spill(storage: &Storage, chain: &RunChain, entry: &Entry, body: &[u8]) -> Vec<u8> {
    // Named by its content, so that two owners never overwrite each other's entries.
    let digest = HEXLOWER.encode(&Sha256::digest(body));
    let name = format!("journal-{}-{digest}", chain.id);
    storage.spill(chain.role, &name, body).await;
    entry.to_reference(Spilled { name, bytes: body.len() as u64 }).encode()
}
