//! The files of a folder that may become memories.

use std::{
    fs::{DirEntry, File, Metadata},
    io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};

use super::{root::Root, rules::Rules};

/// A file of the folder.
#[derive(Clone, Debug)]
pub(super) struct Found {
    root: Arc<Root>,
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

/// The result of walking a folder.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// By path.
    pub(super) files: Vec<Found>,
    /// Skipped files, with the reason.
    pub(super) skipped: Vec<(String, String)>,
    /// Relative paths that could not be read: files that seem missing below them may still exist.
    pub(super) unknown: Vec<PathBuf>,
    /// How many folders were left out because their rules cannot be read.
    pub(super) unruled: usize,
}

/// Lists the files of a folder, without hidden ones and those that its rules leave out. Symbolic links are
/// not followed, nor are those that folders have become meanwhile. The path is canonical. Fails with the
/// reason if the rules of the folder, or of one above it, cannot be read.
pub(super) fn walk(folder: &Path) -> Result<Walk, String> {
    let mut walk = Walk::default();
    let mut folders = vec![(PathBuf::new(), Rules::of(folder)?)];
    let root = match Root::open(folder) {
        Ok(root) => Arc::new(root),
        Err(error) => {
            walk.lose(PathBuf::new(), &error);
            return Ok(walk);
        }
    };
    while let Some((inner, rules)) = folders.pop() {
        let entries = match root.list(&inner) {
            Ok(entries) => entries,
            Err(error) => {
                walk.lose(inner, &error);
                continue;
            }
        };
        for entry in entries {
            let added = entry.and_then(|entry| {
                let relative = inner.join(entry.file_name());
                let path = folder.join(&relative);
                walk.add(&root, &entry, (&path, relative), &rules)
            });
            match added {
                Ok(Some(found)) => folders.push(found),
                Ok(None) => {}
                Err(error) => walk.lose(inner.clone(), &error),
            }
        }
    }
    walk.files.sort_by(|left, right| Path::new(&left.path).cmp(Path::new(&right.path)));
    walk.skipped.sort();
    Ok(walk)
}

impl Found {
    /// Opens the file, or what has taken its place.
    pub(super) fn open(&self) -> io::Result<File> {
        self.root.open_file(Path::new(&self.path))
    }
}

impl Walk {
    /// Adds what is in a folder, by its path and the relative one. Returns a folder that is to be read, with
    /// its rules. These are read by their path: a user who may replace the folder may write other rules, too.
    fn add(
        &mut self,
        root: &Arc<Root>,
        entry: &DirEntry,
        (path, relative): (&Path, PathBuf),
        rules: &Rc<Rules>,
    ) -> io::Result<Option<(PathBuf, Rc<Rules>)>> {
        let kind = entry.file_type()?;
        if entry.file_name().as_bytes().starts_with(b".") || rules.leave_out(path, kind.is_dir()) {
            return Ok(None);
        }
        let shown = relative.to_string_lossy().into_owned();
        if kind.is_dir() {
            return Ok(match rules.below(path) {
                Ok(rules) => Some((relative, rules)),
                Err(why) => {
                    self.skipped.push((shown, format!("its ignore rules cannot be read: {why}")));
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
                    let (root, stamp) = (root.clone(), Stamp::of(&metadata));
                    self.files.push(Found { root, path: text, stamp });
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

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    /// A folder that is watched is walked again and again.
    #[test]
    fn folder_that_was_replaced_by_a_symbolic_link_is_not_walked() {
        let outer = tempfile::tempdir().unwrap();
        let outer = outer.path().canonicalize().unwrap();
        let docs = outer.join("docs");
        for name in ["docs", "notes"] {
            fs::create_dir(outer.join(name)).unwrap();
            fs::write(outer.join(name).join("a.md"), name).unwrap();
        }
        let files = |walk: &Walk| walk.files.iter().map(|found| found.path.clone()).collect::<Vec<_>>();
        assert_eq!(files(&walk(&docs).unwrap()), ["a.md"]);
        fs::rename(&docs, outer.join("former")).unwrap();
        symlink(outer.join("notes"), &docs).unwrap();
        let walked = walk(&docs).unwrap();
        assert_eq!(files(&walked), [""; 0]);
        assert!(walked.may_have("a.md"), "nothing of it is removed");
    }
}
