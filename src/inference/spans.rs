//! Spans of model calls, following the OpenTelemetry conventions for GenAI.
//!
//! They contain names and numbers only, never prompts, arguments or answers. Without a collector no span is
//! created.

use telemetry::{TRACES, set_attribute};
use tracing::{Span, info_span};

use super::{Finish, Reply, Request};
use crate::telemetry::spans::number;

/// Creates the span of one try at one model.
pub(super) fn chat(provider: &str, model: &str, kind: &'static str, request: &Request<'_>) -> Span {
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
pub(super) fn record_reply(span: &Span, reply: &Reply) {
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
