"""The command line: loads the settings, runs until a signal, and reports the result in the exit code."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import ipaddress
import os
import sys
from collections.abc import Sequence

from cynode_workflow import __version__
from cynode_workflow.errors import SettingError
from cynode_workflow.settings import Settings, reference

EX_USAGE = 64
EX_UNAVAILABLE = 69
PROGRAM = "cynode-workflow"
_FLAGS = {
    "--id": ("runner.id", "ID", "name of this runner"),
    "--slots": ("runner.slots", "NUMBER", "workflows at the same time"),
    "--admin-listen": ("admin.listen", "ADDRESS", "address for health and metrics"),
    "--nats-url": ("nats.url", "URL", "NATS servers, separated by commas"),
    "--gateway-url": ("gateway.url", "URL", "MCP endpoint of the gateway"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    try:
        given = parser.parse_args(arguments)
    except SystemExit as end:
        return EX_USAGE if end.code else 0
    if given.command == "config" and given.reference:
        _print(reference())
        return 0
    try:
        settings = Settings.load(_flags(given), os.environ, given.config)
        config = settings.check()
    except SettingError as error:
        return _fail(EX_USAGE, str(error))
    if given.command == "config":
        _print(settings.describe())
        return 0
    if given.command == "health":
        return _probe(config.admin_host, config.admin_port, "/readyz" if given.ready else "/livez")
    # LangGraph takes seconds to load; what is wrong with settings is said before.
    from cynode_workflow.logs import open_log  # noqa: PLC0415

    if given.command == "check":
        from cynode_workflow.check import check  # noqa: PLC0415

        open_log("text", "error")
        report = asyncio.run(check(config))
        _print("\n".join(report.lines))
        if report.failed:
            return _fail(EX_UNAVAILABLE, f"{len(report.failed)} checks failed: {', '.join(report.failed)}")
        return 0
    from cynode_workflow.runner import run  # noqa: PLC0415

    open_log(config.log_format, config.log_level)
    try:
        asyncio.run(run(config))
    except (OSError, SettingError) as error:
        return _fail(EX_UNAVAILABLE, str(error))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Drives tasks to completion. Settings come from flags, a file (workflow.toml), "
        "CYNODE_WORKFLOW_… variables (as CYNODE_WORKFLOW_GATEWAY__URL) and defaults, in this order.",
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    parser.add_argument(
        "-c", "--config", metavar="FILE", help="configuration file; without it workflow.toml if it is there"
    )
    for flag, (key, value, what) in _FLAGS.items():
        parser.add_argument(flag, dest=key, metavar=value, help=what)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any other setting: --set runner.grace=5s",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("run", help="take and run workflows until a signal; the default")
    commands.add_parser("check", help="reach NATS and the gateway, then exit")
    probe = commands.add_parser("health", help="check whether a running runner is alive; exit code 0 if so")
    probe.add_argument("--ready", action="store_true", help="check whether it takes workflows instead")
    shown = commands.add_parser("config", help="print every setting with its value and where it came from")
    shown.add_argument("--reference", action="store_true", help="print the table of all settings instead")
    return parser


def _flags(given: argparse.Namespace) -> dict[str, str]:
    flags = {}
    for pair in given.set:
        key, separator, value = pair.partition("=")
        if not separator:
            raise SettingError(f"--set {pair}: write it as KEY=VALUE")
        flags[key.strip()] = value.strip()
    for key, _, _ in _FLAGS.values():
        if (value := getattr(given, key)) is not None:
            flags[key] = value
    return flags


def _probe(host: str, port: int, path: str) -> int:
    """Asks a runner on this machine, also one that listens on all addresses."""
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        if address.is_unspecified:
            host = "127.0.0.1" if address.version == 4 else "::1"
    connection = http.client.HTTPConnection(host, port, timeout=3)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        if response.status == 200:
            return 0
        return _fail(EX_UNAVAILABLE, response.read(1000).decode("utf-8", "replace").strip())
    except (OSError, http.client.HTTPException) as error:
        return _fail(EX_UNAVAILABLE, f"no runner answers at {host}:{port}: {error}")
    finally:
        connection.close()


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def _fail(code: int, text: str) -> int:
    sys.stderr.write(f"{PROGRAM}: {text}\n")
    return code
