"""Pure: what a person means by a short answer."""

from __future__ import annotations

import enum


class Answer(enum.Enum):
    YES = "yes"
    NO = "no"
    RETRY = "retry"
    ACCEPT = "accept"
    STOP = "stop"
    # Anything else is passed on as it is.
    TEXT = "text"


_WORDS = {
    Answer.YES: {
        "yes",
        "y",
        "yeah",
        "yep",
        "ok",
        "okay",
        "sure",
        "true",
        "approve",
        "approved",
        "go",
        "go ahead",
        "do it",
        "confirm",
        "confirmed",
        "ja",
        "oui",
        "si",
        "sí",
    },
    Answer.NO: {
        "no",
        "n",
        "nope",
        "false",
        "reject",
        "rejected",
        "deny",
        "denied",
        "don't",
        "do not",
        "nein",
        "non",
    },
    Answer.RETRY: {"retry", "again", "try again", "rerun", "run again", "repeat"},
    Answer.ACCEPT: {
        "accept",
        "accepted",
        "accept it",
        "pass",
        "skip",
        "good enough",
        "fine",
        "leave it",
        "continue",
    },
    Answer.STOP: {"stop", "fail", "give up", "abort", "cancel", "end"},
}


# To let a step run is more than to leave a result as it is: “skip” and “leave it” do not.
_APPROVING = {*_WORDS[Answer.YES], "accept", "accepted", "continue"}


def read_answer(text: str) -> Answer:
    """Returns what a person's answer means, in any common spelling."""
    word = _plain(text)
    return next((answer for answer, words in _WORDS.items() if word in words), Answer.TEXT)


def read_approval(text: str) -> Answer:
    """Returns what an answer to “may it run?” means: yes, no, or a text."""
    if _plain(text) in _APPROVING:
        return Answer.YES
    return Answer.NO if read_answer(text) in (Answer.NO, Answer.STOP) else Answer.TEXT


def _plain(text: str) -> str:
    return " ".join(text.strip().strip(".!\"'").lower().split())
