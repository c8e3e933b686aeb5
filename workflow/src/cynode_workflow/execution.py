"""One run of one workflow: from where the last runner left it to its end, a question, or a hand-back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import Command, Interrupt, StateSnapshot

from cynode_workflow.context import RunContext
from cynode_workflow.decisions import retried
from cynode_workflow.errors import DrainRequested, LeaseLost, StaleEpoch, TokenRefused, ToolRefused
from cynode_workflow.graph import RECURSION_LIMIT, build_graph
from cynode_workflow.saver import GatewaySaver
from cynode_workflow.state import State, cut

_GRAPH = build_graph()


@dataclass(frozen=True)
class Ending:
    """The outcome of a run, with which the lease is released."""

    kind: Literal["done", "failed", "waiting", "handed_back"]
    outcome: dict[str, Any]


HANDED_BACK = Ending("handed_back", {"handed_back": {}})


async def execute(context: RunContext, control: RunControl) -> Ending:
    """Runs the graph until it ends, asks a person, or is drained.

    Raises `StaleEpoch` or `LeaseLost` if the workflow is another's now. Nothing may be done for it then.
    """
    try:
        return await _run(context, control)
    except (GraphDrained, DrainRequested):
        return HANDED_BACK
    except (StaleEpoch, LeaseLost, TokenRefused):
        raise
    except ToolRefused as error:
        context.log.error("Workflow failed: the gateway refused a call.", tool=error.tool, code=error.code)
        return failed(f"the gateway refused {error.tool}: {error.message}")
    except Exception as error:
        # Running the same again would end the same; a person reads it and may retry.
        context.log.error("Workflow failed: error in the runner.", exception=error)
        return failed(f"an error in the runner: {type(error).__name__}: {error}")


async def _run(context: RunContext, control: RunControl) -> Ending:
    lease = context.lease
    graph = _GRAPH.compile(checkpointer=GatewaySaver(lease))
    config: RunnableConfig = {
        "configurable": {"thread_id": lease.task_id},
        "recursion_limit": RECURSION_LIMIT,
    }
    snapshot = await graph.aget_state(config)
    if snapshot.values.get("outcome") and snapshot.tasks:
        # The runner before was killed when the last node had written and its checkpoint was not stored.
        await graph.ainvoke(None, config, context=context, control=control, durability="sync")
        snapshot = await graph.aget_state(config)
    outcome = snapshot.values.get("outcome")
    is_retry = context.acquired["workflow"].get("trigger") == "retry"
    if outcome and (outcome["kind"] == "done" or outcome["run"] >= lease.run or not is_retry):
        # The runner before was killed between the end of the graph and the release.
        return _ending(snapshot.values)
    if outcome:
        # A later run of a workflow that failed: a person wants it tried again.
        config = await graph.aupdate_state(
            config, retried(cast(State, snapshot.values)), as_node="ask_person"
        )
        config["recursion_limit"] = RECURSION_LIMIT
        given: Any = None
    elif snapshot.interrupts:
        given = _answer(context, snapshot)
        if given is None:
            # The runner before was killed between the question and the release.
            return _waiting(snapshot.interrupts[0])
    else:
        given = {"task_id": lease.task_id} if snapshot.created_at is None else None
    values = await graph.ainvoke(given, config, context=context, control=control, durability="sync")
    interrupts = values.get("__interrupt__")
    return _waiting(interrupts[0]) if interrupts else _ending(values)


def _answer(context: RunContext, snapshot: StateSnapshot) -> Command[Any] | None:
    """Returns the answer of a person to the open question, if this is the question that was answered."""
    acquired = context.acquired
    answer = acquired.get("input")
    if answer is None:
        return None
    pending = [each.id for each in snapshot.interrupts]
    answered = acquired.get("interrupt_id")
    # The answer to an earlier question must not answer this one.
    return Command(resume={answered: answer}) if answered in pending else None


def _waiting(asked: Interrupt[Any]) -> Ending:
    waiting = {"for": asked.value["for"], "question": asked.value["question"], "interrupt_id": asked.id}
    return Ending("waiting", {"waiting": waiting})


def _ending(values: dict[str, Any]) -> Ending:
    outcome = values.get("outcome")
    if not outcome:
        return failed("an error in the runner: the graph ended without an outcome")
    if outcome["kind"] == "done":
        return Ending("done", {"done": {"summary": values.get("summary") or "Done."}})
    return failed(values.get("error") or "it could not go on")


def failed(error: str) -> Ending:
    return Ending("failed", {"failed": {"error": cut(error, 2000)}})
