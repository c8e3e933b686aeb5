//! Files with secrets: readable only by their owner, and either complete or absent.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

const STAGED_SUFFIX: &str = ".next";

/// Creates a file with a secret on a line of its own. Fails if the file exists.
pub fn create(path: &Path, secret: &str) -> io::Result<()> {
    create_exactly(path, &format!("{secret}\n"))
}

/// Creates a file with just this text, for readers that do not trim. Fails if the file exists.
pub(crate) fn create_exactly(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let whole = with_suffix(path, &format!(".{}", std::process::id()));
    // May be left by a killed process with the same id.
    drop(fs::remove_file(&whole));
    write_new(&whole, text)?;
    // Unlike a rename, a hard link never replaces an existing file.
    let mut made = fs::hard_link(&whole, path);
    if made.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::AlreadyExists) && !path.exists() {
        // The file system has no hard links.
        made = fs::rename(&whole, path);
    }
    // Does not exist any more if it was renamed.
    drop(fs::remove_file(&whole));
    made
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Creates a folder, and those above it, for its owner alone. One that exists stays as it is.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Takes all rights to a file or folder from its group and from others. Does nothing if it is missing, or a
/// folder for all users such as `/tmp`. Fails if it belongs to another user.
pub fn make_private(path: &Path) -> io::Result<()> {
    const STICKY: u32 = 0o1000;
    const GROUP_AND_OTHERS: u32 = 0o077;
    let mode = match fs::metadata(path) {
        Ok(found) => found.permissions().mode(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if mode & GROUP_AND_OTHERS == 0 || mode & STICKY != 0 {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode & !GROUP_AND_OTHERS))
}

/// What neither group nor other users may do: write, and for others also read.
const FORBIDDEN_MODE: u32 = 0o026;

/// Reads a secret that is all of a file. Fails if it is empty, or if other users of the machine may read or
/// change the file.
pub fn read_private(path: &Path) -> io::Result<String> {
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & FORBIDDEN_MODE != 0 {
        let why = format!("other users may read or change the file; run `chmod 600 {}`", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let text = fs::read_to_string(path)?;
    let secret = text.trim();
    if secret.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is empty"));
    }
    Ok(secret.to_owned())
}

/// Returns the path with a suffix appended to its name.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Writes the next secret to a staging file next to the current one.
pub fn stage(path: &Path, secret: &str) -> io::Result<()> {
    unstage(path);
    write_new(&with_suffix(path, STAGED_SUFFIX), &format!("{secret}\n"))
}

/// Reads the staged secret, if there is one.
pub fn read_staged(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(with_suffix(path, STAGED_SUFFIX)) {
        Ok(secret) => Ok(Some(secret.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes the staged secret.
pub fn unstage(path: &Path) {
    // A missing file needs no removal; one that cannot be removed makes the next `stage` fail.
    drop(fs::remove_file(with_suffix(path, STAGED_SUFFIX)));
}

/// Replaces the secret by the staged one, atomically.
pub fn promote(path: &Path) -> io::Result<()> {
    fs::rename(with_suffix(path, STAGED_SUFFIX), path)?;
    match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// Replaces a secret atomically.
pub fn replace(path: &Path, secret: &str) -> io::Result<()> {
    stage(path, secret)?;
    promote(path)
}

/// Writes a short text that is not a secret, atomically and readable only by the owner. Does nothing if the
/// file already has this text.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    if fs::read_to_string(path).is_ok_and(|there| there.trim() == text) {
        return Ok(());
    }
    replace(path, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_others_may_read_or_change_are_refused() {
        let path = std::env::temp_dir().join(format!("secrets-file-{}", std::process::id()));
        fs::write(&path, " sk-1 \n").unwrap();
        for (mode, is_private) in
            [(0o600, true), (0o400, true), (0o440, true), (0o644, false), (0o620, false)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let read = read_private(&path);
            assert_eq!(read.as_deref().ok() == Some("sk-1"), is_private, "{mode:o}: {read:?}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "\n").unwrap();
        assert_eq!(read_private(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
        fs::remove_file(&path).unwrap();
    }
    #[test]
    fn rights_of_others_are_taken_away() {
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let root = std::env::temp_dir().join(format!("secrets-folder-{}", std::process::id()));
        let folder = root.join("data");
        create_private_folder(&folder).unwrap();
        assert_eq!((mode(&folder), mode(&root)), (0o700, 0o700));
        for (before, after) in [(0o755, 0o700), (0o2775, 0o2700), (0o1777, 0o1777)] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(before)).unwrap();
            create_private_folder(&folder).unwrap();
            assert_eq!(mode(&folder), before);
            make_private(&folder).unwrap();
            assert_eq!(mode(&folder), after);
        }
        let file = folder.join("store.db");
        make_private(&file).unwrap();
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o664)).unwrap();
        make_private(&file).unwrap();
        assert_eq!(mode(&file), 0o600);
        fs::remove_dir_all(&root).unwrap();
    }
}
