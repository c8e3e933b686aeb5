//! Ingests the audit of nodes from its stream, and detects missing lines.
//!
//! All gateways on a store share one durable consumer. A delivery only says that there is something new on a
//! subject. All lines on it that follow those in the store are ingested in one transaction.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_nats::jetstream::{
    self,
    consumer::{PullConsumer, pull},
    message::StreamMessage,
};
use audit::edge::{self, EdgeMessage, EdgeMessages, Ingested, StreamPosition};
use broker::{Broker, Chain, OnDemand, Provision, ReadError};
use bytes::Bytes;
use futures_util::StreamExt;
use sea_orm::DbErr;
use store::Store;
use subjects::{Subject, streams};
use tokio::{
    select,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::metrics::Metrics;

/// The pause after a failure.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);
/// How long a request for messages waits for one.
const PULL_TIMEOUT: Duration = Duration::from_secs(5);
const MESSAGES_PER_PULL: usize = 64;
const ACK_TIMEOUT: Duration = Duration::from_secs(5);
/// How often to check for leases that have ended without their last line.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
const REPLICAS: usize = 1;

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Nats(#[from] broker::Unavailable),
    #[error("the store is not available")]
    Store(#[from] DbErr),
    #[error("the stream {} or its consumer cannot be used: run `cynodectl provision`", streams::EDGE_AUDIT)]
    Stream(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("reading the stream")]
    Read(#[from] ReadError),
}

/// Takes over the audit of nodes.
#[derive(Debug)]
pub(crate) struct EdgeAudit {
    store: Store,
    nats: Arc<OnDemand>,
    metrics: Arc<Metrics>,
    /// How long after its end a lease may be without its last line.
    grace: Duration,
}

impl EdgeAudit {
    pub(crate) fn new(store: Store, nats: Arc<OnDemand>, metrics: Arc<Metrics>, grace: Duration) -> Self {
        Self { store, nats, metrics, grace }
    }

    /// Works until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let (mut is_failing, mut swept_at) = (false, None::<Instant>);
        let mut consumer = None;
        while !stop.is_cancelled() {
            if swept_at.is_none_or(|at| at.elapsed() >= SWEEP_INTERVAL.min(self.grace)) {
                swept_at = Some(Instant::now());
                self.sweep().await;
            }
            let round = select! {
                () = stop.cancelled() => return,
                round = Box::pin(self.take_over(&mut consumer)) => round,
            };
            match (&round, is_failing) {
                (Err(error), false) => {
                    warn!(error = %Chain(error), "Audit of nodes not ingested; retrying.");
                }
                (Ok(()), true) => info!("Audit of nodes is ingested again."),
                _ => {}
            }
            is_failing = round.is_err();
            if is_failing {
                consumer = None;
                select! {
                    () = stop.cancelled() => return,
                    () = sleep(FAILURE_PAUSE) => {}
                }
            }
        }
    }

    async fn sweep(&self) {
        match edge::sweep(&self.store, self.grace).await {
            Ok(0) => {}
            Ok(alarms) => error!(alarms, "Audit of nodes is incomplete; see `cynodectl audit verify`."),
            Err(error) => warn!(%error, "Leases of nodes not checked; retrying."),
        }
        match edge::count_open_alarms(&self.store).await {
            Ok(open) => self.metrics.set_edge_alarms(open),
            Err(error) => warn!(%error, "Alarms about nodes not counted; retrying."),
        }
    }

    /// Waits for messages and takes over what they announce.
    async fn take_over(&self, consumer: &mut Option<PullConsumer>) -> Result<(), Failure> {
        let broker = self.nats.broker().await?;
        let consumer = match consumer {
            Some(consumer) => consumer,
            None => consumer.insert(open_consumer(&broker).await?),
        };
        // Waits for the first message, and takes with it what is there already.
        let wait = PULL_TIMEOUT.min(self.grace);
        let first = consumer.batch().max_messages(1).expires(wait).messages().await;
        let mut received = collect(first.map_err(|error| Failure::Stream(Box::new(error)))?).await?;
        if !received.is_empty() {
            let more = consumer.fetch().max_messages(MESSAGES_PER_PULL).messages().await;
            received.extend(collect(more.map_err(|error| Failure::Stream(Box::new(error)))?).await?);
        }
        // The newest of each subject takes over those before it.
        let mut taken_over = BTreeSet::new();
        for message in received.into_iter().rev() {
            if taken_over.insert(message.subject.to_string()) {
                self.take_over_subject(&broker, &message).await?;
            }
            let reply = message.reply.clone().unwrap_or_else(|| "".into());
            let ack = Bytes::from_static(b"+ACK");
            if let Err(error) = broker::confirm(&broker.client, &reply, ack, ACK_TIMEOUT).await {
                // It is redelivered, and found to be ingested.
                warn!(error = %Chain(&error), "Message of a node not acknowledged.");
            }
        }
        Ok(())
    }

    async fn take_over_subject(&self, broker: &Broker, message: &jetstream::Message) -> Result<(), Failure> {
        let subject = message.subject.as_str();
        let Ok(Subject::EdgeAudit(node, lease)) = subject.parse() else {
            warn!(subject, "Message on an unexpected subject ignored.");
            return Ok(());
        };
        let (node_id, lease_id) = (node.as_str(), lease.as_str());
        let sequence = message.info().map_err(Failure::Stream)?.stream_sequence;
        let (mut all, mut has_begun) = (Ingested::default(), false);
        // Piece by piece: a node may have written any amount. A piece is read again if another gateway has
        // taken it over meanwhile.
        loop {
            let Some(known) = edge::position(&self.store, node_id, lease_id).await? else {
                match edge::refuse_unbound(&self.store, node_id, lease_id, sequence).await? {
                    Some(alarms) => {
                        all.alarms += alarms;
                        break;
                    }
                    None => continue,
                }
            };
            // What follows has messages of its own.
            if has_begun && known.sequence >= sequence {
                break;
            }
            let Some(read) = read_after(broker, subject, &known).await? else { break };
            if let Some(taken) = edge::ingest(&self.store, node_id, lease_id, &known, &read).await? {
                all += taken;
                has_begun = true;
            }
        }
        let Ingested { lines, rows, alarms } = all;
        self.metrics.edge_lines.inc_by(lines);
        if alarms > 0 {
            error!(
                %node, lease.id = %lease, alarms, rows,
                "Audit of a node is not intact; see `cynodectl audit verify`."
            );
        }
        Ok(())
    }
}

async fn collect(mut messages: pull::Batch) -> Result<Vec<jetstream::Message>, Failure> {
    let mut received = Vec::new();
    while let Some(message) = messages.next().await {
        received.push(message.map_err(Failure::Stream)?);
    }
    Ok(received)
}

/// Reads what is on a subject and was not taken over, or the beginning of it. `None` if there is nothing.
async fn read_after(
    broker: &Broker,
    subject: &str,
    known: &StreamPosition,
) -> Result<Option<EdgeMessages>, ReadError> {
    let Some(last) = broker::last_on(&broker.jetstream, streams::EDGE_AUDIT, &subject).await? else {
        return Ok(None);
    };
    let last = to_message(&last);
    if known.is_at(&last) {
        return Ok(None);
    }
    if known.sequence > 0 && known.sequence < last.sequence {
        let mut messages = read_from(broker, subject, known.sequence, &last).await?;
        if messages.first().is_some_and(|first| known.is_at(first)) {
            messages.remove(0);
            if messages.is_empty() {
                messages = read_from(broker, subject, known.sequence + 1, &last).await?;
            }
            return Ok(Some(EdgeMessages::Continued(messages)));
        }
    }
    // Nothing was ingested yet, or this is another stream.
    Ok(Some(EdgeMessages::FromStart(read_from(broker, subject, 1, &last).await?)))
}

/// Reads messages on a subject from a sequence on, up to and including `last`: as many as one request
/// returns, which is at least one.
async fn read_from(
    broker: &Broker,
    subject: &str,
    from: u64,
    last: &EdgeMessage,
) -> Result<Vec<EdgeMessage>, ReadError> {
    let left = (last.sequence + 1).saturating_sub(from).max(1);
    let batch = broker::read_batch(&broker.jetstream, streams::EDGE_AUDIT, subject, from, left).await?;
    let found: Vec<EdgeMessage> =
        batch.iter().filter(|it| it.sequence <= last.sequence).map(to_message).collect();
    match found.last() {
        // Otherwise the stream was created again while it was read.
        Some(newest) if newest.sequence < last.sequence || newest == last => Ok(found),
        Some(_) | None => Err(ReadError::TimedOut),
    }
}

fn to_message(message: &StreamMessage) -> EdgeMessage {
    EdgeMessage { sequence: message.sequence, body: message.payload.to_vec() }
}

/// Returns the shared consumer. Creates the stream and the consumer if they are missing.
async fn open_consumer(broker: &Broker) -> Result<PullConsumer, Failure> {
    let stream = streams::edge_audit(REPLICAS);
    let provisioned = broker::provision_streams(broker, Provision::Create, [stream]).await;
    provisioned.map_err(|error| Failure::Stream(Box::new(error)))?;
    let stream = broker.jetstream.get_stream(streams::EDGE_AUDIT).await;
    let stream = stream.map_err(|error| Failure::Stream(Box::new(error)))?;
    let consumer =
        stream.get_or_create_consumer(streams::EDGE_AUDIT_CONSUMER, streams::edge_audit_consumer()).await;
    consumer.map_err(|error| Failure::Stream(Box::new(error)))
}
