"""Jobs and handoffs. Each has a key; the same key joins what was begun, by whichever runner."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from cynode_workflow.context import RunContext
from cynode_workflow.state import cut

# What was cancelled together with an earlier run is begun anew, this many times.
MAX_CANCELLED = 20
_RETRY_DELAY = 1.0
# What a manager that is told to stop gets for its last word.
_LAST_WORD = 5
_ENDED_JOBS = ("completed", "failed", "canceled")
# Of a job, and of a handoff.
_CANCELLED = ("canceled", "cancelled")


async def begin_job(context: RunContext, key: str, step: str, run: dict[str, Any]) -> dict[str, Any]:
    """Begins a job, or joins it, and returns it as it is, with whether it was begun now."""
    return await context.lease.call("workflow.job", {"key": key, "step": step, "run": run, "wait_seconds": 0})


def is_cancelled_with_workflow(begun: dict[str, Any]) -> bool:
    """Returns whether what a call began or joined was ended since its workflow was.

    What a person cancelled alone, and what was given up, was not: it is not begun anew unasked.
    """
    ended = begun["job"] if "job" in begun else begun.get("answer") or {}
    return begun.get("end_reason") == "cancelled" and ended.get("status") in _CANCELLED


async def await_job(context: RunContext, key: str, step: str, run: dict[str, Any]) -> dict[str, Any]:
    """Waits for the end of a job, and returns it with why it was ended, if it was.

    Its own limits bound how long it runs; the gateway bounds how long it waits for a node.
    """
    while True:
        wait = context.wait_seconds
        arguments = {"key": key, "step": step, "run": run, "wait_seconds": wait}
        answer = await context.unless_draining(
            context.lease.call("workflow.job", arguments, wait_seconds=wait)
        )
        if answer["job"]["status"] in _ENDED_JOBS:
            return answer


async def begin_handoff(
    context: RunContext, key: str, kind: str, payload: dict[str, Any], step: str | None
) -> dict[str, Any]:
    """Begins or joins a handoff, and returns its id and its answer, if any."""
    return await context.lease.call("workflow.handoff", _handoff(key, kind, payload, step, 0))


async def await_handoff(
    context: RunContext, key: str, kind: str, payload: dict[str, Any], step: str | None, seconds: float
) -> dict[str, Any]:
    """Waits for the answer to a handoff, and returns it with why the handoff was ended, if it was.

    It waits so many seconds from when the handoff was begun, whichever runner began it.

    One that does not come in time is given up: the gateway ends it, so that nothing is done for it any more
    when the step is tried again, and answers that it came too late.
    """
    began = time.monotonic()
    while True:
        called = time.monotonic()
        left = began + seconds - called
        is_late = left <= 0
        wait = _LAST_WORD if is_late else min(context.wait_seconds, int(left) + 1)
        arguments = _handoff(key, kind, payload, step, wait)
        if is_late:
            arguments["give_up"] = True
        call = context.lease.call("workflow.handoff", arguments, wait_seconds=wait)
        handed = await context.unless_draining(call)
        began = min(began, called - handed.get("age_ms", 0) / 1000)
        if isinstance(handed.get("answer"), dict):
            return handed


async def hand_off(
    context: RunContext,
    base: str,
    kind: str,
    payload: dict[str, Any],
    *,
    step: str | None,
    seconds: float,
    tries: int,
) -> dict[str, Any]:
    """Hands off under the keys `base/0`, `base/1`, … until the answer is not a temporary failure."""
    failures = 0
    for number in range(tries + MAX_CANCELLED):
        handed = await await_handoff(context, f"{base}/{number}", kind, payload, step, seconds)
        answer: dict[str, Any] = handed["answer"]
        if answer.get("status") == "cancelled":
            continue
        if answer.get("status") != "failed" or not (answer.get("error") or {}).get("retryable"):
            return answer
        failures += 1
        if failures >= tries:
            return answer
        context.log.warning("Handoff failed; handing off again.", kind=kind, error=failure_of(answer))
        await context.unless_draining(asyncio.sleep(_RETRY_DELAY * failures))
    return {"status": "failed", "error": {"code": "cancelled", "message": "it was cancelled repeatedly"}}


def failure_of(answer: dict[str, Any]) -> str:
    """Returns the reason of a failed answer."""
    error = answer.get("error") or {}
    return cut(str(error.get("message") or error.get("code") or "the manager gave no reason"), 1000)


def message_of(answer: dict[str, Any]) -> str:
    """Returns the text of an answer."""
    return str((answer.get("message") or {}).get("content") or "")


def _handoff(key: str, kind: str, payload: dict[str, Any], step: str | None, wait: int) -> dict[str, Any]:
    named = {"key": key, "kind": kind, "payload": payload, "wait_seconds": wait}
    return named if step is None else {**named, "step": step}
