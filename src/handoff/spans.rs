//! Spans of a delivery, following the OpenTelemetry conventions for messaging.
//!
//! They contain names and numbers only, never prompts, arguments or answers. Without a collector no span is
//! created.

use intake::Settlement;
use subjects::{headers, streams};
use telemetry::{TRACES, set_remote_parent};
use tracing::{Span, field::Empty, info_span};

use super::workload::Delivery;
use crate::{
    admission::Admitted,
    telemetry::spans::{handoff_traceparent, number},
};

/// Creates the span of one delivery, from arrival to settlement.
pub(super) fn process(delivery: &Delivery) -> Span {
    let (subject, kind) = (delivery.subject(), delivery.kind);
    let span = info_span!(
        target: TRACES,
        "process",
        otel.name = format!("process {subject}"),
        otel.kind = "consumer",
        messaging.system = "nats",
        messaging.operation.name = "process",
        "messaging.operation.type" = "process",
        messaging.destination.name = subject,
        messaging.consumer.group.name = streams::consumer_name(kind),
        messaging.message.id = headers::get_any_case(delivery.headers(), headers::MSG_ID),
        messaging.message.body.size = number(delivery.body().len()),
        cynode.handoff.kind = %kind,
        cynode.delivery.count = number(delivery.deliveries),
        cynode.handoff.id = Empty,
        cynode.attempt = Empty,
        cynode.outcome = Empty,
    );
    if let Some(parent) = headers::get_any_case(delivery.headers(), headers::TRACEPARENT) {
        set_remote_parent(&span, parent);
    }
    span
}

/// Records the handoff id in the current span. A handoff without a trace starts one derived from its id,
/// which all its attempts share.
pub(super) fn record_handoff(admitted: &Admitted) {
    if telemetry::is_enabled() {
        let (span, id) = (Span::current(), admitted.handoff.id);
        span.record("cynode.handoff.id", tracing::field::display(id));
        if admitted.trace_id == id.trace_id() {
            set_remote_parent(&span, &handoff_traceparent(&admitted.trace_id, id));
        }
    }
}

/// Records the attempt in the current span.
pub(super) fn record_attempt(attempt: u32) {
    if telemetry::is_enabled() {
        Span::current().record("cynode.attempt", i64::from(attempt));
    }
}

/// Creates the span of a settlement.
pub(super) fn settle(delivery: &Delivery, settlement: Settlement) -> Span {
    let subject = delivery.subject();
    info_span!(
        target: TRACES,
        "settle",
        otel.name = format!("settle {subject}"),
        otel.kind = "client",
        messaging.system = "nats",
        messaging.operation.name = match settlement {
            Settlement::Acknowledge | Settlement::AcknowledgeIfFresh => "ack",
            Settlement::HandBack(_) => "nak",
            Settlement::LeaveAlone => "leave",
        },
        "messaging.operation.type" = "settle",
        messaging.destination.name = subject,
        messaging.consumer.group.name = streams::consumer_name(delivery.kind),
    )
}
