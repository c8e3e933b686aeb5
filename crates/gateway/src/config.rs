//! Configuration: flag > file > environment > default. Checked as a whole before anything is opened.

mod cli; // flags
mod raw; // as written, with the defaults

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use broker::{Auth, Tls};
pub use cli::{Cli, Command};
use figment::{
    Figment,
    providers::{Env, Format, Serialized, Toml},
};

use crate::{
    admin_token::AdminToken,
    store::{self, Durability},
};

/// The file that is read when none is named.
pub const DEFAULT_FILE: &str = "gateway.toml";
const PREFIX: &str = "GATEWAY_";
/// As for every token of an administrator.
const LONGEST_TOKEN: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What is wrong, and what would be right.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{key} (from {source_name}): {problem}")]
    Value { key: String, source_name: String, problem: String },
    #[error("--set takes key=value, as in --set store.patience=5s; found `{0}`")]
    Override(String),
    #[error("cannot read the configuration file {}", .0.display())]
    File(PathBuf, #[source] std::io::Error),
}

#[derive(Clone, Debug)]
pub struct Config {
    pub data: PathBuf,
    pub mcp: Mcp,
    pub admin: Admin,
    pub store: store::Options,
    pub audit: Audit,
    pub calls: Calls,
    pub connections: Connections,
    pub strangers: Strangers,
    pub upstreams: Upstreams,
    /// `None`: no heads are published, and the console shows no handoffs.
    pub nats: Option<Nats>,
    /// How long calls may go on after we were told to stop.
    pub grace: Duration,
    pub log: Log,
    /// Where traces go; `None`: nowhere.
    pub collector: Option<telemetry::Endpoint>,
    /// Read again when it changes.
    pub file: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub struct Mcp {
    pub listen: SocketAddr,
    /// Names under which we are reached; a request for another name is refused.
    pub hosts: Vec<String>,
    /// Browsers that may call us. None by default.
    pub origins: Vec<String>,
    pub max_body_bytes: usize,
    /// How long a request may take to arrive.
    pub read_timeout: Duration,
}

#[derive(Clone, Debug)]
pub struct Admin {
    pub listen: SocketAddr,
    pub hosts: Vec<String>,
    /// Holds the first administrator's token; made when it is not there.
    pub token_file: PathBuf,
    /// How long a token that is made for that file is good.
    pub token_lives: Duration,
    pub session: Duration,
    /// Behind TLS, so that cookies may say so.
    pub https: bool,
}

impl Admin {
    pub fn token(&self) -> AdminToken {
        AdminToken { file: self.token_file.clone(), lives: self.token_lives }
    }
}

#[derive(Clone, Debug)]
pub struct Audit {
    pub signing_key_file: PathBuf,
    pub head_file: PathBuf,
    pub seal_every: Duration,
    /// `None`: for ever.
    pub keep: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
pub struct Calls {
    pub max_result_bytes: usize,
    /// For each token.
    pub per_second: u32,
    pub keep_keys: Duration,
}

/// For each listener.
#[derive(Clone, Copy, Debug)]
pub struct Connections {
    pub max: usize,
    /// How long the head of a request may take, from its first byte.
    pub header_timeout: Duration,
    /// How long a connection may be silent between requests.
    pub idle_timeout: Duration,
}

/// Callers without a good token.
#[derive(Clone, Copy, Debug)]
pub struct Strangers {
    /// Requests from one address; five times as many at once.
    pub per_second: u32,
    /// How often refused requests of one address get a row.
    pub report_every: Duration,
}

#[derive(Clone, Copy, Debug)]
pub struct Upstreams {
    pub connect_timeout: Duration,
    pub refresh_every: Duration,
    /// Whether servers may be registered that are started as processes of ours.
    pub stdio: bool,
}

#[derive(Clone, Debug)]
pub struct Nats {
    pub options: broker::Options,
    /// Signs what is handed off again.
    pub signing_key_file: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub struct Log {
    pub level: String,
    pub format: telemetry::Format,
}

/// A checked configuration, and where its values came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub config: Config,
    figment: Figment,
}

impl Config {
    pub fn load(cli: &Cli) -> Result<Loaded, Error> {
        let file = cli.file()?;
        let mut figment = Figment::from(Serialized::defaults(raw::Raw::default()))
            .merge(Env::prefixed(PREFIX).ignore(&["config"]).split("__"));
        if let Some(file) = &file {
            figment = figment.merge(Toml::file_exact(file));
        }
        let figment = figment.merge(cli.overrides()?);
        let raw: raw::Raw = figment.extract().map_err(|error| from_figment(&figment, error))?;
        let config = check(&figment, raw, file)?;
        Ok(Loaded { config, figment })
    }
}

impl Loaded {
    /// Every setting with its value and its source.
    pub fn describe(&self) -> String {
        let mut lines = Vec::new();
        for key in raw::keys() {
            let value = match self.figment.find_value(&key) {
                Ok(figment::value::Value::String(_, text))
                    if key.ends_with("url") || key.ends_with("endpoint") =>
                {
                    format!("{:?}", broker::without_secrets(&text))
                }
                Ok(value) => raw::shown(&value),
                Err(_) => continue,
            };
            lines.push(format!("{key} = {value}  # {}", source_of(&self.figment, &key)));
        }
        lines.join("\n")
    }
}

fn check(figment: &Figment, raw: raw::Raw, file: Option<PathBuf>) -> Result<Config, Error> {
    let check = Check(figment);
    let data = PathBuf::from(&raw.data);
    let in_data =
        |named: &str, name: &str| if named.is_empty() { data.join(name) } else { PathBuf::from(named) };
    let keep = match raw.audit.keep.trim() {
        "forever" => None,
        _ => Some(check.duration("audit.keep", &raw.audit.keep)?),
    };
    let url = if raw.store.url.is_empty() {
        format!("sqlite://{}", data.join("gateway.db").display())
    } else {
        raw.store.url
    };
    let durability = match raw.store.durability.as_str() {
        "process" => Durability::Process,
        "power" => Durability::Power,
        other => {
            return Err(check.wrong("store.durability", &format!("`{other}` is neither process nor power")));
        }
    };
    let nats = check.nats(raw.nats)?;
    let collector = match raw.telemetry.otlp_endpoint.as_str() {
        "" => None,
        text => {
            let wrong = |error| check.wrong("telemetry.otlp_endpoint", &format!("`{text}` is {error}"));
            Some(text.parse().map_err(|error: telemetry::NoEndpoint| wrong(error))?)
        }
    };
    Ok(Config {
        mcp: Mcp {
            listen: check.address("mcp.listen", &raw.mcp.listen)?,
            hosts: check.hosts("mcp.hosts", raw.mcp.hosts)?,
            origins: raw.mcp.origins,
            max_body_bytes: check.within("mcp.max_body_bytes", raw.mcp.max_body_bytes, 1024, 64 << 20)?,
            read_timeout: check.duration("mcp.read_timeout", &raw.mcp.read_timeout)?,
        },
        admin: Admin {
            listen: check.address("admin.listen", &raw.admin.listen)?,
            hosts: check.hosts("admin.hosts", raw.admin.hosts)?,
            token_file: in_data(&raw.admin.token_file, "admin.token"),
            token_lives: check.at_most("admin.token_lives", &raw.admin.token_lives, LONGEST_TOKEN)?,
            session: check.duration("admin.session", &raw.admin.session)?,
            https: raw.admin.https,
        },
        store: store::Options {
            url,
            max_connections: u32::try_from(check.within(
                "store.max_connections",
                raw.store.max_connections,
                2,
                500,
            )?)
            .unwrap_or(16),
            patience: check.duration("store.patience", &raw.store.patience)?,
            durability,
        },
        audit: Audit {
            signing_key_file: in_data(&raw.audit.signing_key_file, "audit.nk"),
            head_file: in_data(&raw.audit.head_file, "audit-heads.jsonl"),
            seal_every: check.duration("audit.seal_every", &raw.audit.seal_every)?,
            keep,
        },
        calls: Calls {
            max_result_bytes: check.within(
                "calls.max_result_bytes",
                raw.calls.max_result_bytes,
                1024,
                64 << 20,
            )?,
            per_second: u32::try_from(check.within(
                "calls.per_second",
                raw.calls.per_second,
                1,
                10_000_000,
            )?)
            .unwrap_or(u32::MAX),
            keep_keys: check.duration("calls.keep_keys", &raw.calls.keep_keys)?,
        },
        connections: Connections {
            max: check.within("connections.max", raw.connections.max, 8, 1_000_000)?,
            header_timeout: check.duration("connections.header_timeout", &raw.connections.header_timeout)?,
            idle_timeout: check.duration("connections.idle_timeout", &raw.connections.idle_timeout)?,
        },
        strangers: Strangers {
            per_second: u32::try_from(check.within(
                "strangers.per_second",
                raw.strangers.per_second,
                1,
                10_000_000,
            )?)
            .unwrap_or(u32::MAX),
            report_every: check.duration("strangers.report_every", &raw.strangers.report_every)?,
        },
        upstreams: Upstreams {
            connect_timeout: check.duration("upstreams.connect_timeout", &raw.upstreams.connect_timeout)?,
            refresh_every: check.duration("upstreams.refresh_every", &raw.upstreams.refresh_every)?,
            stdio: raw.upstreams.stdio,
        },
        nats,
        grace: check.duration("grace", &raw.grace)?,
        log: Log {
            format: match raw.log.format.as_str() {
                "json" => telemetry::Format::Json,
                "text" => telemetry::Format::Text,
                other => {
                    return Err(check.wrong("log.format", &format!("`{other}` is neither json nor text")));
                }
            },
            level: match raw.log.level {
                level if telemetry::is_level(&level) => level,
                other => {
                    let right = "write one as debug or as info,sqlx=warn";
                    return Err(check.wrong("log.level", &format!("`{other}` is no level; {right}")));
                }
            },
        },
        collector,
        data,
        file,
    })
}

struct Check<'f>(&'f Figment);

impl Check<'_> {
    fn wrong(&self, key: &str, problem: &str) -> Error {
        Error::Value { key: key.to_owned(), source_name: source_of(self.0, key), problem: problem.to_owned() }
    }

