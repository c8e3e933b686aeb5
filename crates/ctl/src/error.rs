use std::{path::PathBuf, process::ExitCode};

use broker::{ConnectError, ReadError};
use subjects::HandoffId;

/// How the command ended, for scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    /// The answer is a failure, a cancellation, or a `fail`.
    Failed,
    NeedsClarification,
    Usage,
    Unavailable,
    NoAnswer,
    /// A signal came before it was done.
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
    #[error("listening")]
    Subscribe(#[from] async_nats::SubscribeError),
    #[error("sending")]
    Send(#[from] async_nats::PublishError),
    #[error("unexpected response from NATS")]
    Nats(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(
        "no answer to {0} within {1}; `cynodectl watch {0}` waits on, `cynodectl status` shows who works"
    )]
    NoAnswer(HandoffId, humantime::FormattedDuration),
    #[error(
        "nobody has taken {0} up, or it is more than seven days ago; `cynodectl status` shows what is queued, \
         `journal show {0} --follow` waits for it"
    )]
    NoJournal(HandoffId),
    #[error("no running instance received the cancel; start one, then cancel again")]
    NobodyListens,
    #[error("reading {0}")]
    File(PathBuf, #[source] std::io::Error),
    #[error("{0} contains no nkey seed")]
    Key(PathBuf, #[source] nkeys::error::Error),
    #[error("writing a message")]
    Encode(#[from] subjects::CodecError),
    #[error("creating or reading streams and consumers")]
    Provision(#[from] broker::ProvisionError),
    #[error("generating a key")]
    MakeKey(#[source] nkeys::error::Error),
    #[error("reading standard input")]
    Input(#[source] std::io::Error),
    #[error("nothing was removed; pass --yes to remove without a prompt")]
    NotConfirmed,
    #[error(
        "nothing was approved; pass --yes to approve the current definition, or --hash to approve a definition you reviewed"
    )]
    NotApproved,
    #[error("invalid gateway URL `{0}`; write it as http://127.0.0.1:8791")]
    GatewayAddress(String),
    #[error("cannot connect to the gateway at {0}; start cynode-gateway, or pass --gateway")]
    GatewayUnreachable(String, #[source] reqwest::Error),
    #[error(
        "there is no administrator's token; --admin-token-file names the file that cynode-gateway made (admin.token in \
         its data folder), or one of `cynodectl tokens issue --out`"
    )]
    NoAdminToken,
    #[error("{0} contains no token")]
    NotAToken(PathBuf),
    #[error("gateway rejected the request: {message}{}", field.as_ref().map(|field| format!(" ({field})")).unwrap_or_default())]
    Refused { code: String, message: String, field: Option<String> },
    #[error("unexpected response from the gateway: {0}")]
    GatewayAnswer(String),
    #[error("writing {0}")]
    Write(PathBuf, #[source] std::io::Error),
    #[error("no tool `{0}` waits for approval; `cynodectl tools quarantine` lists those that do")]
    NotWaiting(String),
    #[error("tool name `{0}` is ambiguous; write it as server/tool")]
    Ambiguous(String),
    #[error(
        "{0} is not there: it should lie beside cynodectl, in .tools/bin or on PATH; `make run` gets and builds everything"
    )]
    NoProgram(&'static str),
    #[error("{0} not found; pass --instructions, or start in the folder that contains it")]
    NoInstructions(PathBuf),
    #[error("cannot start {0}")]
    NotStarted(PathBuf, #[source] std::io::Error),
    #[error(
        "port {port} is in use; stop the process that listens there, or choose another port with {setting}=…"
    )]
    PortTaken { port: u16, setting: &'static str },
    #[error(
        "a stack runs in {data} already (process {pid}); talk to it with `cynodectl chat`, or end it with `cynodectl down`"
    )]
    RunsAlready { data: PathBuf, pid: String },
    #[error(
        "a local stack in {data} was killed and left these processes running: {left}; stop them with `cynodectl down`"
    )]
    LeftOver { data: PathBuf, left: String },
    #[error("timed out waiting until {what}; see {guilty}. Last lines of {log}:\n{tail}")]
    NotUp { what: &'static str, guilty: String, log: PathBuf, tail: String },
    #[error("the tour failed: {0}")]
    Tour(String),
    #[error("cannot call tools at the gateway")]
    Tools(#[source] Box<mcp::Error>),
    #[error("{0} failed: {1}")]
    Tool(String, String),
    #[error("installing signal handlers")]
    Signals(#[source] std::io::Error),
    #[error("{0}")]
    Wrong(String),
}

impl Error {
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::NoAnswer(..) => Exit::NoAnswer,
            Self::Operate(operate::Error::NoSuchLetter(_) | operate::Error::Letter(..))
            | Self::NoJournal(_)
            | Self::NotConfirmed
            | Self::NotApproved
            | Self::NotWaiting(_)
            | Self::Tour(_)
            | Self::Tool(..) => Exit::Failed,
            Self::File(..)
            | Self::Key(..)
            | Self::Input(_)
            | Self::Encode(_)
            | Self::Operate(operate::Error::Encode(_))
            | Self::GatewayAddress(_)
            | Self::NoAdminToken
            | Self::NotAToken(_)
            | Self::Write(..)
            | Self::Ambiguous(_)
            | Self::NoProgram(_)
            | Self::NoInstructions(_)
            | Self::PortTaken { .. }
            | Self::RunsAlready { .. }
            | Self::LeftOver { .. }
            | Self::Wrong(_) => Exit::Usage,
            Self::Refused { code, .. } => match code.as_str() {
                "invalid" | "unreadable" | "unauthenticated" => Exit::Usage,
                "unreachable" | "unavailable" => Exit::Unavailable,
                _ => Exit::Failed,
            },
            Self::Connect(_)
            | Self::Operate(_)
            | Self::Read(_)
            | Self::Subscribe(_)
            | Self::Send(_)
            | Self::Nats(_)
            | Self::NobodyListens
            | Self::NotStarted(..)
            | Self::NotUp { .. }
            | Self::Tools(_)
            | Self::Signals(_)
            | Self::Provision(_)
            | Self::MakeKey(_)
            | Self::GatewayUnreachable(..)
            | Self::GatewayAnswer(_) => Exit::Unavailable,
        }
    }

    pub(crate) fn tools(error: mcp::Error) -> Self {
        Self::Tools(Box::new(error))
    }

    pub(crate) fn nats(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Nats(error.into())
    }
}
