"""The client of the gateway, logs and keys: tokens, outages, secrets."""

from __future__ import annotations

import json
import logging
import pathlib
import time

import httpx
import pytest
from nacl.signing import SigningKey
from nats_server import NatsServer, nkey_seed
from serving import Server
from standin import StandIn, scripted, step

from cynode_workflow.errors import (
    GatewayAway,
    GatewayError,
    Held,
    LeaseLost,
    NotActive,
    StaleEpoch,
    TokenRefused,
    ToolRefused,
    refusal,
)
from cynode_workflow.gateway import Gateway, _result
from cynode_workflow.health import Health
from cynode_workflow.lease import Lease
from cynode_workflow.logs import log_of, open_log, redact
from cynode_workflow.nats_keys import public_nkey
from cynode_workflow.queue import connect
from cynode_workflow.settings import Settings
from cynode_workflow.traces import TraceContext

TOKEN = "cyn_" + "a1b2c3d4e5f6g7h8"


async def test_token_is_read_anew_when_it_is_refused(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n", encoding="utf-8")
    standin = StandIn(scripted({}))
    task = standin.start([step("a")])
    with Server(standin, token="old") as server:
        gateway = Gateway(server.url, str(file))
        lease = await Lease.acquire(gateway, task, 1, "one", 5, TraceContext.begin(None), 1)
        server.token = "new"
        file.write_text("new\n", encoding="utf-8")
        await lease.renew()
        server.token = "newest"
        with pytest.raises(TokenRefused, match="cynodectl tokens issue workflow"):
            await Lease.acquire(gateway, task, 1, "two", 5, TraceContext.begin(None), 0)
        await gateway.close()


async def test_missing_token_file_is_named(tmp_path: pathlib.Path) -> None:
    gateway = Gateway("http://127.0.0.1:1/mcp", str(tmp_path / "none"))
    with pytest.raises(TokenRefused, match=r"cannot read the token in .*none \(gateway.token_file\)"):
        await gateway.call("x", {}, may_wait=lambda: False)
    await gateway.close()


async def test_calls_are_made_again_only_while_the_lease_may_live() -> None:
    standin = StandIn(scripted({}))
    task = standin.start([step("a")])
    with Server(standin) as server:
        gateway = Gateway(server.url, None)
        lease = await Lease.acquire(gateway, task, 1, "one", 5, TraceContext.begin(None), 1)
        standin.away = True
        lease._until = time.monotonic() + 0.5
        with pytest.raises(LeaseLost):
            await lease.renew()
        standin.away = False
        # It is over, although the gateway is back.
        served = server.served
        with pytest.raises(LeaseLost):
            await lease.renew()
        assert server.served == served
        await gateway.close()


async def test_lost_answer_of_acquire_is_not_held_by_oneself() -> None:
    """The second try has the key of the first, and gets its answer."""
    standin = StandIn(scripted({}))
    task = standin.start([step("a")])
    with Server(standin) as server:
        gateway = Gateway(server.url, None)
        answer = server.answer
        lost: list[object] = []

        def lose_first(body: dict[str, object]) -> object:
            found = answer(body)
            if not lost:
                lost.append(found)
                return None
            return found

        server.answer = lose_first  # type: ignore[assignment]
        lease = await Lease.acquire(gateway, task, 1, "one", 5, TraceContext.begin(None), 2)
        assert lease.epoch == standin.workflows[task].epoch == 1
        await gateway.close()


def answer(body: object, status: int = 200, kind: str = "application/json") -> httpx.Response:
    text = body if isinstance(body, str) else json.dumps(body)
    return httpx.Response(status, text=text, headers={"content-type": kind})


def test_answers_are_read_as_json_and_as_events() -> None:
    message = {"jsonrpc": "2.0", "id": 7, "result": {"structuredContent": {"a": 1}}}
    assert _result("t", 7, answer(message)) == {"a": 1}
    events = f"event: message\r\ndata: {json.dumps(message)}\r\n\r\n"
    assert _result("t", 7, answer(events, kind="text/event-stream")) == {"a": 1}
    with pytest.raises(ToolRefused, match="HTTP 404"):
        _result("t", 7, answer("no such page", 404))
    with pytest.raises(GatewayError, match="has no result"):
        _result("t", 7, answer({"id": 7, "result": None}))


def test_refusals_have_types_by_their_reason() -> None:
    for reason, kind in (("stale_epoch", StaleEpoch), ("not_active", NotActive)):
        found = refusal("t", {"code": "conflict", "reason": reason, "message": "m"}, "")
        assert type(found) is kind
        assert found.code == "conflict"
    held = refusal("t", {"code": "conflict", "reason": "held", "retry_after_ms": 1500}, "")
    assert isinstance(held, Held)
    assert held.retry_after == 1.5
    assert type(refusal("t", {"code": "invalid_arguments", "message": "m"}, "")) is ToolRefused


async def test_gateway_that_is_not_there_is_named() -> None:
    gateway = Gateway("http://127.0.0.1:1/mcp", None)
    with pytest.raises(GatewayAway, match=r"the gateway at http://127\.0\.0\.1:1/mcp is not available"):
        await gateway.call("x", {}, may_wait=lambda: False)
    await gateway.close()


def test_secrets_are_taken_out_of_log_lines(capsys: pytest.CaptureFixture[str]) -> None:
    handlers = logging.getLogger().handlers[:]
    try:
        open_log("json", "info")
        log_of("test").info(
            "Refused.", error=f"Bearer {TOKEN}", lease="eyJhbGciOiJFZERTQSJ9.eyJsZWFzZSI6MX0.c2lnbmF0dXJl"
        )
    finally:
        logging.getLogger().handlers[:] = handlers
    line = capsys.readouterr().err
    assert TOKEN not in line
    assert "eyJhbGciOi" not in line
    assert json.loads(line)["message"] == "Refused."
    assert redact("Authorization: Bearer abcdefghijklmnop1234") == "Authorization: [redacted:secret]"
    assert redact("step token counted") == "step token counted"


def test_traces_go_on_or_begin() -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
    trace = TraceContext.begin(parent)
    assert trace.traceparent().startswith("00-0af7651916cd43dd8448eb211c80319c-")
    assert trace.traceparent().endswith("-00")
    for broken in (None, "", "00-xyz", f"00-{'0' * 32}-b7ad6b7169203331-01"):
        assert len(TraceContext.begin(broken).trace_id) == 32


async def test_runner_signs_in_with_an_nkey(tmp_path: pathlib.Path) -> None:
    seed = nkey_seed(bytes(SigningKey.generate()))
    assert seed.startswith("SU")
    file = tmp_path / "runner.nk"
    file.write_text(seed + "\n", encoding="utf-8")
    with NatsServer(f"authorization {{ users: [ {{ nkey: {public_nkey(seed)} }} ] }}") as nats:
        flags = {"nats.url": nats.url, "nats.nkey_file": str(file)}
        config = Settings.load(flags, {}, None, folder=str(tmp_path)).check()
        client = await connect(config.nats, "test", Health())
        assert client.is_connected
        await client.close()
