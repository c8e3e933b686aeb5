"""Structured log lines on standard error, without secrets.

Tokens, leases and bodies are never fields. What looks like a secret in a foreign error is taken out of every
line.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any

# A part of a secret is enough to match, since texts may be cut.
_SHAPES = re.compile(
    r"\b(?:"
    r"cyn_[A-Za-z0-9_-]{10,}"
    # Web tokens, which NATS' JWTs and leases are.
    r"|eyJ[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*){0,2}"
    r"|S[ACNOUX][A-Z2-7]{20,}"
    r"|sk-[A-Za-z0-9_-]{12,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{8,}"
    r"|gh[a-z]_[A-Za-z0-9]{10,}"
    r")"
)
_NAMED = re.compile(
    r"(?i)\b(authorization|cynode-lease|bearer|token|password|secret)(\"?\s*[:=]\s*\"?|\s+)(?!\[redacted)"
    r"(?:bearer\s+)?([A-Za-z0-9._~+/=-]{16,})"
)
_KEPT = {
    "name",
    "msg",
    "args",
    "levelname",
    "levelno",
    "pathname",
    "filename",
    "module",
    "exc_info",
    "exc_text",
    "stack_info",
    "lineno",
    "funcName",
    "created",
    "msecs",
    "relativeCreated",
    "thread",
    "threadName",
    "processName",
    "process",
    "taskName",
    "message",
    "asctime",
}


def redact(text: str) -> str:
    """Returns the text without what looks like a secret."""
    text = _SHAPES.sub("[redacted:secret]", text)
    return _NAMED.sub(lambda found: f"{found[1]}{found[2]}[redacted:secret]", text)


class _Lines(logging.Formatter):
    def __init__(self, log_format: str) -> None:
        super().__init__()
        self._is_json = log_format == "json"

    def format(self, record: logging.LogRecord) -> str:
        fields = {key: value for key, value in record.__dict__.items() if key not in _KEPT}
        message = record.getMessage()
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        at = (
            datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
        if self._is_json:
            line = {
                "timestamp": at,
                "level": record.levelname,
                "message": message,
                "target": record.name,
                **fields,
            }
            return redact(json.dumps(line, default=str, ensure_ascii=False))
        shown = " ".join(f"{key}={value}" for key, value in fields.items())
        return redact(f"{at} {record.levelname:>7} {message} {shown}".rstrip())


def open_log(log_format: str, level: str) -> None:
    """Sends all log lines of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(log_format))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # These write whole requests and messages below this level.
    for library in ("httpx", "httpcore", "nats", "asyncio", "langgraph", "langsmith"):
        logging.getLogger(library).setLevel(logging.WARNING)


class Log:
    """Log lines with fields that are the same for all of them."""

    def __init__(self, logger: logging.Logger, **fields: Any) -> None:
        self._logger = logger
        self._fields = fields

    def bind(self, **fields: Any) -> Log:
        return Log(self._logger, **{**self._fields, **fields})

    def debug(self, message: str, **fields: Any) -> None:
        self._write(logging.DEBUG, message, fields)

    def info(self, message: str, **fields: Any) -> None:
        self._write(logging.INFO, message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        self._write(logging.WARNING, message, fields)

    def error(self, message: str, *, exception: BaseException | None = None, **fields: Any) -> None:
        self._write(logging.ERROR, message, fields, exception)

    def _write(
        self, level: int, message: str, fields: dict[str, Any], exception: BaseException | None = None
    ) -> None:
        self._logger.log(level, message, extra={**self._fields, **fields}, exc_info=exception)


def log_of(name: str) -> Log:
    return Log(logging.getLogger(name))
