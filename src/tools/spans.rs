//! Spans of tool calls, following the OpenTelemetry conventions for GenAI and MCP.
//!
//! They contain names and numbers only, never prompts, arguments or answers. Without a collector no span is
//! created.

use telemetry::{TRACES, mark_failed, set_attribute};
use tracing::{Span, info_span};

use super::{CallError, Returned};

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
