//! Locks the data folder, and a SQLite store, for one gateway, and closes both to other users of the machine.
//!
//! A second gateway on the same files would consider the calls of the first as lost and record that in the
//! audit. The operating system ties the locks to files, not to paths, so they also hold for symbolic links,
//! hard links and other paths to the same file. They are released when the process ends, however it ends.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use secrets::file;
use tracing::warn;

const LOCK_FILE: &str = "gateway.lock";
/// Endings of the files next to a SQLite file: its log, its shared memory, and the calls in flight.
const BESIDE_STORE: [&str; 3] = ["-wal", "-shm", "-begun"];
/// Where Linux lists the holders of file locks.
const KERNEL_LOCKS: &str = "/proc/locks";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "cannot use the data folder {}: it is in use by {}; \
         stop that gateway, or pass another folder with --data",
        folder.display(), process(*pid)
    )]
    Folder { folder: PathBuf, pid: Option<u32> },
    #[error(
        "cannot use the store {}: it is in use by {}; \
         stop that gateway, or pass another store with --store-url",
        file.display(), process(*pid)
    )]
    Store { file: PathBuf, pid: Option<u32> },
    #[error("cannot lock {}", .0.display())]
    File(PathBuf, #[source] io::Error),
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// Both locks. Must be held until the store is closed: closing the store's file here earlier would release
/// SQLite's own locks on it.
#[derive(Debug)]
#[must_use = "dropping it lets other processes use the folder"]
pub(crate) struct DataLock {
    _folder: File,
    _store: Option<File>,
}

impl DataLock {
    /// Acquires both locks, and takes the rights of other users to folder and store away. Fails if another
    /// process holds a lock, and names that process if it is known. Writes only to the lock file; creates an
    /// empty store file if there is none.
    pub(crate) fn acquire(folder: &Path, store: Option<&Path>) -> Result<Self, Error> {
        let path = folder.join(LOCK_FILE);
        let file_error = |error| Error::File(path.clone(), error);
        file::create_private_folder(folder).map_err(file_error)?;
        let options =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).clone();
        let mut file = options.open(&path).map_err(file_error)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let pid = recorded_pid(&mut file).or_else(|| kernel_lock_holder(&file));
                return Err(Error::Folder { folder: folder.to_owned(), pid });
            }
            Err(TryLockError::Error(error)) => return Err(file_error(error)),
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(file_error)?;
        writeln!(file, "{}", std::process::id()).map_err(file_error)?;
        let locked = store.map(lock_store).transpose()?;
        make_private(folder);
        store.into_iter().for_each(make_store_private);
        Ok(Self { _folder: file, _store: locked })
    }
}

/// The store holds conversations, and the hashes of tokens.
fn make_store_private(store: &Path) {
    make_private(store);
    for ending in BESIDE_STORE {
        make_private(&file::with_suffix(store, ending));
    }
}

/// A volume may belong to another user; then the operator decides on its permissions.
fn make_private(path: &Path) {
    if let Err(error) = file::make_private(path) {
        warn!(path = %path.display(), %error, "Rights of other users not removed.");
    }
}

fn lock_store(path: &Path) -> Result<File, Error> {
    let file_error = |error| Error::File(path.to_owned(), error);
    if let Some(folder) = path.parent() {
        file::create_private_folder(folder).map_err(file_error)?;
    }
    let options = OpenOptions::new().read(true).append(true).create(true).mode(0o600).clone();
    let file = options.open(path).map_err(file_error)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(Error::Store { file: path.to_owned(), pid: kernel_lock_holder(&file) })
        }
        Err(TryLockError::Error(error)) => Err(file_error(error)),
    }
}

/// Reads the process id that the holder wrote into the lock file.
fn recorded_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Returns the process that holds a lock on the file according to the kernel, where the kernel tells.
fn kernel_lock_holder(file: &File) -> Option<u32> {
    let inode = format!(":{}", file.metadata().ok()?.ino());
    let locks = std::fs::read_to_string(KERNEL_LOCKS).ok()?;
    // A line is like `1: FLOCK  ADVISORY  WRITE 4711 08:02:131111 0 EOF`.
    let line = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).find(|words| {
        words.get(1) == Some(&"FLOCK") && words.get(5).is_some_and(|place| place.ends_with(&inode))
    })?;
    line.get(4)?.parse().ok().filter(|pid| *pid > 0)
}
