use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, jetstream};
use subjects::streams::Layout;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::retry::Waits;

/// The oldest server that has what we lean on: a compare-and-set over a subject filter.
pub const MIN_SERVER: (i64, i64, i64) = (2, 11, 0);

const PING_EVERY: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const RECONNECT_FIRST: Duration = Duration::from_millis(50);
const RECONNECT_LONGEST: Duration = Duration::from_secs(2);

/// How to reach the server. Secrets are named by file and read when connecting.
#[derive(Clone, Debug)]
pub struct Options {
    /// One URL or several, separated by commas.
    pub url: String,
    /// Shown by the server for this connection.
    pub name: String,
    pub auth: Auth,
    pub tls: Tls,
    /// What the subjects begin with on which this connection hears answers. Whoever may listen on another's hears what
    /// that one is answered, so identities that must not have prefixes of their own. `None`: `_INBOX`.
    pub inbox_prefix: Option<String>,
    /// Whose work is in which stream.
    pub layout: Layout,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Auth {
    #[default]
    None,
    /// A `.creds` file: user JWT and seed.
    Creds(PathBuf),
    /// A file with an nkey seed.
    Nkey(PathBuf),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    pub required: bool,
    pub ca_file: Option<PathBuf>,
    /// Certificate and key of this client.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// A connection.
#[derive(Clone, Debug)]
pub struct Broker {
    pub client: Client,
    pub jetstream: jetstream::Context,
    /// Counts connections made. It changes when the connection came back, so whatever waited for an answer
    /// that a dead connection cannot bring should ask again.
    pub connections: watch::Receiver<u64>,
    pub layout: Layout,
}

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("cannot connect to NATS at {url}")]
    Unreachable {
        url: String,
        #[source]
        source: async_nats::ConnectError,
    },
    #[error("NATS at {url} rejected the credentials")]
    Refused {
        url: String,
        #[source]
        source: async_nats::ConnectError,
    },
    #[error("TLS handshake with NATS at {url} failed")]
    Tls {
        url: String,
        #[source]
        source: async_nats::ConnectError,
    },
    #[error("invalid NATS URL `{url}`")]
    Address {
        url: String,
        #[source]
        source: async_nats::ConnectError,
    },
    #[error("reading {path}")]
    Secret {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "NATS at {url} is nats-server {version}; this needs {}.{}.{} or newer for its compare-and-set",
        MIN_SERVER.0, MIN_SERVER.1, MIN_SERVER.2
    )]
    TooOld { url: String, version: String },
}

impl ConnectError {
    /// Whether waiting may help: a server that is not there yet, as opposed to one that says no.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Refused { .. }
            | Self::Tls { .. }
            | Self::Address { .. }
            | Self::Secret { .. }
            | Self::TooOld { .. } => false,
        }
    }
}

/// Connects once; afterwards the connection comes back by itself for as long as it takes.
pub async fn connect(options: &Options) -> Result<Broker, ConnectError> {
    let url = without_secrets(&options.url);
    let (connected, connections) = watch::channel(0);
    let client_options = client_options(options, connected).await?;
    let servers: Vec<&str> = options.url.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    let client = client_options.connect(servers).await.map_err(|source| classify(url.clone(), source))?;
    if !client.is_server_compatible(MIN_SERVER.0, MIN_SERVER.1, MIN_SERVER.2) {
        return Err(ConnectError::TooOld { url, version: client.server_info().version });
    }
    let jetstream = jetstream::new(client.clone());
    Ok(Broker { client, jetstream, connections, layout: options.layout })
}

