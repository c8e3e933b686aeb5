//! The closed vocabulary of metrics. Ids never become labels.

use std::fmt::Write as _;

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder, text},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};
use subjects::{ErrorCode, Kind};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct KindLabel {
    kind: Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SettledLabels {
    kind: Name,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CodeLabels {
    kind: Name,
    code: Name,
}

/// A word of ours as a label value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Name(&'static str);

impl EncodeLabelValue for Name {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.write_str(self.0)
    }
}

/// How a delivery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Outcome {
    /// Its answer is ours and stored.
    Answered,
    /// It had been answered before.
    AlreadyAnswered,
    /// Not acceptable: dead-lettered, and answered where that was possible.
    Refused,
    /// Given up: dead-lettered.
    GivenUp,
    /// To be delivered again, later.
    Retried,
    /// Someone else has it; left alone.
    Fenced,
}

impl KindLabel {
    pub(crate) fn of(kind: Kind) -> Self {
        Self { kind: Name(kind.as_str()) }
    }
}

/// All counters and gauges of an instance.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) received: Family<KindLabel, Counter>,
    pub(crate) redelivered: Family<KindLabel, Counter>,
    pub(crate) in_flight: Family<KindLabel, Gauge>,
    settled: Family<SettledLabels, Counter>,
    refused: Family<CodeLabels, Counter>,
    dead_letters: Family<CodeLabels, Counter>,
    pub(crate) seconds: Family<KindLabel, Histogram>,
    pub(crate) returned: Family<KindLabel, Counter>,
    pub(crate) heartbeat_failures: Family<KindLabel, Counter>,
    pub(crate) ack_failures: Family<KindLabel, Counter>,
    pub(crate) pull_errors: Family<KindLabel, Counter>,
    pub(crate) moved: Counter,
    pub(crate) swept: Counter,
    pub(crate) cancels: Counter,
    pub(crate) drift: Gauge,
    pub(crate) ready: Gauge,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let seconds: Family<KindLabel, Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 4.0, 11)));
        let mut metrics = Self {
            registry: Registry::with_prefix("pma"),
            received: Family::default(),
            redelivered: Family::default(),
            in_flight: Family::default(),
            settled: Family::default(),
            refused: Family::default(),
            dead_letters: Family::default(),
            seconds,
            returned: Family::default(),
            heartbeat_failures: Family::default(),
            ack_failures: Family::default(),
            pull_errors: Family::default(),
            moved: Counter::default(),
            swept: Counter::default(),
            cancels: Counter::default(),
            drift: Gauge::default(),
            ready: Gauge::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let it = &mut self.registry;
        it.register("handoffs_received", "Deliveries taken from the queue", self.received.clone());
        it.register(
            "handoffs_redelivered",
            "Deliveries that were not the first of their handoff",
            self.redelivered.clone(),
        );
        it.register("handoffs_in_flight", "Handoffs being worked on", self.in_flight.clone());
        it.register("handoffs_settled", "Deliveries by how they ended", self.settled.clone());
        it.register(
            "handoffs_refused",
            "Handoffs that were not acceptable, by error code",
            self.refused.clone(),
        );
        it.register("dead_letters", "Dead letters written, by reason", self.dead_letters.clone());
        it.register_with_unit(
            "handoff_duration",
            "From delivery to settlement",
            Unit::Seconds,
            self.seconds.clone(),
        );
        it.register(
            "handoffs_returned",
            "Deliveries dropped unsettled and handed back",
            self.returned.clone(),
        );
        it.register(
            "heartbeat_failures",
            "In-progress signals that were not confirmed",
            self.heartbeat_failures.clone(),
        );
        it.register(
            "ack_failures",
            "Settlements that were not confirmed; the handoff comes back",
            self.ack_failures.clone(),
        );
        it.register("pull_errors", "Pull requests that failed", self.pull_errors.clone());
        it.register(
            "dead_moved",
            "Handoffs moved to the dead letters on the server's word",
            self.moved.clone(),
        );
        it.register("dead_swept", "Handoffs moved to the dead letters by the sweeper", self.swept.clone());
        it.register("cancels_received", "Requests to cancel a handoff", self.cancels.clone());
        it.register(
            "config_drift",
            "Fields of streams and consumers that are not as they should be",
            self.drift.clone(),
        );
        it.register("ready", "1 when the instance takes handoffs", self.ready.clone());
    }

    pub(crate) fn settled(&self, kind: Kind, outcome: Outcome) {
        self.settled.get_or_create(&SettledLabels { kind: Name(kind.as_str()), outcome }).inc();
    }

    pub(crate) fn refused(&self, kind: Kind, code: ErrorCode) {
        self.refused
            .get_or_create(&CodeLabels { kind: Name(kind.as_str()), code: Name(code.as_str()) })
            .inc();
    }

    pub(crate) fn dead_letter(&self, kind: Kind, code: ErrorCode) {
        self.dead_letters
            .get_or_create(&CodeLabels { kind: Name(kind.as_str()), code: Name(code.as_str()) })
            .inc();
    }

    /// The text that a scraper reads.
    pub(crate) fn exposition(&self) -> Result<String, std::fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry)?;
        Ok(out)
    }
}
