//! Settings as they are written: every key, its default and its meaning, and nowhere else.

use settings::{NatsTls, Telemetry, Text, section};

section! {
    pub(crate) struct Raw {
        /// Folder for the store, keys and the first administrator's token.
        data: Text = ".cynode/gateway",
        mcp: Mcp,
        admin: Admin,
        store: Store,
        audit: Audit,
        calls: Calls,
        leases: Leases,
        connections: Connections,
        unauthenticated: Unauthenticated,
        upstreams: Upstreams,
        sandbox: Sandbox,
        memory: Memory,
        workflows: Workflows,
        nats: Nats,
        /// Time that running calls get after SIGTERM.
        grace: Text = "20s",
        telemetry: Telemetry = Telemetry::with_defaults("json", "info"),
    }
}

section! {
    pub(crate) struct Mcp {
        /// Address for agents.
        listen: Text = "127.0.0.1:8790",
        /// Host names under which agents reach the gateway; a request for another name is refused.
        hosts: Vec<String> = local(),
        /// Origins of browsers that may call.
        origins: Vec<String>,
        /// Largest request in bytes. A checkpoint of a workflow with 2 MiB in base64 and its state fits.
        max_body_bytes: Text = "4194304",
        /// Longest time that a request may take to arrive.
        read_timeout: Text = "10s",
        /// Answers tool calls without rmcp's server. Turn it off to compare or to work around a problem; see
        /// [fast paths](fast-paths.md).
        fast_path: Text = "true",
    }
}

section! {
    pub(crate) struct Admin {
        /// Address for administrators: REST, console, `/livez`, `/readyz`, `/metrics`.
        listen: Text = "127.0.0.1:8791",
        /// Host names under which administrators reach it.
        hosts: Vec<String> = local(),
        /// File with the first administrator's token, created if it is missing; default:
        /// `<data>/admin.token`.
        token_file: Option<Text>,
        /// Lifetime of a token created for that file; at most 365 days.
        token_lives: Text = "90days",
        /// Lifetime of a console session.
        session: Text = "12h",
        /// Whether cookies are marked for TLS only.
        https: Text = "false",
        /// Base URL of an orchestrator, such as `http://127.0.0.1:8780/v1`, with which the console chats.
        /// Without it the page *Chat* says how to set it.
        orchestrator_url: Option<Text>,
        /// User that the first administrator is in chats. Other tokens name their user.
        chat_user: Text = "admin",
    }
}

section! {
    pub(crate) struct Store {
        /// `sqlite://<path>` or `postgres://<user>@<host>/<database>`; default: `sqlite://<data>/gateway.db`.
        url: Option<Text>,
        /// Connections to PostgreSQL.
        max_connections: Text = "16",
        /// Longest wait for the store before a call is refused, or, after the tool ran, answered as in doubt.
        patience: Text = "5s",
        /// What a commit of SQLite survives: the end of the `process`, or the loss of `power`, at the price
        /// of the disk.
        durability: Text = "process",
    }
}

section! {
    pub(crate) struct Audit {
        /// nkey seed that signs the heads of the hash chain; default: `<data>/audit.nk`.
        signing_key_file: Option<Text>,
        /// File that signed heads are appended to; default: `<data>/audit-heads.jsonl`.
        head_file: Option<Text>,
        /// How often the head is signed.
        seal_every: Text = "5s",
        /// How long rows are kept: a duration, or `forever`.
        keep: Text = "forever",
        /// Appends rows to SQLite over a connection of their own. Turn it off to compare or to work around a
        /// problem; see [fast paths](fast-paths.md).
        fast_append: Text = "true",
        /// How long after its end a lease of a node may be without the last line of its audit, before an
        /// alarm is raised; see [edge](edge.md).
        node_grace: Text = "5m",
    }
}

section! {
    pub(crate) struct Calls {
        /// A tool result of more bytes is an error.
        max_result_bytes: Text = "1048576",
        /// Calls a second for each token; ten times as many for tokens of orchestrators, nodes and workflow
        /// runners, which call for many.
        per_second: Text = "1000",
        /// How long the answer to an idempotency key is kept.
        keep_keys: Text = "7days",
    }
}

