"""Takes what the gateway told with the lease into the state."""

from __future__ import annotations

from typing import Any

from langgraph.runtime import Runtime

from cynode_workflow.context import RunContext
from cynode_workflow.nodes.given_steps import plan_given
from cynode_workflow.plan import read_policy
from cynode_workflow.state import State

NODE = "load_task_context"


async def load_task_context(state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
    acquired = runtime.context.acquired
    task = acquired["task"]
    loaded: dict[str, Any] = {
        "task_id": task["task_id"],
        "title": task.get("title") or task.get("name") or "",
        "description": task.get("description") or "",
        "acceptance_criteria": task.get("acceptance_criteria") or [],
        "preferences_effective": acquired.get("preferences_effective") or {},
        "dependencies": acquired.get("dependencies") or [],
        "artifacts": [
            item["path"]
            for item in acquired.get("artifacts") or []
            if isinstance(item, dict) and "path" in item
        ],
        "policy": read_policy(acquired["workflow"].get("policy")),
        "events": [{"node": NODE, "outcome": "ended"}],
    }
    if acquired.get("steps"):
        loaded.update(plan_given(acquired["steps"], NODE))
    return loaded
