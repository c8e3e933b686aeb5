//! Loads the role's instruction bundle, a folder of Markdown files, once at start.
//!
//! `baseline.md` is the baseline layer; the other `.md` files, in order of their names, are role
//! instructions. Nothing is ever loaded from the other role's bundle.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use subjects::Role;

use crate::config;

const BASELINE: &str = "baseline.md";
const ROLE_MARK: &str = "role:";
/// A larger file would leave a model no room for the work.
pub const MAX_FILE_BYTES: u64 = 64 * 1024;
pub const MAX_BUNDLE_BYTES: u64 = 256 * 1024;

/// The instructions of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    pub path: PathBuf,
    pub baseline: String,
    /// The other files of the bundle, in order of their names.
    pub role_instructions: Vec<String>,
    /// The default interaction skill, for backends that accept skills.
    pub skill: String,
    /// SHA-256 over names and contents: instances with the same hash have the same instructions.
    pub hash: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {what} {path}")]
    Unreadable {
        what: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the instruction bundle {0} has no baseline.md")]
    NoBaseline(PathBuf),
    #[error("the instruction file {0} is empty")]
    Empty(PathBuf),
    #[error("the instruction file {path} has {bytes} bytes; at most {max} are allowed")]
    FileTooLarge { path: PathBuf, bytes: u64, max: u64 },
    #[error("the instruction bundle {path} has {bytes} bytes with {file}; at most {max} are allowed")]
    BundleTooLarge { path: PathBuf, file: PathBuf, bytes: u64, max: u64 },
    #[error("{path} is the bundle of the {}; a {} needs one of its own", .wanted.other(), .wanted)]
    OtherRole { path: PathBuf, wanted: Role },
}

impl Bundle {
    /// Reads and checks the bundle of `role`. Errors name the offending file.
    pub fn load(role: Role, paths: &config::Instructions) -> Result<Self, Error> {
        refuse_other_role(role, paths)?;
        let mut names = Vec::new();
        let unreadable =
            |source| Error::Unreadable { what: "the instruction bundle", path: paths.own.clone(), source };
        for entry in fs::read_dir(&paths.own).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                names.push(path);
            }
        }
        names.sort();
        if !names.iter().any(|path| path.file_name().is_some_and(|name| name == BASELINE)) {
            return Err(Error::NoBaseline(paths.own.clone()));
        }
        let mut digest = Sha256::new();
        let mut total = 0;
        let (mut baseline, mut role_instructions) = (String::new(), Vec::new());
        for path in names {
            let text = read(&path)?;
            total += text.len() as u64;
            if total > MAX_BUNDLE_BYTES {
                let path_of_bundle = paths.own.clone();
                return Err(Error::BundleTooLarge {
                    path: path_of_bundle,
                    file: path,
                    bytes: total,
                    max: MAX_BUNDLE_BYTES,
                });
            }
            let name = path.file_name().unwrap_or_default();
            digest.update(name.as_encoded_bytes());
            digest.update([0]);
            digest.update(text.as_bytes());
            digest.update([0]);
            if name == BASELINE {
                baseline = strip_role_mark(role, &path, text)?;
            } else {
                role_instructions.push(text);
            }
        }
        let skill = read(&paths.skill)?;
        digest.update(skill.as_bytes());
        let hash = HEXLOWER.encode(&digest.finalize());
        Ok(Self { path: paths.own.clone(), baseline, role_instructions, skill, hash })
    }
}

/// P7: refuses the other role's bundle, by whatever path it is reached.
fn refuse_other_role(role: Role, paths: &config::Instructions) -> Result<(), Error> {
    let real = |path: &Path| fs::canonicalize(path).ok();
    match (real(&paths.own), real(&paths.other)) {
        (Some(own), Some(other)) if own == other => {
            Err(Error::OtherRole { path: paths.own.clone(), wanted: role })
        }
        _ => Ok(()),
    }
}

/// Removes the role mark from a baseline.
///
/// A baseline may declare its role in its first line (`<!-- role: project_manager -->`), so that a copy of
/// the other role's bundle is refused. The line is not shown to a model.
fn strip_role_mark(role: Role, path: &Path, text: String) -> Result<String, Error> {
    let Some((first, rest)) = text.split_once('\n') else { return Ok(text) };
    let Some(comment) = first.trim().strip_prefix("<!--").and_then(|line| line.strip_suffix("-->")) else {
        return Ok(text);
    };
    let Some(name) = comment.trim().strip_prefix(ROLE_MARK) else { return Ok(text) };
    if name.trim() != role.as_str() {
        return Err(Error::OtherRole { path: path.parent().unwrap_or(path).to_owned(), wanted: role });
    }
    Ok(rest.trim_start().to_owned())
}

fn read(path: &Path) -> Result<String, Error> {
    let unreadable =
        |source| Error::Unreadable { what: "the instruction file", path: path.to_owned(), source };
    let bytes = fs::metadata(path).map_err(unreadable)?.len();
    if bytes > MAX_FILE_BYTES {
        return Err(Error::FileTooLarge { path: path.to_owned(), bytes, max: MAX_FILE_BYTES });
    }
    let text = fs::read_to_string(path).map_err(unreadable)?;
    if text.trim().is_empty() {
        return Err(Error::Empty(path.to_owned()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
