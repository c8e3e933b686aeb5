//! `cynodectl nkeys`: nkeys for the NATS identities.

use std::fs;

use secrets::signing_key;
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

/// Generates missing seeds and rewrites the list of public keys.
pub(crate) fn run(command: &cli::Nkeys, as_json: bool) -> Result<Exit, Error> {
    let folder = &command.folder;
    fs::create_dir_all(folder).map_err(|error| Error::Write(folder.clone(), error))?;
    let mut list =
        String::from("# Public keys of the identities; not secret. Written by `cynodectl nkeys`.\n");
    let mut keys = serde_json::Map::new();
    for identity in IDENTITIES {
        let public = signing_key::read_or_create(&folder.join(format!("{identity}.nk")))?.public_key();
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
