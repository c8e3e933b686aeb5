"""Settings: precedence, refusals, and the tables in the documents."""

from __future__ import annotations

import asyncio
import pathlib
import subprocess
import sys

import pytest

from cynode_workflow.cli import main
from cynode_workflow.durations import parse_duration
from cynode_workflow.errors import SettingError
from cynode_workflow.health import Health, HealthServer
from cynode_workflow.metrics import Metrics
from cynode_workflow.settings import Settings, reference

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_flag_beats_file_beats_environment_beats_default(tmp_path: pathlib.Path) -> None:
    (tmp_path / "workflow.toml").write_text('[runner]\nslots = 7\ngrace = "2s"\n', encoding="utf-8")
    environment = {
        "CYNODE_WORKFLOW_RUNNER__SLOTS": "8",
        "CYNODE_WORKFLOW_RUNNER__GRACE": "3s",
        "CYNODE_WORKFLOW_RUNNER__LEASE": "30s",
        "PATH": "/bin",
    }
    settings = Settings.load({"runner.slots": "6"}, environment, None, folder=str(tmp_path))
    config = settings.check()
    assert (config.slots, config.grace, config.lease_seconds, config.gateway_wait) == (6, 2.0, 30, 30)
    shown = settings.describe()
    assert "runner.slots = 6  # flag" in shown
    assert f'runner.grace = "2s"  # file {tmp_path / "workflow.toml"}' in shown
    assert 'runner.lease = "30s"  # environment CYNODE_WORKFLOW_RUNNER__LEASE' in shown
    assert "# gateway.token_file is not set" in shown


@pytest.mark.parametrize(
    ("flags", "environment", "text"),
    [
        ({"runner.slotss": "1"}, {}, "unknown setting runner.slotss (from flag); did you mean runner.slots?"),
        (
            {},
            {"CYNODE_WORKFLOW_RUNNER__SLOTZ": "1"},
            "unknown setting CYNODE_WORKFLOW_RUNNER__SLOTZ (from environment); "
            "did you mean CYNODE_WORKFLOW_RUNNER__SLOTS?",
        ),
        ({"runner.slots": "0"}, {}, "runner.slots (from flag): `0` is not a number from 1 to 10000"),
        ({"runner.lease": "3s"}, {}, "runner.lease (from flag): `3s` is not from 5s to 120s"),
        ({"runner.grace": "soon"}, {}, "`soon` is not a duration; write it as 500ms, 30s, 10m or 7days"),
        ({"gateway.url": "here"}, {}, "`here` is not a URL"),
        ({"nats.url": "host"}, {}, "`host` is not a NATS server"),
        ({"admin.listen": "here"}, {}, "`here` is not an address"),
        ({"telemetry.log_format": "xml"}, {}, "`xml` is not one of json, text"),
        ({"nats.creds_file": "a", "nats.nkey_file": "b"}, {}, "set one of them"),
    ],
)
def test_wrong_setting_is_refused_with_its_key_and_remedy(
    flags: dict[str, str], environment: dict[str, str], text: str, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(SettingError) as refused:
        Settings.load(flags, environment, None, folder=str(tmp_path)).check()
    assert text in str(refused.value)


def test_file_with_an_unknown_key_is_refused(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text("[gateway]\nurll = 'http://x'\n", encoding="utf-8")
    with pytest.raises(SettingError, match=r"unknown setting gateway.urll .*did you mean gateway.url\?"):
        Settings.load({}, {}, str(file))
    with pytest.raises(SettingError, match="cannot read the configuration file"):
        Settings.load({}, {}, str(tmp_path / "missing.toml"))


def test_wrong_setting_exits_with_64(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--set", "runner.slots=x", "run"]) == 64
    assert "runner.slots (from flag)" in capsys.readouterr().err


def test_check_says_what_is_not_reachable() -> None:
    arguments = ["--nats-url", "nats://127.0.0.1:1", "--gateway-url", "http://127.0.0.1:1/mcp", "check"]
    done = subprocess.run(
        [sys.executable, "-m", "cynode_workflow", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 69
    assert (
        "FAIL nats     cannot connect to NATS at nats://127.0.0.1:1. Start nats-server, or correct nats.url."
        in done.stdout
    )
    assert (
        "FAIL gateway  http://127.0.0.1:1/mcp: the gateway at http://127.0.0.1:1/mcp is not available"
        in done.stdout
    )
    assert "2 checks failed: nats, gateway" in done.stderr


async def test_health_asks_a_running_runner(capsys: pytest.CaptureFixture[str]) -> None:
    health = Health()
    server = HealthServer(health, Metrics())
    port = await server.start("127.0.0.1", 0)

    async def asked(*command: str) -> int:
        # As in a container, where it listens on all addresses.
        return await asyncio.to_thread(main, ["--admin-listen", f"0.0.0.0:{port}", *command])

    assert (await asked("health"), await asked("health", "--ready")) == (0, 69)
    assert "starting" in capsys.readouterr().err
    health.clear("starting")
    assert await asked("health", "--ready") == 0
    await server.stop()
    assert await asked("health") == 69
    assert "no runner answers" in capsys.readouterr().err


@pytest.mark.parametrize("file", ["docs/workflow-runner.md", "workflow/README.md"])
def test_documents_have_the_table_of_settings(file: str) -> None:
    """`cynode-workflow config --reference` prints it."""
    assert reference() in (ROOT / file).read_text(encoding="utf-8")


def test_documents_have_every_metric() -> None:
    text = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    for family in Metrics().registry.collect():
        suffix = "_total" if family.type == "counter" else ""
        assert f"| `{family.name}{suffix}` | {family.type} |" in text


def test_durations() -> None:
    assert [parse_duration(text) for text in ("500ms", "30s", "10m", "7days", "1.5h")] == [
        0.5,
        30,
        600,
        604800,
        5400,
    ]
