//! Spans of messages about a handoff, following the OpenTelemetry conventions for messaging.
//!
//! They contain names and numbers only, never prompts, arguments or answers. Without a collector no span is
//! created.

use subjects::{HandoffId, Subject};
use telemetry::TRACES;
use tracing::{Span, info_span};

/// Returns a traceparent for the handoff itself, used where no span exists.
pub(crate) fn handoff_traceparent(trace_id: &str, id: HandoffId) -> String {
    format!("00-{trace_id}-{}-01", id.span_id())
}

/// Creates the span of a message that is sent about this handoff.
pub(crate) fn send(subject: &Subject, id: HandoffId) -> Span {
    // One span name for all handoffs.
    let template = || subject.to_string().replace(&id.to_string(), "{handoff_id}");
    info_span!(
        target: TRACES,
        "send",
        otel.name = format!("send {}", template()),
        otel.kind = "producer",
        messaging.system = "nats",
        messaging.operation.name = "send",
        "messaging.operation.type" = "send",
        messaging.destination.name = %subject,
        messaging.destination.template = template(),
        messaging.message.id = %id,
    )
}

/// Converts a count to the integer type of OpenTelemetry.
pub(crate) fn number(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}
