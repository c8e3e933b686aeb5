"""Ends a workflow whose steps are all done, with a summary of their results."""

from __future__ import annotations

from typing import Any

from langgraph.runtime import Runtime

from cynode_workflow.context import RunContext
from cynode_workflow.state import State
from cynode_workflow.summary import summarise

NODE = "finalize_summary"


async def finalize_summary(state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
    return {
        "summary": summarise(state),
        "outcome": {"kind": "done", "run": runtime.context.lease.run},
        "events": [{"node": NODE, "outcome": "ended"}],
    }
