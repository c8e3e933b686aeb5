//! Commands, flags and their help texts.

#[cfg(test)]
mod documents;
mod egress;
mod gateway;
mod handoff_id;
mod jobs;
mod keys;
mod memory;
mod nodes;
mod schedules;
mod skills;
mod tasks;
mod up;
mod workflows;

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
pub(crate) use egress::Egress;
pub(crate) use gateway::{
    Audit, GatewayLink, Leases, NewLease, NewUpstream, PreferenceAt, Preferences, Query, Rules, Settings,
    Tokens, Tools, Upstreams, Verify,
};
use handoff_id::handoff_id;
pub(crate) use jobs::Jobs;
pub(crate) use keys::{Keys, NewKey};
pub(crate) use memory::{Ingest, Memory};
pub(crate) use nodes::Nodes;
pub(crate) use schedules::{NewSchedule, PayloadArgs, ScheduleAt, ScheduleUpdate, Schedules, TimingArgs};
pub(crate) use skills::{NewSkill, SkillAt, Skills};
use subjects::{HandoffId, Kind, NodeId, ScopeId, streams::Layout};
pub(crate) use tasks::Tasks;
pub(crate) use up::{Down, Up};
pub(crate) use workflows::{OfTask, Workflows};

/// The model that a server is asked for if none is configured. Servers with one model accept any name.
pub(crate) const DEFAULT_MODEL: &str = "default";

/// The user of a stack that `cynodectl up` starts: the person at the terminal.
pub(crate) const LOCAL_USER: &str = "you";

/// Operate cynode: workers over NATS, the gateway over HTTP.
#[derive(Debug, Parser)]
#[command(
    name = "cynodectl",
    version,
    after_help = "Exit codes: 0 success; 1 the handoff, verification, workflow or command failed, or streams \
                  differ from the expected configuration; 2 the answer or the workflow waits for a person; \
                  64 invalid usage; 69 NATS, a stream or the gateway is unavailable; 75 timed out waiting \
                  for the answer; 130 interrupted."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) link: Link,

    #[command(flatten)]
    pub(crate) gateway: GatewayLink,

    /// Print JSON instead of text.
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Link {
    /// NATS server URL, or several separated by commas.
    #[arg(
        long,
        short,
        global = true,
        env = "NATS_URL",
        default_value = "nats://127.0.0.1:4222",
        hide_env_values = true
    )]
    pub(crate) server: String,

    /// NATS credentials file (.creds).
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "nkey")]
    pub(crate) creds: Option<PathBuf>,

    /// File with the nkey seed to authenticate with.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) nkey: Option<PathBuf>,

    /// Inbox prefix for request replies.
    #[arg(
        long,
        global = true,
        value_name = "PREFIX",
        env = "NATS_INBOX_PREFIX",
        default_value = DEFAULT_INBOX,
        value_parser = inbox_prefix
    )]
    pub(crate) inbox_prefix: String,

    /// Stream layout, `shared` or `by_role`; the same as the workers' nats.layout.
    #[arg(long, global = true, value_name = "LAYOUT", env = "CYNODE_LAYOUT", default_value_t)]
    pub(crate) layout: Layout,

    /// CA certificate to verify the NATS server with.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,

    /// Client certificate.
    #[arg(long, global = true, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Private key of the client certificate.
    #[arg(long, global = true, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
}

const DEFAULT_INBOX: &str = "_INBOX";

fn inbox_prefix(text: &str) -> Result<String, String> {
    let expected = || "expected tokens separated by dots, such as _INBOX_operator".to_owned();
    broker::is_inbox_prefix(text).then(|| text.to_owned()).ok_or_else(expected)
}

