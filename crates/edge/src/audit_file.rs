//! The audit file of one lease: lines in a hash chain, written before the answer, bounded.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use nkeys::KeyPair;
use subjects::edge::{
    CloseReason, EdgeCall, EdgeVerifier, HEAD_EVERY, Line, Outcome, Record, Signature, split_lines,
};
use tracing::warn;

use crate::keys::UsedKey;

/// Lines that are kept free for a signed head and the last line.
const RESERVED_LINES: u64 = 3;
/// Bytes that are kept free for each of them and for the end of each call.
const RESERVED_BYTES: u64 = 1024;

#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error("the audit of the lease is full")]
    Full,
    #[error("the audit of the lease is closed")]
    Closed,
    /// The call before was not made because its line could not be written, and no call is made any more.
    #[error("the audit of the lease could not be written before its first call")]
    Abandoned,
    #[error("the audit file cannot be written")]
    Write(#[source] io::Error),
    #[error("the audit cannot be signed")]
    Sign(#[source] nkeys::error::Error),
}

impl AppendError {
    /// Returns whether it is the fault of this node that there is no line.
    pub(crate) fn is_of_this_node(&self) -> bool {
        match self {
            Self::Write(_) | Self::Sign(_) => true,
            Self::Full | Self::Closed | Self::Abandoned => false,
        }
    }
}

/// The audit file of one lease.
#[derive(Debug)]
pub struct AuditFile {
    path: PathBuf,
    lease_id: String,
    key: Arc<KeyPair>,
    max_lines: u64,
    max_bytes: u64,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    n: u64,
    hash: String,
    bytes: u64,
    /// The last line that signs those before it.
    signed_at: u64,
    /// Calls that began and have not ended.
    pending: u64,
    closed: Option<CloseReason>,
    /// Set when the last line is in the file and perhaps not on the disk.
    is_unsynced: bool,
    /// Set when the file may end with half a line that could not be removed.
    is_broken: bool,
}

/// What an existing file holds.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) file: AuditFile,
    /// The first line's lease, or the last one that it was renewed to, and when this node received it.
    pub(crate) lease: Option<(String, i64)>,
    pub(crate) pending: Vec<(u64, i64, EdgeCall)>,
    pub(crate) keys: Vec<UsedKey>,
    /// The time of the last line.
    pub(crate) last_at: i64,
    /// How many bytes of an incomplete line were removed.
    pub(crate) torn_bytes: u64,
}

