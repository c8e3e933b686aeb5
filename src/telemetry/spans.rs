//! The spans of a handoff, in the words of OpenTelemetry: messaging, GenAI and MCP. Names and numbers only; what was asked, called
//! and answered stays out of them. Without a collector none of these is made.

use subjects::{HandoffId, Subject, headers, streams};
use telemetry::{TRACES, attribute, continues, failed};
use tracing::{Span, field::Empty, info_span};

use crate::{
    admission::Admitted,
    inference::{Finish, Reply, Request},
    intake::{Delivery, Settlement},
    tools::{CallError, Returned},
};

/// One delivery, from its arrival to its settlement.
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
        continues(&span, parent);
    }
    span
}

/// The handoff in it is known. One that came without a trace has one of its own, which all its attempts share.
pub(crate) fn admitted(admitted: &Admitted) {
    if telemetry::is_on() {
        let (span, id) = (Span::current(), admitted.handoff.id);
        span.record("cynode.handoff.id", tracing::field::display(id));
        if admitted.trace_id == id.trace_id() {
            continues(&span, &of_handoff(&admitted.trace_id, id));
        }
    }
}

/// It is ours, for the so manyeth time that it is anyone's.
pub(crate) fn taken_up(attempt: u32) {
    if telemetry::is_on() {
        Span::current().record("cynode.attempt", i64::from(attempt));
    }
}

/// The handoff as a span of its trace, for whoever goes on with it where no spans are made.
pub(crate) fn of_handoff(trace_id: &str, id: HandoffId) -> String {
    format!("00-{trace_id}-{}-01", id.span_id())
}

pub(crate) fn settle(delivery: &Delivery, settlement: Settlement) -> Span {
    let subject = delivery.subject();
    info_span!(
        target: TRACES,
        "settle",
        otel.name = format!("settle {subject}"),
        otel.kind = "client",
        messaging.system = "nats",
        messaging.operation.name = match settlement {
            Settlement::Done | Settlement::DoneElsewhere => "ack",
            Settlement::Again(_) => "nak",
            Settlement::LeaveAlone => "leave",
        },
        "messaging.operation.type" = "settle",
        messaging.destination.name = subject,
        messaging.consumer.group.name = streams::consumer_name(delivery.kind),
    )
}

/// A message about this handoff on its way out.
pub(crate) fn send(subject: &Subject, id: HandoffId) -> Span {
    // One name for all, whosever id it is.
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

/// One try at one model.
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
        "gen_ai.output.type" = if request.shape.is_some() { "json" } else { "text" },
    )
}

pub(crate) fn replied(span: &Span, reply: &Reply) {
    if span.is_disabled() {
        return;
    }
    let finish = match reply.finish {
        Finish::Stop if !reply.calls.is_empty() => "tool_calls",
        Finish::Stop => "stop",
        Finish::Length | Finish::CutShort => "length",
    };
    attribute(span, "gen_ai.response.finish_reasons", telemetry::list([finish]));
    attribute(span, "gen_ai.usage.input_tokens", number(reply.tokens.prompt));
    attribute(span, "gen_ai.usage.output_tokens", number(reply.tokens.completion));
}

/// A call of a tool, as often as it takes.
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

pub(crate) fn called(span: &Span, outcome: &Result<Returned, CallError>) {
    match outcome {
        Ok(returned) => {
            attribute(span, "cynode.tries", i64::from(returned.tries));
            if returned.failed {
                failed(span, "tool_error");
            }
        }
        Err(CallError::Rejected { .. }) => failed(span, "rejected"),
        Err(CallError::Unavailable { tries, .. }) => {
            attribute(span, "cynode.tries", i64::from(*tries));
            failed(span, "unavailable");
        }
        Err(CallError::TokenRefused { .. }) => failed(span, "token_refused"),
        Err(CallError::NotRecorded(_)) => failed(span, "not_recorded"),
    }
}

/// As OpenTelemetry has numbers.
fn number(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}
