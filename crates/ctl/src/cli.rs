mod gateway; // commands to the gateway

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
pub(crate) use gateway::{
    Audit, GatewayLink, NewUpstream, PreferenceAt, Preferences, Query, Rules, Settings, Tokens, Tools,
    Upstreams, Verify,
};
use subjects::{HandoffId, Kind, ScopeId, streams::Layout};

/// Operate cynode-pma over NATS, and cynode-gateway over HTTP.
#[derive(Debug, Parser)]
#[command(
    name = "cynodectl",
    version,
    after_help = "Exit codes: 0 done (completed, pass); 1 the answer is failed, cancelled or fail, or the gateway says \
                  no; 2 the answer needs clarification; 64 wrong usage; 69 NATS, its streams or the gateway cannot be \
                  used; 75 no answer in time."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) link: Link,

    #[command(flatten)]
    pub(crate) gateway: GatewayLink,

    /// Print JSON for programs instead of text for people.
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Args, Debug)]
pub(crate) struct Link {
    /// NATS server, or several separated by commas.
    #[arg(
        long,
        short,
        global = true,
        env = "NATS_URL",
        default_value = "nats://127.0.0.1:4222",
        hide_env_values = true
    )]
    pub(crate) server: String,

    /// Credentials file (.creds).
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "nkey")]
    pub(crate) creds: Option<PathBuf>,

    /// File with an nkey seed.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) nkey: Option<PathBuf>,

    /// What the subjects begin with on which answers are heard, where not everyone may listen everywhere.
    #[arg(long, global = true, value_name = "PREFIX", env = "NATS_INBOX_PREFIX", default_value = DEFAULT_INBOX, value_parser = inbox_prefix)]
    pub(crate) inbox_prefix: String,

    /// Whose work is in which stream: `shared` or `by_role`, as the workers have it in nats.layout.
    #[arg(long, global = true, value_name = "LAYOUT", env = "CYNODE_LAYOUT", default_value_t)]
    pub(crate) layout: Layout,

    /// Certificate authority of the server.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,

    /// Certificate of this client.
    #[arg(long, global = true, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// Key of that certificate.
    #[arg(long, global = true, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
}

const DEFAULT_INBOX: &str = "_INBOX";

fn inbox_prefix(text: &str) -> Result<String, String> {
    let right = || "write words between dots, as in _INBOX_operator".to_owned();
    broker::is_inbox_prefix(text).then(|| text.to_owned()).ok_or_else(right)
}

