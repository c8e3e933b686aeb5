//! Spans of a handoff, following the OpenTelemetry conventions for messaging, GenAI and MCP.
//!
//! They contain names and numbers only, never prompts, arguments or answers. Without a collector no span is
//! created.

use subjects::{HandoffId, Subject, headers, streams};
use telemetry::{TRACES, mark_failed, set_attribute, set_remote_parent};
use tracing::{Span, field::Empty, info_span};

use crate::{
    admission::Admitted,
    inference::{Finish, Reply, Request},
    intake::{Delivery, Settlement},
    tools::{CallError, Returned},
};

/// Creates the span of one delivery, from arrival to settlement.
pub(crate) fn process(delivery: &Delivery) -> Span {
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
pub(crate) fn record_handoff(admitted: &Admitted) {
    if telemetry::is_enabled() {
        let (span, id) = (Span::current(), admitted.handoff.id);
        span.record("cynode.handoff.id", tracing::field::display(id));
        if admitted.trace_id == id.trace_id() {
            set_remote_parent(&span, &handoff_traceparent(&admitted.trace_id, id));
        }
    }
}

/// Records the attempt in the current span.
pub(crate) fn record_attempt(attempt: u32) {
    if telemetry::is_enabled() {
        Span::current().record("cynode.attempt", i64::from(attempt));
    }
}

/// Returns a traceparent for the handoff itself, used where no span exists.
pub(crate) fn handoff_traceparent(trace_id: &str, id: HandoffId) -> String {
    format!("00-{trace_id}-{}-01", id.span_id())
}

/// Creates the span of a settlement.
pub(crate) fn settle(delivery: &Delivery, settlement: Settlement) -> Span {
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

/// Creates the span of one try at one model.
pub(crate) fn chat(provider: &str, model: &str, kind: &'static str, request: &Request<'_>) -> Span {
    info_span!(
        target: TRACES,
        "chat",
        otel.name = format!("chat {model}"),
        otel.kind = kind,
        gen_ai.operation.name = "chat",
        gen_ai.provider.name = provider,
        gen_ai.request.model = model,
        gen_ai.request.temperature = request.temperature,
        gen_ai.request.max_tokens = request.max_tokens.map(i64::from),
        "gen_ai.output.type" = if request.output_schema.is_some() { "json" } else { "text" },
    )
}

/// Records the finish reason and the token usage of a reply.
pub(crate) fn record_reply(span: &Span, reply: &Reply) {
    if span.is_disabled() {
        return;
    }
    let finish = match reply.finish {
        Finish::Stop if !reply.calls.is_empty() => "tool_calls",
        Finish::Stop => "stop",
        Finish::Length | Finish::CutShort => "length",
    };
    set_attribute(span, "gen_ai.response.finish_reasons", telemetry::string_array([finish]));
    set_attribute(span, "gen_ai.usage.input_tokens", number(reply.tokens.prompt));
    set_attribute(span, "gen_ai.usage.output_tokens", number(reply.tokens.completion));
}

/// Creates the span of a tool call, including its retries.
pub(crate) fn tool(name: &str, has_effect: bool) -> Span {
    info_span!(
        target: TRACES,
        "execute_tool",
        otel.name = format!("execute_tool {name}"),
        otel.kind = "client",
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = name,
        "gen_ai.tool.type" = "function",
        mcp.method.name = "tools/call",
        cynode.tool.has_effect = has_effect,
    )
}

/// Records the tries and the failure of a tool call.
pub(crate) fn record_call(span: &Span, outcome: &Result<Returned, CallError>) {
    match outcome {
        Ok(returned) => {
            set_attribute(span, "cynode.tries", i64::from(returned.tries));
            if returned.failed {
                mark_failed(span, "tool_error");
            }
        }
        Err(CallError::Rejected { .. }) => mark_failed(span, "rejected"),
        Err(CallError::Unavailable { tries, .. }) => {
            set_attribute(span, "cynode.tries", i64::from(*tries));
            mark_failed(span, "unavailable");
        }
        Err(CallError::TokenRefused { .. }) => mark_failed(span, "token_refused"),
        Err(CallError::NotRecorded(_)) => mark_failed(span, "not_recorded"),
    }
}

/// Converts a count to the integer type of OpenTelemetry.
fn number(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}
