//! Collects the files that a job left in its workspace: regular files only, never through a link.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use bytes::Bytes;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat2, statat};
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;

/// Maximum number of files and folders of a workspace that are visited.
const MAX_ENTRIES: usize = 100_000;
/// How files are opened: opening a FIFO does not wait, and a link is not followed.
const OPEN: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW).union(OFlags::NOCTTY);
/// Maximum depth of visited folders.
const MAX_DEPTH: usize = 64;

/// What a job left.
#[derive(Debug, Default)]
pub struct Collected {
    /// In the order of their paths.
    pub files: Vec<OutputFile>,
    /// Matches that could not be collected, in the order of the paths.
    pub problems: Vec<Problem>,
}

/// A file that a job left. It can be read until the job is removed. It is not kept open: a job may leave more
/// files than a process may open.
#[derive(Debug)]
pub struct OutputFile {
    /// Relative to the workspace.
    pub path: String,
    pub size: u64,
    /// As 64 hexadecimal digits.
    pub sha256: String,
    work: Arc<OwnedFd>,
}

impl OutputFile {
    /// Reads a piece of the file: a job decides how large a file is, so no process holds one as a whole. The
    /// last piece may be shorter.
    pub async fn read_piece(&self, offset: u64, max_bytes: usize) -> io::Result<Bytes> {
        let (work, path) = (self.work.clone(), self.path.clone());
        let wanted = self.size.saturating_sub(offset).min(max_bytes as u64);
        let read = move || {
            let mut file = File::from(beneath(&work, &path, OPEN)?);
            file.seek(SeekFrom::Start(offset))?;
            let mut piece = Vec::new();
            file.take(wanted).read_to_end(&mut piece)?;
            if (piece.len() as u64) < wanted {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Ok(piece.into())
        };
        spawn_blocking(read).await?
    }
}

/// Why something that matched was not collected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Relative to the workspace; what is not UTF-8 is replaced.
    pub path: String,
    pub why: ProblemKind,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProblemKind {
    #[error("is larger than what the disk limit leaves ({0} bytes)")]
    TooLarge(u64),
    #[error("is not a regular file but a {0}")]
    NotRegular(&'static str),
    #[error("points outside the workspace")]
    Escapes,
    #[error("has a name that is not UTF-8")]
    NotUtf8,
    #[error("cannot be read: {0}")]
    Unreadable(String),
    #[error("is nested too deeply, or exceeds the limit on files")]
    TooMany,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.path, self.why)
    }
}

/// The error if nothing could be collected.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    #[error("cannot collect outputs of a job that still runs; wait for its end")]
    Running,
    #[error("cannot read the workspace: {0}")]
    Workspace(#[from] io::Error),
}

/// Compiles the globs of a job. `*` stays within a folder, `**` does not.
pub(crate) fn globs(patterns: &[String]) -> Result<GlobSet, globset::Error> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(GlobBuilder::new(pattern).literal_separator(true).build()?);
    }
    set.build()
}

/// Collects what matches, up to a number of bytes in total.
pub(crate) async fn collect(
    work: Arc<OwnedFd>,
    globs: GlobSet,
    max_bytes: u64,
) -> Result<Collected, CollectError> {
    let walk = move || {
        let mut walk = Walk { work, globs, left: max_bytes, entries: 0, found: Collected::default() };
        walk.folder("", 0)?;
        let mut found = walk.found;
        found.files.sort_by(|a, b| a.path.cmp(&b.path));
        found.problems.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    };
    spawn_blocking(walk).await.map_err(io::Error::from)?
}

struct Walk {
    work: Arc<OwnedFd>,
    globs: GlobSet,
    left: u64,
    entries: usize,
    found: Collected,
}

impl Walk {
    fn folder(&mut self, path: &str, depth: usize) -> io::Result<()> {
        let inner = if path.is_empty() { "." } else { path };
        let folder = beneath(&self.work, inner, OFlags::DIRECTORY | OFlags::RDONLY)?;
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let bytes = entry.file_name().to_bytes();
            if bytes == b"." || bytes == b".." {
                continue;
            }
            self.entries += 1;
            let name = String::from_utf8_lossy(bytes);
            let path = if path.is_empty() { name.to_string() } else { format!("{path}/{name}") };
            if self.entries > MAX_ENTRIES {
                self.problem(path, ProblemKind::TooMany);
                return Ok(());
            }
            if std::str::from_utf8(bytes).is_err() {
                if self.globs.is_match(&path) {
                    self.problem(path, ProblemKind::NotUtf8);
                }
                continue;
            }
            let kind = FileType::from_raw_mode(
                statat(&folder, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?.st_mode,
            );
            if kind == FileType::Directory {
                if depth >= MAX_DEPTH || path.len() > 2048 {
                    self.problem(path, ProblemKind::TooMany);
                } else if let Err(error) = self.folder(&path, depth + 1) {
                    self.problem(path, ProblemKind::Unreadable(error.to_string()));
                }
            } else if self.globs.is_match(&path) {
                match self.file(&path) {
                    Ok(file) => self.found.files.push(file),
                    Err(why) => self.problem(path, why),
                }
            }
        }
        Ok(())
    }

    fn problem(&mut self, path: String, why: ProblemKind) {
        self.found.problems.push(Problem { path, why });
    }

    fn file(&mut self, path: &str) -> Result<OutputFile, ProblemKind> {
        let unreadable = |error: io::Error| ProblemKind::Unreadable(error.to_string());
        // What is found is looked at once it is open.
        let file = match beneath(&self.work, path, OPEN) {
            Ok(file) => File::from(file),
            Err(error) => {
                let status = statat(&self.work, path, AtFlags::SYMLINK_NOFOLLOW);
                return Err(match status.map(|it| FileType::from_raw_mode(it.st_mode)) {
                    Ok(FileType::RegularFile) | Err(_) => match error.raw_os_error() {
                        Some(libc::EXDEV | libc::ELOOP) => ProblemKind::Escapes,
                        _ => unreadable(error),
                    },
                    Ok(kind) => ProblemKind::NotRegular(kind_name(kind)),
                });
            }
        };
        let status = fstat(&file).map_err(|error| unreadable(error.into()))?;
        let kind = FileType::from_raw_mode(status.st_mode);
        if kind != FileType::RegularFile {
            return Err(ProblemKind::NotRegular(kind_name(kind)));
        }
        let size = u64::try_from(status.st_size).unwrap_or(u64::MAX);
        // A sparse file may be larger than its disk.
        if size > self.left {
            return Err(ProblemKind::TooLarge(size));
        }
        let mut hash = Sha256::new();
        let read = io::copy(&mut (&file).take(size), &mut hash).map_err(unreadable)?;
        self.left -= read;
        let sha256 = data_encoding::HEXLOWER.encode(&hash.finalize());
        Ok(OutputFile { path: path.to_owned(), size: read, sha256, work: self.work.clone() })
    }
}

/// Opens what is below a folder, on the same file system, through no link.
fn beneath(folder: impl AsFd, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    Ok(openat2(folder, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)?)
}

fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "FIFO",
        FileType::Socket => "socket",
        FileType::CharacterDevice | FileType::BlockDevice => "device",
        FileType::Directory => "folder",
        FileType::RegularFile => "file",
        FileType::Unknown => "file of unknown kind",
    }
}
