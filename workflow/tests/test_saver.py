"""The saver against LangGraph's own conformance suite, in memory and on a real gateway if one is named."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
import real_gateway
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from serving import Server
from standin import StandIn, scripted

from cynode_workflow.errors import GatewayError
from cynode_workflow.gateway import Gateway
from cynode_workflow.lease import Lease
from cynode_workflow.saver import GatewaySaver
from cynode_workflow.traces import TraceContext

BASE = {"put", "put_writes", "get_tuple", "list", "delete_thread"}


class SaverOfThreads(GatewaySaver):
    """A saver that has a workflow for each thread of the suite, which names threads as it likes."""

    def __init__(self, make: Any) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self._make = make
        self._leases: dict[str, Lease] = {}

    async def _lease_of(self, thread_id: str) -> Lease:
        if thread_id not in self._leases:
            self._leases[thread_id] = await self._make()
        return self._leases[thread_id]


async def check_conformance(name: str, make: Any) -> None:
    @checkpointer_test(name=name)
    async def saver() -> AsyncIterator[GatewaySaver]:
        yield SaverOfThreads(make)

    report = await validate(saver)
    failures = {
        capability: result.failures for capability, result in report.results.items() if result.failures
    }
    assert failures == {}
    assert {capability for capability, result in report.results.items() if result.passed} == BASE
    assert sum(result.tests_passed for result in report.results.values()) == 58


async def test_saver_conforms_on_the_tools_in_memory() -> None:
    standin = StandIn(scripted({}))
    with Server(standin) as server:
        gateway = Gateway(server.url, None)

        async def make() -> Lease:
            task = standin.start()
            return await Lease.acquire(gateway, task, 1, "suite", 120, TraceContext.begin(None), 0)

        await check_conformance("memory", make)
        await gateway.close()


@pytest.mark.skipif(not real_gateway.IS_THERE, reason="CYNODE_GATEWAY names no gateway")
async def test_saver_conforms_on_a_real_gateway() -> None:
    gateway = Gateway(os.environ["CYNODE_GATEWAY"], os.environ["CYNODE_TOKEN_FILE"])

    async def make() -> Lease:
        task = await real_gateway.start([])
        return await Lease.acquire(gateway, task, 1, "suite", 120, TraceContext.begin(None), 0)

    try:
        await check_conformance("gateway", make)
    finally:
        await gateway.close()


async def test_failed_write_is_raised_by_the_next_put() -> None:
    """LangGraph goes on after a failed write; without this, what a node did would be lost."""
    standin = StandIn(scripted({}))
    with Server(standin) as server:
        gateway = Gateway(server.url, None)
        task = standin.start()
        lease = await Lease.acquire(gateway, task, 1, "first", 5, TraceContext.begin(None), 0)
        saver = GatewaySaver(lease)
        config: Any = {"configurable": {"thread_id": task, "checkpoint_ns": ""}}
        stored = await saver.aput(config, empty_checkpoint(), {}, {})
        standin.pause(task)
        with pytest.raises(GatewayError):
            await saver.aput_writes(stored, [("results", {"a": 1})], "task")
        standin.workflows[task].status = "running"
        standin.workflows[task].epoch = lease.epoch
        with pytest.raises(GatewayError):
            await saver.aput(stored, empty_checkpoint(), {}, {})
        await gateway.close()


async def test_many_writes_are_stored_in_parts_and_in_order() -> None:
    standin = StandIn(scripted({}))
    with Server(standin) as server:
        gateway = Gateway(server.url, None)
        task = standin.start()
        saver = GatewaySaver(await Lease.acquire(gateway, task, 1, "first", 5, TraceContext.begin(None), 0))
        config: Any = {"configurable": {"thread_id": task, "checkpoint_ns": ""}}
        stored = await saver.aput(config, empty_checkpoint(), {}, {})
        await saver.aput_writes(stored, [("channel", number) for number in range(150)], "task")
        found = await saver.aget_tuple(stored)
        await gateway.close()
    assert found is not None
    assert [value for _, _, value in found.pending_writes or []] == list(range(150))


async def test_lease_of_another_workflow_is_not_used() -> None:
    standin = StandIn(scripted({}))
    with Server(standin) as server:
        gateway = Gateway(server.url, None)
        lease = await Lease.acquire(gateway, standin.start(), 1, "first", 5, TraceContext.begin(None), 0)
        with pytest.raises(ValueError, match="the lease is of"):
            await GatewaySaver(lease).aget_tuple({"configurable": {"thread_id": "other"}})
        await gateway.close()


@dataclasses.dataclass
class Foreign:
    """A type that a checkpoint could name."""

    made: ClassVar[list[str]] = []
    text: str

    def __post_init__(self) -> None:
        self.made.append(self.text)


def test_checkpoint_that_names_a_foreign_type_does_not_make_one() -> None:
    stored = JsonPlusSerializer(allowed_msgpack_modules=True).dumps_typed({"plan": Foreign("x")})
    Foreign.made.clear()
    loaded = GatewaySaver(None).serde.loads_typed(stored)  # type: ignore[arg-type]
    assert Foreign.made == []
    assert not isinstance(loaded["plan"], Foreign)


def test_event_loop_is_needed() -> None:
    """The saver is async only; LangGraph says so when it is used otherwise."""

    async def get() -> None:
        with pytest.raises(NotImplementedError):
            GatewaySaver(None).get_tuple({"configurable": {"thread_id": "x"}})  # type: ignore[arg-type]

    asyncio.run(get())
