//! Prometheus metrics: those of the audit and of the upstreams.

use std::{collections::BTreeMap, sync::atomic::AtomicU64, time::Duration};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use registry::upstreams::Health;
use store::{Waiting, clock};
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
    pub(crate) outbox_published: Counter,
    outbox_waiting: Gauge,
    outbox_oldest: Gauge<f64, AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("gateway");
        let audit = audit::Metrics::register(&mut registry);
        let (upstreams, restarts) = (Family::default(), Gauge::default());
        registry.register("upstreams", "Upstreams, by state", upstreams.clone());
        registry.register("upstream_restarts", "Restarts of upstreams", restarts.clone());
        let (outbox_published, outbox_waiting) = (Counter::default(), Gauge::default());
        let outbox_oldest = Gauge::default();
        registry.register("outbox_published", "Messages published", outbox_published.clone());
        registry.register("outbox_waiting", "Messages that wait to be published", outbox_waiting.clone());
        registry.register(
            "outbox_oldest_seconds",
            "Age of the oldest message that waits",
            outbox_oldest.clone(),
        );
        Self { registry, audit, upstreams, restarts, outbox_published, outbox_waiting, outbox_oldest }
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

    /// Sets the gauges of the outbox from what waits in it.
    pub(crate) fn set_outbox(&self, waiting: &[Waiting]) {
        self.outbox_waiting.set(waiting.iter().map(|subject| subject.messages).sum());
        let oldest = waiting.iter().map(|subject| subject.oldest_at).min();
        let age = oldest.map_or(0, |oldest| clock::now().saturating_sub(oldest).max(0));
        self.outbox_oldest.set(Duration::from_micros(age.unsigned_abs()).as_secs_f64());
    }

    /// Renders all metrics in the OpenMetrics text format.
    pub(crate) fn render(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail. If it did, no output is better than half of it.
        encode(&mut out, &self.registry).map_or_else(|_| String::new(), |()| out)
    }
}
