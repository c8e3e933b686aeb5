//! The folder of an ingest. A user who can write in it, or above it, can replace folders by symbolic links
//! while it is read. So each path is opened component by component, and no link is followed.

use std::{
    fs::{self, File, ReadDir},
    io::{self, ErrorKind},
    os::fd::{AsRawFd, OwnedFd},
    path::{Component, Path},
};

use nix::{
    fcntl::{OFlag, open, openat},
    sys::stat::Mode,
};

/// Folders are opened with `O_PATH`, which needs no permission to list them.
const FOLDER: OFlag =
    OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
/// `O_NONBLOCK`: opening a pipe must not wait for a writer.
const FILE: OFlag = OFlag::O_RDONLY.union(OFlag::O_NOFOLLOW).union(OFlag::O_NONBLOCK).union(OFlag::O_CLOEXEC);

/// A folder that is open.
#[derive(Debug)]
pub(super) struct Root(OwnedFd);

impl Root {
    /// Opens a folder by its canonical path. Fails if a part of that has become a symbolic link.
    pub(super) fn open(canonical: &Path) -> io::Result<Self> {
        let top = open("/", FOLDER, Mode::empty())?;
        Ok(Self(descend(&top, canonical)?))
    }

    /// Lists a folder below this one.
    pub(super) fn list(&self, relative: &Path) -> io::Result<ReadDir> {
        let folder = descend(&self.0, relative)?;
        // This leads to the open folder, wherever its path leads by now.
        fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()))
    }

    /// Opens a file below this folder.
    pub(super) fn open_file(&self, relative: &Path) -> io::Result<File> {
        let name = relative.file_name().ok_or(ErrorKind::InvalidInput)?;
        let folder = descend(&self.0, relative.parent().unwrap_or(Path::new("")))?;
        Ok(File::from(openat(&folder, name, FILE, Mode::empty())?))
    }
}

/// Opens a folder below another one.
fn descend(from: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let mut folder = from.try_clone()?;
    for part in path.components() {
        match part {
            Component::Normal(name) => folder = openat(&folder, name, FOLDER, Mode::empty())?,
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err(ErrorKind::InvalidInput.into()),
        }
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use std::{io::Read, os::unix::fs::symlink};

    use super::*;

    /// A folder is opened some time after it was found in the one above it.
    #[test]
    fn folder_that_became_a_symbolic_link_is_not_opened() {
        let outer = tempfile::tempdir().unwrap();
        let outer = outer.path().canonicalize().unwrap();
        let docs = outer.join("docs");
        for (file, text) in [("docs/a/inner/one.md", "an otter"), ("notes/inner/one.md", "a secret")] {
            let file = outer.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let root = Root::open(&docs).unwrap();
        let read = || {
            let mut text = String::new();
            root.open_file(Path::new("a/inner/one.md"))?.read_to_string(&mut text)?;
            io::Result::Ok(text)
        };
        let count = |folder: &str| root.list(Path::new(folder)).map(Iterator::count);
        assert_eq!((count("").unwrap(), count("a").unwrap(), &*read().unwrap()), (1, 1, "an otter"));
        fs::rename(docs.join("a"), docs.join("b")).unwrap();
        symlink(outer.join("notes"), docs.join("a")).unwrap();
        count("a").unwrap_err();
        count("a/inner").unwrap_err();
        read().unwrap_err();
        count("../notes").unwrap_err();
        assert_eq!(count("b").unwrap(), 1);
        // The same holds above the folder.
        symlink(&outer, outer.join("link")).unwrap();
        Root::open(&outer.join("link").join("docs")).unwrap_err();
    }
}
