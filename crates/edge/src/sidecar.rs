//! The file beside an audit file with what the node needs to decide under the lease: keys and access rules.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use policy::Rule;
use serde::{Deserialize, Serialize};

/// File name extensions.
pub(crate) const AUDIT: &str = "audit";
const RULES: &str = "json";
/// Extension of a sidecar that is still being written.
const NEW: &str = "json.new";

/// Kept beside the audit file, so that another process can continue under the lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sidecar {
    /// The lease of the job.
    pub(crate) parent_id: String,
    /// The gateway's key that signed the lease when it was bound.
    pub(crate) gateway_key: String,
    /// Keys with which other gateways renewed it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) other_keys: BTreeSet<String>,
    /// The access rules that the lease names by their digest.
    pub(crate) rules: Vec<Rule>,
}

impl Sidecar {
    /// Replaces the file atomically: if this fails, the previous one stays.
    pub(crate) fn write(&self, folder: &Path, lease_id: &str) -> io::Result<()> {
        let new = path(folder, lease_id, NEW);
        fs::write(&new, subjects::encode_json(self))?;
        fs::rename(new, path(folder, lease_id, RULES))
    }

    /// Returns whether a key has signed the lease.
    pub(crate) fn names_key(&self, key: &str) -> bool {
        self.gateway_key == key || self.other_keys.contains(key)
    }

    pub(crate) fn read(folder: &Path, lease_id: &str) -> Option<Self> {
        serde_json::from_slice(&fs::read(path(folder, lease_id, RULES)).ok()?).ok()
    }
}

pub(crate) fn path(folder: &Path, lease_id: &str, end: &str) -> PathBuf {
    folder.join(format!("{lease_id}.{end}"))
}

/// Returns the leases that have an audit file, oldest first.
pub(crate) fn leases(folder: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let lease = name.to_str().and_then(|name| name.strip_suffix(AUDIT)?.strip_suffix('.'));
        found.extend(lease.map(str::to_owned));
    }
    // Ids begin with the time.
    found.sort();
    Ok(found)
}

/// Removes the files of a lease whose audit was shipped, or was never begun.
pub(crate) fn remove(folder: &Path, lease_id: &str) -> io::Result<()> {
    fs::remove_file(path(folder, lease_id, AUDIT))?;
    for end in [RULES, NEW] {
        match fs::remove_file(path(folder, lease_id, end)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
