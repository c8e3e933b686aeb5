"""Metrics of a runner. Ids are never labels."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.openmetrics.exposition import generate_latest

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """The metrics of one runner, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.ready = Gauge("workflow_ready", "1 when the runner takes workflows", registry=self.registry)
        self.slots = Gauge("workflow_slots", "workflows that the runner can work on", registry=self.registry)
        self.in_flight = Gauge("workflow_in_flight", "workflows in progress", registry=self.registry)
        self.deliveries = Counter(
            "workflow_deliveries",
            "messages taken from the queue, by what became of them",
            ["outcome"],
            registry=self.registry,
        )
        self.runs = Counter(
            "workflow_runs",
            "runs that this runner ended: done, failed, waiting, handed_back, lease_lost",
            ["outcome"],
            registry=self.registry,
        )
        self.node_seconds = Histogram(
            "workflow_node_seconds",
            "time that nodes of the graph took",
            ["kind"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.steps = Counter(
            "workflow_steps",
            "attempts of steps that ended: succeeded, failed",
            ["outcome"],
            registry=self.registry,
        )
        self.reviews = Counter(
            "workflow_reviews", "decisions about results of steps", ["decision"], registry=self.registry
        )
        self.calls = Counter(
            "workflow_gateway_calls",
            "calls of tools, by outcome: ok, refused, away",
            ["tool", "outcome"],
            registry=self.registry,
        )
        self.call_seconds = Histogram(
            "workflow_gateway_call_seconds",
            "time that calls of tools took, waits included",
            ["tool"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.retries = Counter(
            "workflow_gateway_retries",
            "calls made again because the gateway was away",
            registry=self.registry,
        )

    def render(self) -> bytes:
        text: bytes = generate_latest(self.registry)  # type: ignore[no-untyped-call]
        return text
