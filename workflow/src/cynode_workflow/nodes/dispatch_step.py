"""Begins one attempt of one step: a job in a sandbox, or a handoff if the step is the manager's own."""

from __future__ import annotations

from typing import Any, TypedDict

from langgraph.runtime import Runtime

from cynode_workflow.context import RunContext
from cynode_workflow.effects import MAX_CANCELLED, begin_handoff, begin_job, is_cancelled_with_workflow
from cynode_workflow.errors import StaleEpoch, ToolRefused
from cynode_workflow.nodes.keys import key_base
from cynode_workflow.plan import described
from cynode_workflow.state import Begun, PlannedStep, State, StepResult, cut

NODE = "dispatch_step"


class Dispatch(TypedDict):
    """What the graph sends for one step."""

    step: PlannedStep
    state: State
    # What the steps before it came to, by name.
    earlier: dict[str, str]


async def dispatch_step(sent: Dispatch, runtime: Runtime[RunContext]) -> dict[str, Any]:
    context, name = runtime.context, sent["step"]["name"]
    begun: Begun = {"run": context.lease.run}
    try:
        for number in range(MAX_CANCELLED):
            begun["key"] = f"{key_base(runtime)}/{number}"
            # What was approved is not begun anew unasked.
            if not await _begin(context, begun, sent) or sent["step"].get("approved"):
                break
    except StaleEpoch:
        raise
    except ToolRefused as error:
        # The step as it is cannot be run; the manager reads why and may change it.
        begun["error"] = cut(error.message, 1000)
        context.log.warning("Step refused.", step=name, error=error.message)
    event = {"node": NODE, "step": name, "outcome": "failed" if "error" in begun else "ended"}
    return {"begun": {name: begun}, "events": [event]}


async def _begin(context: RunContext, begun: Begun, sent: Dispatch) -> bool:
    """Begins or joins what the key names. Returns whether that was cancelled together with the workflow."""
    step, state = sent["step"], sent["state"]
    name, key = step["name"], begun["key"]
    if step["kind"] == "job":
        begun["kind"] = "job"
        answer = await begin_job(context, key, name, job_of(step, state))
        begun["id"] = answer["job"]["job_id"]
        return is_cancelled_with_workflow(answer)
    begun["kind"] = "chat"
    handed = await begin_handoff(context, key, "chat", chat_of(step, state, sent["earlier"]), name)
    begun["id"] = handed["handoff_id"]
    return is_cancelled_with_workflow(handed)


def job_of(step: PlannedStep, state: State) -> dict[str, Any]:
    """Returns the job of a step, as `sandbox.run` takes it. The same step always gives the same job."""
    run: dict[str, Any] = {"script": step.get("script", "")}
    for field in ("files", "artifacts", "outputs", "network"):
        if step.get(field):
            run[field] = step[field]
    run["limits"] = {"seconds": step.get("seconds") or state["policy"]["step_seconds"]}
    return run


def earlier_text(result: StepResult) -> str:
    """Returns what a step came to, in words."""
    return result.get("answer") or result.get("output_tail") or ""


def chat_of(step: PlannedStep, state: State, earlier: dict[str, str]) -> dict[str, Any]:
    """Returns what the manager is asked to do itself."""
    parts = [f"Step “{step['name']}” of the task “{state['title']}”: {described(step)}"]
    if step.get("criteria"):
        parts.append("It is good when:\n" + "\n".join(f"- {each}" for each in step["criteria"]))
    if earlier:
        told = "\n".join(f"- {name}: {text}" for name, text in earlier.items())
        parts.append("Results of the steps before:\n" + told)
    if step.get("feedback"):
        parts.append(
            "The last attempt was not accepted. Mend this:\n"
            + "\n".join(f"- {each}" for each in step["feedback"])
        )
    return {"messages": [{"role": "user", "content": "\n\n".join(parts)}]}
