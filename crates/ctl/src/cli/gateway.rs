//! Commands to the gateway.

use std::{path::PathBuf, time::Duration};

use api::{AgentKind, Effect, LeaseState, Scope, TokenKind, TokenState};
use clap::{Args, Subcommand};
use serde::de::{DeserializeOwned, IntoDeserializer, value};
use subjects::{PreferenceScope, ScopeId};

/// Parses one of the names that a body of the admin API may contain.
pub(super) fn named<T: DeserializeOwned>(text: &str) -> Result<T, value::Error> {
    T::deserialize(text.into_deserializer())
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GatewayLink {
    /// URL of the gateway's admin API.
    #[arg(long, global = true, env = "CYNODE_GATEWAY", default_value = "http://127.0.0.1:8791")]
    pub(crate) gateway: String,

    /// File with an admin or user token; .cynode/gateway/admin.token by default, if it exists.
    #[arg(long, global = true, value_name = "FILE", env = "CYNODE_ADMIN_TOKEN_FILE")]
    pub(crate) admin_token_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tools {
    /// List tools with their upstream and scope.
    List,
    /// Show a tool and its input schema.
    Show {
        /// Tool name.
        name: String,
    },
    /// Enable a tool.
    Enable {
        /// Tool name.
        name: String,
    },
    /// Disable a tool: it is no longer listed or callable, effective immediately.
    Disable {
        /// Tool name.
        name: String,
    },
    /// Set which agents may call a tool.
    Scope {
        /// Tool name.
        name: String,
        /// sandbox, pm or both.
        #[arg(value_parser = named::<Scope>)]
        scope: Scope,
    },
    /// Set whether a call with an unknown outcome may be repeated.
    SafeToRepeat {
        /// Tool name.
        name: String,
        /// true or false.
        #[arg(action = clap::ArgAction::Set)]
        safe: bool,
    },
    /// Set whether a tool only reads, or has effects.
    Does {
        /// Tool name.
        name: String,
        /// read, write, or as-offered to use the upstream's own hint.
        #[arg(value_parser = ["read", "write", "as-offered"])]
        does: String,
    },
    /// List tools that need approval.
    Quarantine,
    /// Show what changed in a tool that needs approval.
    Diff {
        /// Tool name as in `tools quarantine`, or server/tool.
        name: String,
    },
    /// Approve the current definition of a tool.
    Approve {
        /// Tool name as in `tools quarantine`, or server/tool.
        name: String,
        /// Approve only the definition with this hash, as shown by `tools diff`.
        #[arg(long)]
        hash: Option<String>,
        /// Do not prompt for confirmation.
        #[arg(long, short)]
        yes: bool,
    },
    /// Reject the current definition of a tool.
    Reject {
        /// Tool name as in `tools quarantine`, or server/tool.
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tokens {
    /// Issue a token. Its secret is printed once.
    Issue {
        /// project_manager, project_analyst, sandbox, orchestrator, node, workflow, admin or user.
        #[arg(value_parser = named::<TokenKind>)]
        agent: TokenKind,
        /// Label that people recognise it by.
        #[arg(long)]
        label: String,
        /// User of a user token; user as which an administrator chats; with --task, binds the token of a
        /// project_analyst or sandbox to a user and a task.
        #[arg(long, value_name = "ID")]
        user: Option<String>,
        /// With --user, binds a token of a project_analyst or sandbox to a task.
        #[arg(long, value_name = "ID")]
        task: Option<String>,
        /// For a node token: id of the only node that may use it.
        #[arg(long, value_name = "ID")]
        node: Option<String>,
        /// The only memory profile of the agent's calls; by default each call names its own.
        #[arg(long, value_name = "NAME")]
        profile: Option<String>,
        /// Lifetime; 1day for a token that is bound to a task and 30days otherwise, by default.
        #[arg(long, value_name = "DURATION")]
        lives: Option<String>,
        /// Write the secret to this new file, readable by its owner only.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// List tokens, newest first.
    List {
        /// Filter by state: active, expired or revoked.
        #[arg(long, value_parser = named::<TokenState>)]
        state: Option<TokenState>,
    },
    /// Revoke a token, effective immediately.
    Revoke {
        /// Id of the token.
        id: String,
    },
    /// Replace the admin token in the gateway's file and in --admin-token-file; the old one is revoked
    /// immediately.
    RotateAdmin,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Leases {
    /// Issue a lease. Its signed text is printed once.
    Issue(Box<NewLease>),
    /// List leases, newest first.
    #[command(visible_alias = "ls")]
    List {
        /// Filter by state: active, renewable, ended or revoked.
        #[arg(long, value_parser = named::<LeaseState>)]
        state: Option<LeaseState>,
        /// Filter by user.
        #[arg(long, value_name = "ID")]
        user: Option<String>,
        /// Filter by task.
        #[arg(long, value_name = "ID")]
        task: Option<String>,
        /// Filter by handoff.
        #[arg(long, value_name = "ID")]
        handoff: Option<String>,
        /// Maximum number of leases; at most 1000.
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1000))]
        limit: u64,
    },
    /// Show a lease.
    Show {
        /// Id of the lease.
        id: String,
    },
    /// Revoke a lease and those that were issued under it, effective immediately.
    Revoke {
        /// Id of the lease.
        id: String,
    },
}

#[derive(Args, Debug)]
pub(crate) struct NewLease {
    /// project_manager, project_analyst or sandbox.
    #[arg(value_parser = named::<AgentKind>)]
    pub(crate) agent: AgentKind,
    /// User on whose behalf the agent acts.
    #[arg(long, value_name = "ID")]
    pub(crate) user: String,
    /// Project that the agent is confined to.
    #[arg(long, value_name = "ID")]
    pub(crate) project: Option<String>,
    /// Task that the agent is confined to; required for project_analyst and sandbox.
    #[arg(long, value_name = "ID")]
    pub(crate) task: Option<String>,
    /// Handoff that the lease is for.
    #[arg(long, value_name = "ID")]
    pub(crate) handoff: Option<String>,
    /// Tool name, or a prefix followed by `*`. Repeatable; all tools of the agent type by default.
    #[arg(long = "tool", value_name = "NAME")]
    pub(crate) tools: Vec<String>,
    /// Time after which it must be renewed. Default and maximum: leases.lifetime of the gateway.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub(crate) lives: Option<Duration>,
    /// Time for which it can be renewed. Default and maximum: leases.renewable_for of the gateway.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub(crate) renewable: Option<Duration>,
    /// Write the signed lease to this new file, readable by its owner only.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Upstreams {
    /// Add an upstream MCP server: --url for HTTP, or a program and its arguments after `--` for stdio.
    Add(Box<NewUpstream>),
    /// List upstreams with their state.
    List,
    /// Show an upstream.
    Show {
        /// Namespace of the upstream.
        namespace: String,
    },
    /// Remove an upstream and its tools, effective immediately.
    Remove {
        /// Namespace of the upstream.
        namespace: String,
        /// Do not prompt for confirmation.
        #[arg(long, short)]
        yes: bool,
    },
    /// List the upstream's tools again.
    Refresh {
        /// Namespace of the upstream.
        namespace: String,
    },
    /// Enable an upstream.
    Enable {
        /// Namespace of the upstream.
        namespace: String,
    },
    /// Disable an upstream and keep its configuration.
    Disable {
        /// Namespace of the upstream.
        namespace: String,
    },
}

#[derive(Args, Debug)]
pub(crate) struct NewUpstream {
    /// Namespace; tools are named `<namespace>.<tool>`.
    pub(crate) namespace: String,
    /// URL of an HTTP server.
    #[arg(long, required_unless_present = "program", conflicts_with = "program")]
    pub(crate) url: Option<String>,
    /// File on the gateway's machine with the server's bearer token.
    #[arg(long, value_name = "FILE", requires = "url")]
    pub(crate) token_file: Option<String>,
    /// Program that serves MCP over stdio, with its arguments, after `--`.
    #[arg(last = true)]
    pub(crate) program: Vec<String>,
    /// Environment variable of the program. Repeatable.
    #[arg(long, value_name = "NAME=VALUE", requires = "program")]
    pub(crate) env: Vec<String>,
    /// Environment variable whose value is read from a file. Repeatable.
    #[arg(long, value_name = "NAME=FILE", requires = "program")]
    pub(crate) secret_env: Vec<String>,
    /// Working directory of the program.
    #[arg(long, value_name = "DIR", requires = "program")]
    pub(crate) folder: Option<String>,
    /// Do not prefix tool names with the namespace.
    #[arg(long)]
    pub(crate) no_prefix: bool,
    /// Which agents may call its tools: sandbox, pm or both.
    #[arg(long, default_value = "both", value_parser = named::<Scope>)]
    pub(crate) scope: Scope,
    /// Timeout of a call.
    #[arg(long, value_name = "DURATION")]
    pub(crate) call_timeout: Option<String>,
    /// Maximum number of concurrent calls.
    #[arg(long)]
    pub(crate) concurrency: Option<u32>,
    /// User who owns the upstream.
    #[arg(long, value_name = "ID")]
    pub(crate) owner: Option<String>,
    /// Approve its current tools without review.
    #[arg(long)]
    pub(crate) trust_first: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Rules {
    /// List rules in evaluation order. The first match decides.
    List,
    /// Add a rule.
    Add {
        /// allow or deny.
        #[arg(value_parser = named::<Effect>)]
        effect: Effect,
        /// Tool name, or a prefix followed by *.
        tool: String,
        /// Match only this agent type: project_manager, project_analyst or sandbox.
        #[arg(long, value_parser = named::<AgentKind>)]
        agent: Option<AgentKind>,
        /// Match only agents that act for this user.
        #[arg(long, value_name = "ID")]
        user: Option<String>,
        /// JSON pointer of an argument, such as /url.
        #[arg(long, value_name = "POINTER", requires = "matches")]
        argument: Option<String>,
        /// Glob that the argument must match; * matches any characters.
        #[arg(long, value_name = "GLOB", requires = "argument")]
        matches: Option<String>,
        /// Reason for the rule.
        #[arg(long, default_value = "")]
        note: String,
        /// Position, counted from one; last by default.
        #[arg(long)]
        position: Option<usize>,
    },
    /// Remove a rule.
    Remove {
        /// Id of the rule.
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Settings {
    /// List settings.
    List,
    /// Show a setting.
    Get {
        /// Key of the setting.
        key: String,
    },
    /// Set a setting, such as `profile.team-a.network true`.
    Set {
        /// Key of the setting.
        key: String,
        /// JSON value; anything that is not JSON is stored as a string.
        value: String,
        /// Expected current version; 0 if it must not exist.
        #[arg(long)]
        version: Option<i64>,
    },
    /// Delete a setting.
    Delete {
        /// Key of the setting.
        key: String,
        /// Expected current version.
        #[arg(long)]
        version: Option<i64>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Preferences {
    /// List preferences.
    List {
        /// Filter by scope: system, group, user, project or task.
        #[arg(long, value_parser = named::<PreferenceScope>)]
        scope: Option<PreferenceScope>,
        /// Filter by the id of the group, user, project or task.
        #[arg(long, value_name = "ID")]
        scope_id: Option<String>,
    },
    /// Set a preference.
    Set {
        /// Key of the preference.
        key: String,
        /// JSON value; anything that is not JSON is stored as a string. null hides the value of wider scopes.
        value: String,
        #[command(flatten)]
        at: PreferenceAt,
    },
    /// Delete a preference.
    Delete {
        /// Key of the preference.
        key: String,
        #[command(flatten)]
        at: PreferenceAt,
    },
}

#[derive(Args, Debug)]
pub(crate) struct PreferenceAt {
    /// system, group, user, project or task.
    #[arg(long, value_parser = named::<PreferenceScope>)]
    pub(crate) scope: PreferenceScope,
    /// Id of the group, user, project or task; not for the scope system.
    #[arg(long, value_name = "ID")]
    pub(crate) scope_id: Option<ScopeId>,
    /// Expected current version; 0 if it must not exist.
    #[arg(long)]
    pub(crate) version: Option<i64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// Print rows as they are written.
    Tail {
        /// Start after this row.
        #[arg(long, value_name = "SEQ")]
        after: Option<i64>,
        /// Exit after this time.
        #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration)]
        duration: Option<Duration>,
    },
    /// Query rows, newest first.
    Query(Box<Query>),
    /// Verify the hash chain and the signed heads.
    Verify(Verify),
    /// Export all rows as JSON lines.
    Export {
        /// Output file; standard output by default.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Query {
    /// Tool name, or a prefix followed by *.
    #[arg(long)]
    pub(crate) tool: Option<String>,
    /// project_manager, project_analyst, sandbox, orchestrator, node, workflow, admin, user or unknown.
    #[arg(long)]
    pub(crate) agent: Option<String>,
    /// allow or deny.
    #[arg(long)]
    pub(crate) decision: Option<String>,
    /// success, failure, denied, replayed or unknown.
    #[arg(long)]
    pub(crate) status: Option<String>,
    /// Error type, such as key_reused.
    #[arg(long)]
    pub(crate) error_type: Option<String>,
    /// Id of the token.
    #[arg(long, value_name = "ID")]
    pub(crate) token: Option<String>,
    /// Id of the user.
    #[arg(long, value_name = "ID")]
    pub(crate) user: Option<String>,
    /// Id of the task.
    #[arg(long, value_name = "ID")]
    pub(crate) task: Option<String>,
    /// Id of the call.
    #[arg(long, value_name = "ID")]
    pub(crate) call: Option<String>,
    /// Trace id.
    #[arg(long, value_name = "ID")]
    pub(crate) trace: Option<String>,
    /// Lease id.
    #[arg(long, value_name = "ID")]
    pub(crate) lease: Option<String>,
    /// Memory profile, other than default.
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Maximum age, such as 1h.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub(crate) since: Option<Duration>,
    /// Only rows before this one.
    #[arg(long, value_name = "SEQ")]
    pub(crate) before: Option<i64>,
    /// Maximum number of rows.
    #[arg(long, default_value_t = 50)]
    pub(crate) limit: u64,
}

#[derive(Args, Debug)]
pub(crate) struct Verify {
    /// Verify a file written by `audit export`, offline.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// File with signed heads, as JSON lines.
    #[arg(long, value_name = "FILE")]
    pub(crate) heads: Option<PathBuf>,
    /// Require the heads stored in NATS. By default they are used if NATS is reachable.
    #[arg(long)]
    pub(crate) nats: bool,
    /// Public key that must have signed heads, as printed by cynode-gateway at start-up. Repeatable, for
    /// several gateways on one store; heads of other keys are then ignored.
    #[arg(long, value_name = "NKEY")]
    pub(crate) key: Vec<String>,
    /// Ignore heads that are newer than the file.
    #[arg(long, requires = "file")]
    pub(crate) older: bool,
}
