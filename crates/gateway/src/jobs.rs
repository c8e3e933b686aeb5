//! The gateway's side of jobs: applies the messages in their chains, and answers the reports of nodes.

mod chains;
mod presence;

use std::time::Duration;

use async_nats::jetstream::stream;
pub(crate) use chains::ChainReader;
pub(crate) use presence::PresenceResponder;
use subjects::streams::{self, Sizing};

/// One replica, as for every stream that the gateway creates; `cynodectl provision` makes more.
const SIZING: Sizing =
    Sizing { replicas: 1, ack_wait: Duration::from_secs(30), dedupe_window: Duration::from_secs(120) };

/// Returns the configuration of a stream that the gateway publishes to or reads.
pub(crate) fn stream_config(name: &str) -> Option<stream::Config> {
    let of_jobs = streams::of_jobs(SIZING).into_iter();
    let others = [streams::events(SIZING.replicas), streams::workflows(SIZING.replicas)];
    of_jobs.chain(others).find(|config| config.name == name)
}
