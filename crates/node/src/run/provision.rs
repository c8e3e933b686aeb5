//! Creates the streams of jobs and the consumers of the node's queues, or checks them.

use std::{sync::Arc, time::Duration};

use broker::{Broker, Provision, ProvisionError};
use subjects::streams::{self, Sizing};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::{config::Config, health::Health, queue::Queue};

/// How often consumers are checked while a queue cannot be pulled from.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Creates or checks the streams.
pub(super) async fn streams(broker: &Broker, config: &Config) -> Result<(), ProvisionError> {
    let sizing = Sizing {
        replicas: config.nats.replicas,
        ack_wait: config.node.ack_wait,
        dedupe_window: Duration::from_secs(120),
    };
    let wanted = streams::of_jobs(sizing).into_iter().chain([streams::edge_audit(config.nats.replicas)]);
    let drifts = broker::provision_streams(broker, config.nats.provision, wanted).await?;
    for drift in &drifts {
        warn!(%drift, "Configuration drift not corrected; change it with the nats CLI.");
    }
    Ok(())
}

/// Creates or checks the consumers. Returns the `ack_wait` of each, as the server has it.
pub(super) async fn consumers(
    broker: &Broker,
    config: &Config,
    queues: &[Queue],
) -> Result<Vec<Duration>, ProvisionError> {
    let mut ack_waits = Vec::with_capacity(queues.len());
    for queue in queues {
        // A queue of jobs has a consumer once a node serves it, whichever program made the streams.
        let how = match config.nats.provision {
            Provision::Create | Provision::Verify => Provision::Create,
            Provision::None => Provision::None,
        };
        let wanted = streams::node_consumer(&queue.subject(), config.node.ack_wait);
        let found = broker::provision_queue(broker, how, streams::JOBS, wanted).await?;
        ack_waits.push(found.unwrap_or(config.node.ack_wait));
    }
    Ok(ack_waits)
}

/// Creates consumers again that were lost, such as with their stream: an operator who creates that again
/// does not know the queues of nodes.
pub(super) async fn restore_consumers(
    broker: Arc<Broker>,
    config: Arc<Config>,
    queues: Vec<Queue>,
    health: Arc<Health>,
    ended: CancellationToken,
) {
    let mut was_blocked = false;
    while ended.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
        let is_blocked = health.cannot_pull();
        // Seen twice, so that a pull request that merely failed changes nothing.
        if is_blocked && was_blocked {
            match consumers(&broker, &config, &queues).await {
                Ok(_) => info!("Consumers of job queues restored."),
                Err(error) => debug!(error = %broker::Chain(&error), "Queues not found."),
            }
        }
        was_blocked = is_blocked;
    }
}
