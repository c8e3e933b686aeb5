"""A small MCP client of the gateway: one POST per call, on connections that are kept.

While the gateway is away, a call is made again for as long as its caller may wait, which for a workflow is as
long as its lease may live. All calls of a runner can be repeated: they join by key or id, or carry an
idempotency key.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import pathlib
import random
import ssl
import time
from collections.abc import Callable
from typing import Any, cast

import httpx

from cynode_workflow import __version__
from cynode_workflow.errors import GatewayAway, GatewayError, TokenRefused, ToolRefused, refusal
from cynode_workflow.health import Health
from cynode_workflow.logs import log_of, redact
from cynode_workflow.metrics import Metrics
from cynode_workflow.traces import TraceContext

PROTOCOL = "2026-07-28"
IDEMPOTENCY_KEY = "dev.cynode/idempotency-key"
_META = "io.modelcontextprotocol/"
# Codes of tools that will work again when a part of the gateway does.
_TRANSIENT_CODES = {"store_unavailable", "nats_unavailable"}
_TRANSIENT_STATUSES = {408, 425, 429}
# JSON-RPC's code of an internal error.
_INTERNAL = -32603
_FIRST_DELAY = 0.1
_MAX_DELAY = 2.0
_MAX_ERROR_TEXT = 500
_ISSUE = "issue one with `cynodectl tokens issue workflow`"

log = log_of(__name__)


class _Away(Exception):
    """This try failed temporarily."""

    def __init__(self, why: str, after: float = 0.0) -> None:
        super().__init__(why)
        self.after = after


class _Unauthorized(Exception):
    pass


class Token:
    """The runner's token, from a file that is read anew when the gateway refuses it.

    Its text is never logged.
    """

    def __init__(self, file: str | None) -> None:
        self._file = file
        self._text: str | None = None

    def header(self) -> dict[str, str]:
        if self._file is None:
            return {}
        if self._text is None:
            try:
                self._text = pathlib.Path(self._file).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or "it is not text"
                raise TokenRefused(
                    f"cannot read the token in {self._file} (gateway.token_file): {why}"
                ) from None
        return {"Authorization": f"Bearer {self._text}"}

    def forget(self) -> None:
        self._text = None


class Gateway:
    """Calls tools of the gateway."""

    def __init__(
        self,
        url: str,
        token_file: str | None,
        *,
        timeout: float = 30.0,
        metrics: Metrics | None = None,
        health: Health | None = None,
    ) -> None:
        self._url = url
        self._token = Token(token_file)
        self._timeout = timeout
        self._metrics = metrics or Metrics()
        self._health = health or Health()
        self._ids = itertools.count(1)
        # Waits occupy a connection each; idle ones are kept up to a bound.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        # Proxies of the environment are for the outside; the gateway is inside.
        self._http = httpx.AsyncClient(limits=limits, trust_env=False, verify=_trust(url))

    async def close(self) -> None:
        await self._http.aclose()

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        *,
        may_wait: Callable[[], bool],
        wait_seconds: float = 0.0,
        key: str | None = None,
        trace: TraceContext | None = None,
    ) -> dict[str, Any]:
        """Returns the structured result of a tool.

        The call is made again while the gateway is away and `may_wait` returns true. `wait_seconds` is what
        the tool itself waits. Raises a `ToolRefused` for what the tool refuses, and `GatewayAway` or
        `TokenRefused`.
        """
        delay = _FIRST_DELAY
        began = time.monotonic()
        refused_before = False
        while True:
            try:
                result = await self._once(tool, arguments, wait_seconds, key, trace)
            except ToolRefused:
                # A refusal is an answer too.
                self._answers()
                self._seen(tool, "refused", began)
                raise
            except _Unauthorized:
                self._token.forget()
                why = f"the gateway refuses the token of this runner; {_ISSUE}"
                self._health.block("token", why)
                if not may_wait():
                    self._seen(tool, "refused", began)
                    raise TokenRefused(why) from None
                # The first time at once: the file may have a new token.
                pause, refused_before = (_MAX_DELAY if refused_before else 0.0), True
            except _Away as error:
                why = f"the gateway at {self._url} is not available: {error}"
                self._health.block("gateway", why)
                if not may_wait():
                    self._seen(tool, "away", began)
                    raise GatewayAway(why) from None
                self._metrics.retries.inc()
                log.debug("Gateway not available; retrying.", tool=tool, error=str(error))
                pause = max(error.after, delay * random.uniform(0.5, 1.0))  # noqa: S311
                delay = min(_MAX_DELAY, delay * 2)
            else:
                self._seen(tool, "ok", began)
                self._answers()
                return result
            await asyncio.sleep(pause)

    def is_away(self) -> bool:
        """Returns whether the last call failed, or the gateway refuses the token or denies workflows."""
        return self._health.is_blocked_by("gateway", "token", "denied")

    def is_denying(self) -> bool:
        """Returns whether the gateway denies workflows to this runner."""
        return self._health.is_blocked_by("denied")

    def note_denial(self, why: str) -> None:
        """Records that the gateway denies workflows to this runner."""
        self._health.block("denied", f"the gateway at {self._url} denies workflows to this runner: {why}")

    def note_permission(self) -> None:
        """Records that the gateway permits workflows."""
        self._health.clear("denied")

    def note_silence(self) -> None:
        """Records that a call was abandoned before it ended."""
        self._health.block("gateway", f"the gateway at {self._url} does not answer")

    def _answers(self) -> None:
        self._health.clear("gateway")
        self._health.clear("token")

    def _seen(self, tool: str, outcome: str, began: float) -> None:
        self._metrics.calls.labels(tool, outcome).inc()
        self._metrics.call_seconds.labels(tool).observe(time.monotonic() - began)

    async def _once(
        self,
        tool: str,
        arguments: dict[str, Any],
        wait_seconds: float,
        key: str | None,
        trace: TraceContext | None,
    ) -> dict[str, Any]:
        number = next(self._ids)
        meta: dict[str, Any] = {
            f"{_META}protocolVersion": PROTOCOL,
            f"{_META}clientInfo": {"name": "cynode-workflow", "version": __version__},
            f"{_META}clientCapabilities": {},
        }
        if key is not None:
            meta[IDEMPOTENCY_KEY] = key
        if trace is not None:
            meta["traceparent"] = trace.traceparent()
        body = {
            "jsonrpc": "2.0",
            "id": number,
            "method": "tools/call",
            "params": {"_meta": meta, "name": tool, "arguments": arguments},
        }
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": PROTOCOL,
            "Mcp-Method": "tools/call",
            "Mcp-Name": tool,
            **self._token.header(),
        }
        timeout = httpx.Timeout(self._timeout, read=self._timeout + wait_seconds)
        try:
            response = await self._http.post(
                self._url, content=json.dumps(body), headers=headers, timeout=timeout
            )
        except httpx.TimeoutException:
            raise _Away("it did not answer in time") from None
        except httpx.HTTPError as error:
            raise _Away(f"{type(error).__name__}: {redact(str(error))}") from None
        return _result(tool, number, response)


def _trust(url: str) -> ssl.SSLContext | bool:
    """Returns the trusted authorities; loading them takes a while, and plain HTTP needs none."""
    return ssl.create_default_context() if url.startswith("https:") else False


def _result(tool: str, number: int, response: httpx.Response) -> dict[str, Any]:
    status = response.status_code
    if status == 401:
        raise _Unauthorized
    if status >= 500 or status in _TRANSIENT_STATUSES:
        after = response.headers.get("retry-after", "")
        raise _Away(f"HTTP {status}", float(after) if after.isdecimal() else 0.0)
    message = _message(response, number)
    if message is None:
        text = redact(response.text[:_MAX_ERROR_TEXT])
        raise ToolRefused(tool, f"http_{status}", f"the gateway answered with HTTP {status}: {text}")
    error = message.get("error")
    if isinstance(error, dict):
        if error.get("code") == _INTERNAL:
            raise _Away(f"internal error: {redact(str(error.get('message')))}")
        data = error.get("data")
        text = redact(str(error.get("message")))
        given = data if isinstance(data, dict) else {}
        raise refusal(tool, {"code": f"rpc_{error.get('code')}", "message": text, **given}, text)
    result = message.get("result")
    if not isinstance(result, dict):
        raise GatewayError(f"{tool}: the gateway's answer has no result")
    content = result.get("structuredContent")
    details = content if isinstance(content, dict) else {}
    if result.get("isError"):
        if details.get("code") in _TRANSIENT_CODES:
            raise _Away(str(details.get("message")))
        blocks = result.get("content") or []
        text = " ".join(str(block.get("text", "")) for block in blocks if isinstance(block, dict))
        raise refusal(tool, details, redact(text[:_MAX_ERROR_TEXT]))
    if not isinstance(content, dict):
        raise GatewayError(f"{tool}: the gateway's answer is not structured")
    return content


def _message(response: httpx.Response, number: int) -> dict[str, Any] | None:
    """Returns the JSON-RPC response in a body, which may be a stream of events."""
    bodies = [response.text]
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        events = response.text.replace("\r\n", "\n").split("\n\n")
        bodies = [
            "\n".join(
                line.removeprefix("data:").strip() for line in event.split("\n") if line.startswith("data:")
            )
            for event in events
        ]
    for body in bodies:
        try:
            message = json.loads(body)
        except ValueError:
            continue
        is_answer = isinstance(message, dict) and ("result" in message or "error" in message)
        # An error may have no id: a server that could not read the request does not know it.
        if is_answer and message.get("id") in (number, str(number), None):
            return cast(dict[str, Any], message)
    return None
