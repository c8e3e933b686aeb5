//! Trace context of spans: parent, attributes, status. Spans are created with `tracing` where the work is
//! done, with the target [`TRACES`]; without a collector that target is disabled and no such span is created.

use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry::{
    Array, Context, StringValue, Value,
    propagation::{Extractor, TextMapPropagator},
    trace::{Status, TraceContextExt, TracerProvider},
};
use opentelemetry_sdk::{propagation::TraceContextPropagator, trace::SdkTracerProvider};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{Layer, Registry, filter::Targets};

/// Target of the spans that go to the collector. They never appear in the log.
pub const TRACES: &str = "cynode::traces";
const TRACEPARENT: &str = "traceparent";

static ENABLED: AtomicBool = AtomicBool::new(false);

/// Returns whether traces are enabled, that is, whether a collector is configured.
pub fn is_enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

pub(crate) fn set_enabled(enabled: bool) {
    ENABLED.store(enabled, Ordering::Relaxed);
}

/// Returns the layer that exports spans. Log events are not exported.
pub(crate) fn layer(provider: &SdkTracerProvider) -> Box<dyn Layer<Registry> + Send + Sync> {
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("cynode"))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        // A span starts when it is first entered, so that its parent can be set before.
        .with_context_activation(false);
    Box::new(layer.with_filter(Targets::new().with_target(TRACES, tracing::Level::INFO)))
}

/// Returns the current span as a W3C `traceparent`, to be passed to the next service. `None` without a
/// collector.
pub fn traceparent() -> Option<String> {
    if !is_enabled() {
        return None;
    }
    let context = Span::current().context();
    let span = context.span().span_context().clone();
    span.is_valid()
        .then(|| format!("00-{}-{}-{:02x}", span.trace_id(), span.span_id(), span.trace_flags().to_u8()))
}

/// Makes another program's span the parent of a span that has not started. An invalid `traceparent` is
/// ignored.
pub fn set_remote_parent(span: &Span, traceparent: &str) {
    let context =
        TraceContextPropagator::new().extract_with_context(&Context::new(), &TraceparentCarrier(traceparent));
    if !span.is_disabled() && context.span().span_context().is_valid() {
        // Fails for a span that has started; it keeps its parent.
        drop(span.set_parent(context));
    }
}

struct TraceparentCarrier<'a>(&'a str);

impl Extractor for TraceparentCarrier<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        (key == TRACEPARENT).then_some(self.0)
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT]
    }
}

/// Marks a span as failed. `kind` is its `error.type` and must have low cardinality.
pub fn mark_failed(span: &Span, kind: &'static str) {
    set_attribute(span, "error.type", kind);
    if !span.is_disabled() {
        span.set_status(Status::error(""));
    }
}

/// Sets an attribute after the span was created, or one with several values.
pub fn set_attribute(span: &Span, key: &'static str, value: impl Into<Value>) {
    if !span.is_disabled() {
        span.set_attribute(key, value);
    }
}

/// Returns an attribute value that is an array of strings.
pub fn string_array<const N: usize>(strings: [&'static str; N]) -> Value {
    Value::Array(Array::String(strings.map(StringValue::from).into()))
}

/// Renames a span, for names that are used only once they are known to have low cardinality.
pub fn rename_span(span: &Span, name: impl FnOnce() -> String) {
    if !span.is_disabled() {
        span.context().span().update_name(name());
    }
}
