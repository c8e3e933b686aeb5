"""W3C trace contexts: a run of a workflow is one trace, and every call to the gateway is a part of it."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


@dataclass(frozen=True)
class TraceContext:
    """The trace of a run."""

    trace_id: str
    flags: str = "01"

    @classmethod
    def begin(cls, traceparent: str | None) -> TraceContext:
        """Continues the trace of a message; begins one if it has no valid trace."""
        found = _TRACEPARENT.fullmatch(traceparent or "")
        if found is not None and found[1].strip("0"):
            return cls(found[1], found[3])
        return cls(secrets.token_hex(16))

    def traceparent(self) -> str:
        """Returns the context for one call, with a span id of its own."""
        return f"00-{self.trace_id}-{secrets.token_hex(8)}-{self.flags}"
