"""A runner: takes workflows from the queue, holds their leases, runs them, and stops without losing one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from typing import Any

import nats.errors
from langgraph.runtime import RunControl

from cynode_workflow.context import RunContext
from cynode_workflow.errors import (
    GatewayError,
    Held,
    LeaseLost,
    NotActive,
    NotFound,
    OldRun,
    StaleEpoch,
    ToolRefused,
)
from cynode_workflow.execution import HANDED_BACK, Ending, execute, failed
from cynode_workflow.gateway import Gateway
from cynode_workflow.health import Health, HealthServer
from cynode_workflow.lease import Lease, probe
from cynode_workflow.logs import Log, log_of
from cynode_workflow.metrics import Metrics
from cynode_workflow.queue import Delivery, WorkQueue, connect
from cynode_workflow.settings import Config
from cynode_workflow.traces import TraceContext

# Messages that nothing could be done for come back after this time.
_LATER = 5.0
# How often a gateway that does not answer is asked again, and how long its answer is waited for.
_PROBE_EVERY = 1.0
_PROBE_SECONDS = 5.0
# The same for a gateway that denies it, which records every denial.
_DENIED_EVERY = 5.0
# What releases, acks and the end of connections get after the grace.
_LAST_SECONDS = 5.0


class Runner:
    """Works on several workflows at the same time, each under a lease of its own."""

    def __init__(self, config: Config, gateway: Gateway, metrics: Metrics, draining: asyncio.Event) -> None:
        self._config = config
        self._gateway = gateway
        self._metrics = metrics
        self._draining = draining
        self._controls: set[RunControl] = set()
        self.name = config.runner_id or f"{socket.gethostname()}-{os.getpid()}"
        self._log = log_of(__name__)

    def drain(self) -> None:
        """Asks all runs to stop at their next step; waits are abandoned at once."""
        self._draining.set()
        for control in self._controls:
            control.request_drain("SIGTERM")

    async def work(self, delivery: Delivery) -> None:
        """Processes one message, and settles it by the outcome of its workflow."""
        trace = TraceContext.begin(delivery.traceparent)
        log = self._log.bind(task_id=delivery.task_id, run=delivery.run, trace_id=trace.trace_id)
        held = asyncio.ensure_future(self._hold(delivery))
        try:
            lease = await self._acquire(delivery, trace, log)
        finally:
            held.cancel()
            await asyncio.gather(held, return_exceptions=True)
        if lease is None:
            return
        self._metrics.in_flight.inc()
        try:
            ending = await self._run(delivery, lease, log.bind(epoch=lease.epoch))
        finally:
            self._metrics.in_flight.dec()
        outcome = ending.kind if ending is not None else "lease_lost"
        self._metrics.runs.labels(outcome).inc()
        self._metrics.deliveries.labels(outcome).inc()

    async def _acquire(self, delivery: Delivery, trace: TraceContext, log: Log) -> Lease | None:
        """Takes the workflow of a message.

        Without success the message is settled as the gateway's word says.
        """
        ttl = self._config.lease_seconds
        try:
            acquiring = Lease.acquire(
                self._gateway, delivery.task_id, delivery.run, self.name, ttl, trace, patience=ttl / 2
            )
            # Whatever comes later is a lease that has ended.
            return await asyncio.wait_for(acquiring, ttl)
        except TimeoutError:
            self._gateway.note_silence()
            log.warning("Workflow not acquired; retrying later.", error="the gateway does not answer")
            self._metrics.deliveries.labels("returned").inc()
            await delivery.nak(_LATER)
        except (OldRun, NotActive, NotFound) as error:
            log.info("Message is old; removed.", why=type(error).__name__)
            self._metrics.deliveries.labels("old").inc()
            await delivery.ack()
        except Held as error:
            log.info("Workflow is held by another runner; retrying later.", seconds=error.retry_after)
            self._metrics.deliveries.labels("held").inc()
            await delivery.nak(error.retry_after)
        except GatewayError as error:
            if isinstance(error, ToolRefused):
                # It may be disabled or denied, and then it is for every other message, too.
                self._gateway.note_denial(error.message)
            log.warning("Workflow not acquired; retrying later.", error=str(error))
            self._metrics.deliveries.labels("returned").inc()
            await delivery.nak(_LATER)
        return None

    async def _run(self, delivery: Delivery, lease: Lease, log: Log) -> Ending | None:
        """Runs a workflow that was taken, releases it and settles its message.

        `None` if the lease was lost.
        """
        log.info("Workflow acquired.")
        control = RunControl()
        self._controls.add(control)
        context = RunContext(lease, self._metrics, log, self._config.gateway_wait, self._draining)
        if self._draining.is_set():
            control.request_drain("SIGTERM")
        running = asyncio.ensure_future(execute(context, control))
        beating = asyncio.ensure_future(self._beat(delivery, lease))
        try:
            await asyncio.wait({running, beating}, return_when=asyncio.FIRST_COMPLETED)
            ending = running.result() if running.done() else HANDED_BACK
            if not running.done():
                # The heart stops only if the lease is lost.
                beating.result()
            ending = await self._release(lease, ending, log)
        except asyncio.CancelledError:
            # The grace is over.
            await _cancelled(running)
            with contextlib.suppress(GatewayError):
                await asyncio.wait_for(lease.release(HANDED_BACK.outcome), _LAST_SECONDS)
                await delivery.nak(0)
            raise
        except (StaleEpoch, LeaseLost) as error:
            # The message is not settled: it may be another runner's by now. If not, it comes back by itself.
            log.warning("Lease lost; workflow left to others.", why=str(error))
            return None
        except GatewayError as error:
            log.error("Workflow not released; redelivered when its lease has ended.", error=str(error))
            return None
        finally:
            self._controls.discard(control)
            await _cancelled(running)
            await _cancelled(beating)
        log.info("Workflow released.", outcome=ending.kind)
        if ending.kind == "handed_back":
            await delivery.nak(0)
        else:
            await delivery.ack()
        return ending

    async def _release(self, lease: Lease, ending: Ending, log: Log) -> Ending:
        """Releases a workflow and returns what with: an outcome that the gateway refuses is a failure."""
        try:
            await lease.release(ending.outcome)
        except ToolRefused as error:
            if type(error) is not ToolRefused:
                raise
            # It would be refused again and again, by every runner, and no person would learn why.
            log.error("Outcome refused; workflow failed.", outcome=ending.kind, error=error.message)
            ending = failed(f"its outcome “{ending.kind}” was refused: {error.message}")
            await lease.release(ending.outcome, instead=True)
        return ending

    async def wait_for_gateway(self) -> None:
        """Returns when the gateway lets workflows be taken.

        Until then messages are for runners that reach it.
        """
        while self._gateway.is_away():
            with contextlib.suppress(GatewayError, TimeoutError):
                await asyncio.wait_for(probe(self._gateway), _PROBE_SECONDS)
                self._gateway.note_permission()
            if self._gateway.is_away():
                await asyncio.sleep(_DENIED_EVERY if self._gateway.is_denying() else _PROBE_EVERY)

    async def _beat(self, delivery: Delivery, lease: Lease) -> None:
        """Renews the lease and holds the message, until the lease is lost."""
        every = min(self._config.nats.ack_wait, self._config.lease_seconds) / 3
        while True:
            await asyncio.sleep(every)
            # A gateway that is away is waited for as long as the lease may live; the message is held
            # meanwhile.
            renewing = asyncio.ensure_future(lease.renew())
            try:
                # Fails at once if the lease has expired, as that of a runner that was frozen.
                await asyncio.wait({renewing}, timeout=0)
                while not renewing.done():
                    if not lease.is_alive():
                        # A gateway that is silent must not keep the message from another runner.
                        self._gateway.note_silence()
                        raise LeaseLost(f"the lease of {lease.task_id} has expired")
                    with contextlib.suppress(nats.errors.Error, OSError):
                        await delivery.hold()
                    await asyncio.wait({renewing}, timeout=every)
            finally:
                await _cancelled(renewing)
            renewing.result()

    async def _hold(self, delivery: Delivery) -> None:
        """Holds the message while its workflow is being taken."""
        while True:
            await asyncio.sleep(self._config.nats.ack_wait / 3)
            with contextlib.suppress(nats.errors.Error, OSError):
                await delivery.hold()


async def run(config: Config, stop: asyncio.Event | None = None) -> None:
    """Runs until SIGTERM or SIGINT, or until `stop` is set."""
    stop = stop or asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    log = log_of(__name__)
    health, metrics = Health(), Metrics()
    metrics.slots.set(config.slots)
    server = HealthServer(health, metrics)
    port = await server.start(config.admin_host, config.admin_port)
    gateway = Gateway(
        config.gateway_url, config.token_file, timeout=config.gateway_timeout, metrics=metrics, health=health
    )
    runner = Runner(config, gateway, metrics, asyncio.Event())
    log.info("Runner starting.", runner=runner.name, slots=config.slots, admin_port=port)
    connecting = asyncio.ensure_future(connect(config.nats, runner.name, health))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({connecting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if connecting.done():
            client = connecting.result()
            queue = WorkQueue(client, config.nats, config.slots, health)
            health.clear("starting")
            log.info("Runner ready.", runner=runner.name)
            await queue.pull(runner.work, stop, runner.wait_for_gateway)
            health.block("stopping", "stopping")
            log.info("Runner stopping; workflows are handed back.")
            runner.drain()
            if not await queue.drain(config.grace):
                log.warning("Grace period over; running nodes are cancelled.")
                await queue.cancel()
            # Acks are on the wire before the connection ends.
            with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
                await client.flush(timeout=2)
            with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
                await asyncio.wait_for(client.close(), _LAST_SECONDS)
    finally:
        await _cancelled(connecting)
        await _cancelled(stopping)
        await gateway.close()
        await server.stop()
    log.info("Runner stopped.", runner=runner.name)


async def _cancelled(task: asyncio.Future[Any]) -> None:
    """Cancels a task and waits for its end."""
    if not task.done():
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)
