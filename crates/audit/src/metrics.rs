//! Metrics of the audit. Every label has a small fixed set of values; ids and names of tools are never
//! labels.

use std::time::Duration;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

use crate::record::Record;

const AGENTS: [&str; 8] =
    ["project_manager", "project_analyst", "sandbox", "orchestrator", "node", "workflow", "admin", "user"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CallLabels {
    agent: &'static str,
    decision: &'static str,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AgentLabels {
    agent: &'static str,
}

/// The labels and duration of one call.
#[derive(Clone, Debug)]
pub(crate) struct CallSample {
    labels: CallLabels,
    took: Duration,
}

impl CallSample {
    pub(crate) fn of(record: &Record) -> Self {
        let labels = CallLabels {
            agent: one_of(&AGENTS, &record.agent),
            decision: one_of(&["allow", "deny"], &record.decision),
            status: one_of(&["success", "failure", "denied", "replayed"], &record.status),
        };
        Self { labels, took: Duration::from_micros(u64::try_from(record.duration_us).unwrap_or_default()) }
    }
}

/// Counts calls and commits.
#[derive(Clone, Debug)]
pub struct Metrics {
    calls: Family<CallLabels, Counter>,
    durations: Family<AgentLabels, Histogram>,
    group_size: Histogram,
    commit_seconds: Histogram,
    not_committed: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            calls: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.0005, 2.0, 16))),
            group_size: Histogram::new(exponential_buckets(1.0, 2.0, 9)),
            commit_seconds: Histogram::new(exponential_buckets(0.0001, 2.0, 16)),
            not_committed: Counter::default(),
        }
    }
}

impl Metrics {
    /// Returns metrics that are part of `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
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
        metrics
    }

    /// Records one audit commit: its number of records, its duration, and the calls that ended with it.
    pub(crate) fn record_commit(&self, records: usize, took: Duration, ended: &[CallSample]) {
        // A group is never larger than a few hundred records.
        self.group_size.observe(f64::from(u32::try_from(records).unwrap_or(u32::MAX)));
        self.commit_seconds.observe(took.as_secs_f64());
        for call in ended {
            self.calls.get_or_create(&call.labels).inc();
            let labels = AgentLabels { agent: call.labels.agent };
            self.durations.get_or_create(&labels).observe(call.took.as_secs_f64());
        }
    }

    pub(crate) fn record_failures(&self, records: usize) {
        self.not_committed.inc_by(u64::try_from(records).unwrap_or(u64::MAX));
    }
}

fn one_of(known: &[&'static str], text: &str) -> &'static str {
    known.iter().copied().find(|known| *known == text).unwrap_or("unknown")
}
