"""The work queue: one message per free slot, held as long as the lease."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from cynode_workflow.health import Health
from cynode_workflow.logs import log_of, redact
from cynode_workflow.nats_keys import KeyedClient
from cynode_workflow.settings import Nats

VERSION = 1
_PULL_SECONDS = 5.0
_FIRST_DELAY = 0.5
_MAX_DELAY = 15.0

log = log_of(__name__)


@dataclass(frozen=True)
class Delivery:
    """A message that names a workflow."""

    message: Msg
    task_id: str
    run: int

    @property
    def traceparent(self) -> str | None:
        return (self.message.headers or {}).get("traceparent")

    async def hold(self) -> None:
        """Sends a progress ack. Unconfirmed: only the lease decides who owns the workflow."""
        await self.message.in_progress()

    async def ack(self) -> None:
        """Removes the message. Only while the lease is held, after its release, or if the message is old."""
        await self.message.ack_sync(timeout=5)

    async def nak(self, delay: float) -> None:
        """Naks the message, for redelivery after `delay` seconds."""
        await self.message.nak(delay=delay)


async def connect(settings: Nats, name: str, health: Health) -> Client:
    """Connects, and waits until the server is available."""

    async def on_error(error: Exception) -> None:
        log.debug("NATS error.", error=redact(str(error)))

    async def on_disconnected() -> None:
        if client.is_closed:
            return
        health.block("nats", "not connected to NATS")
        log.warning("NATS connection lost; reconnecting.")

    async def on_reconnected() -> None:
        health.clear("nats")
        log.info("NATS connection restored.")

    options: dict[str, Any] = {
        "servers": settings.servers,
        "name": name,
        "inbox_prefix": settings.inbox_prefix,
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": 1,
        "error_cb": on_error,
        "disconnected_cb": on_disconnected,
        "reconnected_cb": on_reconnected,
    }
    if settings.tls_required or settings.tls_ca_file or settings.tls_cert_file:
        options["tls"] = _tls(settings)
    health.block("nats", "not connected to NATS")
    delay = _FIRST_DELAY
    while True:
        client = KeyedClient(settings.creds_file, settings.nkey_file)
        # What it names is not read: the client signs by itself.
        if settings.creds_file or settings.nkey_file:
            options["nkeys_seed"] = settings.nkey_file or settings.creds_file
        try:
            await client.connect(**options, allow_reconnect=False)
        except (OSError, nats.errors.Error, TimeoutError) as error:
            log.warning("NATS not reachable; retrying.", error=redact(str(error)))
            health.block("nats", f"cannot connect to NATS at {', '.join(settings.servers)}")
            await asyncio.sleep(delay)
            delay = min(_MAX_DELAY, delay * 2)
            continue
        # Only the first connection is tried here, so that the loop above can say why it fails.
        client.options["allow_reconnect"] = True
        health.clear("nats")
        return client


def _tls(settings: Nats) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.tls_ca_file)
    if settings.tls_cert_file:
        context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file)
    return context


class WorkQueue:
    """Pulls messages and gives each to `work`, at most `slots` at a time."""

    def __init__(self, client: Client, settings: Nats, slots: int, health: Health) -> None:
        self._client = client
        self._settings = settings
        self._slots = asyncio.Semaphore(slots)
        self._health = health
        self._working: set[asyncio.Task[None]] = set()

    async def pull(
        self,
        work: Callable[[Delivery], Awaitable[None]],
        stop: asyncio.Event,
        ready: Callable[[], Awaitable[None]],
    ) -> None:
        """Pulls until `stop` is set, whenever `ready` has returned.

        What is being worked on then goes on; see `drain`.
        """
        context = self._client.jetstream()
        subscription = await context.pull_subscribe_bind(self._settings.consumer, self._settings.stream)
        stopping = asyncio.ensure_future(stop.wait())
        delay = _FIRST_DELAY
        try:
            while not stop.is_set():
                # What was worked on for the slot may have found that the runner is not ready any more.
                if not await _first(self._slots.acquire(), stopping) or not await _first(ready(), stopping):
                    return
                try:
                    message = await self._next(subscription, stopping)
                    delay = _FIRST_DELAY
                    self._health.clear("queue")
                except (nats.errors.Error, nats.js.errors.Error, OSError) as error:
                    # A deleted consumer answers at once; without a pause this would be a hot loop.
                    message = None
                    self._health.block(
                        "queue", f"cannot pull from {self._settings.stream}: {type(error).__name__}"
                    )
                    log.warning(
                        "Pull failed; trying again.", error=redact(f"{type(error).__name__}: {error}")
                    )
                    await _first(asyncio.sleep(delay), stopping)
                    delay = min(_MAX_DELAY, delay * 2)
                if message is None:
                    self._slots.release()
                    continue
                self._start(message, work)
        finally:
            stopping.cancel()
            await self._give_back(subscription)

    async def drain(self, seconds: float) -> bool:
        """Waits for running work. Returns whether all of it ended in time."""
        if not self._working:
            return True
        _, left = await asyncio.wait(self._working, timeout=seconds)
        return not left

    async def cancel(self) -> None:
        """Cancels running work."""
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)

    async def _next(
        self, subscription: JetStreamContext.PullSubscription, stopping: asyncio.Future[Any]
    ) -> Msg | None:
        """Returns the next message, or `None` if there is none for a while or the runner is stopping."""
        pull = asyncio.ensure_future(subscription.fetch(1, timeout=_PULL_SECONDS))
        try:
            await asyncio.wait({pull, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not pull.done():
                return None
            return pull.result()[0]
        except (TimeoutError, nats.errors.TimeoutError):
            return None
        finally:
            if not pull.done():
                pull.cancel()
                await asyncio.gather(pull, return_exceptions=True)

    def _start(self, message: Msg, work: Callable[[Delivery], Awaitable[None]]) -> None:
        task = asyncio.ensure_future(self._work(message, work))
        self._working.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        self._slots.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            # Its message was not settled, so the server delivers it again.
            log.error("Delivery failed.", exception=error)

    async def _work(self, message: Msg, work: Callable[[Delivery], Awaitable[None]]) -> None:
        delivery = read(message)
        if delivery is None:
            log.error("Message refused: it names no workflow.", subject=message.subject)
            await message.term()
            return
        await work(delivery)

    async def _give_back(self, subscription: JetStreamContext.PullSubscription) -> None:
        """Hands back messages that arrived for an abandoned pull."""
        # The server forgets the pull when no client listens; what it sent before is here after a round trip.
        with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
            await self._client.flush(timeout=2)
        local = subscription._sub._pending_queue
        while not local.empty():
            message = local.get_nowait()
            if message.reply and not (message.headers or {}).get("Status"):
                with contextlib.suppress(nats.errors.Error, OSError):
                    await message.nak()
        with contextlib.suppress(nats.errors.Error, OSError):
            await subscription.unsubscribe()


def read(message: Msg) -> Delivery | None:
    """Returns the workflow that a message names; `None` if it names none."""
    try:
        body = json.loads(message.data)
        task_id, run = body["task_id"], body["run"]
    except (ValueError, KeyError, TypeError):
        return None
    is_valid = body.get("v") == VERSION and isinstance(task_id, str) and isinstance(run, int)
    return Delivery(message, task_id, run) if is_valid else None


async def _first(wait: Awaitable[Any], stopping: asyncio.Future[Any]) -> bool:
    """Awaits something unless the runner is stopping. Returns whether it came to its end."""
    waiting = asyncio.ensure_future(wait)
    await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if waiting.done():
        return True
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    return False