section! {
    pub(crate) struct Leases {
        /// Whether managers need a lease, `optional` or `required`. Analysts and sandboxes always do, unless
        /// their token is bound to a user and a task.
        mode: Text = "optional",
        /// nkey seed that signs leases; default: `<data>/lease.nk`.
        signing_key_file: Option<Text>,
        /// How long a lease lasts before it must be renewed.
        lifetime: Text = "15m",
        /// For how long a lease can be renewed, also after it has expired: the longest time that a handoff
        /// may wait and run.
        renewable_for: Text = "7days",
    }
}

section! {
    pub(crate) struct Connections {
        /// Open connections for each listener.
        max: Text = "1024",
        /// Longest time that the head of a request may take.
        header_timeout: Text = "10s",
        /// Longest silence between requests. Clients should close first: keep it above their idle time.
        idle_timeout: Text = "75s",
    }
}

section! {
    pub(crate) struct Unauthenticated {
        /// Requests a second without a valid token from one address (IPv6: one /64); bursts of five times as
        /// many.
        per_second: Text = "20",
        /// How often the refused requests of an address are summed up in one audit row.
        report_every: Text = "60s",
    }
}

section! {
    pub(crate) struct Upstreams {
        /// Longest time to connect to an upstream server.
        connect_timeout: Text = "5s",
        /// How often the tools of upstream servers are listed again.
        refresh_every: Text = "60s",
        /// Whether upstream servers may be programs that the gateway starts.
        stdio: Text = "true",
        /// Calls tools over HTTP without rmcp's client. Turn it off to compare or to work around a problem;
        /// see [fast paths](fast-paths.md).
        fast_path: Text = "true",
    }
}

section! {
    pub(crate) struct Sandbox {
        limits: SandboxLimits,
        files: SandboxFiles,
    }
}

section! {
    pub(crate) struct SandboxLimits {
        cpu: Limit = Limit::new("1", "4"),
        memory_mb: Limit = Limit::new("512", "4096"),
        pids: Limit = Limit::new("128", "1024"),
        disk_mb: Limit = Limit::new("512", "8192"),
        seconds: Limit = Limit::new("600", "21600"),
        output_kb: Limit = Limit::new("1024", "65536"),
    }
}

section! {
    pub(crate) struct Limit {
        /// Used for a job that does not set this limit. Only `cpu` may be a fraction, as in `0.5`.
        default: Text,
        /// The most that a job may ask for.
        max: Text,
    }
}

impl Limit {
    fn new(default: &str, max: &str) -> Self {
        Self { default: default.into(), max: max.into() }
    }
}

section! {
    pub(crate) struct SandboxFiles {
        /// Files of one job that are kept.
        max: Text = "64",
        /// Largest file of a job that is kept, in MiB.
        max_mb: Text = "16",
        /// What all kept files of one job may have, in MiB.
        max_total_mb: Text = "64",
    }
}

section! {
    pub(crate) struct Memory {
        /// Chunks that one memory profile may have; see [memory](memory.md).
        max_chunks: Text = "200000",
        /// Bytes of text that one memory profile may have.
        max_bytes: Text = "536870912",
        /// Bytes that the search indexes of all profiles may take in memory. The index that was not used for
        /// the longest time makes room. A profile whose index might take more accepts no further text.
        index_bytes: Text = "4294967296",
    }
}

section! {
    pub(crate) struct Workflows {
        /// How long a runner of workflows may be silent before its message is delivered to another. Used when
        /// the gateway creates the consumer.
        ack_wait: Text = "15s",
    }
}

section! {
    pub(crate) struct Nats {
        /// NATS servers, separated by commas. Without it there are no jobs and no workflows, no audit heads
        /// are published, and the console shows no handoffs.
        url: Option<Text>,
        /// Credentials: a `.creds` file with user JWT and seed.
        creds_file: Option<Text>,
        /// Credentials: a file with an nkey seed.
        nkey_file: Option<Text>,
        /// Inbox prefix for request replies.
        inbox_prefix: Text = "_INBOX",
        /// `shared` or `by_role`, as the workers have it.
        layout: Text = "shared",
        tls: NatsTls,
        /// File with the nkey seed that signs replayed handoffs, and those of workflows.
        signing_key_file: Option<Text>,
    }
}

fn local() -> Vec<String> {
    ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec()
}
