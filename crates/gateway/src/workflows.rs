//! The queue from which runners take workflows: the gateway creates its stream and its consumer, so that
//! runners need no rights to do so.

use std::{sync::Arc, time::Duration};

use broker::{Broker, Chain, OnDemand, Unavailable, retry::RetryDelays};
use subjects::streams;
use tokio::{
    select,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::jobs::stream_config;

const SETUP_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the queue is looked for while the connection lasts.
const LOOK_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error("the queue of workflows does not exist and cannot be created: run `cynodectl provision`")]
    Missing,
}

/// Creates the queue of workflows.
#[derive(Debug)]
pub(crate) struct RunnerQueue {
    pub(crate) nats: Arc<OnDemand>,
    /// How long a runner may be silent before its message is delivered to another.
    pub(crate) ack_wait: Duration,
}

/// What was logged last.
#[derive(Debug, PartialEq, Eq)]
enum State {
    Ready,
    Failing,
}

impl RunnerQueue {
    /// Creates the queue, and again after each loss of the connection and from time to time: a server may
    /// have lost it.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut delays = RetryDelays::forever(Duration::from_millis(100), Duration::from_secs(5));
        let mut state = None;
        while !stop.is_cancelled() {
            match self.create().await {
                Ok(broker) => {
                    delays.reset();
                    if state.replace(State::Ready) != Some(State::Ready) {
                        info!("Workflow queue ready.");
                    }
                    let mut connections = broker.connections.clone();
                    connections.mark_unchanged();
                    select! {
                        () = stop.cancelled() => return,
                        // Cancel-safe.
                        _ = connections.changed() => {}
                        // An operator may have removed it.
                        () = sleep(LOOK_EVERY) => {}
                    }
                }
                Err(error) => {
                    if state.replace(State::Failing) != Some(State::Failing) {
                        warn!(error = %Chain(&error), "Workflow queue not ready; retrying.");
                    }
                    select! {
                        () = stop.cancelled() => return,
                        () = sleep(delays.next_delay().unwrap_or_default()) => {}
                    }
                }
            }
        }
    }

    async fn create(&self) -> Result<Broker, Failure> {
        let broker = self.nats.broker().await?;
        let config = stream_config(streams::WORKFLOWS).ok_or(Failure::Missing)?;
        let create = async {
            let stream = broker.jetstream.get_or_create_stream(config).await.map_err(|_| Failure::Missing)?;
            let consumer = streams::workflow_runners(self.ack_wait);
            let created = stream.get_or_create_consumer(streams::WORKFLOW_RUNNERS, consumer).await;
            created.map(drop).map_err(|_| Failure::Missing)
        };
        timeout(SETUP_TIMEOUT, create).await.map_err(|_| Failure::Missing)??;
        Ok(broker)
    }
}
