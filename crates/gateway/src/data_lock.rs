//! Exclusive use of the data folder, and of a store that is a file.
//!
//! A second gateway on the same files would take the calls of the first for lost and write that into the audit. The locks
//! are the operating system's and belong to files, not to names: symbolic links, hard links and other paths to the same
//! file find them taken, and they go with the process, however it ends.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

const LOCK_FILE: &str = "gateway.lock";
/// Linux tells here who holds which lock.
const KERNEL_LOCKS: &str = "/proc/locks";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "cannot use the data folder {}: it is in use by {}; stop that gateway, or pass another folder with --data",
        folder.display(), process(*pid)
    )]
    Folder { folder: PathBuf, pid: Option<u32> },
    #[error(
        "cannot use the store {}: it is in use by {}; stop that gateway, or pass another store with --store-url",
        file.display(), process(*pid)
    )]
    Store { file: PathBuf, pid: Option<u32> },
    #[error("cannot lock {}", .0.display())]
    File(PathBuf, #[source] io::Error),
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// Held until the store is closed. The store's file must not be closed before: that would take SQLite's own locks along.
#[derive(Debug)]
#[must_use = "dropped, others may use the folder"]
pub struct DataLock {
    _folder: File,
    _store: Option<File>,
}

impl DataLock {
    /// Takes both locks, or says which process has them. Nothing but the lock file is changed; a store is made empty.
    pub fn take(folder: &Path, store: Option<&Path>) -> Result<Self, Error> {
        let path = folder.join(LOCK_FILE);
        let wrong = |error| Error::File(path.clone(), error);
        std::fs::create_dir_all(folder).map_err(wrong)?;
        let options =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).clone();
        let mut file = options.open(&path).map_err(wrong)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let pid = noted(&mut file).or_else(|| holder(&file));
                return Err(Error::Folder { folder: folder.to_owned(), pid });
            }
            Err(TryLockError::Error(error)) => return Err(wrong(error)),
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(wrong)?;
        writeln!(file, "{}", std::process::id()).map_err(wrong)?;
        let store = store.map(lock_store).transpose()?;
        Ok(Self { _folder: file, _store: store })
    }
}

fn lock_store(path: &Path) -> Result<File, Error> {
    let wrong = |error| Error::File(path.to_owned(), error);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(wrong)?;
    }
    let file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(wrong)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Store { file: path.to_owned(), pid: holder(&file) }),
        Err(TryLockError::Error(error)) => Err(wrong(error)),
    }
}

/// What the holder wrote into the file.
fn noted(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// What the kernel says, where it does.
fn holder(file: &File) -> Option<u32> {
    let inode = format!(":{}", file.metadata().ok()?.ino());
    let locks = std::fs::read_to_string(KERNEL_LOCKS).ok()?;
    // Such as `1: FLOCK  ADVISORY  WRITE 4711 08:02:131111 0 EOF`.
    let line = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).find(|words| {
        words.get(1) == Some(&"FLOCK") && words.get(5).is_some_and(|place| place.ends_with(&inode))
    })?;
    line.get(4)?.parse().ok().filter(|pid| *pid > 0)
}
