//! Spans of a call, named after OpenTelemetry's semantic conventions for MCP. They contain names only, never
//! arguments or results. Without a collector no span is created.

use telemetry::{TRACES, mark_failed, set_attribute, set_remote_parent};
use tracing::{Span, field::Empty, info_span};

use registry::catalogue::UpstreamTool;

use super::{Outcome, Request};

const METHOD: &str = "tools/call";

/// Creates the span of a call, from its arrival to its answer. [`set_tool`] adds the tool's name once it is
/// known to exist, because a caller may send any name.
pub(super) fn call(request: &Request) -> Span {
    let span = info_span!(
        target: TRACES,
        "tools/call",
        otel.kind = "server",
        mcp.method.name = METHOD,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = Empty,
        cynode.call.id = request.call_id,
        cynode.agent = request.standing.caller().map(|caller| caller.agent.kind().as_str()),
        cynode.profile = request.standing.caller().map(|caller| caller.profile.as_str()),
    );
    if let Some(parent) = &request.traceparent {
        set_remote_parent(&span, parent);
    }
    span
}

/// Adds the name of the tool to the span of a call.
pub(super) fn set_tool(span: &Span, tool: &str) {
    telemetry::rename_span(span, || format!("{METHOD} {tool}"));
    span.record("gen_ai.tool.name", tool);
}

pub(super) fn decide() -> Span {
    info_span!(target: TRACES, "decide", otel.kind = "internal", cynode.decision = Empty)
}

/// Creates the span of the request to the upstream.
pub(super) fn upstream_call(tool: &UpstreamTool) -> Span {
    let name = &tool.remote;
    info_span!(
        target: TRACES,
        "tools/call",
        otel.name = format!("{METHOD} {name}"),
        otel.kind = "client",
        mcp.method.name = METHOD,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = name,
        cynode.upstream = tool.server.namespace,
    )
}

/// Marks the span of a call as failed if its outcome is a failure.
pub(super) fn record_outcome(span: &Span, outcome: &Outcome) {
    match outcome {
        Outcome::Answered(result) if result.is_error == Some(true) => mark_failed(span, "tool_error"),
        Outcome::Answered(_) => {}
        Outcome::Denied(denial) => {
            set_attribute(span, "cynode.decision", "deny");
            mark_failed(span, denial.error_type());
        }
        Outcome::Unavailable => mark_failed(span, "unavailable"),
        Outcome::InDoubt => mark_failed(span, "in_doubt"),
    }
}
