//! The queue from which runners take workflows: the gateway creates its stream and its consumer, so that
//! runners need no rights to do so.

use std::{sync::Arc, time::Duration};

use async_nats::jetstream::{
    consumer::{FromConsumer, PullConsumer, pull},
    stream::Stream,
};
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
/// How often the queue is checked while the connection lasts.
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

/// The state that was logged last.
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
        let (mut state, mut is_compared) = (None, false);
        while !stop.is_cancelled() {
            match self.create().await {
                Ok((broker, stream, consumer)) => {
                    delays.reset();
                    if state.replace(State::Ready) != Some(State::Ready) {
                        info!("Workflow queue ready.");
                    }
                    if !is_compared {
                        is_compared = true;
                        lift_delivery_limit(&stream, &consumer, self.ack_wait).await;
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

    async fn create(&self) -> Result<(Broker, Stream, PullConsumer), Failure> {
        let broker = self.nats.broker().await?;
        let config = stream_config(streams::WORKFLOWS).ok_or(Failure::Missing)?;
        let create = async {
            let stream = broker.jetstream.get_or_create_stream(config).await.map_err(|_| Failure::Missing)?;
            let wanted = streams::workflow_runners(self.ack_wait);
            let consumer = stream.get_or_create_consumer(streams::WORKFLOW_RUNNERS, wanted).await;
            Ok::<_, Failure>((stream, consumer.map_err(|_| Failure::Missing)?))
        };
        let (stream, consumer) = timeout(SETUP_TIMEOUT, create).await.map_err(|_| Failure::Missing)??;
        Ok((broker, stream, consumer))
    }
}

/// Removes the delivery limit of a consumer that an earlier release created. A message past the limit is not
/// delivered again, and its workflow would wait forever. Leaves the rest of the consumer as it is.
async fn lift_delivery_limit(stream: &Stream, consumer: &PullConsumer, ack_wait: Duration) {
    let found = consumer.cached_info().config.clone();
    let max_deliver = streams::workflow_runners(ack_wait).max_deliver;
    if found.max_deliver == max_deliver {
        return;
    }
    let update = async {
        let found = pull::Config::try_from_consumer_config(found)?;
        stream.update_consumer(pull::Config { max_deliver, ..found }).await?;
        Ok::<_, async_nats::Error>(())
    };
    let why = match timeout(SETUP_TIMEOUT, update).await {
        Ok(Ok(())) => {
            info!("Workflow consumer updated: it redelivers messages without limit.");
            return;
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no answer; the gateway may lack the permission".to_owned(),
    };
    warn!(
        %why,
        "Workflow consumer limits redelivery; run `nats consumer edit {} {} --max-deliver={max_deliver}`.",
        streams::WORKFLOWS,
        streams::WORKFLOW_RUNNERS,
    );
}
