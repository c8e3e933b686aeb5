use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};

#[derive(Args, Debug)]
pub(crate) struct GatewayLink {
    /// Where the gateway is administered.
    #[arg(long, global = true, env = "CYNODE_GATEWAY", default_value = "http://127.0.0.1:8791")]
    pub(crate) gateway: String,

    /// File with the token of an administrator or a user; .cynode/gateway/admin.token when it is there.
    #[arg(long, global = true, value_name = "FILE", env = "CYNODE_ADMIN_TOKEN_FILE")]
    pub(crate) admin_token_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tools {
    /// List them, with where they come from and who they are for.
    List,
    /// Show one, with what it takes.
    Show { name: String },
    /// Switch one on.
    Enable { name: String },
    /// Switch one off: it is neither listed nor callable, at once.
    Disable { name: String },
    /// Say which agents it is for: sandbox, pm or both.
    Scope { name: String, scope: String },
    /// Say whether calling it twice does no harm.
    SafeToRepeat {
        name: String,
        #[arg(action = clap::ArgAction::Set)]
        safe: bool,
    },
    /// Say whether it only reads: read, write, or as-offered for what its server says.
    Does {
        name: String,
        #[arg(value_parser = ["read", "write", "as-offered"])]
        does: String,
    },
    /// List those that wait for approval.
    Quarantine,
    /// Show what changed about one.
    Diff {
        /// Its name as in `tools quarantine`, or server/tool.
        name: String,
    },
    /// Serve what its server offers now.
    Approve {
        /// Its name as in `tools quarantine`, or server/tool.
        name: String,
        /// Only if it is still what was looked at, as `tools diff` tells.
        #[arg(long)]
        hash: Option<String>,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
    /// Keep it out.
    Reject {
        /// Its name as in `tools quarantine`, or server/tool.
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tokens {
    /// Make one. Its secret is printed this once.
    Issue {
        /// project_manager, project_analyst, sandbox, admin or user.
        agent: String,
        /// By which people know it.
        #[arg(long)]
        label: String,
        /// Whose it is; for project_analyst, sandbox and user.
        #[arg(long, value_name = "ID")]
        user: Option<String>,
        /// What it is good for; for project_analyst and sandbox.
        #[arg(long, value_name = "ID")]
        task: Option<String>,
        /// How long it is good: 1day when it is bound to a task and 30days otherwise, when not given.
        #[arg(long, value_name = "DURATION")]
        lives: Option<String>,
        /// Write the secret to this file, which must not be there yet, for its owner alone.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// List them, newest first.
    List {
        /// Only active, expired or revoked ones.
        #[arg(long)]
        state: Option<String>,
    },
    /// Make one worthless, at once.
    Revoke { id: String },
    /// Replace the first administrator's token, in the gateway's file and in --admin-token-file; the old one is refused at once.
    RotateAdmin,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Upstreams {
    /// Install a server and ask what it offers: --url for one over HTTP, or a program and its arguments after `--`.
    Add(Box<NewUpstream>),
    /// List them, with how they are.
    List,
    /// Show one.
    Show { namespace: String },
    /// Remove one with its tools: neither listed nor callable, at once.
    Remove {
        namespace: String,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
    /// Ask it what it offers now.
    Refresh { namespace: String },
    /// Use it again.
    Enable { namespace: String },
    /// Use it no more, and keep what is known about it.
    Disable { namespace: String },
}

#[derive(Args, Debug)]
pub(crate) struct NewUpstream {
    /// Its tools are called `<namespace>.<tool>`.
    pub(crate) namespace: String,
    #[arg(long, required_unless_present = "program", conflicts_with = "program")]
    pub(crate) url: Option<String>,
    /// File on the gateway's machine with the server's bearer token.
    #[arg(long, value_name = "FILE", requires = "url")]
    pub(crate) token_file: Option<String>,
    /// A program that speaks MCP on standard input and output, after `--`.
    #[arg(last = true)]
    pub(crate) program: Vec<String>,
    /// Variable for the program. May be given more than once.
    #[arg(long, value_name = "NAME=VALUE", requires = "program")]
    pub(crate) env: Vec<String>,
    /// Variable whose value is in a file. May be given more than once.
    #[arg(long, value_name = "NAME=FILE", requires = "program")]
    pub(crate) secret_env: Vec<String>,
    /// Where the program runs.
    #[arg(long, value_name = "DIR", requires = "program")]
    pub(crate) folder: Option<String>,
    /// Leave the names of its tools as they are.
    #[arg(long)]
    pub(crate) no_prefix: bool,
    /// Which agents may call its tools: sandbox, pm or both.
    #[arg(long, default_value = "both")]
    pub(crate) scope: String,
    #[arg(long, value_name = "DURATION")]
    pub(crate) call_timeout: Option<String>,
    /// How many calls run at a time.
    #[arg(long)]
    pub(crate) concurrency: Option<u32>,
    /// The user whose server it is.
    #[arg(long, value_name = "ID")]
    pub(crate) owner: Option<String>,
    /// Approve what it offers, without a look at it.
    #[arg(long)]
    pub(crate) trust_first: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Rules {
    /// List them in the order in which they are asked. The first that applies decides.
    List,
    /// Add one.
    Add {
        /// allow or deny.
        effect: String,
        /// A tool, or the beginning of names followed by *.
        tool: String,
        /// Only for project_manager, project_analyst or sandbox.
        #[arg(long)]
        agent: Option<String>,
        /// Only for agents that act for this user.
        #[arg(long, value_name = "ID")]
        user: Option<String>,
        /// An argument of the call, as /url.
        #[arg(long, value_name = "POINTER", requires = "matches")]
        argument: Option<String>,
        /// What that argument looks like; * stands for any run of characters.
        #[arg(long, value_name = "GLOB", requires = "argument")]
        matches: Option<String>,
        /// Why there is this rule.
        #[arg(long, default_value = "")]
        note: String,
        /// Where to put it, counting from one; at the end when not given.
        #[arg(long)]
        position: Option<usize>,
    },
    /// Remove one.
    Remove { id: String },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Settings {
    /// List them.
    List,
    /// Show one.
    Get { key: String },
    /// Set one.
    Set {
        key: String,
        /// JSON; what is no JSON is taken as text.
        value: String,
        /// Only if this is its version now; 0 means that it is not set.
        #[arg(long)]
        version: Option<i64>,
    },
    /// Delete one.
    Delete {
        key: String,
        /// Only if this is its version now.
        #[arg(long)]
        version: Option<i64>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Preferences {
    /// List them.
    List {
        /// Only of this scope: system, group, user, project or task.
        #[arg(long)]
        scope: Option<String>,
        /// Only of this group, user, project or task.
        #[arg(long, value_name = "ID")]
        scope_id: Option<String>,
    },
    /// Set one.
    Set {
        key: String,
        /// JSON; what is no JSON is taken as text. null hides what wider scopes have.
        value: String,
        #[command(flatten)]
        at: PreferenceAt,
    },
    /// Delete one.
    Delete {
        key: String,
        #[command(flatten)]
        at: PreferenceAt,
    },
}

#[derive(Args, Debug)]
pub(crate) struct PreferenceAt {
    /// system, group, user, project or task.
    #[arg(long)]
    pub(crate) scope: String,
    /// The group, user, project or task; not for the system's scope.
    #[arg(long, value_name = "ID")]
    pub(crate) scope_id: Option<String>,
    /// Only if this is its version now; 0 means that it is not set.
    #[arg(long)]
    pub(crate) version: Option<i64>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// Show rows as they come.
    Tail {
        /// Begin after this row.
        #[arg(long, value_name = "SEQ")]
        after: Option<i64>,
        /// End after this time.
        #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration)]
        duration: Option<Duration>,
    },
    /// Look rows up, newest first.
    Query(Query),
    /// Check that no row was changed, taken out or moved, and that the chain is the one that was signed.
    Verify(Verify),
    /// Write the whole chain, one line of JSON for each row.
    Export {
        /// To this file instead of standard output.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Query {
    /// A tool, or the beginning of names followed by *.
    #[arg(long)]
    pub(crate) tool: Option<String>,
    /// project_manager, project_analyst, sandbox, admin, user or unknown.
    #[arg(long)]
    pub(crate) agent: Option<String>,
    /// allow or deny.
    #[arg(long)]
    pub(crate) decision: Option<String>,
    /// success, failure, denied, replayed or unknown.
    #[arg(long)]
    pub(crate) status: Option<String>,
    #[arg(long)]
    pub(crate) error_type: Option<String>,
    /// The id of a token.
    #[arg(long, value_name = "ID")]
    pub(crate) token: Option<String>,
    #[arg(long, value_name = "ID")]
    pub(crate) user: Option<String>,
    #[arg(long, value_name = "ID")]
    pub(crate) task: Option<String>,
    #[arg(long, value_name = "ID")]
    pub(crate) call: Option<String>,
    #[arg(long, value_name = "ID")]
    pub(crate) trace: Option<String>,
    /// Not older than this, as 1h.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub(crate) since: Option<Duration>,
    /// Only rows before this one.
    #[arg(long, value_name = "SEQ")]
    pub(crate) before: Option<i64>,
    #[arg(long, default_value_t = 50)]
    pub(crate) limit: u64,
}

#[derive(Args, Debug)]
pub(crate) struct Verify {
    /// Verify what `audit export` wrote, without asking the gateway.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Signed heads that were kept elsewhere, one line of JSON for each.
    #[arg(long, value_name = "FILE")]
    pub(crate) heads: Option<PathBuf>,
    /// Insist on the heads that NATS keeps. Without this they are used when NATS can be reached.
    #[arg(long)]
    pub(crate) nats: bool,
    /// The public key that must have signed, as cynode-gateway tells when it is started.
    #[arg(long, value_name = "NKEY")]
    pub(crate) key: Option<String>,
    /// The file is older than the heads: take those of the rows that it has.
    #[arg(long, requires = "file")]
    pub(crate) older: bool,
}
