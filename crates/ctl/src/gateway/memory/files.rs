//! The files of a folder that may become memories.

use std::{
    fs::Metadata,
    path::{Path, PathBuf},
    time::SystemTime,
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

/// When a file was last changed, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(Option<SystemTime>, u64);

/// What a walk through a folder found.
#[derive(Debug, Default)]
pub(super) struct Walk {
    pub(super) files: Vec<Found>,
    /// What was left out, with the reason.
    pub(super) skipped: Vec<(String, String)>,
    /// Whether something could not be looked at, so that what is missing may still be there.
    pub(super) is_incomplete: bool,
}

/// Lists the files of a folder by path. Symbolic links are not followed; hidden files and those that a
/// `.gitignore` names are left out.
pub(super) fn walk(folder: &Path) -> Walk {
    let mut walk = Walk::default();
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
        let kind = entry.file_type();
        if kind.is_none_or(|kind| kind.is_dir()) {
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

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self(metadata.modified().ok(), metadata.len())
    }

    pub(super) fn bytes(self) -> u64 {
        self.1
    }
}
