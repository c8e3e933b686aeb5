//! Errors of commands, and their exit codes.

use std::{path::PathBuf, process::ExitCode};

use broker::{ConnectError, ReadError};
use subjects::{HandoffId, ScopeId};

/// Exit codes, for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    /// The answer is `failed`, `cancelled` or `fail`, or the command was rejected.
    Failed,
    NeedsClarification,
    Usage,
    Unavailable,
    NoAnswer,
    /// Interrupted by a signal.
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::NeedsClarification => 2,
            Exit::Usage => 64,
            Exit::Unavailable => 69,
            Exit::NoAnswer => 75,
            Exit::Interrupted => 130,
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Operate(#[from] operate::Error),
    #[error("reading from NATS")]
    Read(#[from] ReadError),
    #[error("subscribing")]
    Subscribe(#[from] async_nats::SubscribeError),
    #[error("publishing a request")]
    Send(#[from] async_nats::PublishError),
    #[error("unexpected response from NATS")]
    Nats(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(
        "no answer to {0} within {1}; `cynodectl watch {0}` keeps waiting, `cynodectl status` \
         shows the instances"
    )]
    NoAnswer(HandoffId, humantime::FormattedDuration),
    #[error(
        "no journal of {0}: no worker has claimed it, or its journal has expired after seven days; \
         `cynodectl status` shows the queues, `cynodectl journal show {0} --follow` waits for the first entry"
    )]
    NoJournal(HandoffId),
    #[error("no running instance received the cancel; start one, then cancel again")]
    NoInstance,
    #[error("reading {0}")]
    File(PathBuf, #[source] std::io::Error),
    #[error(transparent)]
    SigningKey(#[from] secrets::signing_key::Error),
    #[error("writing a message")]
    Encode(#[from] subjects::CodecError),
    #[error("creating or reading streams and consumers")]
    Provision(#[from] broker::ProvisionError),
    #[error("reading standard input")]
    Input(#[source] std::io::Error),
    #[error("the review is not valid; subjects/schemas/handoff-review.schema.json describes its fields")]
    Review(#[source] serde_json::Error),
    #[error("the task {0} has no workflow; start one with `cynodectl workflows start {0}`")]
    NoWorkflow(String),
    #[error("{} does not contain steps: a JSON list of objects with name, kind and script", .0.display())]
    Steps(PathBuf, #[source] serde_json::Error),
    #[error("nothing was removed; pass --yes to remove without a prompt")]
    NotConfirmed,
    #[error("nothing was saved; pass --yes to save without a prompt")]
    NotSaved,
    #[error("there is no task `{0}` here; /tasks lists the tasks with their ids")]
    NoSuchTask(ScopeId),
    #[error("{0}")]
    Usage(&'static str),
    #[error(
        "nothing was approved; pass --yes to approve the current definition, or --hash to approve a \
         definition you reviewed"
    )]
    NotApproved,
    #[error(
        "the folder {} has no files, but there are memories of it; check that it is mounted, or pass \
         --allow-empty to delete them",
        .0.display()
    )]
    EmptyFolder(PathBuf),
    #[error(
        "the memories below {0}/ were ingested from another folder; choose another name with --name, or pass \
         --moved if this folder takes its place"
    )]
    OtherFolder(String),
    #[error("cannot read the ignore rules, so nothing was ingested: {0}; make the file readable")]
    IgnoreRules(String),
    #[error("invalid gateway URL `{0}`; write it as http://127.0.0.1:8791")]
    GatewayAddress(String),
    #[error("cannot connect to the gateway at {0}; start cynode-gateway, or pass --gateway")]
    GatewayUnreachable(String, #[source] reqwest::Error),
    #[error(
        "no admin token; pass --admin-token-file with the file that cynode-gateway wrote (admin.token in its \
         data folder), or with one written by `cynodectl tokens issue --out`"
    )]
    NoAdminToken,
    #[error("{} does not contain a signed lease", .0.display())]
    NotALease(PathBuf),
    #[error("{0} contains no token")]
    NotAToken(PathBuf),
    #[error(
        "gateway rejected the request: {message}{}",
        field.as_ref().map(|field| format!(" ({field})")).unwrap_or_default()
    )]
    Refused { code: String, message: String, field: Option<String> },
    #[error("unexpected response from the gateway: {0}")]
    GatewayResponse(String),
    #[error("writing {0}")]
    Write(PathBuf, #[source] std::io::Error),
    #[error("no tool `{0}` waits for approval; `cynodectl tools quarantine` lists those that do")]
    NotQuarantined(String),
    #[error(
        "{user} has no schedule `{schedule}`; `cynodectl schedules ls --user {user}` lists those of {user}"
    )]
    NoSchedule { user: String, schedule: String },
    #[error("tool name `{0}` is ambiguous; write it as server/tool")]
    Ambiguous(String),
    #[error(
        "{0} not found beside cynodectl, in .tools/bin or on PATH; `make run` downloads and builds everything"
    )]
    ProgramNotFound(&'static str),
    #[error("{0} not found; pass --instructions, or start in the folder that contains it")]
    InstructionsNotFound(PathBuf),
    #[error("cannot start {0}")]
    NotStarted(PathBuf, #[source] std::io::Error),
    #[error(
        "port {port} is in use; stop the process that listens there, or choose another port with {setting}=…"
    )]
    PortTaken { port: u16, setting: &'static str },
    #[error(
        "a stack is already running in {data} (process {pid}); connect to it with `cynodectl chat`, or stop \
         it with `cynodectl down`"
    )]
    AlreadyRunning { data: PathBuf, pid: String },
    #[error(
        "a local stack in {data} was killed and left these processes running: {left}; stop them with \
         `cynodectl down`"
    )]
    LeftoverProcesses { data: PathBuf, left: String },
    #[error("timed out waiting until {what}; see {process}. Last lines of {log}:\n{tail}")]
    NotReady { what: &'static str, process: String, log: PathBuf, tail: String },
    #[error("the tour failed: {0}")]
    Tour(String),
    #[error("cannot call tools at the gateway")]
    Tools(#[source] Box<mcp::Error>),
    #[error("{0} failed: {1}")]
    Tool(String, String),
    #[error("installing signal handlers")]
    Signals(#[source] std::io::Error),
    #[error("{0}")]
    Other(String),
}

impl Error {
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::NoAnswer(..) => Exit::NoAnswer,
            Self::Operate(operate::Error::NoSuchLetter(_) | operate::Error::Letter(..))
            | Self::NoJournal(_)
            | Self::NotConfirmed
            | Self::NotSaved
            | Self::NotApproved
            | Self::NotQuarantined(_)
            | Self::NoSchedule { .. }
            | Self::NoWorkflow(_)
            | Self::Tour(_)
            | Self::EmptyFolder(_)
            | Self::OtherFolder(_)
            | Self::Tool(..) => Exit::Failed,
            Self::File(..)
            | Self::SigningKey(_)
            | Self::Input(_)
            | Self::Review(_)
            | Self::Steps(..)
            | Self::Encode(_)
            | Self::Operate(operate::Error::Encode(_))
            | Self::GatewayAddress(_)
            | Self::NoAdminToken
            | Self::NotAToken(_)
            | Self::NotALease(_)
            | Self::Write(..)
            | Self::Ambiguous(_)
            | Self::ProgramNotFound(_)
            | Self::InstructionsNotFound(_)
            | Self::PortTaken { .. }
            | Self::AlreadyRunning { .. }
            | Self::LeftoverProcesses { .. }
            | Self::IgnoreRules(_)
            | Self::Usage(_)
            | Self::NoSuchTask(_)
            | Self::Other(_) => Exit::Usage,
            Self::Refused { code, .. } => match code.as_str() {
                "invalid" | "unreadable" | "unauthenticated" => Exit::Usage,
                "unreachable" | "unavailable" | "unrecorded" => Exit::Unavailable,
                _ => Exit::Failed,
            },
            Self::Connect(_)
            | Self::Operate(_)
            | Self::Read(_)
            | Self::Subscribe(_)
            | Self::Send(_)
            | Self::Nats(_)
            | Self::NoInstance
            | Self::NotStarted(..)
            | Self::NotReady { .. }
            | Self::Tools(_)
            | Self::Signals(_)
            | Self::Provision(_)
            | Self::GatewayUnreachable(..)
            | Self::GatewayResponse(_) => Exit::Unavailable,
        }
    }

    /// Returns whether the same may succeed later.
    pub(crate) fn is_unavailable(&self) -> bool {
        matches!(self.exit(), Exit::Unavailable)
            || matches!(self, Self::Refused { code, .. } if code == "too_fast")
    }

    pub(crate) fn tools(error: mcp::Error) -> Self {
        Self::Tools(Box::new(error))
    }

    pub(crate) fn nats(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Nats(error.into())
    }
}
