"""Pure: texts that the gateway can store."""

from __future__ import annotations

from typing import Any

# PostgreSQL cannot store a NUL in a text. What jobs print and managers write may hold one.
_NUL = "\0"
_SIGN = "\ufffd"


def without_nul(value: Any) -> Any:
    """Returns a value of JSON with a sign in place of each NUL in its texts."""
    if isinstance(value, str):
        return value.replace(_NUL, _SIGN)
    if isinstance(value, dict):
        return {without_nul(name): without_nul(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nul(item) for item in value]
    return value


def has_nul(value: Any) -> bool:
    """Returns whether a text within a value of JSON holds a NUL."""
    if isinstance(value, str):
        return _NUL in value
    if isinstance(value, dict):
        return any(has_nul(name) or has_nul(item) for name, item in value.items())
    return isinstance(value, list | tuple) and any(has_nul(item) for item in value)
