//! How an upstream is reached, as the store keeps it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use policy::is_public_address;

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
    /// Which addresses are allowed. Default: `public` if a user installs it, `anywhere` if an administrator
    /// does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<Reach>,
}

/// Which addresses are allowed. Checked for every connection by address, not by the text of the URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// Public addresses only.
    Public,
    /// Internal addresses too. For administrators.
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
    /// Converts into the options of a connection. `has_owner`: an upstream of a user without a configured
    /// reach is restricted to public addresses. Fails for a program if `stdio` is off.
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
