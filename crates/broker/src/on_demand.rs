//! A connection that is made when it is first needed, for programs that also work without NATS. Nothing waits
//! for it: while the server is unreachable an operation fails at once, and a later one tries again.

use std::time::Duration;

use async_nats::connection;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};
use tracing::{info, warn};

use crate::{Broker, Chain, ConnectError, Options, redact_url};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time after a failed attempt before the next one.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// NATS cannot be used at the moment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(String);

/// A connection that is made when it is first needed. Once made, it reconnects by itself.
#[derive(Debug)]
pub struct OnDemand {
    options: Options,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    broker: Option<Broker>,
    failed: Option<(Instant, Unavailable)>,
}

impl OnDemand {
    pub fn new(options: Options) -> Self {
        Self { options, state: Mutex::default() }
    }

    /// Tries to connect at startup. Fails for invalid settings; an unreachable server is only logged.
    pub async fn connect_at_start(&self) -> Result<(), ConnectError> {
        match self.connect().await {
            Ok(broker) => self.state.lock().await.broker = Some(broker),
            Err(ConnectFailure::Failed(error)) if !error.is_transient() => return Err(error),
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
                connection::State::Connected => Ok(broker.clone()),
                connection::State::Pending | connection::State::Disconnected => {
                    let url = redact_url(&self.options.url);
                    Err(Unavailable(format!("the connection to NATS at {url} is lost")))
                }
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

    async fn connect(&self) -> Result<Broker, ConnectFailure> {
        // Boxed: the future is large and rarely needed, so callers should not reserve space for it.
        match timeout(CONNECT_TIMEOUT, Box::pin(crate::connect(&self.options))).await {
            Ok(connected) => connected.map_err(ConnectFailure::Failed),
            Err(_) => Err(ConnectFailure::TimedOut(redact_url(&self.options.url))),
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
