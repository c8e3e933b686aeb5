"""`cynode-workflow check`: one line per check, with what to do about one that failed."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses

import nats.errors

from cynode_workflow.errors import GatewayError, SettingError, TokenRefused
from cynode_workflow.gateway import Gateway
from cynode_workflow.health import Health
from cynode_workflow.lease import probe
from cynode_workflow.queue import connect
from cynode_workflow.settings import Config

_SECONDS = 5.0


@dataclasses.dataclass
class Report:
    """Lines of checks, and the names of those that failed."""

    lines: list[str] = dataclasses.field(default_factory=list)
    failed: list[str] = dataclasses.field(default_factory=list)

    def ok(self, name: str, text: str) -> None:
        self.lines.append(f"ok   {name:<8} {text}")

    def fail(self, name: str, text: str) -> None:
        self.lines.append(f"FAIL {name:<8} {text}")
        self.failed.append(name)


async def check(config: Config) -> Report:
    """Reaches NATS and the gateway, and changes nothing."""
    report = Report()
    await _check_nats(config, report)
    await _check_gateway(config, report)
    return report


async def _check_nats(config: Config, report: Report) -> None:
    servers = ", ".join(config.nats.servers)
    try:
        client = await asyncio.wait_for(connect(config.nats, "cynode-workflow-check", Health()), _SECONDS)
    except TimeoutError:
        report.fail("nats", f"cannot connect to NATS at {servers}. Start nats-server, or correct nats.url.")
        return
    except (SettingError, OSError) as error:
        report.fail("nats", str(error))
        return
    report.ok("nats", f"connected to {servers}")
    with contextlib.suppress(nats.errors.Error, OSError):
        await client.close()


async def _check_gateway(config: Config, report: Report) -> None:
    url = config.gateway_url
    gateway = Gateway(url, config.token_file, timeout=_SECONDS)
    remedy = (
        "Start cynode-gateway, correct gateway.url, or issue a token with `cynodectl tokens issue workflow`."
    )
    try:
        await probe(gateway)
    except TokenRefused as error:
        report.fail("gateway", f"{error}")
    except GatewayError as error:
        report.fail("gateway", f"{url}: {error}. {remedy}")
    else:
        report.ok("gateway", f"{url} takes the token of this runner")
    finally:
        await gateway.close()
