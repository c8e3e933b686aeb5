"""Runs workflows as a runner does, in this process or in a child that can be killed."""

from __future__ import annotations

import asyncio
import os
import pathlib
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from serving import Server
from standin import StandIn

from cynode_workflow.gateway import Gateway
from cynode_workflow.metrics import Metrics
from cynode_workflow.runner import Runner
from cynode_workflow.settings import Config, Settings


def config(url: str, **settings: str) -> Config:
    flags = {"gateway.url": url, "gateway.wait": "2s", "runner.lease": "5s", "nats.ack_wait": "5s"}
    return Settings.load(
        flags | {key.replace("__", "."): value for key, value in settings.items()}, {}, None
    ).check()


@dataclass(frozen=True)
class Message:
    """A delivery whose settlement is a call, so that a kill can come before and after it."""

    gateway: Gateway
    task_id: str
    run: int
    traceparent: str | None = None

    async def hold(self) -> None:
        pass

    async def ack(self) -> None:
        await self._call("test.ack")

    async def nak(self, delay: float) -> None:
        await self._call("test.nak")

    async def _call(self, tool: str) -> None:
        await self.gateway.call(tool, {"task_id": self.task_id, "run": self.run}, may_wait=lambda: False)


async def work(url: str, task_id: str, run: int, runner_id: str = "runner") -> Runner:
    """Works on one message."""
    gateway = Gateway(url, None)
    settings = config(url, runner__id=runner_id)
    runner = Runner(settings, gateway, Metrics(), asyncio.Event())
    message: Any = Message(gateway, task_id, run)
    try:
        await runner.work(message)
    finally:
        await gateway.close()
    return runner


class Children:
    """Child processes that work on one message each."""

    def __init__(self) -> None:
        path = os.pathsep.join(path for path in sys.path if path)
        zygote = pathlib.Path(__file__).with_name("zygote.py")
        self._zygote = subprocess.Popen(
            [sys.executable, zygote],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )

    def work(self, server: Server, task_id: str) -> int:
        """Works on the current run in a child that the server may kill, and returns its exit code."""
        assert self._zygote.stdin is not None
        run = server.standin.workflows[task_id].run
        self._zygote.stdin.write(f"{server.url} {task_id} {run}\n")
        self._zygote.stdin.flush()
        with server.victim_lock:
            server.victim = self._read()
        code = self._read()
        server.victim = None
        return code

    def close(self) -> None:
        assert self._zygote.stdin is not None
        self._zygote.stdin.close()
        self._zygote.wait(10)

    def _read(self) -> int:
        assert self._zygote.stdout is not None
        return int(self._zygote.stdout.readline())


async def work_until_settled(standin: StandIn, task_id: str, answers: list[str] | None = None) -> None:
    """Works on all runs of a workflow in this process; a person answers its questions in order."""
    left = list(answers or [])
    with Server(standin) as server:
        while True:
            row = standin.workflows[task_id]
            await work(server.url, task_id, row.run)
            if row.status != "waiting" or not left:
                return
            standin.resume(task_id, left.pop(0))
