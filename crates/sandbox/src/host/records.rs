//! What a node writes down about a job before it makes anything for it, so that its next start can remove it.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::cgroup::Group;

const FILE: &str = "record.json";

/// What may exist on this machine for a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The engine, as it prints.
    pub(crate) engine: String,
    /// The container, pod or bundle.
    pub(crate) name: String,
    pub(crate) group: Option<Group>,
    /// The processes of the engine beside the job.
    pub(crate) engine_group: Option<Group>,
    /// A folder on which the node mounted something.
    pub(crate) mount: Option<PathBuf>,
}

/// The folder of a job: its record, and files that its engine reads. Removed with the job.
#[derive(Debug)]
pub(crate) struct JobFolder(PathBuf);

impl JobFolder {
    /// Makes the folder and its record. Fails if there is one, since the job then runs already.
    pub(crate) fn create(jobs: &Path, id: &str, record: &Record) -> io::Result<Self> {
        let folder = jobs.join(id);
        DirBuilder::new().mode(0o700).create(&folder)?;
        let folder = Self(folder);
        let written = serde_json::to_vec(record).map_err(io::Error::other);
        match written.and_then(|text| fs::write(folder.path().join(FILE), text)) {
            Ok(()) => Ok(folder),
            Err(error) => {
                folder.remove();
                Err(error)
            }
        }
    }

    /// Lists the folders that an earlier process left. An unreadable record means that nothing was made.
    pub(crate) fn left(jobs: &Path) -> io::Result<Vec<(Self, Option<Record>)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(jobs)? {
            let folder = Self(entry?.path());
            let text = fs::read(folder.path().join(FILE)).ok();
            found.push((folder, text.and_then(|text| serde_json::from_slice(&text).ok())));
        }
        Ok(found)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn remove(&self) {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(folder = %self.0.display(), %error, "Job folder not removed.");
            }
            _ => {}
        }
    }
}
