use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::policy::is_public_address;

/// How a server is reached. This is what the store keeps, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    Http(Http),
    Stdio(Stdio),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Http {
    /// http or https, without a name or password in it.
    pub url: String,
    /// A file of the gateway's machine with the server's bearer token. For administrators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<String>,
    /// Where the server may be. `public` when a user installs it, `anywhere` when an administrator does and says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<Reach>,
}

/// Where a server may be. This is decided by address whenever a connection is made, not by the text of the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// At public addresses alone.
    Public,
    /// Also inside. For administrators.
    Anywhere,
}

/// A program that speaks MCP on its standard input and output. For administrators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Stdio {
    /// The program and its arguments. No shell reads them.
    pub argv: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// As `env`, but each value is a file whose content the program gets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_env: BTreeMap<String, String>,
    /// Where it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
}

impl Transport {
    /// `has_owner`: a user's server whose row does not say where it may be is held to public addresses.
    pub(super) fn into_upstream(
        self,
        stdio: bool,
        has_owner: bool,
    ) -> Result<upstream::Transport, upstream::Error> {
        match self {
            Self::Http(Http { url, token_file, reach }) => {
                let addresses: Option<mcp::AddressFilter> = match reach {
                    Some(Reach::Anywhere) => None,
                    None if !has_owner => None,
                    Some(Reach::Public) | None => Some(is_public_address),
                };
                Ok(upstream::Transport::Http { url, token_file: token_file.map(Into::into), addresses })
            }
            Self::Stdio(_) if !stdio => {
                Err(upstream::Error::Options("this gateway starts no processes (upstreams.stdio)".to_owned()))
            }
            Self::Stdio(Stdio { argv, env, secret_env, folder }) => {
                let secret_env = secret_env.into_iter().map(|(name, file)| (name, file.into())).collect();
                Ok(upstream::Transport::Stdio { argv, env, secret_env, folder: folder.map(Into::into) })
            }
        }
    }
}
