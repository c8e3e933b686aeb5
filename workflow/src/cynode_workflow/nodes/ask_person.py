"""Asks a person one question. The workflow is released until the answer is there."""

from __future__ import annotations

from typing import Any

from langgraph.types import interrupt

from cynode_workflow.state import State

NODE = "ask_person"


async def ask_person(state: State) -> dict[str, Any]:
    question = state["question"]
    if question is None:
        return {"events": [{"node": NODE, "outcome": "ended"}]}
    # Raises until the answer is there; then this node runs again and goes on here.
    answer = interrupt({"for": question["kind"], "question": question["text"]})
    text = answer if isinstance(answer, str) else str(answer)
    return {"question": {**question, "answer": text}, "events": [{"node": NODE, "outcome": "ended"}]}