async fn client_options(
    options: &Options,
    connected: watch::Sender<u64>,
) -> Result<ConnectOptions, ConnectError> {
    let waits = Arc::new(Mutex::new(Waits::forever(RECONNECT_FIRST, RECONNECT_LONGEST)));
    let mut out = ConnectOptions::new()
        .name(&options.name)
        .ping_interval(PING_EVERY)
        .connection_timeout(CONNECT_TIMEOUT)
        .reconnect_delay_callback(move |attempt| {
            let Ok(mut waits) = waits.lock() else { return RECONNECT_LONGEST };
            if attempt <= 1 {
                waits.reset();
            }
            waits.next_wait().unwrap_or(RECONNECT_LONGEST)
        })
        .event_callback(move |event| {
            on_event(&event, &connected);
            std::future::ready(())
        });
    out = match &options.auth {
        Auth::None => out,
        Auth::Creds(path) => out
            .credentials_file(path)
            .await
            .map_err(|source| ConnectError::Secret { path: path.clone(), source })?,
        Auth::Nkey(path) => {
            let seed = tokio::fs::read_to_string(path)
                .await
                .map_err(|source| ConnectError::Secret { path: path.clone(), source })?;
            out.nkey(seed.trim().to_owned())
        }
    };
    if let Some(prefix) = &options.inbox_prefix {
        out = out.custom_inbox_prefix(prefix);
    }
    if options.tls.required {
        out = out.require_tls(true);
    }
    if let Some(ca) = &options.tls.ca_file {
        out = out.add_root_certificates(ca.clone());
    }
    if let Some((certificate, key)) = &options.tls.identity {
        out = out.add_client_certificate(certificate.clone(), key.clone());
    }
    Ok(out)
}

fn on_event(event: &Event, connected: &watch::Sender<u64>) {
    match event {
        Event::Connected => {
            connected.send_modify(|count| *count += 1);
            info!("Connected to NATS.");
        }
        Event::Disconnected => warn!("Connection to NATS lost; reconnecting."),
        Event::SlowConsumer(subscription) => {
            warn!(subscription, "Subscription too slow; messages dropped.");
        }
        Event::ServerError(error) => warn!(%error, "NATS server error."),
        Event::ClientError(error) => debug!(%error, "NATS client error."),
        Event::LameDuckMode => info!("NATS server in lame-duck mode; reconnecting elsewhere."),
        Event::Draining | Event::Closed => debug!(%event, "NATS connection closing."),
    }
}

fn classify(url: String, source: async_nats::ConnectError) -> ConnectError {
    match source.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            ConnectError::Refused { url, source }
        }
        ConnectErrorKind::ServerParse => ConnectError::Address { url, source },
        ConnectErrorKind::Tls => ConnectError::Tls { url, source },
        // A certificate that is not accepted comes as data that could not be understood.
        ConnectErrorKind::Io if is_invalid_data(&source) => ConnectError::Tls { url, source },
        ConnectErrorKind::Dns
        | ConnectErrorKind::TimedOut
        | ConnectErrorKind::Io
        | ConnectErrorKind::MaxReconnects => ConnectError::Unreachable { url, source },
    }
}

fn is_invalid_data(error: &async_nats::ConnectError) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|source| source.kind() == std::io::ErrorKind::InvalidData)
}

/// Whether inboxes can begin with this: words between dots, without wildcards.
pub fn is_inbox_prefix(text: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
    };
    text.split('.').all(is_word)
}

/// A URL may carry `user:password@`; what is shown does not.
pub fn without_secrets(url: &str) -> String {
    url.split(',')
        .map(|part| match (part.find("://"), part.rfind('@')) {
            (Some(scheme), Some(at)) if at > scheme => format!("{}***{}", &part[..scheme + 3], &part[at..]),
            (None, Some(at)) => format!("***{}", &part[at..]),
            _ => part.to_owned(),
        })
        .collect::<Vec<_>>()
        .join(",")
}

impl Options {
    /// The URL as it may be shown.
    pub fn shown_url(&self) -> String {
        without_secrets(&self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inbox_begins_with_words_alone() {
        assert!(["_INBOX", "_INBOX_pma", "answers.pma-1"].into_iter().all(is_inbox_prefix));
        assert!(!["", ".", "a.", ".a", "a..b", "*", ">", "_INBOX.>", "a b"].into_iter().any(is_inbox_prefix));
    }

    /// G11: a password in a URL never reaches a log.
    #[test]
    fn urls_are_shown_without_their_secrets() {
        assert_eq!(without_secrets("nats://127.0.0.1:4222"), "nats://127.0.0.1:4222");
        assert_eq!(without_secrets("nats://me:s3cret@a:1,tls://tok@b:2"), "nats://***@a:1,tls://***@b:2");
        assert_eq!(without_secrets("me:s3cret@a:1"), "***@a:1");
    }
}
