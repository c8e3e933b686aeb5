//! The connection to NATS: options, errors, reconnects.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, jetstream};
use subjects::streams::Layout;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::retry::RetryDelays;

/// The oldest server version with a compare-and-set over a subject filter, which the journal depends on.
pub const MIN_SERVER: (i64, i64, i64) = (2, 11, 0);

const PING_INTERVAL: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const MIN_RECONNECT_DELAY: Duration = Duration::from_millis(50);
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(2);

/// How to connect to the server. Secrets are read from files when connecting.
#[derive(Clone, Debug)]
pub struct Options {
    /// One URL or several, separated by commas.
    pub url: String,
    /// Shown by the server for this connection.
    pub name: String,
    pub auth: Auth,
    pub tls: Tls,
    /// Prefix of the subjects on which this connection receives replies; `_INBOX` if `None`. A client that
    /// may subscribe to another's prefix can read its replies, so identities that must be kept apart have
    /// prefixes of their own.
    pub inbox_prefix: Option<String>,
    /// Which role's messages are in which stream.
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

/// A connection to NATS with its JetStream context.
#[derive(Clone, Debug)]
pub struct Broker {
    pub client: Client,
    pub jetstream: jetstream::Context,
    /// Number of connections made. It changes on every reconnect; a request that was waiting for a reply over
    /// the old connection should then be sent again.
    pub connections: watch::Receiver<u64>,
    pub layout: Layout,
}

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("cannot connect to NATS at {url}")]
    Unreachable { url: String, source: async_nats::ConnectError },
    #[error("NATS at {url} rejected the credentials")]
    Refused { url: String, source: async_nats::ConnectError },
    #[error("TLS handshake with NATS at {url} failed")]
    Tls { url: String, source: async_nats::ConnectError },
    #[error("invalid NATS URL `{url}`")]
    Address { url: String, source: async_nats::ConnectError },
    #[error("reading {path}")]
    Secret { path: PathBuf, source: std::io::Error },
    #[error(
        "NATS at {url} is nats-server {version}; this needs {}.{}.{} or newer for its compare-and-set",
        MIN_SERVER.0, MIN_SERVER.1, MIN_SERVER.2
    )]
    TooOld { url: String, version: String },
}

impl ConnectError {
    /// Returns whether a later attempt may succeed: the server is unreachable, as opposed to refusing.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}

/// Connects once. A connection that is lost later reconnects by itself, without a limit on attempts.
pub async fn connect(options: &Options) -> Result<Broker, ConnectError> {
    let url = redact_url(&options.url);
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
    let delays = Arc::new(Mutex::new(RetryDelays::forever(MIN_RECONNECT_DELAY, MAX_RECONNECT_DELAY)));
    let mut out = ConnectOptions::new()
        .name(&options.name)
        .ping_interval(PING_INTERVAL)
        .connection_timeout(CONNECT_TIMEOUT)
        .reconnect_delay_callback(move |attempt| {
            let Ok(mut delays) = delays.lock() else { return MAX_RECONNECT_DELAY };
            if attempt <= 1 {
                delays.reset();
            }
            delays.next_delay().unwrap_or(MAX_RECONNECT_DELAY)
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
            let earlier = *connected.borrow();
            connected.send_replace(earlier + 1);
            if earlier == 0 {
                info!("Connected to NATS.");
            } else {
                info!("Connection to NATS restored.");
            }
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
        // A rejected certificate is reported as invalid data.
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

/// Returns whether a text is a valid inbox prefix: tokens separated by dots, without wildcards.
pub fn is_inbox_prefix(text: &str) -> bool {
    let is_token = |token: &str| {
        !token.is_empty() && token.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
    };
    text.split('.').all(is_token)
}

/// Replaces `user:password@` in a URL, or in each of several separated by commas, with `***@`.
pub fn redact_url(url: &str) -> String {
    url.split(',')
        .map(|part| match (part.find("://"), part.rfind('@')) {
            (Some(scheme), Some(at)) if at > scheme => format!("{}***{}", &part[..scheme + 3], &part[at..]),
            (None, Some(at)) => format!("***{}", &part[at..]),
            _ => part.to_owned(),
        })
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inbox_prefix_is_tokens_without_wildcards() {
        assert!(["_INBOX", "_INBOX_pma", "answers.pma-1"].into_iter().all(is_inbox_prefix));
        assert!(!["", ".", "a.", ".a", "a..b", "*", ">", "_INBOX.>", "a b"].into_iter().any(is_inbox_prefix));
    }

    /// G11: a password in a URL never reaches a log.
    #[test]
    fn redacted_urls_have_no_credentials() {
        assert_eq!(redact_url("nats://127.0.0.1:4222"), "nats://127.0.0.1:4222");
        assert_eq!(redact_url("nats://me:s3cret@a:1,tls://tok@b:2"), "nats://***@a:1,tls://***@b:2");
        assert_eq!(redact_url("me:s3cret@a:1"), "***@a:1");
    }
}
