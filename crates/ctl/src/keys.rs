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

/// Whom deploy/nats/accounts.conf knows.
const IDENTITIES: [&str; 7] =
    ["orchestrator", "project_manager", "project_analyst", "gateway", "operator", "observer", "provisioner"];
const LIST: &str = "keys.conf";
const OWNER_ONLY: u32 = 0o600;

/// Makes the seeds that are missing, and the list of public keys anew.
pub(crate) fn run(command: &cli::Keys, as_json: bool) -> Result<Exit, Error> {
    let folder = &command.folder;
    fs::create_dir_all(folder).map_err(|error| Error::Write(folder.clone(), error))?;
    let mut list =
        String::from("# Who is who: public keys, which are no secret. Made by `cynodectl keys`.\n");
    let mut told = serde_json::Map::new();
    for identity in IDENTITIES {
        let public = key_of(&folder.join(format!("{identity}.nk")))?.public_key();
        list.push_str(&format!("{}_KEY: {public}\n", identity.to_uppercase()));
        told.insert(identity.to_owned(), public.into());
    }
    let path = folder.join(LIST);
    fs::write(&path, &list).map_err(|error| Error::Write(path.clone(), error))?;
    if as_json {
        print::json(&json!({ "keys": told, "list": path.display().to_string() }));
    } else {
        print::line(&format!(
            "{list}\nseeds are in {}; the server includes {}",
            folder.display(),
            path.display()
        ));
    }
    Ok(Exit::Done)
}

/// The key whose seed is kept there; made when there is none.
fn key_of(path: &Path) -> Result<KeyPair, Error> {
    match fs::read_to_string(path) {
        Ok(seed) => KeyPair::from_seed(seed.trim()).map_err(|error| Error::Key(path.to_owned(), error)),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let key = KeyPair::new_user();
            let seed = key.seed().map_err(Error::MakeKey)?;
            let wrong = |error| Error::Write(path.to_owned(), error);
            let mut options = OpenOptions::new();
            let file = options.write(true).create_new(true).mode(OWNER_ONLY).open(path);
            file.and_then(|mut file| file.write_all(seed.as_bytes())).map_err(wrong)?;
            Ok(key)
        }
        Err(error) => Err(Error::File(path.to_owned(), error)),
    }
}
