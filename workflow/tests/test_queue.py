"""Runners on a real queue: settlement, several runners, drain, outages."""

from __future__ import annotations

import asyncio
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from driving import config
from nacl.signing import SigningKey
from nats.aio.client import Client
from nats_server import CONSUMER, STREAM, SUBJECT, NatsServer, nkey_seed, provision, publish, queued
from serving import Server
from standin import Effect, Json, StandIn, decision, job, scripted, step

from cynode_workflow.nats_keys import public_nkey
from cynode_workflow.runner import run
from cynode_workflow.settings import Config

PERMISSIONS = (
    pathlib.Path(__file__).resolve().parents[2] / "deploy" / "nats" / "permissions" / "workflow.conf"
)


async def until(condition: Callable[[], Any], seconds: float = 20) -> None:
    async def wait() -> None:
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return
            await asyncio.sleep(0.02)

    await asyncio.wait_for(wait(), seconds)


class Queue:
    """A queue and runners on it."""

    def __init__(self, nats: NatsServer, client: Client) -> None:
        self.nats = nats
        self.client = client
        self._running: list[tuple[asyncio.Task[None], asyncio.Event]] = []

    def config(self, server: Server, **settings: str) -> Config:
        return config(
            server.url, nats__url=self.nats.url, admin__listen="127.0.0.1:0", nats__ack_wait="2s", **settings
        )

    def start(self, server: Server, **settings: str) -> asyncio.Event:
        stop = asyncio.Event()
        self._running.append((asyncio.ensure_future(run(self.config(server, **settings), stop)), stop))
        return stop

    async def stop(self) -> None:
        for _, stop in self._running:
            stop.set()
        for task, _ in self._running:
            await asyncio.wait_for(task, 20)
        self._running.clear()


@pytest.fixture
async def queue() -> AsyncIterator[Queue]:
    with NatsServer() as nats:
        client = await provision(nats.url)
        found = Queue(nats, client)
        yield found
        await found.stop()
        await client.close()


async def test_message_of_a_workflow_that_ended_is_acknowledged(queue: Queue) -> None:
    standin = StandIn(scripted({}))
    tasks = [standin.start([step("a"), step("b", after=["a"])]) for _ in range(10)]
    with Server(standin) as server:
        for task in tasks:
            await publish(queue.client, task)
        queue.start(server, runner__id="one")
        queue.start(server, runner__id="two")
        await until(lambda: all(standin.workflows[task].status == "done" for task in tasks))
        await until(lambda: _is_empty(queue))
        await queue.stop()
    for task in tasks:
        assert standin.effects(task) == [("job", "a"), ("job", "b"), ("review", "a"), ("review", "b")]


async def _is_empty(queue: Queue) -> bool:
    return await queued(queue.client) == 0


async def test_old_and_unreadable_messages_are_removed(queue: Queue) -> None:
    standin = StandIn(scripted({}))
    waiting = standin.start([step("a")])
    standin.workflows[waiting].status = "waiting"
    newer = standin.start([step("a")])
    standin.workflows[newer].run = 2
    with Server(standin) as server:
        for task in (waiting, newer, "00000000-0000-4000-8000-000000000000"):
            await publish(queue.client, task)
        await queue.client.jetstream().publish(SUBJECT, b"not JSON")
        queue.start(server)
        await until(lambda: _is_empty(queue))
        await queue.stop()
    assert {reason for _, _, reason in standin.refused} == {"not_active", "old_run", "not_found"}


async def test_held_workflow_is_taken_when_its_lease_has_ended(queue: Queue) -> None:
    standin = StandIn(scripted({}))
    task = standin.start([step("a")])
    standin.call("workflow.lease.acquire", {"task_id": task, "run": 1, "holder": "dead", "ttl_seconds": 1})
    with Server(standin) as server:
        await publish(queue.client, task)
        queue.start(server)
        await until(lambda: standin.workflows[task].status == "done")
        await queue.stop()
    assert [reason for _, _, reason in standin.refused] == ["held"]
    assert await queued(queue.client) == 0


class Silent(Server):
    """Answers no renewal of a lease until it is told to."""

    def __init__(self, standin: StandIn) -> None:
        super().__init__(standin)
        self.answers = threading.Event()

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        if body["params"]["name"] == "workflow.lease.renew":
            self.answers.wait(60)
        return super().answer(body)


