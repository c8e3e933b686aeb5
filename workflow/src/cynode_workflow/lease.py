"""The lease of one workflow: the authority for everything that is done for it."""

from __future__ import annotations

import time
import uuid
from typing import Any

from cynode_workflow.errors import GatewayAway, GatewayError, LeaseLost, NotActive, NotFound, OldRun
from cynode_workflow.gateway import Gateway
from cynode_workflow.texts import without_nul
from cynode_workflow.traces import TraceContext

# No task has this id: a runner that may take workflows is told so, another one is refused.
_NO_TASK = "00000000-0000-4000-8000-000000000000"


async def probe(gateway: Gateway) -> None:
    """Raises a `GatewayError` unless the gateway answers and takes the token of this runner."""
    try:
        await Lease.acquire(gateway, _NO_TASK, 1, "check", 5, TraceContext.begin(None), patience=0)
    except (NotFound, NotActive, OldRun):
        return
    raise GatewayError("it returned a workflow for an id that does not exist")


class Lease:
    """A lease that this runner holds, and the calls that are made under it.

    Invariant: no call is made, or made again, after the time at which the gateway may have given the workflow
    to another runner. The gateway refuses a stale epoch anyway; this only spares the calls.
    """

    def __init__(
        self,
        gateway: Gateway,
        task_id: str,
        run: int,
        ttl_seconds: int,
        trace: TraceContext,
        acquired: dict[str, Any],
        asked_at: float,
    ) -> None:
        self._gateway = gateway
        self._ttl = ttl_seconds
        self._trace = trace
        self._until = asked_at + ttl_seconds
        self.task_id = task_id
        self.run = run
        self.epoch = int(acquired["epoch"])
        # What the gateway told about the workflow: task, steps, policy, input of a person.
        self.acquired = acquired

    @classmethod
    async def acquire(
        cls,
        gateway: Gateway,
        task_id: str,
        run: int,
        holder: str,
        ttl_seconds: int,
        trace: TraceContext,
        patience: float,
    ) -> Lease:
        """Acquires the workflow. Waits up to `patience` seconds for an unavailable gateway."""
        give_up = time.monotonic() + patience
        asked_at = time.monotonic()
        acquired = await gateway.call(
            "workflow.lease.acquire",
            {"task_id": task_id, "run": run, "holder": holder, "ttl_seconds": ttl_seconds},
            may_wait=lambda: time.monotonic() < give_up,
            # The same key for all tries: a lease whose answer was lost is not `held` by ourselves.
            key=f"acquire-{uuid.uuid4()}",
            trace=trace,
        )
        # Counted from before the first try, so that it never ends later here than at the gateway.
        return cls(gateway, task_id, run, ttl_seconds, trace, acquired, asked_at)

    def is_alive(self) -> bool:
        return time.monotonic() < self._until

    async def call(
        self, tool: str, arguments: dict[str, Any], *, wait_seconds: float = 0.0
    ) -> dict[str, Any]:
        """Calls a tool of the workflow under this lease."""
        if not self.is_alive():
            raise LeaseLost(f"the lease of {self.task_id} has expired")
        named = {"task_id": self.task_id, "epoch": self.epoch, **arguments}
        try:
            return await self._gateway.call(
                tool, named, may_wait=self.is_alive, wait_seconds=wait_seconds, trace=self._trace
            )
        except GatewayAway as error:
            raise LeaseLost(f"the lease of {self.task_id} expired: {error}") from error

    async def renew(self) -> None:
        asked_at = time.monotonic()
        await self.call("workflow.lease.renew", {"ttl_seconds": self._ttl})
        self._until = asked_at + self._ttl

    async def release(self, outcome: dict[str, Any], *, instead: bool = False) -> None:
        """Releases the workflow with its outcome, or with `instead` if that outcome was refused."""
        # A workflow whose outcome the gateway refused could never end.
        named = {"task_id": self.task_id, "epoch": self.epoch, "outcome": without_nul(outcome)}
        try:
            await self._gateway.call(
                "workflow.lease.release",
                named,
                may_wait=self.is_alive,
                key=f"release-{self.task_id}-{self.epoch}" + ("-instead" if instead else ""),
                trace=self._trace,
            )
        except GatewayAway as error:
            raise LeaseLost(f"the lease of {self.task_id} expired: {error}") from error