impl Link {
    /// Returns a connection without authentication.
    pub(crate) fn to(server: String, layout: Layout) -> Self {
        Self {
            server,
            layout,
            creds: None,
            nkey: None,
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
            inbox_prefix: DEFAULT_INBOX.to_owned(),
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Publish a handoff and wait for the answer.
    #[command(subcommand)]
    Handoff(Handoff),
    /// Start a local stack and chat with the project manager; Ctrl-C stops it.
    Up(Up),
    /// Stop a local stack, including processes that a killed `up` left behind.
    Down(Down),
    /// Chat with the project manager.
    Chat(Chat),
    /// Print answers and progress events as they arrive.
    Watch(Watch),
    /// Cancel a running or queued handoff.
    Cancel(Cancel),
    /// Show streams, queues, handoffs in flight and instances.
    Status,
    /// Show the journal of a handoff.
    #[command(subcommand)]
    Journal(Journal),
    /// List, inspect, replay and delete dead letters.
    #[command(subcommand)]
    Dead(Dead),
    /// Create streams, consumers and buckets, and report existing ones that differ.
    ///
    /// Run it with the NATS credentials of the provisioner. Workers can then start with nats.provision =
    /// verify, without the permission to create anything.
    Provision(Provision),
    /// Generate an nkey for each identity of deploy/nats, and the file that nats-server includes.
    Nkeys(Nkeys),
    /// Gateway: enable, disable, scope and approve tools.
    #[command(subcommand)]
    Tools(Tools),
    /// Gateway: create, list and revoke API keys, with which users chat.
    #[command(subcommand)]
    Keys(Keys),
    /// Gateway: issue, list and revoke tokens of all kinds.
    #[command(subcommand)]
    Tokens(Tokens),
    /// Gateway: issue, list and revoke leases, which say on whose behalf agents act.
    #[command(subcommand)]
    Leases(Leases),
    /// Gateway: list and show tasks, which managers work on.
    #[command(subcommand)]
    Tasks(Tasks),
    /// Gateway: list, watch, start, steer and answer workflows, which drive tasks to completion.
    #[command(subcommand)]
    Workflows(Workflows),
    /// Gateway: list, show, read and cancel jobs, which nodes run in sandboxes.
    #[command(subcommand)]
    Jobs(Jobs),
    /// Gateway: list, show, cordon, drain and remove nodes, the machines that run jobs.
    #[command(subcommand)]
    Nodes(Nodes),
    /// Gateway: list messages that wait to be published on NATS.
    Outbox,
    /// Gateway: show usage of external model providers.
    #[command(subcommand)]
    Egress(Egress),
    /// Gateway: add, inspect and remove upstream MCP servers.
    #[command(subcommand)]
    Upstreams(Upstreams),
    /// Gateway: manage access rules.
    #[command(subcommand)]
    Rules(Rules),
    /// Gateway: read and change system settings.
    #[command(subcommand)]
    Settings(Settings),
    /// Gateway: read and change preferences, including those that configure agents.
    #[command(subcommand)]
    Preferences(Preferences),
    /// Gateway: manage schedules, work that is due at certain times.
    #[command(subcommand)]
    Schedules(Schedules),
    /// Gateway: manage skills, the instructions that agents load when they need them.
    #[command(subcommand)]
    Skills(Skills),
    /// Gateway: ingest, search and delete memories, the texts that agents search.
    #[command(subcommand)]
    Memory(Memory),
    /// Gateway: query, export and verify the audit log.
    #[command(subcommand)]
    Audit(Audit),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Handoff {
    /// Send a chat message to the project manager.
    Chat {
        /// The message; `-` reads it from standard input.
        text: String,
        #[command(flatten)]
        common: Common,
    },
    /// Send a schedule that fired to the project manager.
    Schedule {
        /// The prompt of the schedule; `-` reads it from standard input.
        prompt: String,
        #[arg(long, default_value = "manual")]
        schedule_id: ScopeId,
        /// Id of the run; a new one by default.
        #[arg(long)]
        run_id: Option<ScopeId>,
        #[command(flatten)]
        common: Common,
    },
    /// Ask the project manager to plan a goal.
    Plan {
        /// The goal; `-` reads it from standard input.
        goal: String,
        /// An acceptance criterion of the goal. Repeatable.
        #[arg(long = "criterion", value_name = "TEXT")]
        criteria: Vec<String>,
        /// A constraint on the plan. Repeatable.
        #[arg(long = "constraint", value_name = "TEXT")]
        constraints: Vec<String>,
        /// Plan the steps of this task instead of new tasks: its id, or with --user its name.
        #[arg(long = "steps-of", value_name = "TASK")]
        steps_of: Option<ScopeId>,
        #[command(flatten)]
        common: Common,
    },
    /// Answer a handoff that needs clarification.
    Continue {
        /// Id of the handoff that needs clarification.
        continues: HandoffId,
        /// The clarification; `-` reads it from standard input.
        input: String,
        #[command(flatten)]
        common: Common,
    },
    /// Ask the project manager to review the result of a step.
    Review {
        /// The review as JSON, as in the payload of `pma.handoff.review`; `-` reads it from standard input.
        review: String,
        #[command(flatten)]
        common: Common,
    },
    /// Ask a project analyst to verify a task.
    Verify {
        /// Id of the task, or with --user its name; `cynodectl tasks ls` lists both.
        task_id: ScopeId,
        /// An acceptance criterion. Repeatable.
        #[arg(long = "criterion", value_name = "TEXT")]
        criteria: Vec<String>,
        /// Id of an artifact to inspect. Repeatable.
        #[arg(long = "artifact", value_name = "ID")]
        artifacts: Vec<ScopeId>,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Common {
    /// Handoff id; generated by default. An id is answered once.
    #[arg(long, value_name = "UUID")]
    pub(crate) id: Option<HandoffId>,
    /// User on whose behalf the handoff is made. With an admin token for the gateway, a lease is issued for
    /// the user.
    #[arg(long = "user", value_name = "ID")]
    pub(crate) user_id: Option<ScopeId>,
    /// Group of the user. Repeatable.
    #[arg(long = "group", value_name = "ID")]
    pub(crate) group_ids: Vec<ScopeId>,
    /// Project that the handoff belongs to.
    #[arg(long = "project", value_name = "ID")]
    pub(crate) project_id: Option<ScopeId>,
    /// Task that the handoff is about.
    #[arg(long = "task", value_name = "ID")]
    pub(crate) task_scope: Option<ScopeId>,
    /// Conversation thread.
    #[arg(long = "thread", value_name = "ID")]
    pub(crate) thread_id: Option<ScopeId>,
    /// Deadline from now, such as 5m; after it the handoff fails as deadline_exceeded.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub(crate) deadline: Option<Duration>,
    /// How long to wait for the answer.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "60s")]
    pub(crate) timeout: Duration,
    /// Publish, print the id, and exit.
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Encode the handoff as MessagePack.
    #[arg(long)]
    pub(crate) msgpack: bool,
    /// Sign with the nkey seed in this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) sign: Option<PathBuf>,
    /// Send the signed lease in this file instead of issuing one.
    #[arg(long, value_name = "FILE", conflicts_with = "no_lease")]
    pub(crate) lease: Option<PathBuf>,
    /// Issue no lease: the agent acts for the whole system, if the gateway lets it.
    #[arg(long)]
    pub(crate) no_lease: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Chat {
    /// Project that the chat is about.
    #[arg(long, value_name = "ID")]
    pub(crate) project: Option<ScopeId>,
    /// User on whose behalf to chat; a lease is issued for each message, with an admin token for the gateway.
    #[arg(long, value_name = "ID")]
    pub(crate) user: Option<ScopeId>,
    /// MCP endpoint of the gateway, for the task list.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8790/mcp")]
    pub(crate) mcp: String,
    /// File with an agent token for the gateway, for the task list.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Watch {
    /// Handoff to watch; exits with its answer. All by default.
    #[arg(value_parser = handoff_id)]
    pub(crate) handoff: Option<HandoffId>,
    /// Exit after this time.
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub(crate) duration: Option<Duration>,
}

#[derive(Args, Debug)]
pub(crate) struct Cancel {
    /// Id of the handoff.
    #[arg(value_parser = handoff_id)]
    pub(crate) handoff: HandoffId,
    /// How long to wait for the handoff to end.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "5s")]
    pub(crate) timeout: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct Provision {
    /// Number of replicas; 3 on a cluster of three.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(crate) replicas: u8,
    /// Acknowledgement timeout of the consumers; the same as the workers' worker.ack_wait.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "30s")]
    pub(crate) ack_wait: Duration,
    /// Duplicate window of the queue; the same as the workers' nats.dedupe_window.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "2m")]
    pub(crate) dedupe_window: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct Nkeys {
    /// Folder for the seeds (`<identity>.nk`) and the public keys (`keys.conf`). Existing seeds are kept.
    pub(crate) folder: PathBuf,
    /// Id of a node to generate a key for, besides those that have a seed in the folder. Repeatable.
    #[arg(long = "node", value_name = "ID")]
    pub(crate) nodes: Vec<NodeId>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Journal {
    /// Show claims, model turns, tool calls and cost of a handoff.
    ///
    /// Times are in UTC. Journals are kept for seven days.
    Show {
        /// Id of the handoff, or of the completion or response of the chat API that it answered.
        #[arg(value_parser = handoff_id)]
        handoff: HandoffId,
        /// Follow until the handoff is answered; the exit code is that of the answer.
        #[arg(long, short)]
        follow: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Dead {
    /// List dead letters, newest first.
    Ls {
        /// Maximum number of rows.
        #[arg(long, default_value_t = 50)]
        limit: usize,
        /// Filter by kind.
        #[arg(long)]
        kind: Option<Kind>,
        /// Filter by error code, such as poisoned.
        #[arg(long)]
        reason: Option<subjects::ErrorCode>,
    },
    /// Show the reason, time, instance and body of a dead letter.
    Show {
        /// Number in `dead ls`.
        number: u64,
        /// Print the raw body.
        #[arg(long)]
        raw: bool,
    },
    /// Publish dead letters again.
    ///
    /// A handoff that was never answered keeps its id. One that was answered gets a new id and resumes from
    /// its journal: finished model turns are not paid again, and tool calls keep their idempotency keys. A
    /// deadline that has passed is dropped.
    Replay {
        #[command(flatten)]
        selection: LetterSelection,
        /// Sign with the nkey seed in this file.
        #[arg(long, value_name = "FILE")]
        sign: Option<PathBuf>,
    },
    /// Delete dead letters.
    Drop {
        #[command(flatten)]
        selection: LetterSelection,
        /// Do not prompt for confirmation.
        #[arg(long, short)]
        yes: bool,
    },
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct LetterSelection {
    /// Numbers in `dead ls`.
    pub(crate) numbers: Vec<u64>,
    /// All dead letters.
    #[arg(long)]
    pub(crate) all: bool,
    /// All with this error code, such as poisoned.
    #[arg(long)]
    pub(crate) reason: Option<subjects::ErrorCode>,
}
