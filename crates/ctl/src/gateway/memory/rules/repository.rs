//! Repositories of Git.

use std::{
    ffi::OsStr,
    io::{self, ErrorKind},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::read_small;

pub(super) struct Repository {
    /// The Git folder that all of its work trees share.
    pub(super) shared: PathBuf,
    /// Git takes it for a repository, and reads no rules of folders above it.
    pub(super) is_complete: bool,
}

impl Repository {
    /// Returns the repository whose work tree begins at a folder. There, `.git` may be a file that names
    /// another folder, and that may name the shared one.
    pub(super) fn of(folder: &Path) -> io::Result<Option<Self>> {
        let git = folder.join(".git");
        let own = match git.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Ok(metadata) if metadata.is_dir() => git,
            _ => match read_small(&git)?.strip_prefix(b"gitdir: ") {
                Some(named) => folder.join(path(named)),
                None => return Ok(None),
            },
        };
        let shared = match read_small(&own.join("commondir")) {
            Err(error) if error.kind() == ErrorKind::NotFound => own.clone(),
            shared => own.join(path(&shared?)),
        };
        let has_both = ["objects", "refs"].iter().all(|name| shared.join(name).is_dir());
        Ok(Some(Self { is_complete: has_both && has_head(&own), shared }))
    }
}

/// Returns the path in a line.
fn path(line: &[u8]) -> &Path {
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let length = line.iter().rposition(|byte| !is_end(byte)).map_or(0, |last| last + 1);
    Path::new(OsStr::from_bytes(line.get(..length).unwrap_or(line)))
}

/// Returns whether a repository has a branch or a commit, as Git sees it.
fn has_head(repository: &Path) -> bool {
    let head = repository.join("HEAD");
    if let Ok(branch) = head.read_link() {
        return branch.starts_with("refs");
    }
    let Ok(head) = read_small(&head) else { return false };
    let branch = head.strip_prefix(b"ref:").map(<[u8]>::trim_ascii_start);
    branch.is_some_and(|branch| branch.starts_with(b"refs/"))
        || head.get(..40).is_some_and(|commit| commit.iter().all(u8::is_ascii_hexdigit))
}