impl AuditFile {
    /// Creates the file of a lease. Fails if it exists.
    pub fn create(path: &Path, lease_id: &str, key: Arc<KeyPair>, limits: (u64, u64)) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
        Ok(Self {
            path: path.to_owned(),
            lease_id: lease_id.to_owned(),
            key,
            max_lines: limits.0,
            max_bytes: limits.1,
            inner: Mutex::new(Inner {
                file,
                n: 0,
                hash: String::new(),
                bytes: 0,
                signed_at: 0,
                pending: 0,
                closed: None,
                is_unsynced: false,
                is_broken: false,
            }),
        })
    }

    /// Opens a file that an earlier process left, and removes half a line at its end. `Ok(None)` if anything
    /// else is wrong with it: it is evidence then, and must not be continued.
    pub(crate) fn recover(
        path: &Path,
        lease_id: &str,
        key: Arc<KeyPair>,
        limits: (u64, u64),
    ) -> io::Result<Option<Recovered>> {
        let body = std::fs::read(path)?;
        let whole = body.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let torn_bytes = (body.len() - whole) as u64;
        let mut chain = EdgeVerifier::new(lease_id, Some(key.public_key()));
        let (mut lease, mut last_at, mut signed_at) = (None, 0, 0);
        let mut keys: HashMap<u64, UsedKey> = HashMap::new();
        for text in split_lines(&body[..whole]) {
            let (line, problems) = chain.check(text);
            if let Some(problem) = problems.first() {
                warn!(lease.id = lease_id, %problem, "Audit file is damaged.");
                return Ok(None);
            }
            let Some(line) = line else { return Ok(None) };
            last_at = line.at;
            match line.record {
                Record::Opened { lease: text, .. } | Record::Renewed { lease: text } => {
                    lease = Some((text, line.at));
                }
                Record::Began(call) => keys.extend(UsedKey::of(&call).map(|key| (line.n, key))),
                Record::Ended { of, outcome, .. } => {
                    chain.pending.remove(&of);
                    if outcome == Outcome::Success
                        && let Some(key) = keys.get_mut(&of)
                    {
                        key.succeeded();
                    }
                }
                Record::Head(_) => signed_at = line.n,
                _ => {}
            }
        }
        let file = OpenOptions::new().append(true).open(path)?;
        if torn_bytes > 0 {
            file.set_len(whole as u64)?;
        }
        let pending: Vec<_> =
            std::mem::take(&mut chain.pending).into_iter().map(|(n, (at, call))| (n, at, call)).collect();
        let (n, hash) = chain.head();
        let inner = Inner {
            file,
            n,
            hash: hash.to_owned(),
            bytes: whole as u64,
            signed_at,
            pending: pending.len() as u64,
            closed: chain.closed(),
            is_unsynced: false,
            is_broken: false,
        };
        let file = Self {
            path: path.to_owned(),
            lease_id: lease_id.to_owned(),
            key,
            max_lines: limits.0,
            max_bytes: limits.1,
            inner: Mutex::new(inner),
        };
        let keys = keys.into_values().collect();
        Ok(Some(Recovered { file, lease, pending, keys, last_at, torn_bytes }))
    }

    /// Returns the file with other limits on its lines and bytes.
    pub(crate) fn with_limits(self, (max_lines, max_bytes): (u64, u64)) -> Self {
        Self { max_lines, max_bytes, ..self }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of the last line and its hash.
    pub fn head(&self) -> (u64, String) {
        let inner = self.lock();
        (inner.n, inner.hash.clone())
    }

    /// Returns whether there is nothing but the first line.
    pub(crate) fn is_new(&self) -> bool {
        self.lock().n <= 1
    }

    pub fn closed(&self) -> Option<CloseReason> {
        self.lock().closed
    }

    /// Appends a line and returns its number. It is in the page cache before this returns, so it outlives the
    /// process. Fails with [`AppendError::Full`] if the line, and what must follow it, does not fit.
    pub fn append(&self, at: i64, record: Record) -> Result<u64, AppendError> {
        let mut inner = self.lock();
        let is_end = matches!(record, Record::Ended { .. });
        let begins = u64::from(matches!(record, Record::Began(_)));
        if !is_end {
            // Room is left for the ends of running calls, for the heads between them, and for the close.
            let ends = inner.pending + begins;
            let reserved = ends + ends / HEAD_EVERY + RESERVED_LINES;
            if inner.n + 1 + reserved > self.max_lines
                || inner.bytes + (reserved + 1) * RESERVED_BYTES > self.max_bytes
            {
                return Err(AppendError::Full);
            }
        }
        // Before the line: if this fails, the line is not there.
        if inner.n >= inner.signed_at + HEAD_EVERY {
            let head = Signature::sign(&self.key, &self.lease_id, inner.n + 1, &inner.hash);
            inner.write(at, Record::Head(head.map_err(AppendError::Sign)?))?;
            inner.signed_at = inner.n;
        }
        let n = inner.write(at, record)?;
        inner.pending = (inner.pending + begins).saturating_sub(u64::from(is_end));
        Ok(n)
    }

    /// Appends the last line, signed, and flushes the file to the disk. Does nothing if it is closed. If it
    /// fails, it can be repeated.
    pub fn close(&self, at: i64, why: CloseReason) -> Result<(), AppendError> {
        self.close_locked(&mut self.lock(), at, why)
    }

    /// Does the same, but nothing if a call has begun that has not ended.
    pub(crate) fn close_if_idle(&self, at: i64, why: CloseReason) -> Result<(), AppendError> {
        let mut inner = self.lock();
        if inner.pending > 0 { Ok(()) } else { self.close_locked(&mut inner, at, why) }
    }

    fn close_locked(&self, inner: &mut Inner, at: i64, why: CloseReason) -> Result<(), AppendError> {
        if inner.closed.is_none() {
            let head = Signature::sign(&self.key, &self.lease_id, inner.n + 1, &inner.hash);
            inner.write(at, Record::Closed { why, head: head.map_err(AppendError::Sign)? })?;
            (inner.closed, inner.is_unsynced) = (Some(why), true);
        }
        if inner.is_unsynced {
            inner.file.sync_data().map_err(AppendError::Write)?;
            inner.is_unsynced = false;
        }
        Ok(())
    }

    /// The state is never left half changed, so a poisoned lock is safe to use.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn write(&mut self, at: i64, record: Record) -> Result<u64, AppendError> {
        if self.closed.is_some() {
            return Err(AppendError::Closed);
        }
        if self.is_broken {
            self.file.set_len(self.bytes).map_err(AppendError::Write)?;
            self.is_broken = false;
        }
        let line = Line { n: self.n + 1, prev: self.hash.clone(), at, record };
        let (text, hash) = line.encode();
        if let Err(error) = self.file.write_all(&text) {
            // A full disk may have taken half of the line.
            self.is_broken = self.file.set_len(self.bytes).is_err();
            return Err(AppendError::Write(error));
        }
        (self.n, self.hash) = (line.n, hash);
        self.bytes += text.len() as u64;
        Ok(self.n)
    }
}

#[cfg(test)]
mod tests;
