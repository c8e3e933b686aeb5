//! Prometheus metrics: those of the audit, the upstreams, the outbox and workflows.

use std::{collections::BTreeMap, sync::atomic::AtomicU64, time::Duration};

use control::{ACTIVE_STATUSES, COUNTED_OUTCOMES, WorkflowCounts};
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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
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
    pub(crate) edge_lines: Counter,
    edge_alarms: Gauge,
    workflows: Family<StatusLabels, Gauge>,
    workflow_oldest_wait: Gauge<f64, AtomicU64>,
    workflow_changes: Family<OutcomeLabels, Counter>,
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
        let (edge_lines, edge_alarms) = (Counter::default(), Gauge::default());
        registry.register("edge_audit_lines", "Lines of nodes' audits taken over", edge_lines.clone());
        registry.register(
            "edge_audit_alarms",
            "Alarms about nodes' audits that are not resolved",
            edge_alarms.clone(),
        );
        let (workflows, workflow_oldest_wait) = (Family::<StatusLabels, Gauge>::default(), Gauge::default());
        registry.register("workflows", "Workflows that have not ended, by status", workflows.clone());
        registry.register(
            "workflow_oldest_wait_seconds",
            "How long the workflow that waits longest for a runner has waited",
            workflow_oldest_wait.clone(),
        );
        let workflow_changes = Family::<OutcomeLabels, Counter>::default();
        registry.register("workflow_changes", "What happened to workflows", workflow_changes.clone());
        // Rates are right from the first change on.
        for outcome in COUNTED_OUTCOMES {
            drop(workflow_changes.get_or_create(&OutcomeLabels { outcome: outcome.as_str() }));
        }
        for status in ACTIVE_STATUSES {
            drop(workflows.get_or_create(&StatusLabels { status: status.as_str() }));
        }
        Self {
            registry,
            audit,
            upstreams,
            restarts,
            outbox_published,
            outbox_waiting,
            outbox_oldest,
            edge_lines,
            edge_alarms,
            workflows,
            workflow_oldest_wait,
            workflow_changes,
        }
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

    pub(crate) fn set_edge_alarms(&self, open: u64) {
        self.edge_alarms.set(i64::try_from(open).unwrap_or(i64::MAX));
    }

    /// Sets the gauges of workflows, and adds what happened to them.
    pub(crate) fn set_workflows(&self, counts: &WorkflowCounts) {
        for (status, count) in &counts.active {
            let labels = StatusLabels { status: status.as_str() };
            self.workflows.get_or_create(&labels).set(i64::try_from(*count).unwrap_or(i64::MAX));
        }
        let age = counts.oldest_wait.map_or(0, |since| clock::now().saturating_sub(since).max(0));
        self.workflow_oldest_wait.set(Duration::from_micros(age.unsigned_abs()).as_secs_f64());
        for (outcome, count) in &counts.happened {
            let labels = OutcomeLabels { outcome: outcome.as_str() };
            self.workflow_changes.get_or_create(&labels).inc_by(*count);
        }
    }

    /// Renders all metrics in the OpenMetrics text format.
    pub(crate) fn render(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail. If it did, no output is better than half of it.
        encode(&mut out, &self.registry).map_or_else(|_| String::new(), |()| out)
    }
}
