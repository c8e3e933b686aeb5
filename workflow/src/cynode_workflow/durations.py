"""Durations as people write them: `500ms`, `30s`, `10m`, `2h`, `7days`."""

from __future__ import annotations

import re

_UNITS = {
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
    "days": 86400.0,
}


def parse_duration(text: str) -> float:
    """Returns the seconds of a duration; raises `ValueError` if it is none."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", text)
    if found is None or found[2] not in _UNITS:
        raise ValueError(f"`{text}` is not a duration; write it as 500ms, 30s, 10m or 7days")
    return float(found[1]) * _UNITS[found[2]]
