//! What is wrong with a setting, where it came from, and what would be right.

use std::path::PathBuf;

use figment::{Figment, error::Kind};

use crate::{
    Program,
    sources::{name_of, source_of},
};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{key} (from {source_name}): {problem}")]
    Value { key: String, source_name: String, problem: String },
    #[error("unknown setting {name}; `{program} config` lists all settings")]
    UnknownVariable { name: String, program: &'static str },
    #[error("--set takes key=value, as in --set telemetry.log_level=debug; found `{0}`")]
    Override(String),
    #[error("cannot read the configuration file {}", .0.display())]
    File(PathBuf, #[source] std::io::Error),
    /// A reason of the program's own.
    #[error("{0}")]
    Refused(String),
}

impl Error {
    /// Refuses a value and names its source.
    pub(crate) fn value(figment: &Figment, key: &str, problem: impl Into<String>) -> Self {
        Self::Value { key: key.to_owned(), source_name: source_of(figment, key), problem: problem.into() }
    }

    /// Translates what figment reports when types do not match or a key does not exist.
    pub(crate) fn from_figment(program: &Program, figment: &Figment, error: figment::Error) -> Self {
        let Some(error) = error.into_iter().next() else {
            return Self::value(figment, "configuration", "cannot be read");
        };
        let key = error.path.join(".");
        let source_name = match &error.metadata {
            Some(metadata) => name_of(metadata, &key),
            None => source_of(figment, &key),
        };
        let problem = match error.kind {
            Kind::UnknownField(field, known) => (program.explain_unknown)(&field).unwrap_or_else(|| {
                format!("`{field}` is not a setting here; there are {}", known.join(", "))
            }),
            other => other.to_string(),
        };
        Self::Value { key: if key.is_empty() { "configuration".into() } else { key }, source_name, problem }
    }
}
