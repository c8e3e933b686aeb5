//! Creates the streams of jobs and the consumers of the node's queues, or checks them.

use std::time::Duration;

use broker::{Broker, Provision, ProvisionError};
use subjects::streams::{self, Sizing};
use tracing::warn;

use crate::{config::Config, queue::Queue};

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
        warn!(%drift, "Configuration drift left as it is; change it with the nats CLI.");
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
        // A queue of jobs has a consumer once a node serves it, whoever made the streams.
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
