"""Has the project manager review one result."""

from __future__ import annotations

from typing import Any, TypedDict

from langgraph.runtime import Runtime

from cynode_workflow.context import RunContext
from cynode_workflow.effects import failure_of, hand_off
from cynode_workflow.nodes.keys import key_base
from cynode_workflow.plan import contract_step, is_excused
from cynode_workflow.state import PlannedStep, Review, State, StepResult, cut

NODE = "verify_step_result"
DECISIONS = ("pass", "revise", "retry", "reduce_scope", "escalate")


class Verify(TypedDict):
    """What the graph sends for one step."""

    step: PlannedStep
    state: State
    result: StepResult
    criteria: list[str]
    iteration: int


async def verify_step_result(sent: Verify, runtime: Runtime[RunContext]) -> dict[str, Any]:
    step, result, context = sent["step"], sent["result"], runtime.context
    name, policy, iteration = step["name"], sent["state"]["policy"], sent["iteration"]
    # A review of an attempt that does not count, or of a change before the attempt runs, is never the last.
    excused = int(is_excused(step, result) or bool(step.get("to_change")))
    payload = {
        "step": contract_step(step),
        "result": {key: value for key, value in result.items() if key != "question"},
        "criteria": sent["criteria"],
        "iteration": iteration,
        "max_iterations": max(policy["max_reviews"], iteration + excused),
    }
    if _is_cancelled(result):
        review = _of_cancelled(iteration)
    else:
        answer = await hand_off(
            context,
            key_base(runtime),
            "review",
            payload,
            step=name,
            seconds=policy["step_seconds"],
            tries=policy["max_attempts"],
        )
        review = _review(answer, iteration)
    context.metrics.reviews.labels(review["decision"]).inc()
    detail = cut(f"{review['decision']}: {'; '.join(review.get('reasons') or [])}", 300)
    return {
        "verification": {name: review},
        "events": [{"node": NODE, "step": name, "outcome": "ended", "detail": detail}],
    }


def _is_cancelled(result: StepResult) -> bool:
    end = result.get("end")
    return isinstance(end, dict) and end.get("how") == "cancelled"


def _of_cancelled(iteration: int) -> Review:
    """A person ended the job: whether it is run again is for a person to say."""
    return {"iteration": iteration, "decision": "escalate", "reasons": ["its job was cancelled"]}


def _review(answer: dict[str, Any], iteration: int) -> Review:
    decided = answer.get("review")
    if isinstance(decided, dict) and decided.get("decision") in DECISIONS:
        fields = ("decision", "reasons", "issues", "step", "question")
        review: Review = {"iteration": iteration, "decision": decided["decision"]}
        for field in fields:
            if decided.get(field) is not None:
                review[field] = decided[field]  # type: ignore[literal-required]
        return review
    # The work may be good, but no review could say so. A person decides.
    why = failure_of(answer) if answer.get("status") != "completed" else "the manager did not decide"
    return {
        "iteration": iteration,
        "decision": "escalate",
        "reasons": [f"the result could not be reviewed: {why}"],
    }
