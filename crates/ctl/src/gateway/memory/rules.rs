//! What an ingest leaves out of a folder: what Git ignores there, and what a file `.ignore` names.

mod class;
mod pattern;
mod repository;

use std::{
    fs::OpenOptions,
    io::{self, ErrorKind, Read},
    iter::successors,
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::{Path, PathBuf},
    rc::Rc,
};

use nix::fcntl::OFlag;

use self::{
    pattern::{Pattern, parse},
    repository::Repository,
};

/// The largest file of rules that is read.
const MAX_RULES_BYTES: u64 = 1 << 20;

/// The rules of a folder, with those of the folders above it.
#[derive(Debug)]
pub(super) struct Rules {
    own: Level,
    above: Option<Rc<Self>>,
}

/// The rules in one folder.
#[derive(Debug)]
struct Level {
    folder: PathBuf,
    /// Of `.ignore`.
    ignore: File,
    /// Of `.gitignore`.
    git: File,
    /// Of `info/exclude` in the repository whose work tree begins here.
    excluded: File,
    /// Git looks for rules here, and no further above.
    is_top: bool,
}

/// A file of rules; without one there are none.
#[derive(Debug, Default)]
struct File {
    patterns: Vec<Pattern>,
    /// Some releases of Git do not read it. Where it brings files back, it does not count.
    is_doubtful: bool,
}

impl Rules {
    /// Reads the rules of a folder and of those above it. Fails with the reason if they cannot be read.
    pub(super) fn of(folder: &Path) -> Result<Rc<Self>, String> {
        let (mut levels, mut is_of_git) = (Vec::new(), true);
        for folder in folder.ancestors() {
            let level = Level::read(folder, is_of_git)?;
            is_of_git &= !level.is_top;
            levels.push(level);
        }
        let link = |above, own| Some(Rc::new(Self { own, above }));
        levels.into_iter().rev().fold(None, link).ok_or_else(|| format!("{}: no folder", folder.display()))
    }

    /// Reads the rules of a folder in this one.
    pub(super) fn below(self: &Rc<Self>, folder: &Path) -> Result<Rc<Self>, String> {
        Ok(Rc::new(Self { own: Level::read(folder, true)?, above: Some(self.clone()) }))
    }

    /// Returns whether a file or folder in this folder is left out. What Git ignores is, whatever an
    /// `.ignore` says.
    pub(super) fn leave_out(&self, path: &Path, is_folder: bool) -> bool {
        let decide = |level: &Self, file: &File, with_doubtful: bool| {
            if file.is_doubtful && !with_doubtful {
                return None;
            }
            let relative = path.strip_prefix(&level.own.folder).ok()?.as_os_str().as_bytes();
            let last = file.patterns.iter().rev().find(|pattern| pattern.matches(relative, is_folder));
            last.map(|pattern| !pattern.is_negated)
        };
        let is_ignored_by_git = |with_doubtful| {
            let levels = || successors(Some(self), |it| it.above.as_deref().filter(|_| !it.own.is_top));
            let by_folders = levels().find_map(|it| decide(it, &it.own.git, with_doubtful));
            let by_repository = || levels().find_map(|it| decide(it, &it.own.excluded, with_doubtful));
            by_folders.or_else(by_repository) == Some(true)
        };
        let mut levels = successors(Some(self), |it| it.above.as_deref());
        is_ignored_by_git(true)
            || is_ignored_by_git(false)
            || levels.find_map(|it| decide(it, &it.own.ignore, true)) == Some(true)
    }
}

impl Level {
    fn read(folder: &Path, is_of_git: bool) -> Result<Self, String> {
        let ignore = File::read(&folder.join(".ignore"))?;
        let (mut git, mut excluded, mut is_top) = (File::default(), File::default(), false);
        if is_of_git {
            git = File::read(&folder.join(".gitignore"))?;
            let repository = Repository::of(folder)
                .map_err(|error| format!("{}: {error}", folder.join(".git").display()))?;
            if let Some(repository) = repository {
                excluded = File::read(&repository.shared.join("info").join("exclude"))?;
                is_top = repository.is_complete;
                excluded.is_doubtful = !is_top;
            }
        }
        Ok(Self { folder: folder.to_owned(), ignore, git, excluded, is_top })
    }
}

impl File {
    fn read(file: &Path) -> Result<Self, String> {
        let is_link = file.is_symlink();
        match read_small(file) {
            Err(error) if error.kind() == ErrorKind::NotFound && !is_link => Ok(Self::default()),
            // Git follows no link from 2.32 on.
            Ok(rules) => Ok(Self { patterns: parse(&rules), is_doubtful: is_link }),
            Err(error) => Err(format!("{}: {error}", file.display())),
        }
    }
}

/// Reads a regular file.
fn read_small(file: &Path) -> io::Result<Vec<u8>> {
    let opened = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(file)?;
    if !opened.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut content = Vec::new();
    opened.take(MAX_RULES_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_RULES_BYTES {
        return Err(io::Error::other(format!("more than {MAX_RULES_BYTES} bytes")));
    }
    Ok(content)
}
