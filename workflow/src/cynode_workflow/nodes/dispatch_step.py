"""Begins one attempt of one step: a job in a sandbox, or a handoff if the step is the manager's own."""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from cynode_workflow.context import RunContext
from cynode_workflow.effects import MAX_CANCELLED, begin_handoff, begin_job, is_cancelled_with_workflow
from cynode_workflow.errors import StaleEpoch, ToolRefused
from cynode_workflow.nodes.keys import key_base
from cynode_workflow.nodes.reading import Sent, read_step
from cynode_workflow.plan import described
from cynode_workflow.state import Begun, PlannedStep, State, StepResult, cut

NODE = "dispatch_step"
# How much of the results before it a manager's step is told, in bytes.
_MAX_EARLIER = 16_000


async def dispatch_step(sent: Sent, config: RunnableConfig, runtime: Runtime[RunContext]) -> dict[str, Any]:
    step, state = read_step(sent, config)
    context, name = runtime.context, step["name"]
    begun: Begun = {"run": context.lease.run}
    try:
        for number in range(MAX_CANCELLED):
            begun["key"] = f"{key_base(runtime)}/{number}"
            # What was approved is not begun anew unasked.
            if not await _begin(context, begun, step, state) or step.get("approved"):
                break
    except StaleEpoch:
        raise
    except ToolRefused as error:
        # The step as it is cannot be run; the manager reads why and may change it.
        begun["error"] = cut(error.message, 1000)
        context.log.warning("Step refused.", step=name, error=error.message)
    event = {"node": NODE, "step": name, "outcome": "failed" if "error" in begun else "ended"}
    return {"begun": {name: begun}, "events": [event]}


async def _begin(context: RunContext, begun: Begun, step: PlannedStep, state: State) -> bool:
    """Begins or joins what the key names. Returns whether that was cancelled together with the workflow."""
    name, key = step["name"], begun["key"]
    if step["kind"] == "job":
        begun["kind"] = "job"
        answer = await begin_job(context, key, name, job_of(step, state))
        begun["id"] = answer["job"]["job_id"]
        return is_cancelled_with_workflow(answer)
    begun["kind"] = "chat"
    handed = await begin_handoff(context, key, "chat", chat_of(step, state, _earlier(step, state)), name)
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


def _earlier(step: PlannedStep, state: State) -> dict[str, str]:
    """Returns what the steps before came to, each shortened so that all of them have a place."""
    names, results = step["depends_on"], state.get("results") or {}
    texts = {name: _in_words(results.get(name, {})) for name in names}
    most = max(200, _MAX_EARLIER // max(1, len(names)))
    return {name: cut(text, min(2_000, most)) for name, text in texts.items() if text}


def _in_words(result: StepResult) -> str:
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
