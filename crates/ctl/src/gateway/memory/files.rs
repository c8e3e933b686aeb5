//! The files of a folder that may become memories.

use std::{
    fs::{self, DirEntry, Metadata},
    io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    rc::Rc,
};

use super::rules::Rules;

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
    /// By path.
    pub(super) files: Vec<Found>,
    /// What was left out, with the reason.
    pub(super) skipped: Vec<(String, String)>,
    /// Relative paths that could not be looked at: what is missing there may still be there.
    pub(super) unknown: Vec<PathBuf>,
    /// How many folders were left out because their rules cannot be read.
    pub(super) unruled: usize,
}

/// Lists the files of a folder, without hidden ones and those that its rules leave out. Symbolic links are
/// not followed. Fails with the reason if the rules of the folder, or of one above it, cannot be read.
pub(super) fn walk(folder: &Path) -> Result<Walk, String> {
    let mut walk = Walk::default();
    let mut folders = vec![(folder.to_owned(), Rules::of(folder)?)];
    while let Some((inner, rules)) = folders.pop() {
        let relative = |path: &Path| path.strip_prefix(folder).unwrap_or(path).to_owned();
        let entries = match fs::read_dir(&inner) {
            Ok(entries) => entries,
            Err(error) => {
                walk.lose(relative(&inner), &error);
                continue;
            }
        };
        for entry in entries {
            let added = entry.and_then(|entry| {
                let path = relative(&entry.path());
                walk.add(&entry, path, &rules)
            });
            match added {
                Ok(Some(found)) => folders.push(found),
                Ok(None) => {}
                Err(error) => walk.lose(relative(&inner), &error),
            }
        }
    }
    walk.files.sort_by(|left, right| left.file.cmp(&right.file));
    walk.skipped.sort();
    Ok(walk)
}

impl Walk {
    /// Adds what is in a folder. Returns a folder that is to be read, with its rules.
    fn add(
        &mut self,
        entry: &DirEntry,
        relative: PathBuf,
        rules: &Rc<Rules>,
    ) -> io::Result<Option<(PathBuf, Rc<Rules>)>> {
        let (path, kind) = (entry.path(), entry.file_type()?);
        if entry.file_name().as_bytes().starts_with(b".") || rules.leave_out(&path, kind.is_dir()) {
            return Ok(None);
        }
        let shown = relative.to_string_lossy().into_owned();
        if kind.is_dir() {
            return Ok(match rules.below(&path) {
                Ok(rules) => Some((path, rules)),
                Err(why) => {
                    self.skipped.push((shown, format!("it is not known what to leave out: {why}")));
                    self.unknown.push(relative);
                    self.unruled += 1;
                    None
                }
            });
        }
        if kind.is_symlink() {
            self.skipped.push((shown, "a symbolic link, which is not followed".to_owned()));
        } else if !kind.is_file() {
            self.skipped.push((shown, "not a regular file".to_owned()));
        } else if let Ok(text) = relative.clone().into_os_string().into_string() {
            match entry.metadata() {
                Ok(metadata) => {
                    self.files.push(Found { file: path, path: text, stamp: Stamp::of(&metadata) });
                }
                Err(error) => self.lose(relative, &error),
            }
        } else {
            self.skipped.push((shown, "its name is not UTF-8; rename it".to_owned()));
        }
        Ok(None)
    }

    fn lose(&mut self, relative: PathBuf, error: &io::Error) {
        let shown = match relative.as_os_str().is_empty() {
            true => "folder".to_owned(),
            false => relative.to_string_lossy().into_owned(),
        };
        self.skipped.push((shown, error.to_string()));
        self.unknown.push(relative);
    }

    /// Returns whether a relative path may be there although it was not found.
    pub(super) fn may_have(&self, path: &str) -> bool {
        self.unknown.iter().any(|unknown| Path::new(path).starts_with(unknown))
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
