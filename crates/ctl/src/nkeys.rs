//! `cynodectl nkeys`: nkeys for the NATS identities.

use std::{collections::BTreeSet, fs, path::Path};

use secrets::signing_key;
use serde_json::json;
use subjects::NodeId;

use crate::{
    cli,
    error::{Error, Exit},
    print,
};

/// Identities in deploy/nats/accounts.conf.
const IDENTITIES: [&str; 8] = [
    "orchestrator",
    "project_manager",
    "project_analyst",
    "gateway",
    "operator",
    "observer",
    "provisioner",
    "workflow",
];
/// The node in deploy/nats/accounts.conf.
const FIRST_NODE: &str = "build-1";
const LIST: &str = "keys.conf";

/// Generates missing seeds and rewrites the list of public keys.
pub(crate) fn run(command: &cli::Nkeys, as_json: bool) -> Result<Exit, Error> {
    let folder = &command.folder;
    fs::create_dir_all(folder).map_err(|error| Error::Write(folder.clone(), error))?;
    let mut list =
        String::from("# Public keys of the identities; not secret. Written by `cynodectl nkeys`.\n");
    let mut keys = serde_json::Map::new();
    let of_nodes = nodes(folder, &command.nodes).into_iter().map(|node| format!("node-{node}"));
    for identity in IDENTITIES.map(str::to_owned).into_iter().chain(of_nodes) {
        let public = signing_key::read_or_create(&folder.join(format!("{identity}.nk")))?.public_key();
        list.push_str(&format!("{}_KEY: {public}\n", identity.to_uppercase().replace('-', "_")));
        keys.insert(identity, public.into());
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

/// Returns the ids of the nodes that have a key: the first one, those that are asked for, and those that have
/// a seed in the folder.
fn nodes(folder: &Path, wanted: &[NodeId]) -> BTreeSet<String> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let found = files.filter_map(|file| {
        let name = file.file_name().into_string().ok()?;
        let id: NodeId = name.strip_prefix("node-")?.strip_suffix(".nk")?.parse().ok()?;
        Some(id.to_string())
    });
    let wanted = wanted.iter().map(ToString::to_string);
    found.chain(wanted).chain([FIRST_NODE.to_owned()]).collect()
}