async def test_silent_gateway_does_not_keep_a_workflow_from_another_runner(queue: Queue) -> None:
    """The message is let go when the lease has ended, not when the call does, which takes longer."""
    gate = {"open": False}

    def answer(effect: Effect, number: int) -> Json | None:
        return decision("pass") if effect.kind == "review" else (job() if gate["open"] else None)

    standin = StandIn(answer)
    task = standin.start([step("a")])
    silent = Silent(standin)
    with silent, Server(standin) as server:
        await publish(queue.client, task)
        queue.start(silent, runner__id="first", gateway__wait="60s")
        await until(lambda: standin.workflows[task].effects)
        queue.start(server, runner__id="second")
        await until(lambda: standin.workflows[task].holder == "second")
        gate["open"] = True
        standin.wake()
        await until(lambda: standin.workflows[task].status == "done")
        silent.answers.set()
        await queue.stop()
    assert standin.effects(task) == [("job", "a"), ("review", "a")]


async def test_runner_that_stops_hands_its_workflows_back(queue: Queue) -> None:
    """A wait is given up at once, and another runner joins what was begun."""
    gate = {"open": False}

    def answer(effect: Effect, number: int) -> Json | None:
        return decision("pass") if effect.kind == "review" else (job() if gate["open"] else None)

    standin = StandIn(answer)
    task = standin.start([step("a")])
    with Server(standin) as server:
        await publish(queue.client, task)
        queue.start(server, gateway__wait="60s", runner__grace="10s")
        await until(lambda: standin.workflows[task].effects)
        await asyncio.wait_for(queue.stop(), 5)
        assert standin.workflows[task].status == "queued"
        gate["open"] = True
        queue.start(server)
        # Not only after the wait for a silent runner.
        await until(lambda: standin.workflows[task].status == "done", 10)
        await until(lambda: _is_empty(queue))
        await queue.stop()
    assert standin.effects(task) == [("job", "a"), ("review", "a")]


async def test_sigterm_of_the_program_hands_back_and_ends_it(queue: Queue) -> None:
    standin = StandIn(lambda effect, number: None)
    task = standin.start([step("a")])
    with Server(standin) as server:
        await publish(queue.client, task)
        arguments = [
            "--nats-url",
            queue.nats.url,
            "--gateway-url",
            server.url,
            "--admin-listen",
            "127.0.0.1:0",
        ]
        program = subprocess.Popen(
            [sys.executable, "-m", "cynode_workflow", *arguments, "run"],
            stderr=subprocess.PIPE,
            cwd=queue.nats.folder,
        )
        await until(lambda: standin.workflows[task].effects)
        program.send_signal(signal.SIGTERM)
        _, logged = await asyncio.to_thread(program.communicate, None, 20)
    assert program.returncode == 0
    assert standin.workflows[task].status == "queued"
    assert b'"outcome": "handed_back"' in logged


async def test_lease_and_message_are_held_longer_than_their_times(queue: Queue) -> None:
    """The message's ack wait is two seconds here, the lease five; the job takes six."""
    ends: dict[str, float] = {}
    loop = asyncio.get_running_loop()

    def answer(effect: Effect, number: int) -> Json | None:
        if effect.kind == "review":
            return decision("pass")
        return job() if loop.time() >= ends.setdefault("job", loop.time() + 6) else None

    standin = StandIn(answer)
    task = standin.start([step("a")])
    with Server(standin) as server:
        await publish(queue.client, task)
        queue.start(server, gateway__wait="1s")
        await until(lambda: standin.workflows[task].status == "done")
        await until(lambda: _is_empty(queue))
        await queue.stop()
    assert standin.workflows[task].epoch == 1
    assert standin.refused == []


async def test_gateway_that_is_away_for_a_while_is_waited_for(queue: Queue) -> None:
    def answer(effect: Effect, number: int) -> Json | None:
        return decision("pass") if effect.kind == "review" else (job() if standin.calls[-1] else None)

    standin = StandIn(answer)
    task = standin.start([step("a"), step("b", after=["a"])])
    with Server(standin) as server:
        await publish(queue.client, task)
        queue.start(server)
        await until(lambda: standin.workflows[task].effects)
        standin.away = True
        await asyncio.sleep(1.5)
        standin.away = False
        await until(lambda: standin.workflows[task].status == "done")
        await queue.stop()
    assert standin.workflows[task].epoch == 1
    assert standin.effects(task) == [("job", "a"), ("job", "b"), ("review", "a"), ("review", "b")]


class Denying(Server):
    """Denies that workflows are taken until it is told not to, as a gateway whose tool is disabled."""

    denies = True
    denied = 0

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        if self.denies and body["params"]["name"] == "workflow.lease.acquire":
            self.denied += 1
            error = {"code": -32003, "message": "the tool is disabled", "data": {"reason": "disabled"}}
            return 200, {"jsonrpc": "2.0", "id": body["id"], "error": error}
        return super().answer(body)


