"""Applies reviews and answers to the plan, and chooses what runs next."""

from __future__ import annotations

from typing import Any

from cynode_workflow.decisions import decide
from cynode_workflow.state import State


async def decide_next(state: State) -> dict[str, Any]:
    return decide(state)
