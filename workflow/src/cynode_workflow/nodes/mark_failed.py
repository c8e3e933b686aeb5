"""Ends a workflow that cannot go on, with a reason that a person understands."""

from __future__ import annotations

from typing import Any

from langgraph.runtime import Runtime

from cynode_workflow.context import RunContext
from cynode_workflow.state import State, cut

NODE = "mark_failed"


async def mark_failed(state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
    error = state.get("error") or "it could not go on"
    return {
        "error": error,
        "outcome": {"kind": "failed", "run": runtime.context.lease.run},
        "events": [{"node": NODE, "outcome": "failed", "detail": cut(error, 300)}],
    }
