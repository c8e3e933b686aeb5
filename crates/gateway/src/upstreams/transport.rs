use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

/// How a server is reached. Secrets are named by file, and never come from a caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema, utoipa::ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Transport {
    Http {
        url: String,
        /// Holds the bearer token for this server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>)]
        token_file: Option<PathBuf>,
    },
    Stdio {
        /// Program and arguments; no shell reads them.
        argv: Vec<String>,
        #[serde(default)]
        env: BTreeMap<String, String>,
        /// Variables whose values are in files.
        #[serde(default)]
        #[schema(value_type = BTreeMap<String, String>)]
        secret_env: BTreeMap<String, PathBuf>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>)]
        folder: Option<PathBuf>,
    },
}

impl Transport {
    pub(super) fn into_upstream(self, stdio: bool) -> Result<upstream::Transport, upstream::Error> {
        match self {
            Self::Http { url, token_file } => Ok(upstream::Transport::Http { url, token_file }),
            Self::Stdio { .. } if !stdio => {
                Err(upstream::Error::Options("this gateway starts no processes (upstreams.stdio)".to_owned()))
            }
            Self::Stdio { argv, env, secret_env, folder } => {
                Ok(upstream::Transport::Stdio { argv, env, secret_env, folder })
            }
        }
    }
}
