"""A runner that is killed at any call, on a real gateway with a manager and a node. See `real_gateway`.

Of all calls as many are chosen as `WORKFLOW_KILLS` says, spread evenly; `all`: before and after each. With
`CYNODE_PLANS` the steps are not given: the manager plans the same ones.
"""

from __future__ import annotations

import asyncio
import os
import queue
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import pytest
import real_gateway
from driving import Children
from serving import Server
from standin import Json, step

pytestmark = pytest.mark.skipif(not real_gateway.IS_THERE, reason="CYNODE_GATEWAY names no gateway")

SIGKILLED = -9
KillPoint = tuple[int, Literal["before", "after"]]
# Most of the time of a killed run is the wait for the end of its lease.
AT_ONCE = 8
STEPS = [
    step("a", script="echo made > a.txt; echo a", outputs=["a.txt"]),
    step("b", script="echo b"),
    step("c", kind="manager", after=["a", "b"]),
    step("d", script="cat a.txt", after=["c"], artifacts=["a.txt"], needs_approval=True),
]
IS_PLANNED = "CYNODE_PLANS" in os.environ


def drive_to_end(children: Children, server: Server, task: str) -> tuple[Json, int]:
    """Delivers messages until they are acknowledged, again and again while a killed runner's lease lasts.

    Returns the workflow and how often its runner was killed.
    """
    deadline, kills = time.monotonic() + 180, 0
    while time.monotonic() < deadline:
        found = asyncio.run(real_gateway.manage("workflow.get", {"task_id": task}))
        if (task, found["run"]) in server.standin.acked:
            if found["status"] != "waiting":
                return found, kills
            answer = {"task_id": task, "input": "yes", "question_id": found["question_id"]}
            asyncio.run(real_gateway.manage("workflow.resume", answer))
        code = children.work(server, task)
        kills += code == SIGKILLED
        if code == 0 and (task, found["run"]) not in server.standin.acked:
            time.sleep(0.5)
    raise AssertionError("the workflow does not end")


def result(found: Json) -> dict[str, Any]:
    """Leaves out ids, times, and what tells that a runner was lost."""
    state = {
        name: value for name, value in found["state"].items() if name not in ("begun", "task_id", "outcome")
    }
    events = [event for event in found["events"] if event["node"] != "runner"]
    told = sorted(f"{event['node']} {event.get('step')} {event['outcome']}" for event in events)
    effects = sorted(
        (effect["kind"], effect.get("step") or "", effect["outcome"]) for effect in found["effects"]
    )
    return {
        "status": found["status"],
        "summary": found["summary"],
        "state": state,
        "events": told,
        "effects": effects,
    }


def run(children: Children, kill_at: KillPoint | None) -> tuple[dict[str, Any], int, int]:
    """Returns how a workflow ended, the number of calls, and how often its runner was killed."""
    task = asyncio.run(real_gateway.start([] if IS_PLANNED else STEPS))
    with Server(real_gateway.RealTools()) as server:
        server.kill_at = kill_at
        found, kills = drive_to_end(children, server, task)
        return result(found), server.served, kills


def kill_points(calls: int) -> list[KillPoint]:
    every: list[KillPoint] = [
        (number, when) for number in range(1, calls + 1) for when in ("before", "after")
    ]
    wanted = os.environ.get("WORKFLOW_KILLS", "all")
    count = len(every) if wanted == "all" else min(int(wanted), len(every))
    return [every[index * len(every) // count] for index in range(count)]


def test_kill_at_any_call_changes_nothing_on_a_real_gateway() -> None:
    idle: queue.SimpleQueue[Children] = queue.SimpleQueue()
    everyone = [Children() for _ in range(AT_ONCE)]
    expected, calls, _ = run(everyone[0], None)
    assert expected["status"] == "done"
    begun = [("chat", "c"), *(("job", name) for name in "abd"), *(("review", name) for name in "abcd")]
    begun += [("plan", "")] if IS_PLANNED else []
    assert expected["effects"] == sorted((kind, name, "completed") for kind, name in begun)
    for children in everyone:
        idle.put(children)

    def run_killed(point: KillPoint) -> tuple[dict[str, Any], int]:
        children = idle.get()
        try:
            found, _, kills = run(children, point)
            return found, kills
        finally:
            idle.put(children)

    points = kill_points(calls)
    killed = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for (number, when), (found, kills) in zip(points, pool.map(run_killed, points), strict=True):
            assert found == expected, f"killed {when} call {number} of {calls}"
            killed += kills
    # A run that waits less makes fewer calls, so the last ones may not come.
    assert killed > len(points) * 3 // 4
    for children in everyone:
        children.close()
    print(f"\nworkflows: {1 + len(points)}\nkills: {killed}, at calls 1 to {calls}")
