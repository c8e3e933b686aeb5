"""A runner that is killed before or after any call, and runners that were overtaken."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from driving import Children, work
from serving import Server
from standin import Effect, Json, StandIn, completion, decision, job, scripted, step

from cynode_workflow.errors import StaleEpoch
from cynode_workflow.gateway import Gateway
from cynode_workflow.lease import Lease
from cynode_workflow.traces import TraceContext

SIGKILLED = -9


def standin_for_kills() -> tuple[StandIn, str]:
    """A workflow that visits every node: plan, waves, retry, manager's step, question, approval."""
    plan = completion(
        steps=[
            step("a"),
            step("b"),
            step("c", kind="manager", after=["a", "b"]),
            step("d", after=["c"], needs_approval=True),
        ]
    )
    script = {
        ("plan", None): [plan],
        ("job", "b"): [job(1), job(0)],
        ("review", "b"): [decision("retry"), decision("pass")],
        ("chat", "c"): [completion("draft"), completion("final")],
        ("review", "c"): [decision("escalate", question="Is it good?"), decision("pass")],
    }
    standin = StandIn(scripted(script))
    return standin, standin.start()


def drive_to_end(children: Children, server: Server, task: str) -> int:
    """Delivers messages as the queue does, again and again until they are acknowledged; a person answers."""
    standin, kills = server.standin, 0
    answers = iter(["retry", "yes"])
    for _ in range(20):
        row = standin.workflows[task]
        if (task, row.run) in standin.acked:
            if row.status != "waiting":
                return kills
            standin.resume(task, next(answers))
        kills += children.work(server, task) == SIGKILLED
        standin.expire_leases()
    raise AssertionError(f"the workflow does not end: {standin.workflows[task]}")


def result(standin: StandIn, task: str) -> dict[str, Any]:
    row = standin.workflows[task]
    state = dict(row.state or {})
    # These hold ids and times.
    for name in ("begun", "task_id"):
        state.pop(name, None)
    events = sorted(str(sorted(event.items())) for event in row.events)
    return {
        "status": row.status,
        "summary": row.summary,
        "state": state,
        "events": events,
        "effects": standin.effects(task),
    }


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    started = Children()
    yield started
    started.close()


@pytest.fixture(scope="module")
def unharmed(children: Children) -> tuple[dict[str, Any], int]:
    standin, task = standin_for_kills()
    with Server(standin) as server:
        assert drive_to_end(children, server, task) == 0
        return result(standin, task), server.served


def test_workflow_for_kills_visits_every_node_and_call(unharmed: tuple[dict[str, Any], int]) -> None:
    found, _ = unharmed
    assert found["status"] == "done"
    assert found["effects"] == [
        ("chat", "c"),
        ("chat", "c"),
        ("job", "a"),
        ("job", "b"),
        ("job", "b"),
        ("job", "d"),
        ("plan", ""),
        ("review", "a"),
        ("review", "b"),
        ("review", "b"),
        ("review", "c"),
        ("review", "c"),
        ("review", "d"),
    ]
    nodes = {
        "load_task_context",
        "plan_steps",
        "decide_next",
        "dispatch_step",
        "collect_result",
        "verify_step_result",
        "ask_person",
        "finalize_summary",
    }
    assert all(any(f"'{node}'" in event for event in found["events"]) for node in nodes)


def kill_points(calls: int) -> list[tuple[int, Literal["before", "after"]]]:
    """All of them, or every other call: for the gateway, after one call is the same as before the next."""
    step = 1 if os.environ.get("WORKFLOW_KILLS") == "all" else 2
    return [(number, when) for number in range(1, calls + 1, step) for when in ("before", "after")]


def test_kill_at_any_call_changes_nothing(children: Children, unharmed: tuple[dict[str, Any], int]) -> None:
    """Also that each effect is begun once, and that each event is told once."""
    expected, calls = unharmed
    for number, when in kill_points(calls):
        standin, task = standin_for_kills()
        with Server(standin) as server:
            server.kill_at = (number, when)
            kills = drive_to_end(children, server, task)
        at = f"{when} call {number} of {calls}: {standin.calls[min(number, len(standin.calls)) - 1][0]}"
        assert kills == 1, at
        assert result(standin, task) == expected, at


async def test_overtaken_runner_has_no_effect() -> None:
    """Two runners on one task: the first one sleeps past its lease in a wait."""
    gate = {"open": False}

    def answer(effect: Effect, number: int) -> Json | None:
        if effect.kind == "job":
            return job() if gate["open"] else None
        return decision("pass")

    standin = StandIn(answer)
    task = standin.start([step("a"), step("b", after=["a"])])
    with Server(standin) as server:
        first = asyncio.ensure_future(work(server.url, task, 1, "first"))
        while not standin.workflows[task].effects:
            await asyncio.sleep(0.01)
        standin.expire_leases()
        second = asyncio.ensure_future(work(server.url, task, 1, "second"))
        while standin.workflows[task].epoch < 2:
            await asyncio.sleep(0.01)
        gate["open"] = True
        standin.wake()
        await asyncio.wait_for(asyncio.gather(first, second), 20)
    row = standin.workflows[task]
    assert row.status == "done"
    assert standin.effects(task) == [("job", "a"), ("job", "b"), ("review", "a"), ("review", "b")]
    stale = [arguments["epoch"] for _, arguments, reason in standin.refused if reason == "stale_epoch"]
    assert stale
    assert set(stale) == {1}
    # One of them acknowledged, and it was the one whose release was taken.
    assert sum(tool == "test.ack" for tool, _ in standin.calls) == 1


async def test_every_call_of_a_stale_epoch_is_refused() -> None:
    standin = StandIn(scripted({}))
    task = standin.start([step("a")])
    with Server(standin) as server:
        gateway = Gateway(server.url, None)
        lease = await Lease.acquire(gateway, task, 1, "first", 5, TraceContext.begin(None), 0)
        standin.expire_leases()
        await Lease.acquire(gateway, task, 1, "second", 5, TraceContext.begin(None), 0)
        calls: list[tuple[str, Json]] = [
            ("workflow.lease.renew", {"ttl_seconds": 5}),
            ("workflow.checkpoint.get", {"namespace": ""}),
            ("workflow.job", {"key": "k", "step": "a", "run": {"script": "x"}, "wait_seconds": 0}),
            ("workflow.handoff", {"key": "k", "kind": "chat", "payload": {}, "wait_seconds": 0}),
        ]
        for tool, arguments in calls:
            with pytest.raises(StaleEpoch):
                await lease.call(tool, arguments)
        with pytest.raises(StaleEpoch):
            await lease.release({"handed_back": {}})
        await gateway.close()
    assert standin.workflows[task].effects == {}
