//! The files of a folder that may become memories.

use std::{
    fs::Metadata,
    io::{self, ErrorKind},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use ignore::WalkBuilder;

/// A file of the folder.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) file: PathBuf,
    /// Relative, with forward slashes.
    pub(super) path: String,
    /// Changes when the file does.
    pub(super) stamp: Stamp,
}

/// Tells whether a file is as it was: its size, where it is, and when its content or its rights were changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    bytes: u64,
    inode: u64,
    /// Seconds and nanoseconds.
    changed: (i64, i64),
}

/// What a walk through a folder found.
#[derive(Debug, Default)]
pub(super) struct Walk {
    pub(super) files: Vec<Found>,
    /// What was left out, with the reason.
    pub(super) skipped: Vec<(String, String)>,
    /// Whether something could not be looked at, so that what is missing may still be there.
    pub(super) is_incomplete: bool,
    /// Why it is not known what is to be left out.
    pub(super) unknown_rules: Option<String>,
}

/// Lists the files of a folder by path. Symbolic links are not followed; hidden files are left out, and those
/// that a `.gitignore` or `.ignore` names, in the folder or above it.
pub(super) fn walk(folder: &Path) -> Walk {
    let above = folder.ancestors().skip(1).find_map(find_unreadable_rules);
    let mut walk = Walk { unknown_rules: above, ..Walk::default() };
    let mut builder = WalkBuilder::new(folder);
    builder.require_git(false).git_global(false).sort_by_file_path(Path::cmp);
    for entry in builder.build() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                walk.is_incomplete = true;
                walk.skipped.push(("folder".to_owned(), error.to_string()));
                continue;
            }
        };
        if let Some(error) = entry.error() {
            walk.skipped.push(("rule".to_owned(), error.to_string()));
        }
        let kind = entry.file_type();
        if kind.is_none_or(|kind| kind.is_dir()) {
            walk.unknown_rules = walk.unknown_rules.or_else(|| find_unreadable_rules(entry.path()));
            continue;
        }
        let relative = entry.path().strip_prefix(folder).unwrap_or(entry.path());
        let shown = relative.to_string_lossy().into_owned();
        if kind.is_some_and(|kind| kind.is_symlink()) {
            walk.skipped.push((shown, "a symbolic link, which is not followed".to_owned()));
        } else if !kind.is_some_and(|kind| kind.is_file()) {
            walk.skipped.push((shown, "not a regular file".to_owned()));
        } else if let Some(path) = relative.to_str() {
            match entry.metadata() {
                Ok(metadata) => {
                    let (file, path) = (entry.path().to_owned(), path.to_owned());
                    walk.files.push(Found { file, path, stamp: Stamp::of(&metadata) });
                }
                Err(error) => {
                    walk.is_incomplete = true;
                    walk.skipped.push((shown, error.to_string()));
                }
            }
        } else {
            walk.skipped.push((shown, "its name is not UTF-8; rename it".to_owned()));
        }
    }
    walk
}

/// Returns why the rules of a folder cannot be read. The walk would go on as if there were none.
fn find_unreadable_rules(folder: &Path) -> Option<String> {
    let git = match Git::of(folder) {
        Ok(git) => git,
        Err(error) => return Some(format!("{}: {error}", folder.join(".git").display())),
    };
    let own = [".gitignore", ".ignore"].into_iter().find_map(|name| read_rules(&folder.join(name)).err());
    own.or_else(|| {
        let Git { shared, is_followed } = git?;
        let excluded = shared.join("info").join("exclude");
        match read_rules(&excluded) {
            Ok(rules) if !is_followed && has_rule(&rules) => {
                let why = "the folder's .git does not lead to its rules; copy them into a file .ignore";
                Some(format!("{}: {why}", excluded.display()))
            }
            read => read.err(),
        }
    })
}

/// Reads a file of rules; without one there are none. Fails with the reason if it cannot be read.
fn read_rules(file: &Path) -> Result<Vec<u8>, String> {
    match std::fs::read(file) {
        Err(error) if error.kind() == ErrorKind::NotFound && !file.is_symlink() => Ok(Vec::new()),
        read => read.map_err(|error| format!("{}: {error}", file.display())),
    }
}

fn has_rule(rules: &[u8]) -> bool {
    let mut lines = rules.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.any(|line| !line.is_empty() && !line.starts_with(b"#"))
}

/// A repository of Git.
struct Git {
    /// What all of its work trees share.
    shared: PathBuf,
    /// Whether a walk finds the rules there: only by an absolute path.
    is_followed: bool,
}

impl Git {
    /// Returns the repository whose work tree begins at a folder. There, `.git` may be a file that names
    /// another folder, and that may name the shared one.
    fn of(folder: &Path) -> io::Result<Option<Self>> {
        let git = folder.join(".git");
        let metadata = match git.metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            metadata => metadata?,
        };
        if metadata.is_dir() {
            return Ok(Some(Self { shared: git, is_followed: true }));
        }
        let text = std::fs::read_to_string(&git)?;
        let Some(named) = text.trim().strip_prefix("gitdir: ") else { return Ok(None) };
        let own = folder.join(named);
        match std::fs::read_to_string(own.join("commondir")) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Ok(Some(Self { shared: own, is_followed: false }))
            }
            shared => {
                let is_followed = Path::new(named).is_absolute();
                Ok(Some(Self { shared: own.join(shared?.trim()), is_followed }))
            }
        }
    }
}

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        Self { bytes: metadata.len(), inode: metadata.ino(), changed }
    }

    pub(super) fn bytes(self) -> u64 {
        self.bytes
    }
}
