"""Keys of effects.

A node that runs again after a kill has the same ones, so that it joins what it had begun.
"""

from __future__ import annotations

from langgraph.runtime import Runtime

from cynode_workflow.context import RunContext


def key_base(runtime: Runtime[RunContext]) -> str:
    """Returns LangGraph's id of this execution of the node, which outlives the process."""
    info = runtime.execution_info
    if info is None:
        raise RuntimeError("a node runs outside the graph")
    return info.task_id
