"""A real gateway behind the server of the tests, which kills a client at a chosen call.

`CYNODE_GATEWAY` is the MCP URL of a gateway with a manager and a node, `CYNODE_TOKEN_FILE` the file with a
token of agent type `workflow`, and `CYNODE_MANAGER_TOKEN_FILE` one with a token that may create tasks and
start workflows, for the user `CYNODE_USER`.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any

from standin import Json, Refused, StandIn

from cynode_workflow.errors import ToolRefused
from cynode_workflow.gateway import Gateway

IS_THERE = "CYNODE_GATEWAY" in os.environ


async def call(token_file: str, tool: str, arguments: Json, key: str | None = None) -> Json:
    gateway = Gateway(os.environ["CYNODE_GATEWAY"], os.environ[token_file])
    try:
        wait = float(arguments.get("wait_seconds") or 0)
        return await gateway.call(tool, arguments, may_wait=lambda: False, wait_seconds=wait, key=key)
    finally:
        await gateway.close()


async def manage(tool: str, arguments: Json) -> Json:
    return await call("CYNODE_MANAGER_TOKEN_FILE", tool, arguments)


async def start(steps: list[Json]) -> str:
    """Starts the workflow of a new task and returns its id."""
    user = os.environ.get("CYNODE_USER", "conformance")
    task = await manage("db.task.create", {"name": "conformance", "user_id": user})
    await manage("workflow.start", {"task_id": task["task_id"], **({"steps": steps} if steps else {})})
    return str(task["task_id"])


@dataclass(frozen=True)
class Row:
    """What the driver reads of a workflow."""

    run: int


class RealTools(StandIn):
    """Passes calls on to the gateway."""

    def __init__(self) -> None:
        super().__init__(lambda effect, number: None)
        self.workflows: Any = _Rows()

    def call(self, tool: str, arguments: Json, key: str | None = None) -> Json:
        self.calls.append((tool, arguments))
        if tool == "test.ack":
            return self._test_ack(**arguments)
        if tool == "test.nak":
            return {}
        try:
            return asyncio.run(call("CYNODE_TOKEN_FILE", tool, arguments, key))
        except ToolRefused as error:
            refused = Refused(error.details.get("reason", error.code), code=error.code)
            refused.details = error.details or {"code": error.code, "message": error.message}
            raise refused from None


class _Rows:
    def __getitem__(self, task_id: str) -> Row:
        return Row(asyncio.run(manage("workflow.get", {"task_id": task_id}))["run"])
