//! Prometheus metrics.

use std::{fmt, time::Duration};

use contract::egress::CallOutcome;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Metric, Registry},
};
use serde_json::Value;
use time::OffsetDateTime;

const HAND_OFF_BUCKETS: [f64; 11] = [0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.2, 1.0, 5.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

pub(crate) struct Metrics {
    registry: Registry,
    responses: Family<StatusLabels, Counter>,
    streams: Gauge,
    pub(crate) handoffs: Counter,
    pub(crate) swept: Counter,
    pub(crate) recorded: Counter,
    /// From a request that is read to its published handoff.
    pub(crate) hand_off_seconds: Histogram,
    ready: Gauge,
    oldest_wait_seconds: Gauge,
    schedules_checked: Gauge,
    pub(crate) direct_requests: Counter,
    direct_prompt_tokens: Counter,
    direct_completion_tokens: Counter,
    egress_responses: Family<StatusLabels, Counter>,
    egress_calls: Family<OutcomeLabels, Counter>,
    egress_tokens: Family<KindLabels, Counter>,
    pub(crate) egress_open: Gauge,
}

/// A stream that is open; counted until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenStream(Gauge);

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("orchestrator");
        Self {
            responses: register(&mut registry, "responses", "Responses to clients, by HTTP status"),
            streams: register(&mut registry, "open_streams", "Streams that are open"),
            handoffs: register(&mut registry, "handoffs_published", "Handoffs published, with repetitions"),
            swept: register(&mut registry, "handoffs_swept", "Handoffs published that were left behind"),
            recorded: register(
                &mut registry,
                "answers_recorded",
                "Answers stored in threads whose requests were gone",
            ),
            hand_off_seconds: {
                let histogram = Histogram::new(HAND_OFF_BUCKETS);
                let help = "From a chat that was read to its published handoff";
                registry.register("hand_off_duration_seconds", help, histogram.clone());
                histogram
            },
            ready: register(&mut registry, "ready", "1 when chats can be handed off"),
            oldest_wait_seconds: register(
                &mut registry,
                "oldest_wait_seconds",
                "Age of the oldest request that waits for its answer",
            ),
            schedules_checked: register(
                &mut registry,
                "schedules_checked_timestamp_seconds",
                "When it last fired the schedules that were due, as Unix time",
            ),
            direct_requests: register(
                &mut registry,
                "direct_requests",
                "Requests passed on to model servers",
            ),
            direct_prompt_tokens: register(
                &mut registry,
                "direct_prompt_tokens",
                "Tokens that model servers read for clients",
            ),
            direct_completion_tokens: register(
                &mut registry,
                "direct_completion_tokens",
                "Tokens that model servers wrote for clients",
            ),
            egress_responses: register(
                &mut registry,
                "egress_responses",
                "Responses of the egress to agents, by HTTP status",
            ),
            egress_calls: register(
                &mut registry,
                "egress_calls",
                "Calls to external providers that ended, by outcome",
            ),
            egress_tokens: register(
                &mut registry,
                "egress_tokens",
                "Tokens used at external providers, reported or estimated: prompt, completion",
            ),
            egress_open: register(
                &mut registry,
                "egress_open_calls",
                "Calls to external providers that are open",
            ),
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
    pub(crate) fn count_response(&self, status: u16) {
        self.responses.get_or_create(&StatusLabels { status }).inc();
    }

    pub(crate) fn count_egress_response(&self, status: u16) {
        self.egress_responses.get_or_create(&StatusLabels { status }).inc();
    }

    pub(crate) fn count_egress_call(&self, outcome: CallOutcome, prompt: u64, completion: u64) {
        self.egress_calls.get_or_create(&OutcomeLabels { outcome: outcome.as_str() }).inc();
        for (kind, tokens) in [("prompt", prompt), ("completion", completion)] {
            self.egress_tokens.get_or_create(&KindLabels { kind }).inc_by(tokens);
        }
    }

    pub(crate) fn open_stream(&self) -> OpenStream {
        self.streams.inc();
        OpenStream(self.streams.clone())
    }

    pub(crate) fn set_ready(&self, is_ready: bool) {
        self.ready.set(i64::from(is_ready));
    }

    pub(crate) fn set_oldest_wait(&self, age: Duration) {
        self.oldest_wait_seconds.set(i64::try_from(age.as_secs()).unwrap_or(i64::MAX));
    }

    /// Records that all schedules that are due were fired.
    pub(crate) fn note_schedules_checked(&self) {
        self.schedules_checked.set(OffsetDateTime::now_utc().unix_timestamp());
    }

    /// Counts the `usage` of an answer of a model server, if it has one.
    pub(crate) fn count_direct_usage(&self, usage: Option<&Value>) {
        // Chat completions and responses have other names for the same.
        let tokens = |fields: [&str; 2]| {
            let tokens = |field| usage.and_then(|usage| usage.get(field)).and_then(Value::as_u64);
            fields.into_iter().find_map(tokens).unwrap_or_default()
        };
        self.direct_prompt_tokens.inc_by(tokens(["prompt_tokens", "input_tokens"]));
        self.direct_completion_tokens.inc_by(tokens(["completion_tokens", "output_tokens"]));
    }

    /// Renders all metrics in the OpenMetrics text format.
    pub(crate) fn render(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail. If it did, no output is better than half of it.
        encode(&mut out, &self.registry).map_or_else(|_| String::new(), |()| out)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}
