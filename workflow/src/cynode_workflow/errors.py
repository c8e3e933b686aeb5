"""Errors between a runner and the gateway, and how the runner reacts."""

from __future__ import annotations

from typing import Any

from langgraph.errors import GraphBubbleUp


class SettingError(Exception):
    """A setting is wrong. The text names its key, its source and what would be right."""


class GatewayError(Exception):
    """A call of a tool failed."""


class GatewayAway(GatewayError):
    """The gateway could not be reached or could not serve the call within the time of the caller."""


class TokenRefused(GatewayError):
    """The gateway refuses the runner's token, even after its file was read again."""


class ToolRefused(GatewayError):
    """The gateway refused the call. A retry does not help."""

    def __init__(self, tool: str, code: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(f"{tool}: {message}")
        self.tool = tool
        self.code = code
        self.message = message
        self.details = details or {}


class StaleEpoch(ToolRefused):
    """Another runner has the workflow, or a person paused or cancelled it."""


class Held(ToolRefused):
    """Another runner holds the lease of the workflow."""

    @property
    def retry_after(self) -> float:
        """Seconds until the lease may be free."""
        after = self.details.get("retry_after_ms")
        return max(0.1, float(after) / 1000) if isinstance(after, int | float) else 5.0


class OldRun(ToolRefused):
    """The message is of an earlier run of the workflow."""


class NotActive(ToolRefused):
    """The workflow has ended or waits for a person."""


class NotFound(ToolRefused):
    """The workflow, or something in it, does not exist."""


class LeaseLost(GatewayError):
    """The lease expired before it could be renewed. Nothing more may be done for the workflow."""


class DrainRequested(GraphBubbleUp):
    """The process is stopping and a long wait was given up.

    The node runs again elsewhere and joins its effects.

    LangGraph records no error of a node for exceptions of this base class.
    """


WORDS: dict[str, type[ToolRefused]] = {
    "stale_epoch": StaleEpoch,
    "held": Held,
    "old_run": OldRun,
    "not_active": NotActive,
    "not_found": NotFound,
}


def refusal(tool: str, details: dict[str, Any], text: str) -> ToolRefused:
    """Returns the error for what a tool answered, by its machine-readable `reason`, or else its code."""
    code, message = details.get("code"), details.get("message")
    word = next(
        (word for word in (details.get("reason"), code) if isinstance(word, str) and word in WORDS), None
    )
    kind = WORDS[word] if word is not None else ToolRefused
    return kind(
        tool,
        code if isinstance(code, str) else "unknown",
        message if isinstance(message, str) else text,
        details,
    )
