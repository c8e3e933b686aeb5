//! Signing keys: nkey seeds in files.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use nkeys::KeyPair;

use crate::file;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read or create the signing key {}", .0.display())]
    File(PathBuf, #[source] io::Error),
    #[error("the signing key {} is not an nkey seed", .0.display())]
    Seed(PathBuf, #[source] nkeys::error::Error),
    #[error("cannot generate a signing key")]
    Generate(#[source] nkeys::error::Error),
}

/// Reads the key whose seed is in a file.
pub fn read(path: &Path) -> Result<KeyPair, Error> {
    let seed = fs::read_to_string(path).map_err(|error| Error::File(path.to_owned(), error))?;
    KeyPair::from_seed(seed.trim()).map_err(|error| Error::Seed(path.to_owned(), error))
}

/// Like [`read`], and generates the key if there is no file.
pub fn read_or_create(path: &Path) -> Result<KeyPair, Error> {
    match read(path) {
        Err(Error::File(_, error)) if error.kind() == io::ErrorKind::NotFound => {
            let key = KeyPair::new_user();
            let seed = key.seed().map_err(Error::Generate)?;
            file::create_exactly(path, &seed).map_err(|error| Error::File(path.to_owned(), error))?;
            Ok(key)
        }
        read => read,
    }
}
