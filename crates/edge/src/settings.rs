//! What the node configures.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use nkeys::KeyPair;
use policy::FAMILIES;
use serde::{Deserialize, Serialize};
use subjects::NodeId;
use upstream::{Breaker, Options, Transport};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const BREAKER: Breaker = Breaker { failures: 5, open_for: Duration::from_secs(10) };

/// Settings of [`Edge::open`](crate::Edge::open).
#[derive(Clone)]
pub struct EdgeSettings {
    /// Holds the audit files. Only this process may use it.
    pub folder: PathBuf,
    pub node: NodeId,
    /// Signs the audit. Its public key is the holder of the node's leases.
    pub key: KeyPair,
    /// Calls the gateway with the node's token.
    pub gateway: mcp::Client,
    /// The only keys whose leases are accepted. If empty: those of the leases that the gateway issued.
    pub trusted_keys: Vec<String>,
    pub upstreams: Vec<UpstreamSettings>,
    pub limits: EdgeLimits,
}

impl std::fmt::Debug for EdgeSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EdgeSettings")
            .field("folder", &self.folder)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug)]
pub struct EdgeLimits {
    /// How many lines the audit of a lease may have. The gateway may grant fewer.
    pub audit_lines: u64,
    /// How large the audit file of a lease may be.
    pub audit_bytes: u64,
    /// How long a lease lasts before it must be renewed: what a node that is cut off may use.
    pub lifetime: Duration,
    /// Calls of one job that run at the same time.
    pub concurrency: usize,
    /// Connections to the endpoint of one job.
    pub connections: usize,
    pub max_request_bytes: usize,
    /// Idempotency keys that may be used under one lease for tools of this node.
    pub keys: usize,
    /// How large the answers to them may be that are kept for repeated calls, in all.
    pub key_answer_bytes: usize,
    /// How long `lease.bind` is repeated while the gateway is away.
    pub bind_patience: Duration,
}

impl Default for EdgeLimits {
    fn default() -> Self {
        Self {
            audit_lines: 100_000,
            audit_bytes: 64 * 1024 * 1024,
            lifetime: Duration::from_secs(600),
            concurrency: 16,
            connections: 64,
            max_request_bytes: 4 * 1024 * 1024,
            // Each call has two lines, so the audit is full before there are more.
            keys: 50_000,
            key_answer_bytes: 4 * 1024 * 1024,
            bind_patience: Duration::from_secs(60),
        }
    }
}

/// An MCP server of this node, as it is written in `node.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamSettings {
    /// Its tools are served as `<namespace>.<tool>`.
    pub namespace: String,
    /// The program and its arguments, for a server on standard input and output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Variables whose values are read from files when the program starts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_env: BTreeMap<String, PathBuf>,
    /// The working folder of the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// The address, for a server over HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    #[serde(default = "default_timeout_seconds")]
    pub timeout_seconds: u64,
    #[serde(default = "default_concurrency")]
    pub concurrency: usize,
    #[serde(default = "default_result_bytes")]
    pub max_result_bytes: usize,
}

fn default_timeout_seconds() -> u64 {
    60
}

fn default_concurrency() -> usize {
    16
}

fn default_result_bytes() -> usize {
    1024 * 1024
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the MCP server `{namespace}` {why}")]
pub struct InvalidUpstream {
    namespace: String,
    why: &'static str,
}

impl UpstreamSettings {
    /// Returns how to reach the server. Fails if the settings contradict each other.
    pub fn options(&self) -> Result<Options, InvalidUpstream> {
        let wrong = |why| InvalidUpstream { namespace: self.namespace.clone(), why };
        let is_letter =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        if !(1..=32).contains(&self.namespace.len()) || !self.namespace.bytes().all(is_letter) {
            return Err(wrong("needs a namespace of 1 to 32 characters of a-z 0-9 - _"));
        }
        if FAMILIES.contains(&self.namespace.as_str()) {
            return Err(wrong(
                "has the name of a family of the gateway's own tools; choose another namespace",
            ));
        }
        let transport = match (&self.url, self.command.is_empty()) {
            (Some(url), true) => {
                Transport::Http { url: url.clone(), token_file: self.token_file.clone(), addresses: None }
            }
            (None, false) => Transport::Stdio {
                argv: self.command.clone(),
                env: self.env.clone(),
                secret_env: self.secret_env.clone(),
                folder: self.folder.clone(),
            },
            _ => return Err(wrong("needs either a `command` or a `url`")),
        };
        Ok(Options {
            name: self.namespace.clone(),
            transport,
            connect_timeout: CONNECT_TIMEOUT,
            call_timeout: Duration::from_secs(self.timeout_seconds.max(1)),
            concurrency: self.concurrency.max(1),
            max_result_bytes: self.max_result_bytes,
            fast_path: true,
            breaker: BREAKER,
        })
    }
}