async def test_runner_that_may_take_no_workflow_says_so_and_pulls_none(
    queue: Queue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr("cynode_workflow.runner._DENIED_EVERY", 0.1)
    standin = StandIn(scripted({}))
    tasks = [standin.start([step("a")]) for _ in range(2)]
    denying = Denying(standin)
    with denying:
        await publish(queue.client, tasks[0])
        queue.start(denying, runner__slots="1")
        await until(lambda: any("Workflow not acquired" in record.message for record in caplog.records))
        await publish(queue.client, tasks[1])
        port = next(record.admin_port for record in caplog.records if hasattr(record, "admin_port"))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            ready = await client.get("/readyz")
        assert (ready.status_code, "the tool is disabled" in ready.text) == (503, True)
        # It asks again by itself, and not with messages.
        await until(lambda: denying.denied >= 5)
        assert sum("Workflow not acquired" in record.message for record in caplog.records) == 1
        denying.denies = False
        await until(lambda: all(standin.workflows[task].status == "done" for task in tasks))
        await queue.stop()


async def test_runner_goes_on_after_a_restart_of_nats(queue: Queue) -> None:
    standin = StandIn(scripted({}))
    first, second = standin.start([step("a")]), standin.start([step("a")])
    with Server(standin) as server:
        queue.start(server)
        await publish(queue.client, first)
        await until(lambda: standin.workflows[first].status == "done")
        queue.nats.kill()
        queue.nats.start()
        await until(lambda: queue.client.is_connected)
        await publish(queue.client, second)
        await until(lambda: standin.workflows[second].status == "done", 30)
        await queue.stop()


async def test_deleted_consumer_is_no_hot_loop_and_is_said(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    standin = StandIn(scripted({}))
    with Server(standin) as server:
        await queue.client.jetstream().delete_consumer(STREAM, CONSUMER)
        queue.start(server)
        await until(lambda: any("Pull failed" in record.message for record in caplog.records))
        await asyncio.sleep(1)
        await queue.stop()
    assert sum("Pull failed" in record.message for record in caplog.records) <= 4


async def test_no_more_workflows_than_slots_are_worked_on(queue: Queue) -> None:
    standin = StandIn(lambda effect, number: None)
    tasks = [standin.start([step("a")]) for _ in range(3)]
    with Server(standin) as server:
        for task in tasks:
            await publish(queue.client, task)
        queue.start(server, runner__slots="2")
        await until(lambda: sum(bool(standin.workflows[task].effects) for task in tasks) == 2)
        await asyncio.sleep(0.5)
        assert sum(standin.workflows[task].status == "running" for task in tasks) == 2
        await queue.stop()


async def test_health_and_metrics_are_served(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    standin = StandIn(scripted({}))
    task = standin.start([step("a")])
    with Server(standin) as server:
        await publish(queue.client, task)
        queue.start(server)
        await until(lambda: standin.workflows[task].status == "done")
        port = next(record.admin_port for record in caplog.records if hasattr(record, "admin_port"))
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            assert (await client.get("/livez")).text == "ok\n"
            assert (await client.get("/readyz")).status_code == 200
            metrics = (await client.get("/metrics")).text
            assert (await client.get("/other")).status_code == 404
        await queue.stop()
    assert 'workflow_runs_total{outcome="done"} 1.0' in metrics
    assert "workflow_ready 1.0" in metrics
    assert task not in metrics


async def test_permissions_of_the_deployment_are_enough_for_a_runner(tmp_path: pathlib.Path) -> None:
    seed = nkey_seed(bytes(SigningKey.generate()))
    file = tmp_path / "workflow.nk"
    file.write_text(seed, encoding="utf-8")
    allowed = PERMISSIONS.read_text(encoding="utf-8")
    runner = f"{{ nkey: {public_nkey(seed)}, permissions {{ {allowed} }} }}"
    with NatsServer(f"authorization {{ users: [ {{ user: admin, password: admin }}, {runner} ] }}") as nats:
        client = await provision(nats.url, user="admin", password="admin")
        found = Queue(nats, client)
        standin = StandIn(scripted({}))
        task = standin.start([step("a")])
        with Server(standin) as server:
            found.start(server, nats__nkey_file=str(file), nats__inbox_prefix="_INBOX_workflow")
            await publish(client, task)
            await until(lambda: standin.workflows[task].status == "done")
            await until(lambda: _is_empty(found))
            await found.stop()
        await client.close()
