//! What can be counted. Every label has a handful of values; ids and names of tools are never labels.

use std::{collections::BTreeMap, sync::atomic::AtomicU64, time::Duration};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

use crate::{
    audit::{Decision, Record, Status},
    upstreams::Health,
};

const AGENTS: [&str; 5] = ["project_manager", "project_analyst", "sandbox", "admin", "user"];
const STATES: [&str; 4] = ["idle", "up", "down", "resting"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CallLabels {
    agent: &'static str,
    decision: &'static str,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AgentLabels {
    agent: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

/// A call, as far as it is counted.
#[derive(Clone, Debug)]
pub struct Counted {
    labels: CallLabels,
    took: Duration,
}

impl Counted {
    pub fn of(record: &Record) -> Self {
        let labels = CallLabels {
            agent: one_of(&AGENTS, &record.agent),
            decision: match record.decision {
                Decision::Allow => "allow",
                Decision::Deny => "deny",
            },
            status: match record.status {
                Status::Success => "success",
                Status::Failure => "failure",
                Status::Denied => "denied",
                Status::Replayed => "replayed",
                Status::Unknown => "unknown",
            },
        };
        Self { labels, took: Duration::from_micros(u64::try_from(record.duration_us).unwrap_or_default()) }
    }
}

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    calls: Family<CallLabels, Counter>,
    durations: Family<AgentLabels, Histogram>,
    group_size: Histogram,
    commit_seconds: Histogram,
    not_committed: Counter,
    upstreams: Family<StateLabels, Gauge>,
    restarts: Gauge<u64, AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("gateway");
        let metrics = Self {
            calls: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.0005, 2.0, 16))),
            group_size: Histogram::new(exponential_buckets(1.0, 2.0, 9)),
            commit_seconds: Histogram::new(exponential_buckets(0.0001, 2.0, 16)),
            not_committed: Counter::default(),
            upstreams: Family::default(),
            restarts: Gauge::default(),
            registry: Registry::default(),
        };
        registry.register(
            "calls",
            "Calls and acts of administrators, by who, decision and outcome",
            metrics.calls.clone(),
        );
        registry.register_with_unit(
            "call_duration",
            "How long calls took, from being read to being recorded",
            Unit::Seconds,
            metrics.durations.clone(),
        );
        registry.register(
            "audit_group_size",
            "How many notes the audit committed at a time",
            metrics.group_size.clone(),
        );
        registry.register_with_unit(
            "audit_commit",
            "How long the audit took to commit",
            Unit::Seconds,
            metrics.commit_seconds.clone(),
        );
        registry.register(
            "audit_failures",
            "Notes that the audit could not commit: calls that were not made, or whose callers were told that they are in doubt",
            metrics.not_committed.clone(),
        );
        registry.register("upstreams", "Servers behind the gateway, by state", metrics.upstreams.clone());
        registry.register(
            "upstream_restarts",
            "How often servers behind the gateway were started again",
            metrics.restarts.clone(),
        );
        Self { registry, ..metrics }
    }
}

impl Metrics {
    /// Notes that were committed together, and the calls that ended with them.
    pub fn committed(&self, notes: usize, took: Duration, ended: &[Counted]) {
        // No group has more than a few hundred.
        self.group_size.observe(f64::from(u32::try_from(notes).unwrap_or(u32::MAX)));
        self.commit_seconds.observe(took.as_secs_f64());
        for call in ended {
            self.calls.get_or_create(&call.labels).inc();
            let labels = AgentLabels { agent: call.labels.agent };
            self.durations.get_or_create(&labels).observe(call.took.as_secs_f64());
        }
    }

    pub fn not_committed(&self, notes: usize) {
        self.not_committed.inc_by(u64::try_from(notes).unwrap_or(u64::MAX));
    }

    /// How the servers behind us are at this moment.
    pub fn upstreams(&self, health: &BTreeMap<String, Health>) {
        for state in STATES.into_iter().chain(["unknown"]) {
            let count = health.values().filter(|health| one_of(&STATES, &health.state) == state).count();
            let labels = StateLabels { state };
            self.upstreams.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.restarts.set(health.values().map(|health| health.restarts).sum());
    }

    /// As Prometheus reads them.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing into a string does not fail; half of it would be worse than nothing.
        encode(&mut out, &self.registry).map_or_else(|_| String::new(), |()| out)
    }
}

fn one_of(known: &[&'static str], text: &str) -> &'static str {
    known.iter().copied().find(|known| *known == text).unwrap_or("unknown")
}
