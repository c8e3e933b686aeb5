"""The state as nodes read it that run once per step.

They are sent no more than the name of their step. What is sent is stored for each step, in the checkpoint and
in one write before it, so that wide plans with long texts would not fit.
"""

from __future__ import annotations

from typing import Any, TypedDict, cast

from langchain_core.runnables import RunnableConfig

from cynode_workflow.plan import find
from cynode_workflow.state import PlannedStep, State

# Where LangGraph has its function that reads channels, which its own `ToolNode` uses as well.
_READ = "__pregel_read"
_FIELDS = list(State.__annotations__)


class Sent(TypedDict):
    """What the graph sends for one step."""

    # The name. Releases before sent the whole step, and a workflow may go on from their checkpoint.
    step: str | PlannedStep


def read_step(sent: Sent, config: RunnableConfig) -> tuple[PlannedStep, State]:
    """Returns the step that was sent, and the state as it is while the steps run. Neither may be changed."""
    state = cast(State, config["configurable"][_READ](_FIELDS))
    given: Any = sent["step"]
    return find(state["plan"], given if isinstance(given, str) else given["name"]), state
