"""The gateway's tools for runners, in memory, with the rules of the contract: epochs, keys, runs, leases."""

from __future__ import annotations

import base64
import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
ACTIVE = ("queued", "running", "waiting")
# What the gateway takes: data of a checkpoint, or of the writes of one call; a state; a handoff.
MAX_DATA_BYTES = 2 * 1024 * 1024
MAX_STATE_BYTES = 512 * 1024
MAX_HANDOFF_BYTES = 900 * 1024


class Refused(Exception):
    """A tool refuses a call."""

    def __init__(self, reason: str, *, code: str = "conflict", retry_after_ms: int | None = None) -> None:
        super().__init__(reason)
        self.details: Json = {"code": code, "reason": reason, "message": f"refused: {reason}"}
        if retry_after_ms is not None:
            self.details["retry_after_ms"] = retry_after_ms


@dataclass
class Effect:
    """A job or a handoff, as one key began it."""

    key: str
    kind: str
    step: str | None
    arguments: Json
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    answer: Json | None = None
    cancelled: bool = False
    # Why it was ended counts, and not the call that asks for its answer.
    given_up: bool = False
    began_at: float = field(default_factory=time.monotonic)

    def end_reason(self) -> Json:
        if self.cancelled or self.given_up:
            return {"end_reason": "cancelled" if self.cancelled else "given_up"}
        return {}


@dataclass
class Workflow:
    """The row of a workflow and all that hangs on it."""

    task: Json
    steps: list[Json]
    policy: Json
    status: str = "queued"
    run: int = 1
    trigger: str = "start"
    epoch: int = 0
    holder: str | None = None
    expires_at: float = 0.0
    question: str | None = None
    waiting_for: str | None = None
    interrupt_id: str | None = None
    input: str | None = None
    summary: str | None = None
    error: str | None = None
    state: Json | None = None
    checkpoints: dict[tuple[str, str], Json] = field(default_factory=dict)
    writes: dict[tuple[str, str, str, int], Json] = field(default_factory=dict)
    events: list[Json] = field(default_factory=list)
    effects: dict[str, Effect] = field(default_factory=dict)
    # The epochs of the last retry and of the newest checkpoint.
    retried_at: int = 0
    stored_at: int = 0


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


def _check_size(what: str, size: int, limit: int) -> None:
    if size > limit:
        raise Refused(f"{what} has {size} bytes; the limit is {limit}", code="too_large")


def job(code: int = 0, *, tail: str = "ok", files: list[str] | None = None) -> Json:
    """Returns a job that ended by itself."""
    return {
        "status": "completed" if code == 0 else "failed",
        "end": {"how": "exited", "code": code},
        "exit_code": code,
        "log_tail": tail,
        "files": [{"path": path, "size": 1, "sha256": "0" * 64} for path in files or []],
    }


def completion(text: str = "", **fields: Any) -> Json:
    """Returns the answer of a project manager."""
    return {"status": "completed", "message": {"role": "assistant", "content": text}, **fields}


def decision(what: str, **fields: Any) -> Json:
    """Returns the answer to a review."""
    return completion(review={"decision": what, "reasons": [f"because {what}"], **fields})


