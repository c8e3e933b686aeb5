//! State shared by all requests.

use std::sync::Arc;

use broker::OnDemand;
use tokio_util::sync::CancellationToken;

use crate::{
    config::Config, direct::Direct, gateway::Gateway, keys::Keys, metrics::Metrics, rate_limits::RateLimits,
    turns::Turns,
};

#[derive(Debug)]
pub(crate) struct App {
    pub(crate) config: Config,
    pub(crate) nats: Arc<OnDemand>,
    pub(crate) gateway: Gateway,
    pub(crate) keys: Keys,
    pub(crate) limits: RateLimits,
    pub(crate) turns: Arc<Turns>,
    pub(crate) direct: Direct,
    pub(crate) metrics: Arc<Metrics>,
    /// Cancelled when the process begins to stop.
    pub(crate) stop: CancellationToken,
    /// Cancelled when streams have to end, so that their clients get an error.
    pub(crate) closing: CancellationToken,
}