impl Link {
    /// A server that asks nobody who he is.
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
    /// Hand work off and wait for its answer.
    #[command(subcommand)]
    Handoff(Handoff),
    /// Start everything on this machine, talk to the project manager, and end it all with Ctrl-C.
    Up(Up),
    /// End what `up` started, also when its own process was killed.
    Down(Down),
    /// Talk to the project manager.
    Chat(Chat),
    /// Show answers and progress as they come.
    Watch(Watch),
    /// Stop a handoff, running or still queued.
    Cancel(Cancel),
    /// Show streams, queues, work in flight and instances.
    Status,
    /// Read what was done on a handoff, step by step.
    #[command(subcommand)]
    Journal(Journal),
    /// Look after handoffs that were given up.
    #[command(subcommand)]
    Dead(Dead),
    /// Make the streams, consumers and buckets of both roles, and tell where those that are there differ.
    ///
    /// For whoever owns them; workers then start with nats.provision = verify and need no right to make anything.
    Provision(Provision),
    /// Make a key for each identity that deploy/nats knows, and the list of them that the server includes.
    Keys(Keys),
    /// Gateway: switch tools on and off, say who they are for, approve those that wait.
    #[command(subcommand)]
    Tools(Tools),
    /// Gateway: issue, list and revoke tokens.
    #[command(subcommand)]
    Tokens(Tokens),
    /// Gateway: look after the servers behind it.
    #[command(subcommand)]
    Upstreams(Upstreams),
    /// Gateway: rules about who may call what with which arguments.
    #[command(subcommand)]
    Rules(Rules),
    /// Gateway: settings of the whole system.
    #[command(subcommand)]
    Settings(Settings),
    /// Gateway: preferences, also those that configure agents.
    #[command(subcommand)]
    Preferences(Preferences),
    /// Gateway: what happened, and whether the record of it is whole.
    #[command(subcommand)]
    Audit(Audit),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Handoff {
    /// Say something to the project manager.
    Chat {
        /// What to say; `-` reads it from standard input.
        text: String,
        #[command(flatten)]
        common: Common,
    },
    /// Let the project manager interpret a schedule that fired.
    Schedule {
        /// What the schedule asks for; `-` reads it from standard input.
        prompt: String,
        #[arg(long, default_value = "manual")]
        schedule_id: ScopeId,
        #[arg(long, default_value = "manual-run")]
        run_id: ScopeId,
        #[command(flatten)]
        common: Common,
    },
    /// Have a goal planned.
    Plan {
        /// The goal; `-` reads it from standard input.
        goal: String,
        /// Something that must hold when the goal is met. May be given more than once.
        #[arg(long = "criterion", value_name = "TEXT")]
        criteria: Vec<String>,
        /// Something to respect on the way. May be given more than once.
        #[arg(long = "constraint", value_name = "TEXT")]
        constraints: Vec<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Answer what an earlier handoff asked.
    Continue {
        /// The handoff that needs clarification.
        continues: HandoffId,
        /// The clarification; `-` reads it from standard input.
        input: String,
        #[command(flatten)]
        common: Common,
    },
    /// Have a task verified by an analyst.
    Verify {
        /// The task.
        task_id: ScopeId,
        /// An acceptance criterion. May be given more than once.
        #[arg(long = "criterion", value_name = "TEXT")]
        criteria: Vec<String>,
        /// An artifact to look at. May be given more than once.
        #[arg(long = "artifact", value_name = "ID")]
        artifacts: Vec<ScopeId>,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Common {
    /// Id of the handoff; made when not given. The same id is answered once.
    #[arg(long, value_name = "UUID")]
    pub(crate) id: Option<HandoffId>,
    #[arg(long = "user", value_name = "ID")]
    pub(crate) user_id: Option<ScopeId>,
    /// May be given more than once.
    #[arg(long = "group", value_name = "ID")]
    pub(crate) group_ids: Vec<ScopeId>,
    #[arg(long = "project", value_name = "ID")]
    pub(crate) project_id: Option<ScopeId>,
    #[arg(long = "task", value_name = "ID")]
    pub(crate) task_scope: Option<ScopeId>,
    #[arg(long = "thread", value_name = "ID")]
    pub(crate) thread_id: Option<ScopeId>,
    /// After this time nobody wants the answer any more, as in 5m.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub(crate) deadline: Option<Duration>,
    /// How long to wait for the answer.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "60s")]
    pub(crate) timeout: Duration,
    /// Publish, print the id, and leave.
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Write the handoff as MessagePack.
    #[arg(long)]
    pub(crate) msgpack: bool,
    /// Sign with the nkey seed in this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) sign: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Up {
    /// Where everything is kept.
    #[arg(long, value_name = "FOLDER", default_value = ".cynode")]
    pub(crate) data: PathBuf,
    #[arg(long, value_name = "PORT", env = "NATS_PORT", default_value_t = 4222)]
    pub(crate) nats_port: u16,
    /// For agents; the console is on the next one.
    #[arg(long, value_name = "PORT", env = "GATEWAY_PORT", default_value_t = 8790)]
    pub(crate) gateway_port: u16,
    /// How many project managers.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) managers: u8,
    /// How many project analysts.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=16))]
    pub(crate) analysts: u8,
    /// An OpenAI-compatible server; without one the offline model answers.
    #[arg(long, value_name = "URL", env = "INFERENCE_URL")]
    pub(crate) model_url: Option<String>,
    /// What to ask that server for.
    #[arg(long, value_name = "NAME", env = "MODEL", default_value = "default")]
    pub(crate) model: String,
    /// File with the token for that server.
    #[arg(long, value_name = "FILE", env = "INFERENCE_TOKEN_FILE")]
    pub(crate) model_token_file: Option<PathBuf>,
    /// How long the offline model thinks, so that there is something to see.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "400ms")]
    pub(crate) think_time: Duration,
    /// Instruction bundles.
    #[arg(long, value_name = "FOLDER", default_value = "instructions")]
    pub(crate) instructions: PathBuf,
    /// nats-server, if it is neither beside this program, nor in .tools/bin, nor on PATH.
    #[arg(long, value_name = "FILE", env = "NATS_SERVER")]
    pub(crate) nats_server: Option<PathBuf>,
    /// Show a short tour and leave; what happens anyway when nobody is at a terminal.
    #[arg(long, conflicts_with = "stay")]
    pub(crate) tour: bool,
    /// Stay up until SIGINT or SIGTERM, and talk to nobody.
    #[arg(long)]
    pub(crate) stay: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Down {
    /// As given to `up`.
    #[arg(long, value_name = "FOLDER", default_value = ".cynode")]
    pub(crate) data: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Chat {
    /// The project that it is about.
    #[arg(long, value_name = "ID")]
    pub(crate) project: Option<ScopeId>,
    /// The gateway as agents see it, for the list of tasks.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8790/mcp")]
    pub(crate) mcp: String,
    /// File with an agent's token at the gateway, for the list of tasks.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Watch {
    /// Only this handoff; ends with its answer.
    pub(crate) handoff: Option<HandoffId>,
    /// End after this time.
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub(crate) duration: Option<Duration>,
}

#[derive(Args, Debug)]
pub(crate) struct Cancel {
    pub(crate) handoff: HandoffId,
    /// How long to wait for the handoff to end.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "5s")]
    pub(crate) timeout: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct Provision {
    /// Replicas of what is made: 3 on a cluster of three.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(crate) replicas: u8,
    /// How long a dead instance's handoffs wait for another; as in the workers' worker.ack_wait.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "30s")]
    pub(crate) ack_wait: Duration,
    /// How long the queue remembers message ids; as in the workers' nats.dedupe_window.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "2m")]
    pub(crate) dedupe_window: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct Keys {
    /// Folder for the seeds (`<identity>.nk`) and the public keys (`keys.conf`). Seeds that are there are kept.
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Journal {
    /// Show a handoff's life: who took it up when, what the model said, which tools were called, what it cost.
    ///
    /// Times are in UTC. Journals are kept for seven days.
    Show {
        handoff: HandoffId,
        /// Go on as it happens, until it is answered; the exit code is then that of the answer.
        #[arg(long, short)]
        follow: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Dead {
    /// List them, newest first.
    Ls {
        #[arg(long, default_value_t = 50)]
        limit: usize,
        /// Only this kind.
        #[arg(long)]
        kind: Option<Kind>,
        /// Only this reason, such as poisoned.
        #[arg(long)]
        reason: Option<subjects::ErrorCode>,
    },
    /// Show one: why, when, by whom, and the handoff itself.
    Show {
        /// Its number in `dead ls`.
        number: u64,
        /// Print the body just as it is.
        #[arg(long)]
        raw: bool,
    },
    /// Hand them off again.
    ///
    /// A handoff that was never answered keeps its id. One that was answered, if only with a failure, has its answer
    /// for ever, so it gets a new id. A deadline that has passed is dropped.
    Replay {
        #[command(flatten)]
        which: Which,
        /// Sign with the nkey seed in this file.
        #[arg(long, value_name = "FILE")]
        sign: Option<PathBuf>,
    },
    /// Remove them for good.
    Drop {
        #[command(flatten)]
        which: Which,
        /// Do not ask.
        #[arg(long, short)]
        yes: bool,
    },
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// Numbers as in `dead ls`.
    pub(crate) numbers: Vec<u64>,
    /// All there are.
    #[arg(long)]
    pub(crate) all: bool,
    /// All with this reason, such as poisoned.
    #[arg(long)]
    pub(crate) reason: Option<subjects::ErrorCode>,
}
