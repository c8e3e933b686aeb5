//! The spans of a call, in the words of OpenTelemetry for MCP. Names only; arguments and results stay out of them. Without a
//! collector none of these is made.

use telemetry::{TRACES, attribute, continues, failed};
use tracing::{Span, field::Empty, info_span};

use crate::{
    calls::{Outcome, Request},
    catalogue::Behind,
};

const METHOD: &str = "tools/call";

/// A call, from its arrival to its answer. It has no name of a tool before there is known to be one: a caller may say anything.
pub(crate) fn call(request: &Request) -> Span {
    let span = info_span!(
        target: TRACES,
        "tools/call",
        otel.kind = "server",
        mcp.method.name = METHOD,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = Empty,
        cynode.call.id = request.call_id,
        cynode.agent = request.standing.caller().map(|caller| caller.agent.kind().as_str()),
    );
    if let Some(parent) = &request.traceparent {
        continues(&span, parent);
    }
    span
}

/// There is such a tool.
pub(crate) fn is_about(span: &Span, tool: &str) {
    telemetry::rename(span, || format!("{METHOD} {tool}"));
    span.record("gen_ai.tool.name", tool);
}

pub(crate) fn decide() -> Span {
    info_span!(target: TRACES, "decide", otel.kind = "internal", cynode.decision = Empty)
}

/// The same call at the server behind us.
pub(crate) fn behind(behind: &Behind) -> Span {
    let tool = &behind.remote;
    info_span!(
        target: TRACES,
        "tools/call",
        otel.name = format!("{METHOD} {tool}"),
        otel.kind = "client",
        mcp.method.name = METHOD,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = tool,
        cynode.upstream = behind.server.namespace,
    )
}

pub(crate) fn answered(span: &Span, outcome: &Outcome) {
    match outcome {
        Outcome::Answered(result) if result.is_error == Some(true) => failed(span, "tool_error"),
        Outcome::Answered(_) => {}
        Outcome::Denied(denial) => {
            attribute(span, "cynode.decision", "deny");
            failed(span, denial.error_type());
        }
        Outcome::Unavailable => failed(span, "unavailable"),
        Outcome::InDoubt => failed(span, "in_doubt"),
    }
}
