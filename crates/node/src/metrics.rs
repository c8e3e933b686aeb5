//! Prometheus metrics.

use std::fmt;

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Metric, Registry},
};
use subjects::job::End;

use crate::queue::Queue;

const START_BUCKETS: [f64; 10] = [0.005, 0.01, 0.02, 0.04, 0.06, 0.1, 0.25, 1.0, 5.0, 30.0];
const RUN_BUCKETS: [f64; 10] = [0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    queue: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabels {
    end: &'static str,
}

pub(crate) struct Metrics {
    registry: Registry,
    ready: Gauge,
    pub(crate) slots: Gauge,
    pub(crate) running: Gauge,
    received: Family<QueueLabels, Counter>,
    redelivered: Family<QueueLabels, Counter>,
    returned: Family<QueueLabels, Counter>,
    pulls: Family<QueueLabels, Counter>,
    pull_errors: Family<QueueLabels, Counter>,
    ended: Family<EndLabels, Counter>,
    pub(crate) fenced: Counter,
    pub(crate) start_seconds: Histogram,
    pub(crate) run_seconds: Histogram,
    pub(crate) log_bytes: Counter,
    pub(crate) stored_files: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("cynode_node");
        let mut histogram = |name: &str, help: &str, buckets: [f64; 10]| {
            let histogram = Histogram::new(buckets);
            registry.register(name, help, histogram.clone());
            histogram
        };
        let start_seconds =
            histogram("job_start_duration_seconds", "From a delivery to the started process", START_BUCKETS);
        let run_seconds =
            histogram("job_run_duration_seconds", "From the started process to its end", RUN_BUCKETS);
        Self {
            ready: register(&mut registry, "ready", "1 when the node takes jobs"),
            slots: register(&mut registry, "slots", "Jobs that can run at the same time"),
            running: register(&mut registry, "jobs_running", "Jobs in progress"),
            received: register(&mut registry, "jobs_received", "Deliveries taken from a queue"),
            redelivered: register(
                &mut registry,
                "jobs_redelivered",
                "Deliveries that were not the first of their job",
            ),
            returned: register(&mut registry, "jobs_returned", "Deliveries handed back unsettled"),
            pulls: register(&mut registry, "pulls", "Pull requests"),
            pull_errors: register(&mut registry, "pull_errors", "Pull requests that failed"),
            ended: register(&mut registry, "jobs_ended", "Results stored, by how the job ended"),
            fenced: register(&mut registry, "jobs_fenced", "Jobs that another node took over"),
            start_seconds,
            run_seconds,
            log_bytes: register(&mut registry, "log_bytes", "Bytes that jobs wrote to their logs"),
            stored_files: register(&mut registry, "stored_files", "Files of jobs stored at the gateway"),
            registry,
        }
    }
}

fn register<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    pub(crate) fn set_ready(&self, is_ready: bool) {
        self.ready.set(is_ready.into());
    }

    pub(crate) fn count_ended(&self, end: &End) {
        self.ended.get_or_create(&EndLabels { end: end.kind().as_str() }).inc();
    }

    pub(crate) fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a `String` cannot fail.
        let _written: fmt::Result = encode(&mut text, &self.registry);
        text
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn labels(queue: &Queue) -> QueueLabels {
    QueueLabels { queue: queue.to_string() }
}

impl intake::Metrics<Queue> for Metrics {
    fn count_pull(&self, queue: &Queue) {
        self.pulls.get_or_create(&labels(queue)).inc();
    }

    fn count_pull_failure(&self, queue: &Queue) {
        self.pull_errors.get_or_create(&labels(queue)).inc();
    }

    fn count_delivery(&self, queue: &Queue, is_redelivery: bool) {
        self.received.get_or_create(&labels(queue)).inc();
        if is_redelivery {
            self.redelivered.get_or_create(&labels(queue)).inc();
        }
    }

    fn count_returned(&self, queue: &Queue) {
        self.returned.get_or_create(&labels(queue)).inc();
    }
}
