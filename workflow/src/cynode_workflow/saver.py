"""LangGraph's checkpoints, kept by the gateway under the epoch of a lease."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from cynode_workflow.lease import Lease
from cynode_workflow.state import state_for_people
from cynode_workflow.texts import without_nul

# The gateway takes this many writes per call.
MAX_WRITES = 64
MAX_EVENTS = 64
# And gives this many checkpoints per call.
MAX_PAGE = 100


class GatewaySaver(BaseCheckpointSaver[int]):
    """Keeps the checkpoints of one workflow. Async only.

    LangGraph goes on after a failed `aput_writes`, even with `durability="sync"`; only a failed `aput` stops
    it. So a failed write is remembered and raised by the next `aput`.
    """

    def __init__(self, lease: Lease) -> None:
        # Only plain values and LangGraph's own types are read back; others could execute code.
        super().__init__(serde=JsonPlusSerializer(allowed_msgpack_modules=None))
        self._lease = lease
        self._lock = asyncio.Lock()
        self._failed_write: Exception | None = None

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        namespace = config["configurable"].get("checkpoint_ns", "")
        kind, data = self.serde.dumps_typed(checkpoint)
        values = checkpoint["channel_values"]
        events = _events(values)
        arguments = {
            "namespace": namespace,
            "checkpoint_id": checkpoint["id"],
            "parent_id": config["configurable"].get("checkpoint_id"),
            "kind": kind,
            "data": _text(data),
            "metadata": get_checkpoint_metadata(config, metadata),
            "last_node": events[-1]["node"] if events else None,
            "state": without_nul(state_for_people(values)),
            "events": without_nul(events),
        }
        async with self._lock:
            if self._failed_write is not None:
                raise self._failed_write
            await self._call("workflow.checkpoint.put", config, _without_none(arguments))
        return self._config(config, namespace, checkpoint["id"])

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        rows = []
        for index, (channel, value) in enumerate(writes):
            kind, data = self.serde.dumps_typed(value)
            rows.append(
                {
                    "idx": WRITES_IDX_MAP.get(channel, index),
                    "channel": channel,
                    "kind": kind,
                    "data": _text(data),
                }
            )
        arguments = {
            "namespace": config["configurable"].get("checkpoint_ns", ""),
            "checkpoint_id": config["configurable"]["checkpoint_id"],
            "write_task_id": task_id,
            "task_path": task_path,
            # Errors, interrupts and answers to them replace earlier ones of the task.
            "replace": all(channel in WRITES_IDX_MAP for channel, _ in writes),
        }
        async with self._lock:
            try:
                for begin in range(0, len(rows), MAX_WRITES):
                    part = {**arguments, "writes": rows[begin : begin + MAX_WRITES]}
                    await self._call("workflow.checkpoint.put_writes", config, part)
            except Exception as error:
                self._failed_write = error
                raise

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        arguments = {
            "namespace": config["configurable"].get("checkpoint_ns", ""),
            "checkpoint_id": get_checkpoint_id(config),
        }
        async with self._lock:
            found = await self._call("workflow.checkpoint.get", config, _without_none(arguments))
        row = found.get("checkpoint")
        return self._tuple(config, row) if row else None

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        if config is None:
            raise ValueError("checkpoints are listed for one workflow")
        arguments = {
            "namespace": config["configurable"].get("checkpoint_ns"),
            "before": get_checkpoint_id(before) if before else None,
            "metadata": filter or None,
        }
        while limit is None or limit > 0:
            page = {**arguments, "limit": min(limit or MAX_PAGE, MAX_PAGE)}
            async with self._lock:
                found = await self._call("workflow.checkpoint.list", config, _without_none(page))
            rows = found["checkpoints"]
            for row in rows:
                yield self._tuple(config, row)
            if not rows or not found.get("has_more"):
                return
            arguments["before"] = rows[-1]["checkpoint_id"]
            limit = None if limit is None else limit - len(rows)

    async def adelete_thread(self, thread_id: str) -> None:
        async with self._lock:
            await self._call("workflow.checkpoint.delete", {"configurable": {"thread_id": thread_id}}, {})

    async def _call(self, tool: str, config: RunnableConfig, arguments: dict[str, Any]) -> dict[str, Any]:
        lease = await self._lease_of(config["configurable"]["thread_id"])
        return await lease.call(tool, arguments)

    async def _lease_of(self, thread_id: str) -> Lease:
        if thread_id != self._lease.task_id:
            raise ValueError(f"the lease is of {self._lease.task_id}, not of {thread_id}")
        return self._lease

    def _tuple(self, config: RunnableConfig, row: dict[str, Any]) -> CheckpointTuple:
        namespace, parent = row["namespace"], row.get("parent_id")
        writes = [
            (
                write["write_task_id"],
                write["channel"],
                self.serde.loads_typed((write["kind"], _bytes(write["data"]))),
            )
            for write in row.get("writes", [])
        ]
        return CheckpointTuple(
            config=self._config(config, namespace, row["checkpoint_id"]),
            checkpoint=self.serde.loads_typed((row["kind"], _bytes(row["data"]))),
            metadata=row["metadata"],
            parent_config=self._config(config, namespace, parent) if parent else None,
            pending_writes=writes,
        )

    @staticmethod
    def _config(config: RunnableConfig, namespace: str, checkpoint_id: str) -> RunnableConfig:
        thread = config["configurable"]["thread_id"]
        return {
            "configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}
        }


def _events(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns what happened in the step of the graph that this checkpoint ends; the latest if it is much."""
    events = values.get("events") or []
    return [{key: value for key, value in event.items() if value} for event in events[-MAX_EVENTS:]]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


def _without_none(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}
