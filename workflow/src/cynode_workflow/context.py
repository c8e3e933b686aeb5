"""The context of nodes: the lease, waits, and how to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cynode_workflow.errors import DrainRequested
from cynode_workflow.lease import Lease
from cynode_workflow.logs import Log
from cynode_workflow.metrics import Metrics

T = TypeVar("T")


@dataclass
class RunContext:
    """One run of one workflow by this process."""

    lease: Lease
    metrics: Metrics
    log: Log
    # How long one call waits for a job or a handoff.
    wait_seconds: int = 30
    # Set when the process is stopping.
    draining: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def acquired(self) -> dict[str, Any]:
        return self.lease.acquired

    async def unless_draining(self, wait: Awaitable[T]) -> T:
        """Awaits something long. Abandons it at once when the process is stopping."""
        waiting = asyncio.ensure_future(wait)
        stop = asyncio.ensure_future(self.draining.wait())
        try:
            await asyncio.wait({waiting, stop}, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()
            raise DrainRequested("the runner is stopping")
        finally:
            for each in (waiting, stop):
                each.cancel()
            await asyncio.gather(waiting, stop, return_exceptions=True)
