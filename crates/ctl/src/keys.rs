//! `cynodectl keys`: nkeys for the NATS identities.

use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use nkeys::KeyPair;
use serde_json::json;

use crate::{
    cli,
    error::{Error, Exit},
    print,
};

/// Identities in deploy/nats/accounts.conf.
const IDENTITIES: [&str; 7] =
    ["orchestrator", "project_manager", "project_analyst", "gateway", "operator", "observer", "provisioner"];
const LIST: &str = "keys.conf";
const OWNER_ONLY: u32 = 0o600;

/// Generates missing seeds and rewrites the list of public keys.
pub(crate) fn run(command: &cli::Keys, as_json: bool) -> Result<Exit, Error> {
    let folder = &command.folder;
    fs::create_dir_all(folder).map_err(|error| Error::Write(folder.clone(), error))?;
    let mut list =
        String::from("# Public keys of the identities; not secret. Written by `cynodectl keys`.\n");
    let mut keys = serde_json::Map::new();
    for identity in IDENTITIES {
        let public = read_or_generate_key(&folder.join(format!("{identity}.nk")))?.public_key();
        list.push_str(&format!("{}_KEY: {public}\n", identity.to_uppercase()));
        keys.insert(identity.to_owned(), public.into());
    }
    let path = folder.join(LIST);
    fs::write(&path, &list).map_err(|error| Error::Write(path.clone(), error))?;
    if as_json {
        print::json(&json!({ "keys": keys, "list": path.display().to_string() }));
    } else {
        print::line(&format!(
            "{list}\nseeds are in {}; nats-server includes {}",
            folder.display(),
            path.display()
        ));
    }
    Ok(Exit::Done)
}

/// Reads the key from a seed file; generates it if there is no file.
fn read_or_generate_key(path: &Path) -> Result<KeyPair, Error> {
    match fs::read_to_string(path) {
        Ok(seed) => KeyPair::from_seed(seed.trim()).map_err(|error| Error::Key(path.to_owned(), error)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let key = KeyPair::new_user();
            let seed = key.seed().map_err(Error::GenerateKey)?;
            let write_error = |error| Error::Write(path.to_owned(), error);
            let mut options = OpenOptions::new();
            let file = options.write(true).create_new(true).mode(OWNER_ONLY).open(path);
            file.and_then(|mut file| file.write_all(seed.as_bytes())).map_err(write_error)?;
            Ok(key)
        }
        Err(error) => Err(Error::File(path.to_owned(), error)),
    }
}
