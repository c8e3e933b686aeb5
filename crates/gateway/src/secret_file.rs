//! Files with secrets: readable by their owner alone, and either whole or not there.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

const STAGED: &str = ".next";

/// Writes a secret that nobody but us can read. Never over one that is there.
pub fn create(path: &Path, secret: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let whole = beside(path, &format!(".{}", std::process::id()));
    // Left by a process of the same number that was killed.
    drop(fs::remove_file(&whole));
    write_new(&whole, secret)?;
    // A link, other than a rename, is never made over a file that is there.
    let mut made = fs::hard_link(&whole, path);
    if made.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::AlreadyExists) && !path.exists() {
        // A file system without links.
        made = fs::rename(&whole, path);
    }
    // Gone already if it was renamed.
    drop(fs::remove_file(&whole));
    made
}

fn write_new(path: &Path, secret: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(secret.as_bytes())?;
    file.write_all(b"\n")?;
    file.sync_all()
}

/// The path with something added to its name.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Writes what is to replace a secret beside it.
pub fn stage(path: &Path, secret: &str) -> io::Result<()> {
    unstage(path);
    write_new(&beside(path, STAGED), secret)
}

/// What is staged to replace a secret, if anything is.
pub fn staged(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(beside(path, STAGED)) {
        Ok(secret) => Ok(Some(secret.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

pub fn unstage(path: &Path) {
    // What is not there need not be removed; what cannot be removed fails the next `create`.
    drop(fs::remove_file(beside(path, STAGED)));
}

/// Puts what is staged in the place of the secret, in one step.
pub fn promote(path: &Path) -> io::Result<()> {
    fs::rename(beside(path, STAGED), path)?;
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Replaces a secret in one step.
pub fn replace(path: &Path, secret: &str) -> io::Result<()> {
    stage(path, secret)?;
    promote(path)
}

/// Writes something small that is no secret, in one step, for its owner alone.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|there| there.trim() == text) {
        return Ok(());
    }
    replace(path, text)
}
