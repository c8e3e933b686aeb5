"""Answers of managers that are not whole."""

from __future__ import annotations

from typing import Any

import pytest
from driving import work_until_settled
from standin import StandIn, completion, decision, scripted, step

WHOLE: dict[str, Any] = {"finish_reason": "stop", "trace": {"stop": "goal_met"}}


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"finish_reason": "stop", "trace": {"stop": "max_steps"}}, "used up its steps"),
        ({"finish_reason": "length", "trace": {"stop": "goal_met"}}, "was cut off"),
        ({"finish_reason": "length", "trace": {"stop": "budget"}}, "was cut off"),
        ({"finish_reason": "content_filter", "trace": {"stop": "goal_met"}}, "`content_filter`"),
    ],
)
async def test_answer_that_is_not_whole_is_a_failed_attempt(how: dict[str, Any], why: str) -> None:
    half, whole = completion("three of nine files", **how), completion("all nine files", **WHOLE)
    standin = StandIn(
        scripted({("chat", "a"): [half, whole], ("review", "a"): [decision("retry"), decision("pass")]})
    )
    task = standin.start([step("a", kind="manager")])
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert row.status == "done"
    assert standin.effects(task).count(("chat", "a")) == 2
    reviewed = [effect.arguments["result"] for effect in row.effects.values() if effect.kind == "review"]
    assert [result["outcome"] for result in reviewed] == ["failed", "succeeded"]
    assert why in reviewed[0]["error"] and reviewed[0]["answer"] == "three of nine files"
