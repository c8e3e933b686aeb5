use std::path::PathBuf;

use figment::Figment;

/// What is wrong with the configuration, and what would be right.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "no role: say which with --role=project_manager or --role=project_analyst, `role` in the configuration file, \
         or PMA_ROLE"
    )]
    NoRole,
    #[error("{key} (from {source_name}): {problem}")]
    Value { key: String, source_name: String, problem: String },
    #[error("unknown setting {name}; `cynode-pma config` lists all settings")]
    UnknownVariable { name: String },
    #[error(
        "{name} is set in the environment: a worker holds no provider's key. Unset it; external models are reached \
         through inference.egress_url, and the key belongs there"
    )]
    ProviderKey { name: String },
    #[error("--set takes key=value, as in --set worker.ack_wait=30s; found `{0}`")]
    Override(String),
    #[error("cannot read the configuration file {0}")]
    File(PathBuf, #[source] std::io::Error),
}

impl Error {
    /// A value that is not acceptable, with the place it came from.
    pub(super) fn value(figment: &Figment, key: &str, problem: impl Into<String>) -> Self {
        Self::Value { key: key.to_owned(), source_name: source_of(figment, key), problem: problem.into() }
    }

    /// What figment says when types do not match or a key does not exist.
    pub(super) fn from_figment(figment: &Figment, error: figment::Error) -> Self {
        let first = error.into_iter().next();
        let Some(error) = first else {
            return Self::Value {
                key: "?".into(),
                source_name: "?".into(),
                problem: "cannot be read".into(),
            };
        };
        let key = error.path.join(".");
        let source_name = match &error.metadata {
            Some(metadata) => name_of(metadata, &key),
            None => source_of(figment, &key),
        };
        let problem = match error.kind {
            // P15: refused by name, with the way out.
            figment::error::Kind::UnknownField(field, _)
                if field.ends_with("key") || field.ends_with("_token") =>
            {
                format!(
                    "`{field}` is refused: a worker holds no provider's key. External models are reached through \
                     inference.egress_url; our own tokens come from files (`*_token_file`, `token_file`)"
                )
            }
            figment::error::Kind::UnknownField(field, known) => {
                format!("`{field}` is not a setting here; there are {}", known.join(", "))
            }
            other => other.to_string(),
        };
        Self::Value { key: if key.is_empty() { "configuration".into() } else { key }, source_name, problem }
    }
}

/// Where a value came from, in words.
pub(super) fn source_of(figment: &Figment, key: &str) -> String {
    figment.find_metadata(key).map_or_else(|| "default".to_owned(), |metadata| name_of(metadata, key))
}

fn name_of(metadata: &figment::Metadata, key: &str) -> String {
    let keys: Vec<&str> = key.split('.').collect();
    match (&metadata.source, &*metadata.name) {
        (Some(figment::Source::File(path)), _) => format!("file {}", path.display()),
        (_, super::environment::NAME) => {
            format!("environment {}", metadata.interpolate(&figment::Profile::Default, &keys))
        }
        (_, super::cli::NAME) => "flag".to_owned(),
        _ => "default".to_owned(),
    }
}
