//! Prometheus metrics. Every label has a small fixed set of values; ids and names of tools are never labels.

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
use upstream::State;

use crate::{
    audit::{Decision, Record, Status},
    upstreams::Health,
};

const AGENTS: [&str; 5] = ["project_manager", "project_analyst", "sandbox", "admin", "user"];

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

/// The labels and duration of one call.
#[derive(Clone, Debug)]
pub struct CallSample {
    labels: CallLabels,
    took: Duration,
}

impl CallSample {
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
            "Tool calls and administrator operations, by agent, decision and outcome",
            metrics.calls.clone(),
        );
        registry.register_with_unit(
            "call_duration",
            "Duration of calls, from reading the request to recording the outcome",
            Unit::Seconds,
            metrics.durations.clone(),
        );
        registry.register("audit_group_size", "Records per audit commit", metrics.group_size.clone());
        registry.register_with_unit(
            "audit_commit",
            "Duration of an audit commit",
            Unit::Seconds,
            metrics.commit_seconds.clone(),
        );
        registry.register(
            "audit_failures",
            "Records that the audit could not commit: the call was not made, or its caller got in_doubt",
            metrics.not_committed.clone(),
        );
        registry.register("upstreams", "Upstreams, by state", metrics.upstreams.clone());
        registry.register("upstream_restarts", "Restarts of upstreams", metrics.restarts.clone());
        Self { registry, ..metrics }
    }
}

impl Metrics {
    /// Records one audit commit: its number of records, its duration, and the calls that ended with it.
    pub fn record_commit(&self, records: usize, took: Duration, ended: &[CallSample]) {
        // A group is never larger than a few hundred records.
        self.group_size.observe(f64::from(u32::try_from(records).unwrap_or(u32::MAX)));
        self.commit_seconds.observe(took.as_secs_f64());
        for call in ended {
            self.calls.get_or_create(&call.labels).inc();
            let labels = AgentLabels { agent: call.labels.agent };
            self.durations.get_or_create(&labels).observe(call.took.as_secs_f64());
        }
    }

    pub fn record_failures(&self, records: usize) {
        self.not_committed.inc_by(u64::try_from(records).unwrap_or(u64::MAX));
    }

    /// Sets the gauges of upstreams from their current health.
    pub fn set_upstreams(&self, health: &BTreeMap<String, Health>) {
        for state in State::ALL.map(State::as_str) {
            let count = health.values().filter(|health| health.state == state).count();
            let labels = StateLabels { state };
            self.upstreams.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.restarts.set(health.values().map(|health| health.restarts).sum());
    }

    /// Renders all metrics in the OpenMetrics text format.
    pub fn render(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail. If it did, no output is better than half of it.
        encode(&mut out, &self.registry).map_or_else(|_| String::new(), |()| out)
    }
}

fn one_of(known: &[&'static str], text: &str) -> &'static str {
    known.iter().copied().find(|known| *known == text).unwrap_or("unknown")
}