    fn nats(&self, raw: raw::Nats) -> Result<Option<Nats>, Error> {
        if raw.url.is_empty() {
            return Ok(None);
        }
        let file = |named: &str| Some(PathBuf::from(named)).filter(|path| !path.as_os_str().is_empty());
        let auth = match (file(&raw.creds_file), file(&raw.nkey_file)) {
            (None, None) => Auth::None,
            (Some(creds), None) => Auth::Creds(creds),
            (None, Some(nkey)) => Auth::Nkey(nkey),
            (Some(_), Some(_)) => {
                return Err(self.wrong("nats.nkey_file", "name a creds file or an nkey file, not both"));
            }
        };
        let identity = match (file(&raw.cert_file), file(&raw.key_file)) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => return Err(self.wrong("nats.cert_file", "needs nats.key_file beside it")),
            (None, Some(_)) => return Err(self.wrong("nats.key_file", "needs nats.cert_file beside it")),
        };
        let tls = Tls { required: raw.tls, ca_file: file(&raw.ca_file), identity };
        if !broker::is_inbox_prefix(&raw.inbox_prefix) {
            return Err(self.wrong("nats.inbox_prefix", "write words between dots, as in _INBOX_gateway"));
        }
        let layout = raw.layout.parse().map_err(|error| self.wrong("nats.layout", &format!("{error}")))?;
        let options = broker::Options {
            url: raw.url,
            name: "cynode-gateway".to_owned(),
            auth,
            tls,
            inbox_prefix: Some(raw.inbox_prefix),
            layout,
        };
        Ok(Some(Nats { options, signing_key_file: file(&raw.signing_key_file) }))
    }

    fn duration(&self, key: &str, text: &str) -> Result<Duration, Error> {
        let duration = humantime::parse_duration(text.trim());
        let right =
            || self.wrong(key, &format!("`{text}` is no duration; write one as 500ms, 30s or 90days"));
        duration.ok().filter(|duration| !duration.is_zero()).ok_or_else(right)
    }

    fn at_most(&self, key: &str, text: &str, longest: Duration) -> Result<Duration, Error> {
        let duration = self.duration(key, text)?;
        if duration <= longest {
            return Ok(duration);
        }
        let longest = humantime::format_duration(longest);
        Err(self.wrong(key, &format!("`{text}` is too long; write at most {longest}")))
    }

    fn address(&self, key: &str, text: &str) -> Result<SocketAddr, Error> {
        let right = |_| self.wrong(key, &format!("`{text}` is no address; write one as 127.0.0.1:8790"));
        text.trim().parse().map_err(right)
    }

    fn within(&self, key: &str, value: usize, from: usize, to: usize) -> Result<usize, Error> {
        if (from..=to).contains(&value) {
            return Ok(value);
        }
        Err(self.wrong(key, &format!("{value} is not between {from} and {to}")))
    }

    /// An empty list would mean any name to those who check it.
    fn hosts(&self, key: &str, hosts: Vec<String>) -> Result<Vec<String>, Error> {
        if hosts.is_empty() || hosts.iter().any(|host| host.trim().is_empty()) {
            return Err(self.wrong(key, "name at least one host, as in [\"gateway.internal\"]"));
        }
        Ok(hosts)
    }
}

fn from_figment(figment: &Figment, error: figment::Error) -> Error {
    let first = error.into_iter().next();
    let Some(error) = first else {
        let text = "cannot be read".to_owned();
        return Error::Value { key: "?".to_owned(), source_name: "?".to_owned(), problem: text };
    };
    let key = error.path.join(".");
    let source_name = match &error.metadata {
        Some(metadata) => name_of(metadata),
        None => source_of(figment, &key),
    };
    let problem = match error.kind {
        figment::error::Kind::UnknownField(field, known) => {
            format!("`{field}` is not a setting here; there are {}", known.join(", "))
        }
        other => other.to_string(),
    };
    Error::Value { key: if key.is_empty() { "configuration".to_owned() } else { key }, source_name, problem }
}

fn source_of(figment: &Figment, key: &str) -> String {
    figment.find_metadata(key).map_or_else(|| "default".to_owned(), name_of)
}

fn name_of(metadata: &figment::Metadata) -> String {
    match &metadata.source {
        Some(figment::Source::File(path)) => format!("file {}", path.display()),
        _ if metadata.name.contains("environment") => "environment".to_owned(),
        _ if metadata.name == cli::NAME => "flag".to_owned(),
        _ => "default".to_owned(),
    }
}
