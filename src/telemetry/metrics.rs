//! All metrics and their labels. Ids never become labels.

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
struct KindLabel {
    kind: LabelValue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SettledLabels {
    kind: LabelValue,
    outcome: LabelValue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    kind: LabelValue,
    code: LabelValue,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolLabel {
    tool: String,
}

/// A label value from a fixed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct LabelValue(&'static str);

impl EncodeLabelValue for LabelValue {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.write_str(self.0)
    }
}

/// How a delivery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// Answered by this instance.
    Answered,
    /// Had already been answered.
    AlreadyAnswered,
    /// Refused: dead-lettered, and answered if possible.
    Refused,
    /// Dead-lettered.
    GivenUp,
    /// Handed back for redelivery.
    Retried,
    /// Owned by another delivery or instance; left alone.
    Fenced,
}

impl Outcome {
    const ALL: [Self; 6] =
        [Self::Answered, Self::AlreadyAnswered, Self::Refused, Self::GivenUp, Self::Retried, Self::Fenced];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::AlreadyAnswered => "already_answered",
            Self::Refused => "refused",
            Self::GivenUp => "given_up",
            Self::Retried => "retried",
            Self::Fenced => "fenced",
        }
    }
}

/// The metrics of one kind. Resolved once, since a label lookup for each handoff is measurable.
#[derive(Debug)]
pub(crate) struct KindMetrics {
    received: Counter,
    redelivered: Counter,
    pub(crate) in_flight: Gauge,
    pub(crate) seconds: Histogram,
    returned: Counter,
    pub(crate) heartbeat_failures: Counter,
    pub(crate) ack_failures: Counter,
    pulls: Counter,
    pull_errors: Counter,
    settled: [Counter; Outcome::ALL.len()],
}

impl KindMetrics {
    pub(crate) fn count_settled(&self, outcome: Outcome) {
        self.settled[outcome as usize].inc();
    }
}

/// All metrics of an instance.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    kinds: [KindMetrics; Kind::ALL.len()],
    refused: Family<CodeLabels, Counter>,
    dead_letters: Family<CodeLabels, Counter>,
    pub(crate) model_calls: Counter,
    pub(crate) model_failures: Counter,
    tools_refused: Family<ToolLabel, Counter>,
    pub(crate) prompt_tokens: Counter,
    pub(crate) completion_tokens: Counter,
    pub(crate) tool_calls: Counter,
    pub(crate) tool_failures: Counter,
    pub(crate) tool_rejections: Counter,
    pub(crate) moved: Counter,
    pub(crate) swept: Counter,
    pub(crate) cancels: Counter,
    pub(crate) drift: Gauge,
    pub(crate) ready: Gauge,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("pma");
        let kinds = register_kinds(&mut registry);
        let metrics = Self {
            kinds,
            refused: Family::default(),
            dead_letters: Family::default(),
            model_calls: Counter::default(),
            model_failures: Counter::default(),
            tools_refused: Family::default(),
            prompt_tokens: Counter::default(),
            completion_tokens: Counter::default(),
            tool_calls: Counter::default(),
            tool_failures: Counter::default(),
            tool_rejections: Counter::default(),
            moved: Counter::default(),
            swept: Counter::default(),
            cancels: Counter::default(),
            drift: Gauge::default(),
            ready: Gauge::default(),
            registry,
        };
        metrics.register()
    }

    fn register(mut self) -> Self {
        let it = &mut self.registry;
        it.register(
            "handoffs_refused",
            "Handoffs that were refused as unacceptable, by error code",
            self.refused.clone(),
        );
        it.register("dead_letters", "Dead letters written, by reason", self.dead_letters.clone());
        it.register("model_calls", "Requests to a model, retries included", self.model_calls.clone());
        it.register("model_failures", "Model requests that failed", self.model_failures.clone());
        it.register(
            "tools_refused",
            "Tools that a model server refused for their schema",
            self.tools_refused.clone(),
        );
        it.register("prompt_tokens", "Tokens sent to models", self.prompt_tokens.clone());
        it.register("completion_tokens", "Tokens received from models", self.completion_tokens.clone());
        it.register("tool_calls", "Tool calls made", self.tool_calls.clone());
        it.register("tool_failures", "Tool calls that failed", self.tool_failures.clone());
        it.register("tool_rejections", "Tool calls that the gateway rejected", self.tool_rejections.clone());
        it.register(
            "dead_moved",
            "Handoffs dead-lettered after an advisory of the server",
            self.moved.clone(),
        );
        it.register("dead_swept", "Handoffs dead-lettered by the sweeper", self.swept.clone());
        it.register("cancels_received", "Requests to cancel a handoff", self.cancels.clone());
        it.register(
            "config_drift",
            "Fields of streams and consumers that differ from the expected configuration",
            self.drift.clone(),
        );
        it.register("ready", "1 when the instance takes handoffs", self.ready.clone());
        self
    }

    pub(crate) fn of_kind(&self, kind: Kind) -> &KindMetrics {
        &self.kinds[kind as usize]
    }

    pub(crate) fn count_refused(&self, kind: Kind, code: ErrorCode) {
        self.refused
            .get_or_create(&CodeLabels { kind: LabelValue(kind.as_str()), code: LabelValue(code.as_str()) })
            .inc();
    }

    pub(crate) fn count_dead_letter(&self, kind: Kind, code: ErrorCode) {
        self.dead_letters
            .get_or_create(&CodeLabels { kind: LabelValue(kind.as_str()), code: LabelValue(code.as_str()) })
            .inc();
    }

    /// Counts a tool that is no longer offered to a model, since the server refuses its schema.
    pub(crate) fn count_refused_tool(&self, tool: &str) {
        self.tools_refused.get_or_create(&ToolLabel { tool: tool.to_owned() }).inc();
    }

    /// Encodes all metrics in the OpenMetrics text format.
    pub(crate) fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry)?;
        Ok(out)
    }
}

