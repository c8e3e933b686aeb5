"""Workflows within the limits of their start: all that is stored and handed off for them fits."""

from __future__ import annotations

import json

from driving import work_until_settled
from standin import Effect, Json, StandIn, completion, decision, job, scripted, step


async def test_wide_plan_with_long_texts_is_done() -> None:
    """All that a step and its review need was stored for each of them, beside the state that had it."""
    names = [f"s{number}" for number in range(50)]
    files = [f"{'f' * 200}-{number}.txt" for number in range(20)]
    steps = [step(name, script="p" * 9_500) for name in names]
    script = {("job", name): [job(0, tail="o" * 4_096, files=files)] for name in names}
    standin = StandIn(scripted(script))
    task = standin.start(steps, criteria=[f"criterion {number} {'x' * 230}" for number in range(50)])
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert (row.status, row.error) == ("done", None)
    sent = [arguments for tool, arguments in standin.calls if tool == "workflow.checkpoint.put_writes"]
    assert max(len(write["data"]) for put in sent for write in put["writes"] if _is_send(write)) < 500


def _is_send(write: Json) -> bool:
    return str(write["channel"]) == "__pregel_tasks"


async def test_step_whose_criteria_fill_a_plan_is_reviewed() -> None:
    """The handoff has them once."""
    criteria = [f"criterion {number} {'c' * 15_900}" for number in range(32)]
    standin = StandIn(scripted({}))
    task = standin.start([step("one", criteria=criteria)])
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert (row.status, row.error) == ("done", None)
    review = next(each.arguments for each in row.effects.values() if each.kind == "review")
    assert review["step"]["criteria"] == criteria


async def test_review_that_is_refused_is_a_question_and_no_end() -> None:
    """Criteria of the task come on top of a step that is large."""
    criteria = [f"criterion {number} {'c' * 16_000}" for number in range(40)]
    large = step("large", files=[{"path": "f", "text": "t" * 250_000}], script="s" * 60_000)
    standin = StandIn(scripted({}))
    task = standin.start([step("first"), large], criteria=criteria)
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert (row.status, row.waiting_for) == ("waiting", "question"), row.error
    assert "Step “large” needs you: the result could not be reviewed" in (row.question or "")
    assert "the handoff has" in (row.question or "")
    assert "Answer retry, accept or stop" in (row.question or "")
    assert ("review", "first") in standin.effects(task)
    standin.resume(task, "accept")
    await work_until_settled(standin, task)
    assert row.status == "done"


async def test_steps_are_told_results_and_reviewed_by_their_newest() -> None:
    """Nodes that are sent a name read the state as it is then."""
    told: list[str] = []

    def answer(effect: Effect, number: int) -> Json | None:
        if effect.kind == "chat":
            told.append(effect.arguments["messages"][0]["content"])
            return completion("written")
        if effect.kind == "review":
            is_good = effect.arguments["result"].get("exit_code") == 0 or effect.step == "write"
            return decision("pass" if is_good else "retry")
        return job(1 if number == 1 else 0, tail=f"run {number}")

    standin = StandIn(answer)
    task = standin.start([step("fetch"), step("write", kind="manager", after=["fetch"])])
    await work_until_settled(standin, task)
    assert standin.workflows[task].status == "done"
    assert "- fetch: run 2" in told[0]


async def test_all_that_is_approved_can_be_read() -> None:
    """A plan that is too large for the state is shortened, but for the step that is asked about."""
    hidden = f"echo harmless\n# {'p' * 61_000}\necho the hidden part"
    files = [{"path": "f", "text": "t" * 30_000}]
    first = step("s0", script=hidden, files=files, needs_approval=True)
    steps = [first, *(step(f"s{number}", script=hidden, after=["s0"]) for number in range(1, 8))]
    standin = StandIn(scripted({}))
    task = standin.start(steps)
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert row.waiting_for == "approval"
    assert "the plan of the workflow has all" in (row.question or "")
    assert row.state is not None
    asked, *others = row.state["plan"]
    assert (asked["script"], asked["files"]) == (hidden, files)
    assert [each["name"] for each in others] == [f"s{number}" for number in range(1, 8)]
    assert "plan" in row.state["left_out"]
    standin.resume(task, "yes")
    await work_until_settled(standin, task)
    assert row.status == "done"


async def test_step_that_is_too_large_to_be_approved_is_refused() -> None:
    files = [{"path": f"f{number}", "text": "t" * 100_000} for number in range(4)]
    standin = StandIn(scripted({}))
    task = standin.start([step("large", files=files, needs_approval=True)])
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert row.status == "failed"
    assert "step `large` needs approval and has" in (row.error or "")


async def test_step_of_the_largest_size_that_the_gateway_takes_is_approved() -> None:
    largest = step("large", files=[{"path": "f", "text": ""}], needs_approval=True)
    room = 384 * 1024 - len(json.dumps(largest, separators=(",", ":")))
    largest["files"][0]["text"] = "t" * room
    standin = StandIn(scripted({}))
    task = standin.start([largest])
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert (row.status, row.waiting_for) == ("waiting", "approval"), row.error
    standin.resume(task, "yes")
    await work_until_settled(standin, task)
    assert row.status == "done"


async def test_steps_that_cannot_be_run_are_not_replaced_by_a_retry() -> None:
    """The manager would make others, which nobody has to approve."""
    standin = StandIn(scripted({("plan", None): [completion(steps=[step("other")])]}))
    task = standin.start([step("a", after=["b"]), step("b", after=["a"], needs_approval=True)])
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert row.status == "failed"
    first = row.error
    standin.retry(task)
    await work_until_settled(standin, task)
    assert (row.status, row.error) == ("failed", first)
    assert "circle" in (first or "")
    assert row.effects == {}


async def test_plan_that_is_too_large_is_planned_again() -> None:
    large = [step(f"s{number}", script="x" * 60_000) for number in range(10)]
    plans = [completion(steps=large), completion(steps=[step("small")])]
    standin = StandIn(scripted({("plan", None): plans}))
    task = standin.start()
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert row.status == "done"
    second = [each.arguments for each in row.effects.values() if each.kind == "plan"][1]
    assert "the limit is 524288" in second["constraints"][-1]
