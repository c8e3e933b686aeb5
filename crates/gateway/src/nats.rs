//! The optional connection to NATS. Tool calls never wait for it: if the server is unreachable, an operation
//! that needs it fails at once, and a later one tries again.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use broker::{Broker, Chain, ConnectError};
use nkeys::KeyPair;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};
use tracing::{info, warn};

use crate::config;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time after a failed attempt before the next one.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// NATS cannot be used at the moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(String);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection failed for a reason that retrying does not fix.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("reading the key {}", .0.display())]
    KeyFile(PathBuf, #[source] std::io::Error),
    #[error("{} contains no nkey seed", .0.display())]
    NoKey(PathBuf),
}

/// A connection that is made when it is first needed. Once made, it reconnects by itself.
#[derive(Debug)]
pub struct Nats {
    options: broker::Options,
    signing_key: Option<KeyPair>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    broker: Option<Broker>,
    failed: Option<(Instant, Unavailable)>,
}

impl Nats {
    pub fn open(config: &config::Nats) -> Result<Arc<Self>, Error> {
        let signing_key = config.signing_key_file.as_deref().map(read_key).transpose()?;
        Ok(Arc::new(Self { options: config.options.clone(), signing_key, state: Mutex::default() }))
    }

    /// Tries to connect at startup. Fails for invalid settings; an unreachable server is only logged.
    pub async fn connect_at_start(&self) -> Result<(), Error> {
        match self.connect().await {
            Ok(broker) => self.state.lock().await.broker = Some(broker),
            Err(ConnectFailure::Failed(error)) if !error.is_transient() => return Err(error.into()),
            Err(failure) => {
                warn!(why = %failure.to_unavailable(), "NATS not reachable; retrying when needed.")
            }
        }
        Ok(())
    }

    /// Returns the connection, and makes it if there is none. Fails at once while the connection is lost and
    /// for `RETRY_INTERVAL` after a failed attempt.
    pub async fn broker(&self) -> Result<Broker, Unavailable> {
        let mut state = self.state.lock().await;
        if let Some(broker) = &state.broker {
            return match broker.client.connection_state() {
                async_nats::connection::State::Connected => Ok(broker.clone()),
                async_nats::connection::State::Pending | async_nats::connection::State::Disconnected => Err(
                    Unavailable(format!("the connection to NATS at {} is lost", self.options.redacted_url())),
                ),
            };
        }
        if let Some((at, unavailable)) = &state.failed
            && at.elapsed() < RETRY_INTERVAL
        {
            return Err(unavailable.clone());
        }
        match self.connect().await {
            Ok(broker) => {
                info!("NATS connected.");
                state.broker = Some(broker.clone());
                Ok(broker)
            }
            Err(failure) => {
                let unavailable = failure.to_unavailable();
                state.failed = Some((Instant::now(), unavailable.clone()));
                Err(unavailable)
            }
        }
    }

    /// Returns the key that signs replayed handoffs.
    pub fn signing_key(&self) -> Option<&KeyPair> {
        self.signing_key.as_ref()
    }

    async fn connect(&self) -> Result<Broker, ConnectFailure> {
        // Boxed: the future is large and rarely needed, so callers should not reserve space for it.
        match timeout(CONNECT_TIMEOUT, Box::pin(broker::connect(&self.options))).await {
            Ok(connected) => connected.map_err(ConnectFailure::Failed),
            Err(_) => Err(ConnectFailure::TimedOut(self.options.redacted_url())),
        }
    }
}

enum ConnectFailure {
    Failed(ConnectError),
    TimedOut(String),
}

impl ConnectFailure {
    fn to_unavailable(&self) -> Unavailable {
        Unavailable(match self {
            Self::Failed(error) => Chain(error).to_string(),
            Self::TimedOut(url) => format!("NATS at {url} does not answer"),
        })
    }
}

fn read_key(file: &Path) -> Result<KeyPair, Error> {
    let seed = std::fs::read_to_string(file).map_err(|source| Error::KeyFile(file.to_owned(), source))?;
    KeyPair::from_seed(seed.trim()).map_err(|_| Error::NoKey(file.to_owned()))
}
