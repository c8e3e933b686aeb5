"""The plan of a workflow whose steps were given when it was started."""

from __future__ import annotations

from typing import Any

from cynode_workflow.plan import PlanError, planned


def plan_given(steps: Any, node: str) -> dict[str, Any]:
    """Returns the changes to the state by which these steps are the plan, or why they cannot be."""
    try:
        return {"plan": planned(steps)}
    except PlanError as error:
        return {
            "error": f"the steps that were given cannot be run: {error}",
            "events": [{"node": node, "outcome": "failed", "detail": str(error)}],
        }
