//! Which trace a piece of work belongs to. Spans are made where the work is done, by `tracing`, with the target [`TRACES`]: without
//! a collector nobody is interested in that target, and no span of it is ever made.

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

/// The target of spans that are for the collector. They are in no log.
pub const TRACES: &str = "cynode::traces";
const TRACEPARENT: &str = "traceparent";

static ON: AtomicBool = AtomicBool::new(false);

/// Whether there is a collector.
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

pub(crate) fn switch(on: bool) {
    ON.store(on, Ordering::Relaxed);
}

/// Log lines stay out of it: they are not written to be sent anywhere.
pub(crate) fn layer(provider: &SdkTracerProvider) -> Box<dyn Layer<Registry> + Send + Sync> {
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("cynode"))
        .with_location(false)
        .with_threads(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        // A span begins when something is done in it, so that its trace can be found out before.
        .with_context_activation(false);
    Box::new(layer.with_filter(Targets::new().with_target(TRACES, tracing::Level::INFO)))
}

/// The current span, in the words of W3C, for whoever goes on with the work. `None` without a collector.
pub fn traceparent() -> Option<String> {
    if !is_on() {
        return None;
    }
    let context = Span::current().context();
    let span = context.span().span_context().clone();
    span.is_valid()
        .then(|| format!("00-{}-{}-{:02x}", span.trace_id(), span.span_id(), span.trace_flags().to_u8()))
}

/// Puts a span that has not begun under another program's span. One that nobody can read changes nothing.
pub fn continues(span: &Span, traceparent: &str) {
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &Given(traceparent));
    if !span.is_disabled() && context.span().span_context().is_valid() {
        // One that has begun keeps its parent.
        drop(span.set_parent(context));
    }
}

struct Given<'a>(&'a str);

impl Extractor for Given<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        (key == TRACEPARENT).then_some(self.0)
    }

    fn keys(&self) -> Vec<&str> {
        vec![TRACEPARENT]
    }
}

/// The work of this span failed; `kind` is one of few words.
pub fn failed(span: &Span, kind: &'static str) {
    attribute(span, "error.type", kind);
    if !span.is_disabled() {
        span.set_status(Status::error(""));
    }
}

/// For what is known only later, or is more than one value.
pub fn attribute(span: &Span, key: &'static str, value: impl Into<Value>) {
    if !span.is_disabled() {
        span.set_attribute(key, value);
    }
}

/// Several words as one value.
pub fn list<const N: usize>(words: [&'static str; N]) -> Value {
    Value::Array(Array::String(words.map(StringValue::from).into()))
}

/// For a name that may not be used before it is known to be one of few.
pub fn rename(span: &Span, name: impl FnOnce() -> String) {
    if !span.is_disabled() {
        span.context().span().update_name(name());
    }
}
