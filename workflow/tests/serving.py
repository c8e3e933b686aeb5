"""Serves a stand-in over HTTP as the gateway does, and kills a client at a chosen call."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from standin import Refused, StandIn

IDEMPOTENCY_KEY = "dev.cynode/idempotency-key"


class Server:
    """An MCP endpoint on loopback. `token` is what callers have to show."""

    def __init__(self, standin: StandIn, token: str | None = None) -> None:
        self.standin = standin
        self.token = token
        self.traceparents: list[str] = []
        self.victim: int | None = None
        # Held until the victim is known.
        self.victim_lock = threading.Lock()
        self.kill_at: tuple[int, Literal["before", "after"]] | None = None
        self.served = 0
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}/mcp"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _kills(self, number: int, when: str) -> bool:
        if self.kill_at != (number, when):
            return False
        with self.victim_lock:
            if self.victim is None:
                return False
            os.kill(self.victim, signal.SIGKILL)
        return True

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        """Returns status and body of a response; `None` if the client was killed."""
        with self._lock:
            self.served += 1
            number = self.served
        if self.standin.away:
            return 503, {}
        if self._kills(number, "before"):
            return None
        params = body["params"]
        meta = params["_meta"]
        self.traceparents.append(meta.get("traceparent", ""))
        try:
            result = self.standin.call(params["name"], params["arguments"], meta.get(IDEMPOTENCY_KEY))
            told: dict[str, Any] = {"structuredContent": result, "content": []}
        except Refused as error:
            text = [{"type": "text", "text": error.details["message"]}]
            told = {"structuredContent": error.details, "content": text, "isError": True}
        if self._kills(number, "after"):
            return None
        return 200, {"jsonrpc": "2.0", "id": body["id"], "result": told}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                if len(data) < int(self.headers["Content-Length"]):
                    # Killed while it was sending.
                    self.close_connection = True
                    return
                body = json.loads(data)
                assert self.headers["MCP-Protocol-Version"] == "2026-07-28"
                assert self.headers["Mcp-Name"] == body["params"]["name"]
                if server.token is not None and self.headers["Authorization"] != f"Bearer {server.token}":
                    answered: tuple[int, dict[str, Any]] | None = (401, {})
                else:
                    answered = server.answer(body)
                if answered is None:
                    self.close_connection = True
                    return
                status, reply = answered
                data = json.dumps(reply).encode()
                # A client that was killed or gave its wait up is gone.
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                    self.wfile.flush()

            def handle(self) -> None:
                # A client that was killed resets its connection.
                with contextlib.suppress(ConnectionError):
                    super().handle()

            def log_message(self, *_: object) -> None:
                pass

        return Handler
