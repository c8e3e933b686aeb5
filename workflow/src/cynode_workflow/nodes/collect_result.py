"""Waits for everything that the running steps began, and takes their results."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from langgraph.runtime import Runtime

from cynode_workflow.context import RunContext
from cynode_workflow.effects import (
    await_handoff,
    await_job,
    failure_of,
    is_cancelled_with_workflow,
    message_of,
)
from cynode_workflow.nodes.dispatch_step import chat_of, job_of
from cynode_workflow.state import Event, PlannedStep, State, StepResult, cut

NODE = "collect_result"


async def collect_result(state: State, runtime: Runtime[RunContext]) -> dict[str, Any]:
    context = runtime.context
    plan = copy.deepcopy(state["plan"])
    running = [step for step in plan if step["status"] == "running"]
    waits = [asyncio.ensure_future(_result(context, state, step)) for step in running]
    try:
        ended = await asyncio.gather(*waits)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    attempts = dict(state["attempts_by_step"])
    results: dict[str, StepResult] = {}
    events: list[Event] = []
    for step, result in zip(running, ended, strict=True):
        name = step["name"]
        if result is None:
            # Cancelled together with the workflow; that attempt does not count.
            step["status"] = "pending"
            # What was approved may have had its effect.
            step.pop("approved", None)
            attempts[name] = max(0, attempts.get(name, 1) - 1)
            continue
        step["status"] = "ended"
        results[name] = result
        context.metrics.steps.labels(result["outcome"]).inc()
        succeeded = result["outcome"] == "succeeded"
        detail = "" if succeeded else cut(result.get("error") or f"exit code {result.get('exit_code')}", 300)
        events.append(
            {"node": NODE, "step": name, "outcome": "ended" if succeeded else "failed", "detail": detail}
        )
    update: dict[str, Any] = {
        "plan": plan,
        "attempts_by_step": attempts,
        "results": results,
        "events": [*events, {"node": NODE, "outcome": "ended"}],
    }
    if results:
        last = list(results)[-1]
        update["last_result"] = {"step": last, **results[last]}
    return update


async def _result(context: RunContext, state: State, step: PlannedStep) -> StepResult | None:
    """Returns the result of a step; `None` if what it began was cancelled together with the workflow."""
    name = step["name"]
    begun = state["begun"][name]
    if "error" in begun:
        return {"outcome": "failed", "error": f"it could not be started: {begun['error']}"}
    if begun["kind"] == "job":
        joined = await await_job(context, begun["key"], name, job_of(step, state))
        return None if is_cancelled_with_workflow(joined) else _of_job(joined["job"])
    limit = step.get("seconds") or state["policy"]["step_seconds"]
    # It was begun, so that its key is all that counts.
    handed = await await_handoff(context, begun["key"], "chat", chat_of(step, state, {}), name, limit)
    return None if is_cancelled_with_workflow(handed) else _of_answer(handed["answer"])


def _of_job(job: dict[str, Any]) -> StepResult:
    result: StepResult = {"outcome": "succeeded" if job["status"] == "completed" else "failed"}
    if job.get("end") is not None:
        result["end"] = job["end"]
    if job.get("exit_code") is not None:
        result["exit_code"] = job["exit_code"]
    if job.get("log_tail"):
        result["output_tail"] = job["log_tail"]
    if job.get("files"):
        result["artifacts"] = [file["path"] for file in job["files"]]
    problems = list(job.get("problems") or [])
    if result["outcome"] == "failed":
        problems.insert(0, _end(job))
    if problems:
        result["error"] = cut("; ".join(problems), 2000)
    return result


def _end(job: dict[str, Any]) -> str:
    """Returns how a job ended, in words."""
    end = job.get("end")
    how = end.get("how") if isinstance(end, dict) else None
    if job.get("exit_code") is not None:
        return f"it ended with exit code {job['exit_code']}"
    words = {
        "oom": "it used more memory than its limit",
        "timeout": "it ran longer than its limit",
        "output": "it wrote more output than its limit",
        "disk": "it wrote more to its disk than its limit",
        "cancelled": "it was cancelled",
        "node_lost": "the node that ran it was lost",
        "engine_failed": "no process could be started for it",
        "signalled": "a signal ended it",
    }
    text = words.get(str(how), "it was cancelled" if job["status"] == "canceled" else "it failed")
    why = end.get("why") if isinstance(end, dict) else None
    return f"{text}: {why}" if why else text


def _of_answer(answer: dict[str, Any]) -> StepResult:
    text = cut(message_of(answer))
    match answer.get("status"):
        case "completed":
            why = _incomplete(answer)
            if why is not None:
                return {"outcome": "failed", "error": why, "answer": text}
            return {"outcome": "succeeded", "answer": text}
        case "needs_clarification":
            return {
                "outcome": "failed",
                "error": "the manager has a question",
                "question": text or "What should be done?",
            }
    failed: StepResult = {"outcome": "failed", "error": failure_of(answer)}
    if text:
        failed["answer"] = text
    return failed


def _incomplete(answer: dict[str, Any]) -> str | None:
    """Returns why an answer is not whole; `None` if it is."""
    stop = (answer.get("trace") or {}).get("stop")
    if stop == "max_steps":
        return "the manager used up its steps before it was done"
    finish = answer.get("finish_reason") or "stop"
    if stop == "budget" or finish == "length":
        return "the answer of the manager was cut off: it reached the limit of its length"
    return None if finish == "stop" else f"the answer of the manager is not whole: it ended with `{finish}`"
