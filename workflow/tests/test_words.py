"""What people mean by short answers."""

from __future__ import annotations

import pytest

from cynode_workflow.words import Answer, read_answer, read_approval


@pytest.mark.parametrize("text", ["yes", " Go ahead! ", "OK.", "accept", "continue"])
def test_approval_is_given_by_words_that_say_so(text: str) -> None:
    assert read_approval(text) is Answer.YES


@pytest.mark.parametrize("text", ["no", "Stop.", "cancel", "do not"])
def test_approval_is_refused_by_words_that_say_so(text: str) -> None:
    assert read_approval(text) is Answer.NO


@pytest.mark.parametrize(
    "text", ["skip", "leave it", "good enough", "retry", "yes, but without the last line"]
)
def test_nothing_else_lets_a_step_run(text: str) -> None:
    assert read_approval(text) is Answer.TEXT


def test_result_can_be_left_as_it_is() -> None:
    assert read_answer("leave it") is Answer.ACCEPT
    assert read_answer("Skip") is Answer.ACCEPT
