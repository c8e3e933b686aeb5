//! Applies the messages that nodes append to the chains of jobs to the store. All gateways share one
//! durable consumer.

use std::{sync::Arc, time::Duration};

use async_nats::jetstream::{
    self, AckKind, Message,
    consumer::{PullConsumer, pull},
};
use broker::{Broker, Chain, OnDemand, Unavailable, retry::RetryDelays};
use control::{LeaseIssuer, NotApplied, Sandboxes};
use futures_util::StreamExt;
use store::Store;
use subjects::streams;
use tokio::{
    select,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::stream_config;

const BATCH: usize = 64;
const HEARTBEAT: Duration = Duration::from_secs(5);
const RETRY_DELAY: Duration = Duration::from_secs(1);
const SETUP_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error("the stream {0} does not exist and cannot be created: run `cynodectl provision`")]
    Missing(&'static str),
    #[error("creating the consumer of jobs")]
    Consumer(#[from] jetstream::stream::ConsumerError),
    #[error("requesting journals and results of jobs")]
    Request(#[from] jetstream::consumer::StreamError),
    #[error("receiving journals and results of jobs")]
    Receive(#[from] pull::MessagesError),
    #[error("the server does not respond")]
    TimedOut,
    #[error("the server ended the consumer")]
    Ended,
}

/// Reads the chains of jobs and applies them to the store.
#[derive(Debug)]
pub(crate) struct ChainReader {
    pub(crate) store: Store,
    pub(crate) nats: Arc<OnDemand>,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) leases: Arc<LeaseIssuer>,
}

impl ChainReader {
    /// Reads until `stop` is cancelled.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut delays = RetryDelays::forever(Duration::from_millis(100), Duration::from_secs(5));
        let mut is_failing = false;
        while !stop.is_cancelled() {
            // Boxed, since the future is large.
            match Box::pin(self.read(&stop)).await {
                Ok(()) => {
                    delays.reset();
                    is_failing = false;
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        warn!(error = %Chain(&error), "Job results consumer failed; retrying.");
                    }
                    select! {
                        () = stop.cancelled() => return,
                        () = sleep(delays.next_delay().unwrap_or_default()) => {}
                    }
                }
            }
        }
    }

    /// Reads until `stop` is cancelled or the connection was restored after a loss.
    async fn read(&self, stop: &CancellationToken) -> Result<(), Failure> {
        let broker = self.nats.broker().await?;
        let mut connections = broker.connections.clone();
        connections.mark_unchanged();
        let setup = timeout(SETUP_TIMEOUT, consumer(&broker)).await;
        let consumer = setup.map_err(|_| Failure::TimedOut)??;
        let mut messages =
            consumer.stream().max_messages_per_batch(BATCH).heartbeat(HEARTBEAT).messages().await?;
        info!("Job results consumer started.");
        loop {
            select! {
                // Cancel-safe.
                () = stop.cancelled() => return Ok(()),
                // Cancel-safe: the change stays visible.
                _ = connections.changed() => return Ok(()),
                // Cancel-safe: what is not yielded stays in the stream.
                received = messages.next() => self.settle(received.ok_or(Failure::Ended)??).await,
            }
        }
    }

    async fn settle(&self, message: Message) {
        let how = self.apply(&message).await;
        if let Err(error) = message.ack_with(how).await {
            debug!(%error, "Message of a job not acknowledged; it is applied again.");
        }
    }

    /// Applies a message and returns how it is settled.
    async fn apply(&self, message: &Message) -> AckKind {
        let subject = message.subject.as_str();
        let sequence = match message.info() {
            Ok(info) => info.stream_sequence,
            Err(error) => {
                warn!(subject, %error, "Message of a job has no sequence.");
                return AckKind::Ack;
            }
        };
        let applied =
            self.sandboxes.apply(&self.store, &self.leases, subject, sequence, &message.payload).await;
        match applied {
            Ok(is_new) => {
                debug!(subject, sequence, is_new, "Message of a job applied.");
                AckKind::Ack
            }
            Err(error @ NotApplied::Unreadable(_)) => {
                warn!(subject, sequence, error = %Chain(&error), "Message of a job ignored.");
                AckKind::Ack
            }
            Err(error) => {
                warn!(subject, sequence, error = %Chain(&error), "Message of a job not applied; retrying.");
                AckKind::Nak(Some(RETRY_DELAY))
            }
        }
    }
}

/// Returns the shared consumer. Creates it, and the streams of jobs, if they are missing.
async fn consumer(broker: &Broker) -> Result<PullConsumer, Failure> {
    for name in [streams::JOBS, streams::JOB_RUNS, streams::JOB_LOGS] {
        let config = stream_config(name).ok_or(Failure::Missing(name))?;
        broker.jetstream.get_or_create_stream(config).await.map_err(|_| Failure::Missing(name))?;
    }
    let runs = broker.jetstream.get_stream_no_info(streams::JOB_RUNS).await;
    let runs = runs.map_err(|_| Failure::Missing(streams::JOB_RUNS))?;
    let config = streams::job_results_consumer();
    Ok(runs.get_or_create_consumer(streams::JOB_RESULTS_CONSUMER, config).await?)
}