impl intake::Metrics<Kind> for Metrics {
    fn count_pull(&self, kind: &Kind) {
        self.of_kind(*kind).pulls.inc();
    }

    fn count_pull_failure(&self, kind: &Kind) {
        self.of_kind(*kind).pull_errors.inc();
    }

    fn count_delivery(&self, kind: &Kind, is_redelivery: bool) {
        let metrics = self.of_kind(*kind);
        metrics.received.inc();
        if is_redelivery {
            metrics.redelivered.inc();
        }
    }

    fn count_returned(&self, kind: &Kind) {
        self.of_kind(*kind).returned.inc();
    }
}

fn register_kinds(registry: &mut Registry) -> [KindMetrics; Kind::ALL.len()] {
    let mut counter = |name: &str, help: &str| {
        let family: Family<KindLabel, Counter> = Family::default();
        registry.register(name, help, family.clone());
        move |kind: Kind| family.get_or_create_owned(&KindLabel { kind: LabelValue(kind.as_str()) })
    };
    let received = counter("handoffs_received", "Deliveries taken from the queue");
    let redelivered = counter("handoffs_redelivered", "Deliveries that were not the first of their handoff");
    let returned = counter("handoffs_returned", "Deliveries returned to the queue unsettled");
    let heartbeat_failures = counter("heartbeat_failures", "In-progress signals that were not confirmed");
    let ack_failures =
        counter("ack_failures", "Settlements that were not confirmed; the handoff is redelivered");
    let pulls = counter("pulls", "Pull requests made");
    let pull_errors = counter("pull_errors", "Pull requests that failed");
    let in_flight: Family<KindLabel, Gauge> = Family::default();
    registry.register("handoffs_in_flight", "Handoffs in progress", in_flight.clone());
    let seconds: Family<KindLabel, Histogram> =
        Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 4.0, 11)));
    registry.register_with_unit(
        "handoff_duration",
        "From delivery to settlement",
        Unit::Seconds,
        seconds.clone(),
    );
    let settled: Family<SettledLabels, Counter> = Family::default();
    registry.register("handoffs_settled", "Deliveries by how they ended", settled.clone());
    Kind::ALL.map(|kind| {
        let label = KindLabel { kind: LabelValue(kind.as_str()) };
        KindMetrics {
            received: received(kind),
            redelivered: redelivered(kind),
            in_flight: in_flight.get_or_create_owned(&label),
            seconds: seconds.get_or_create_owned(&label),
            returned: returned(kind),
            heartbeat_failures: heartbeat_failures(kind),
            ack_failures: ack_failures(kind),
            pulls: pulls(kind),
            pull_errors: pull_errors(kind),
            settled: Outcome::ALL.map(|outcome| {
                let labels =
                    SettledLabels { kind: LabelValue(kind.as_str()), outcome: LabelValue(outcome.as_str()) };
                settled.get_or_create_owned(&labels)
            }),
        }
    })
}
