"""Has the project manager plan the steps of the task, unless they were given."""

from __future__ import annotations

from typing import Any

from langgraph.runtime import Runtime

from cynode_workflow.context import RunContext
from cynode_workflow.effects import failure_of, hand_off, message_of
from cynode_workflow.nodes.given_steps import plan_given
from cynode_workflow.nodes.keys import key_base
from cynode_workflow.plan import PlanError, planned
from cynode_workflow.state import State, cut

NODE = "plan_steps"


async def plan_steps(state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
    were_given = {"events": [{"node": NODE, "outcome": "ended", "detail": "steps were given"}]}
    if state.get("plan") or state.get("error"):
        return were_given
    # A retry begins here. Steps that a person gave are never replaced by those of a manager.
    if given := runtime.context.acquired.get("steps"):
        return {**were_given, **plan_given(given, NODE)}
    policy = state["policy"]
    tries = policy["max_attempts"]
    payload = _payload(state)
    why = ""
    for number in range(tries):
        answer = await hand_off(
            runtime.context,
            f"{key_base(runtime)}/{number}",
            "plan",
            payload,
            step=None,
            seconds=policy["step_seconds"],
            tries=tries,
        )
        if answer.get("status") == "needs_clarification":
            asked = cut(message_of(answer) or "What exactly should be done?", 4000)
            return {
                "question": {"kind": "question", "about": "plan", "text": asked},
                "events": [{"node": NODE, "outcome": "waiting", "detail": cut(asked, 300)}],
            }
        if answer.get("status") != "completed":
            why = failure_of(answer)
            break
        try:
            plan = planned(answer.get("steps"))
        except PlanError as error:
            why = str(error)
            runtime.context.log.warning("Plan refused.", error=why)
            payload = {
                **payload,
                "constraints": [*payload["constraints"], f"An earlier plan was refused: {why}"],
            }
            continue
        names = ", ".join(step["name"] for step in plan)
        return {
            "plan": plan,
            "events": [{"node": NODE, "outcome": "ended", "detail": cut(f"steps: {names}", 300)}],
        }
    return {
        "error": f"the task could not be planned: {why}",
        "events": [{"node": NODE, "outcome": "failed", "detail": cut(why, 300)}],
    }


def _payload(state: State) -> dict[str, Any]:
    constraints: list[str] = []
    if state.get("artifacts"):
        constraints.append("Files of the task: " + ", ".join(state["artifacts"][:100]))
    constraints += [
        f"The user was asked: {each['question']} The user answered: {each['answer']}"
        for each in state.get("clarifications", [])
    ]
    goal = "\n\n".join(part for part in (state["title"], state["description"]) if part)
    return {
        "goal": goal or state["task_id"],
        "acceptance_criteria": state["acceptance_criteria"],
        "constraints": constraints,
    }
