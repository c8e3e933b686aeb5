"""The graph of a workflow.

Nodes that run once per step (`dispatch_step`, `verify_step_result`) are followed by one that waits for all of
them, so that decisions are made when nothing is running.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable
from typing import Any

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Send

from cynode_workflow.context import RunContext
from cynode_workflow.nodes.ask_person import ask_person
from cynode_workflow.nodes.collect_result import collect_result
from cynode_workflow.nodes.decide_next import decide_next
from cynode_workflow.nodes.dispatch_step import dispatch_step
from cynode_workflow.nodes.finalize_summary import finalize_summary
from cynode_workflow.nodes.load_task_context import load_task_context
from cynode_workflow.nodes.mark_failed import mark_failed
from cynode_workflow.nodes.plan_steps import plan_steps
from cynode_workflow.nodes.verify_step_result import verify_step_result
from cynode_workflow.state import PlannedStep, State

# Far beyond what attempts, reviews and answers of a plan of 50 steps can use.
RECURSION_LIMIT = 100_000


def build_graph() -> StateGraph[State, RunContext, State, State]:
    graph = StateGraph(State, context_schema=RunContext)
    graph.add_node("load_task_context", _timed(load_task_context))
    graph.add_node("plan_steps", _timed(plan_steps))
    graph.add_node("decide_next", decide_next)
    graph.add_node("dispatch_step", _timed(dispatch_step))
    graph.add_node("collect_result", _timed(collect_result))
    graph.add_node("verify_step_result", _timed(verify_step_result))
    graph.add_node("ask_person", ask_person)
    graph.add_node("finalize_summary", _timed(finalize_summary))
    graph.add_node("mark_failed", _timed(mark_failed))
    graph.add_edge(START, "load_task_context")
    graph.add_edge("load_task_context", "plan_steps")
    graph.add_edge("plan_steps", "decide_next")
    graph.add_conditional_edges(
        "decide_next",
        after_decision,
        [
            "plan_steps",
            "dispatch_step",
            "verify_step_result",
            "ask_person",
            "finalize_summary",
            "mark_failed",
        ],
    )
    graph.add_edge("dispatch_step", "collect_result")
    graph.add_conditional_edges("collect_result", after_results, ["verify_step_result", "decide_next"])
    graph.add_edge("verify_step_result", "decide_next")
    graph.add_edge("ask_person", "decide_next")
    graph.add_edge("finalize_summary", END)
    graph.add_edge("mark_failed", END)
    return graph


def after_decision(state: State) -> str | list[Send]:
    """Returns what follows a decision: failure first, then work, then questions, then the end."""
    if state.get("error"):
        return "mark_failed"
    if state.get("question"):
        return "ask_person"
    plan = state.get("plan")
    if not plan:
        return "plan_steps"
    running = [step for step in plan if step["status"] == "running"]
    if running:
        return [_send("dispatch_step", step) for step in running]
    reviews = _to_review(state)
    if reviews:
        return [_send("verify_step_result", step) for step in reviews]
    return "finalize_summary"


def after_results(state: State) -> str | list[Send]:
    """Returns a review of each result that has none; questions of the manager need none."""
    reviews = _to_review(state)
    return [_send("verify_step_result", step) for step in reviews] or "decide_next"


def _to_review(state: State) -> list[PlannedStep]:
    results = state.get("results", {})
    return [
        step
        for step in state["plan"]
        if step["status"] == "ended" and "question" not in results.get(step["name"], {})
    ]


def _send(node: str, step: PlannedStep) -> Send:
    """Sends a step to a node by its name alone: see `nodes.reading`."""
    return Send(node, {"step": step["name"]})


def _timed(
    node: Callable[..., Awaitable[dict[str, Any]]],
) -> Any:
    name = getattr(node, "__name__", "node")

    @functools.wraps(node)
    async def run(state: Any, *, runtime: Runtime[RunContext], **given: Any) -> dict[str, Any]:
        began = time.monotonic()
        try:
            return await node(state, runtime=runtime, **given)
        finally:
            runtime.context.metrics.node_seconds.labels(name).observe(time.monotonic() - began)

    return run
