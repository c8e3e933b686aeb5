"""Has the project manager review one result."""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from cynode_workflow.context import RunContext
from cynode_workflow.effects import failure_of, hand_off
from cynode_workflow.errors import StaleEpoch, ToolRefused
from cynode_workflow.nodes.keys import key_base
from cynode_workflow.nodes.reading import Sent, read_step
from cynode_workflow.plan import contract_step, criteria_of, is_excused
from cynode_workflow.state import Review, StepResult, cut

NODE = "verify_step_result"
DECISIONS = ("pass", "revise", "retry", "reduce_scope", "escalate")


async def verify_step_result(
    sent: Sent, config: RunnableConfig, runtime: Runtime[RunContext]
) -> dict[str, Any]:
    step, state = read_step(sent, config)
    name, policy, context = step["name"], state["policy"], runtime.context
    result = state["results"][name]
    iteration = (state.get("review_iterations") or {}).get(name, 0) + 1
    # A review of an attempt that does not count, or of a change before the attempt runs, is never the last.
    excused = int(is_excused(step, result) or bool(step.get("to_change")))
    payload = {
        "step": contract_step(step),
        "result": {key: value for key, value in result.items() if key != "question"},
        # The step says its own, which may be half a megabyte.
        "criteria": [] if step.get("criteria") else criteria_of(state, step),
        "iteration": iteration,
        "max_iterations": max(policy["max_reviews"], iteration + excused),
    }
    if _is_cancelled(result):
        review = _of_cancelled(iteration)
    else:
        try:
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
        except StaleEpoch:
            raise
        except ToolRefused as error:
            # Such as a step that is too large for a message. The others go on.
            context.log.warning("Review refused.", step=name, error=error.message)
            review = _unreviewed(iteration, error.message)
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
    return _unreviewed(iteration, why)


def _unreviewed(iteration: int, why: str) -> Review:
    reason = f"the result could not be reviewed: {cut(why, 1000)}"
    return {"iteration": iteration, "decision": "escalate", "reasons": [reason]}
