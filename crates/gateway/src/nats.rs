//! NATS, where there is one. Nobody who answers agents waits for it: a server that is away is tried again when somebody
//! needs it, and whoever needs it is told at once.

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

/// How long it may take to find out whether it is there.
const PATIENCE: Duration = Duration::from_secs(2);
/// After one that failed, the next try waits so long.
const PAUSE: Duration = Duration::from_secs(1);

/// It cannot be used at the moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Away(String);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is there, or could be, and waiting does not help.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("reading the key {}", .0.display())]
    KeyFile(PathBuf, #[source] std::io::Error),
    #[error("{} contains no nkey seed", .0.display())]
    NoKey(PathBuf),
}

/// A connection that is made when it is needed; afterwards it comes back by itself.
#[derive(Debug)]
pub struct Nats {
    options: broker::Options,
    signing_key: Option<KeyPair>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    broker: Option<Broker>,
    failed: Option<(Instant, Away)>,
}

impl Nats {
    pub fn open(config: &config::Nats) -> Result<Arc<Self>, Error> {
        let signing_key = config.signing_key_file.as_deref().map(key).transpose()?;
        Ok(Arc::new(Self { options: config.options.clone(), signing_key, state: Mutex::default() }))
    }

    /// Tries it for the first time. Wrong settings are told; a server that is away is not waited for.
    pub async fn begin(&self) -> Result<(), Error> {
        match self.try_now().await {
            Ok(broker) => self.state.lock().await.broker = Some(broker),
            Err(Tried::InVain(error)) if !error.may_pass() => return Err(error.into()),
            Err(tried) => warn!(why = %tried.away(), "NATS not reachable; retrying when needed."),
        }
        Ok(())
    }

    pub async fn broker(&self) -> Result<Broker, Away> {
        let mut state = self.state.lock().await;
        if let Some(broker) = &state.broker {
            return match broker.client.connection_state() {
                async_nats::connection::State::Connected => Ok(broker.clone()),
                async_nats::connection::State::Pending | async_nats::connection::State::Disconnected => {
                    Err(Away(format!("the connection to NATS at {} is lost", self.options.shown_url())))
                }
            };
        }
        if let Some((at, away)) = &state.failed
            && at.elapsed() < PAUSE
        {
            return Err(away.clone());
        }
        match self.try_now().await {
            Ok(broker) => {
                info!("NATS connected.");
                state.broker = Some(broker.clone());
                Ok(broker)
            }
            Err(tried) => {
                let away = tried.away();
                state.failed = Some((Instant::now(), away.clone()));
                Err(away)
            }
        }
    }

    /// Signs what is handed off again.
    pub fn signing_key(&self) -> Option<&KeyPair> {
        self.signing_key.as_ref()
    }

    async fn try_now(&self) -> Result<Broker, Tried> {
        // Boxed: it is seldom done, and nobody should hold room for it while doing something else.
        match timeout(PATIENCE, Box::pin(broker::connect(&self.options))).await {
            Ok(connected) => connected.map_err(Tried::InVain),
            Err(_) => Err(Tried::TooLong(self.options.shown_url())),
        }
    }
}

enum Tried {
    InVain(ConnectError),
    TooLong(String),
}

impl Tried {
    fn away(&self) -> Away {
        Away(match self {
            Self::InVain(error) => Chain(error).to_string(),
            Self::TooLong(url) => format!("NATS at {url} does not answer"),
        })
    }
}

fn key(file: &Path) -> Result<KeyPair, Error> {
    let seed = std::fs::read_to_string(file).map_err(|source| Error::KeyFile(file.to_owned(), source))?;
    KeyPair::from_seed(seed.trim()).map_err(|_| Error::NoKey(file.to_owned()))
}