class StandIn:
    """Tools in memory. `answer` says what becomes of an effect; `None`: it goes on."""

    def __init__(self, answer: Callable[[Effect, int], Json | None]) -> None:
        self.workflows: dict[str, Workflow] = {}
        self.calls: list[tuple[str, Json]] = []
        self.refused: list[tuple[str, Json, str]] = []
        self.acked: set[tuple[str, int]] = set()
        self.away = False
        # What the gateway takes.
        self.max_text_bytes = 16 * 1024
        self._answer = answer
        self._keyed: dict[str, Json] = {}
        self._changed = threading.Condition(threading.RLock())

    def start(
        self,
        steps: list[Json] | None = None,
        *,
        title: str = "Convert the file",
        criteria: list[str] | None = None,
        **policy: int,
    ) -> str:
        task_id = str(uuid.uuid4())
        task = {
            "task_id": task_id,
            "name": "convert",
            "title": title,
            "description": "From CSV to JSON.",
            "acceptance_criteria": criteria or [],
        }
        self.workflows[task_id] = Workflow(task, steps or [], {"max_attempts": 3, "max_reviews": 3, **policy})
        return task_id

    # What people do.

    def resume(self, task_id: str, answer: str | None) -> None:
        with self._changed:
            row = self.workflows[task_id]
            assert row.status == "waiting"
            trigger = self._trigger_after(row) if row.waiting_for == "pause" else "resume"
            row.status, row.run, row.trigger, row.input = "queued", row.run + 1, trigger, answer

    def pause(self, task_id: str) -> None:
        with self._changed:
            row = self.workflows[task_id]
            row.status, row.waiting_for, row.epoch, row.holder = "waiting", "pause", row.epoch + 1, None
            self._changed.notify_all()

    def cancel(self, task_id: str) -> None:
        with self._changed:
            row = self.workflows[task_id]
            row.status, row.epoch, row.holder = "cancelled", row.epoch + 1, None
            for effect in row.effects.values():
                if effect.answer is None and not effect.given_up:
                    effect.answer = (
                        {"status": "canceled"} if effect.kind == "job" else {"status": "cancelled"}
                    )
                    effect.cancelled = True
            self._changed.notify_all()

    def retry(self, task_id: str) -> None:
        with self._changed:
            row = self.workflows[task_id]
            assert row.status in ("failed", "cancelled")
            row.status, row.run, row.trigger, row.epoch = "queued", row.run + 1, "retry", row.epoch + 1
            row.error, row.retried_at = None, row.epoch

    def requeue(self, task_id: str) -> None:
        """Queues a workflow again whose message the queue lost, as the gateway does after a while."""
        with self._changed:
            row = self.workflows[task_id]
            assert row.status in ("queued", "running")
            row.status, row.run, row.trigger = "queued", row.run + 1, self._trigger_after(row)
            row.epoch, row.holder = row.epoch + 1, None
            self._changed.notify_all()

    @staticmethod
    def _trigger_after(row: Workflow) -> str:
        is_retry = row.trigger == "retry" and row.stored_at <= row.retried_at
        return "retry" if is_retry else "resume"

    def expire_leases(self) -> None:
        """Lets the leases of killed runners end now."""
        with self._changed:
            for row in self.workflows.values():
                row.expires_at = 0.0

    def wake(self) -> None:
        """Asks `answer` again about what goes on."""
        with self._changed:
            self._changed.notify_all()

    # What runners do.

    def call(self, tool: str, arguments: Json, key: str | None = None) -> Json:
        with self._changed:
            self.calls.append((tool, arguments))
            if key is not None and key in self._keyed:
                return self._keyed[key]
            handler = getattr(self, "_" + tool.replace(".", "_"))
            try:
                result: Json = handler(**arguments)
            except Refused as error:
                self.refused.append((tool, arguments, error.details["reason"]))
                raise
            if key is not None:
                self._keyed[key] = result
            return result

    def _held(self, task_id: str, epoch: int) -> Workflow:
        row = self.workflows.get(task_id)
        if row is None:
            raise Refused("not_found", code="not_found")
        if row.epoch != epoch or row.status != "running":
            raise Refused("stale_epoch")
        return row

    def _workflow_lease_acquire(self, task_id: str, run: int, holder: str, ttl_seconds: int) -> Json:
        row = self.workflows.get(task_id)
        if row is None:
            raise Refused("not_found", code="not_found")
        if run < row.run:
            raise Refused("old_run")
        if row.status not in ("queued", "running"):
            raise Refused("not_active")
        now = time.monotonic()
        if row.status == "running" and row.expires_at > now:
            raise Refused("held", retry_after_ms=int((row.expires_at - now) * 1000) + 1)
        row.epoch, row.status, row.holder, row.expires_at = (
            row.epoch + 1,
            "running",
            holder,
            now + ttl_seconds,
        )
        acquired = {
            "epoch": row.epoch,
            "expires_at": "2027-01-01T00:00:00Z",
            "task": row.task,
            "dependencies": [],
            "workflow": {"task_id": task_id, "run": row.run, "trigger": row.trigger, "policy": row.policy},
            "preferences_effective": [],
            "artifacts": [{"path": "in.csv"}],
        }
        optional = {
            "steps": row.steps,
            "state": row.state,
            "input": row.input,
            "interrupt_id": row.interrupt_id,
        }
        return acquired | {name: value for name, value in optional.items() if value}

    def _workflow_lease_renew(self, task_id: str, epoch: int, ttl_seconds: int) -> Json:
        self._held(task_id, epoch).expires_at = time.monotonic() + ttl_seconds
        return {"expires_at": "2027-01-01T00:00:00Z"}

    def _workflow_lease_release(self, task_id: str, epoch: int, outcome: Json) -> Json:
        row = self._held(task_id, epoch)
        ((kind, fields),) = outcome.items()
        if any(len(text.encode()) > self.max_text_bytes for text in fields.values()):
            raise Refused("too long", code="invalid_arguments")
        if any("\0" in text for text in fields.values()):
            raise Refused("a NUL", code="invalid_arguments")
        row.holder, row.input, row.interrupt_id, row.question, row.waiting_for = None, None, None, None, None
        match kind:
            case "done":
                row.status, row.summary = "done", fields["summary"]
            case "failed":
                row.status, row.error = "failed", fields["error"]
            case "waiting":
                row.status, row.waiting_for = "waiting", fields["for"]
                row.question, row.interrupt_id = fields["question"], fields["interrupt_id"]
            case "handed_back":
                row.status = "queued"
        return {"task_id": task_id, "status": row.status}

    def _workflow_checkpoint_put(self, task_id: str, epoch: int, checkpoint_id: str, **fields: Any) -> Json:
        row = self._held(task_id, epoch)
        assert len(fields.get("events", [])) <= 64
        _check_size("the data", len(base64.b64decode(fields["data"])), MAX_DATA_BYTES)
        _check_size("the state", _size(fields.get("state")), MAX_STATE_BYTES)
        place = (fields.pop("namespace"), checkpoint_id)
        is_new = place not in row.checkpoints
        # In the order in which they were first stored, whatever their ids are.
        row.checkpoints[place] = {"checkpoint_id": checkpoint_id, "namespace": place[0], **fields}
        row.stored_at = epoch
        if fields.get("state") and next(reversed(row.checkpoints)) == place:
            row.state = fields["state"]
        if is_new:
            row.events += fields.get("events", [])
        return {"checkpoint_id": checkpoint_id}

    def _workflow_checkpoint_put_writes(
        self,
        task_id: str,
        epoch: int,
        namespace: str,
        checkpoint_id: str,
        write_task_id: str,
        task_path: str,
        replace: bool,
        writes: list[Json],
    ) -> Json:
        row = self._held(task_id, epoch)
        assert 1 <= len(writes) <= 64
        sizes = [len(base64.b64decode(write["data"])) for write in writes]
        _check_size("the data of all writes", sum(sizes), MAX_DATA_BYTES)
        for write in writes:
            place = (namespace, checkpoint_id, write_task_id, write["idx"])
            if replace or place not in row.writes:
                row.writes[place] = {**write, "write_task_id": write_task_id, "task_path": task_path}
        return {"stored": len(writes)}

    def _workflow_checkpoint_get(
        self, task_id: str, epoch: int, namespace: str, checkpoint_id: str | None = None
    ) -> Json:
        row = self._held(task_id, epoch)
        ids = [place[1] for place in row.checkpoints if place[0] == namespace]
        chosen = checkpoint_id or next(reversed(ids), None)
        if chosen not in ids or chosen is None:
            return {}
        return {"checkpoint": self._with_writes(row, (namespace, chosen))}

    def _workflow_checkpoint_list(
        self,
        task_id: str,
        epoch: int,
        namespace: str | None = None,
        before: str | None = None,
        limit: int = 100,
        metadata: Json | None = None,
    ) -> Json:
        row = self._held(task_id, epoch)
        places = list(row.checkpoints)
        if before is not None:
            places = places[: [place[1] for place in places].index(before)]
        found = [
            place
            for place in reversed(places)
            if (namespace is None or place[0] == namespace)
            and all(
                row.checkpoints[place]["metadata"].get(name) == value
                for name, value in (metadata or {}).items()
            )
        ]
        # Pages of two, so that paging is tested too.
        page = found[: min(limit, 2)]
        return {
            "checkpoints": [self._with_writes(row, place) for place in page],
            "has_more": len(found) > len(page),
        }

    def _workflow_checkpoint_delete(self, task_id: str, epoch: int) -> Json:
        row = self._held(task_id, epoch)
        row.checkpoints.clear()
        row.writes.clear()
        return {"deleted": 1}

    @staticmethod
    def _with_writes(row: Workflow, place: tuple[str, str]) -> Json:
        writes = [
            write
            for (namespace, checkpoint, _, _), write in row.writes.items()
            if (namespace, checkpoint) == place
        ]
        writes.sort(key=lambda write: (write["task_path"], write["write_task_id"], write["idx"]))
        return {**row.checkpoints[place], "writes": writes}

    def _workflow_job(
        self, task_id: str, epoch: int, key: str, step: str, run: Json, wait_seconds: int
    ) -> Json:
        assert run["script"]
        effect, began = self._effect(task_id, epoch, key, "job", step, run)
        self._wait(task_id, epoch, effect, wait_seconds)
        ended = effect.answer or {"status": "running"}
        job = {"job_id": effect.id, "task_id": task_id, **ended}
        return {"job": job, "began": began, **effect.end_reason()}

    def _workflow_handoff(
        self,
        task_id: str,
        epoch: int,
        key: str,
        kind: str,
        payload: Json,
        wait_seconds: int,
        step: str | None = None,
        give_up: bool = False,
    ) -> Json:
        _check_size("the handoff", _size(payload), MAX_HANDOFF_BYTES)
        effect, began = self._effect(task_id, epoch, key, kind, step, payload)
        effect.given_up = effect.given_up or (give_up and effect.answer is None)
        self._wait(task_id, epoch, effect, 0 if effect.given_up else wait_seconds)
        if effect.given_up and effect.answer is None:
            error = {"code": "deadline_exceeded", "message": "no answer in time", "retryable": False}
            effect.answer = {"status": "failed", "error": error}
        return {
            "handoff_id": effect.id,
            "began": began,
            "age_ms": int((time.monotonic() - effect.began_at) * 1000),
            **({"answer": effect.answer} if effect.answer else {}),
            **effect.end_reason(),
        }

    def _effect(
        self, task_id: str, epoch: int, key: str, kind: str, step: str | None, arguments: Json
    ) -> tuple[Effect, bool]:
        row = self._held(task_id, epoch)
        if key in row.effects:
            return row.effects[key], False
        row.effects[key] = Effect(key, kind, step, arguments)
        return row.effects[key], True

    def _wait(self, task_id: str, epoch: int, effect: Effect, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while effect.answer is None:
            row = self._held(task_id, epoch)
            alike = [
                each for each in row.effects.values() if (each.kind, each.step) == (effect.kind, effect.step)
            ]
            effect.answer = self._answer(effect, alike.index(effect) + 1)
            left = deadline - time.monotonic()
            if effect.answer is not None or left <= 0:
                return
            self._changed.wait(left)
        self._held(task_id, epoch)

    # What stands for the queue in tests without one.

    def _test_ack(self, task_id: str, run: int) -> Json:
        self.acked.add((task_id, run))
        return {}

    def _test_nak(self, task_id: str, run: int) -> Json:
        return {}

    def effects(self, task_id: str) -> list[tuple[str, str | None]]:
        """Returns what was begun, in a stable order."""
        return sorted((effect.kind, effect.step or "") for effect in self.workflows[task_id].effects.values())


def scripted(script: Mapping[Any, list[Json]]) -> Callable[[Effect, int], Json | None]:
    """Answers effects of a kind and step in order, the last answer again; by default all goes well."""

    def answer(effect: Effect, number: int) -> Json | None:
        answers = script.get((effect.kind, effect.step))
        if answers is None:
            return {"job": job(), "review": decision("pass"), "chat": completion("done")}[effect.kind]
        return answers[min(number, len(answers)) - 1]

    return answer


def step(name: str, *, kind: str = "job", after: list[str] | None = None, **fields: Any) -> Json:
    script = {"script": f"echo {name}"} if kind == "job" else {}
    return {
        "name": name,
        "kind": kind,
        "description": f"Do {name}.",
        "depends_on": after or [],
        **script,
        **fields,
    }
