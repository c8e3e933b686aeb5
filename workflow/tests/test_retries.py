"""Retries that are lost and queued again, and handoffs whose runner died when it gave them up."""

from __future__ import annotations

import asyncio
from typing import Any

from driving import work, work_until_settled
from serving import Server
from standin import Effect, Json, Refused, StandIn, decision, job, scripted, step

FAILS_THEN_PASSES = {("job", "b"): [job(1), job(0)], ("review", "b"): [decision("retry"), decision("pass")]}


async def failed(standin: StandIn) -> str:
    """Works on a workflow of which one step is done and the other fails."""
    task = standin.start([step("a"), step("b", after=["a"])], max_attempts=1)
    await work_until_settled(standin, task)
    assert standin.workflows[task].status == "failed"
    return task


async def test_retry_whose_message_was_lost_is_still_a_retry() -> None:
    standin = StandIn(scripted(FAILS_THEN_PASSES))
    task = await failed(standin)
    standin.retry(task)
    standin.requeue(task)
    standin.requeue(task)
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert (row.status, row.run) == ("done", 4)
    assert standin.effects(task).count(("job", "b")) == 2


async def test_retry_whose_runner_died_goes_on_with_what_it_began() -> None:
    ended = {"second": False}

    def answer(effect: Effect, number: int) -> Json | None:
        if (effect.kind, effect.step) != ("job", "b"):
            return scripted(FAILS_THEN_PASSES)(effect, number)
        if number == 1:
            return job(1)
        return job(0) if ended["second"] else None

    standin = StandIn(answer)
    task = await failed(standin)
    standin.retry(task)
    row = standin.workflows[task]
    before = len(row.effects)
    with Server(standin) as server:
        working = asyncio.ensure_future(work(server.url, task, 2))
        while len(row.effects) == before:
            await asyncio.sleep(0.01)
        standin.requeue(task)
        await asyncio.wait_for(working, 5)
        ended["second"] = True
        await work(server.url, task, 3)
    assert (row.status, row.trigger) == ("done", "resume")
    assert standin.effects(task).count(("job", "b")) == 2


async def test_retry_that_failed_before_its_runner_died_is_not_tried_again() -> None:
    class Lossy(StandIn):
        def _workflow_lease_release(self, *arguments: Any, **named: Any) -> Json:
            if self.workflows[named["task_id"]].run == 2:
                self.requeue(named["task_id"])
                raise Refused("stale_epoch")
            return super()._workflow_lease_release(*arguments, **named)

    script = {("job", "b"): [job(1)], ("review", "b"): [decision("retry")]}
    standin = Lossy(scripted(script))
    task = await failed(standin)
    standin.retry(task)
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert (row.status, row.run) == ("queued", 3)
    await work_until_settled(standin, task)
    assert row.status == "failed"
    assert standin.effects(task).count(("job", "b")) == 2


async def test_only_what_ended_with_the_workflow_is_begun_anew_by_a_retry() -> None:
    """Also if the retry was paused since. A job that a person cancelled alone is that person's."""
    cancelled = {"status": "canceled", "end": {"how": "cancelled"}}
    ended: dict[str, Json | None] = {"with-it": None, "alone": None}

    def answer(effect: Effect, number: int) -> Json | None:
        if effect.kind == "review":
            return decision("pass")
        return ended[effect.step or ""] if number == 1 else job()

    standin = StandIn(answer)
    task = standin.start([step("with-it"), step("alone")])
    row = standin.workflows[task]
    with Server(standin) as server:
        working = asyncio.ensure_future(work(server.url, task, 1))
        while len(row.effects) < 2:
            await asyncio.sleep(0.01)
        ended["alone"] = cancelled
        standin.wake()
        while not any(effect.answer for effect in row.effects.values()):
            await asyncio.sleep(0.01)
        standin.cancel(task)
        await asyncio.wait_for(working, 5)
        standin.retry(task)
        standin.pause(task)
        standin.resume(task, None)
        await work(server.url, task, 3)
    assert (row.status, row.waiting_for) == ("waiting", "question")
    assert "its job was cancelled" in (row.question or "")
    assert standin.effects(task).count(("job", "alone")) == 1
    assert standin.effects(task).count(("job", "with-it")) == 2


async def test_retry_of_a_cancelled_workflow_asks_again_for_approval() -> None:
    """The job that was approved may have had its effect before it was cancelled."""
    standin = StandIn(lambda effect, number: decision("pass") if effect.kind == "review" else None)
    task = standin.start([step("risky", needs_approval=True)])
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert row.waiting_for == "approval"
    standin.resume(task, "yes")
    with Server(standin) as server:
        working = asyncio.ensure_future(work(server.url, task, row.run))
        while ("job", "risky") not in standin.effects(task):
            await asyncio.sleep(0.01)
        standin.cancel(task)
        await asyncio.wait_for(working, 5)
        standin.retry(task)
        await work(server.url, task, row.run)
    assert (row.status, row.waiting_for) == ("waiting", "approval")
    assert standin.effects(task).count(("job", "risky")) == 1


async def test_handoff_that_a_dead_runner_gave_up_is_not_begun_anew() -> None:
    class Lossy(StandIn):
        def _workflow_handoff(self, *arguments: Any, **named: Any) -> Json:
            row = self.workflows[named["task_id"]]
            if named.get("give_up") and row.run == 1:
                # It is ended, and its runner is gone before the last word.
                row.effects[named["key"]].given_up = True
                self.requeue(named["task_id"])
                raise Refused("stale_epoch")
            return super()._workflow_handoff(*arguments, **named)

    standin = Lossy(lambda effect, number: None if effect.kind == "review" else job())
    task = standin.start([step("a")], step_seconds=1)
    await work_until_settled(standin, task)
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert (row.status, row.run) == ("waiting", 2)
    assert "no answer in time" in (row.question or "")
    assert standin.effects(task) == [("job", "a"), ("review", "a")]
