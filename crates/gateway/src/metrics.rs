//! Prometheus metrics: those of the audit and of the upstreams.

use std::{collections::BTreeMap, sync::atomic::AtomicU64};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use registry::upstreams::Health;
use upstream::State;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) audit: audit::Metrics,
    upstreams: Family<StateLabels, Gauge>,
    restarts: Gauge<u64, AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("gateway");
        let audit = audit::Metrics::register(&mut registry);
        let (upstreams, restarts) = (Family::default(), Gauge::default());
        registry.register("upstreams", "Upstreams, by state", upstreams.clone());
        registry.register("upstream_restarts", "Restarts of upstreams", restarts.clone());
        Self { registry, audit, upstreams, restarts }
    }
}

impl Metrics {
    /// Sets the gauges of upstreams from their current health.
    pub(crate) fn set_upstreams(&self, health: &BTreeMap<String, Health>) {
        for state in State::ALL.map(State::as_str) {
            let count = health.values().filter(|health| health.state == state).count();
            let labels = StateLabels { state };
            self.upstreams.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.restarts.set(health.values().map(|health| health.restarts).sum());
    }

    /// Renders all metrics in the OpenMetrics text format.
    pub(crate) fn render(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail. If it did, no output is better than half of it.
        encode(&mut out, &self.registry).map_or_else(|_| String::new(), |()| out)
    }
}
