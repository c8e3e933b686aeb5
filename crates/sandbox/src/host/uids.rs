//! The users that jobs run as, each taken by one job on this machine at a time.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::fs::{FlockOperation, flock};

use super::{HostError, HostSettings};

/// Lower ones are accounts, or stand for no user.
const LOWEST_UID: u32 = 65_537;

#[derive(Debug)]
pub(super) struct UidPool {
    folder: PathBuf,
    first: u32,
    count: u32,
    next: AtomicU32,
}

/// A user that no other job has as long as a copy of the lock is open, in this process or in the sandbox.
#[derive(Debug)]
pub(crate) struct UidLease {
    pub(crate) uid: u32,
    pub(crate) lock: File,
}

impl UidPool {
    pub(super) fn open(settings: &HostSettings) -> Result<Self, HostError> {
        let (first, count) = (settings.first_uid, settings.uids);
        let last = u64::from(first) + u64::from(count);
        if first < LOWEST_UID || count == 0 || last > i32::MAX.unsigned_abs().into() {
            return Err(HostError::Uids { first, last });
        }
        let folder = settings.locks.join("uids");
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(|source| HostError::Folder { folder: folder.clone(), source })?;
        // Nodes that start together do not try the same users first.
        let next = AtomicU32::new(std::process::id() % count);
        Ok(Self { folder, first, count, next })
    }

    pub(super) fn take(&self) -> io::Result<UidLease> {
        for _ in 0..self.count {
            let uid = self.first + self.next.fetch_add(1, Ordering::Relaxed) % self.count;
            let path = self.folder.join(uid.to_string());
            let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                return Ok(UidLease { uid, lock });
            }
        }
        Err(io::Error::other(format!("all {} users for jobs are taken; raise their number", self.count)))
    }
}
