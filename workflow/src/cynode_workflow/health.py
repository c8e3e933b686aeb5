"""Tracks readiness of the runner, and serves it over HTTP."""

from __future__ import annotations

import asyncio
import contextlib

from cynode_workflow.metrics import CONTENT_TYPE, Metrics

_MAX_HEAD = 16 * 1024
_HEAD_SECONDS = 5.0


class Health:
    """Tracks what keeps the runner from taking workflows."""

    def __init__(self) -> None:
        self._blockers = {"starting": "starting"}

    def block(self, blocker: str, why: str) -> None:
        self._blockers[blocker] = why

    def clear(self, blocker: str) -> None:
        self._blockers.pop(blocker, None)

    def is_blocked_by(self, *blockers: str) -> bool:
        return any(blocker in self._blockers for blocker in blockers)

    def reasons(self) -> list[str]:
        return [self._blockers[blocker] for blocker in sorted(self._blockers)]


class HealthServer:
    """Serves `/livez`, `/readyz` and `/metrics`. They contain no secrets and need no token."""

    def __init__(self, health: Health, metrics: Metrics) -> None:
        self._health = health
        self._metrics = metrics
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listens, and returns the port."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=_MAX_HEAD)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def _answer(self, method: str, path: str) -> tuple[str, str, bytes]:
        text = "text/plain; charset=utf-8"
        if method not in ("GET", "HEAD"):
            return "405 Method Not Allowed", text, b"GET only\n"
        reasons = self._health.reasons()
        match path.partition("?")[0]:
            case "/livez":
                return "200 OK", text, b"ok\n"
            case "/readyz" if not reasons:
                return "200 OK", text, b"ok\n"
            case "/readyz":
                return "503 Service Unavailable", text, ("\n".join(reasons) + "\n").encode()
            case "/metrics":
                self._metrics.ready.set(0 if reasons else 1)
                return "200 OK", CONTENT_TYPE, self._metrics.render()
        return "404 Not Found", text, b"there are /livez, /readyz and /metrics\n"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A client that goes away or sends nonsense is no concern of ours.
        with contextlib.suppress(
            OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError
        ):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _HEAD_SECONDS)
            method, path, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
            status, kind, body = self._answer(method, path)
            about = f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close"
            head = f"HTTP/1.1 {status}\r\n{about}\r\n\r\n".encode()
            writer.write(head + (b"" if method == "HEAD" else body))
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.close()
            await writer.wait_closed()
