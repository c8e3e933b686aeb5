"""Settings: flag > file > environment > default, each value with its source.

Every key, its default and its meaning are in `SETTINGS` and nowhere else. A wrong value and an unknown key
are refused with key, source and remedy, before anything connects.
"""

from __future__ import annotations

import dataclasses
import difflib
import pathlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cynode_workflow.durations import parse_duration
from cynode_workflow.errors import SettingError

ENVIRONMENT_PREFIX = "CYNODE_WORKFLOW_"
CONFIG_VARIABLE = "CYNODE_WORKFLOW_CONFIG"
DEFAULT_FILE = "workflow.toml"
LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True)
class Setting:
    """One setting. Without a default it is not set."""

    key: str
    kind: str
    default: str | None
    what: str

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.key.upper().replace(".", "__")


SETTINGS = [
    Setting(
        "runner.id",
        "text",
        None,
        "Name of this runner in leases and logs; made of host and process if not set.",
    ),
    Setting("runner.slots", "count", "50", "Workflows that this process works on at the same time."),
    Setting(
        "runner.grace",
        "duration",
        "20s",
        "Time that running nodes get after SIGTERM. Waits are given up at once; workflows are handed back.",
    ),
    Setting(
        "runner.lease",
        "duration",
        "15s",
        "Lifetime of a lease, from 5s to 120s. It is renewed three times in it; the workflow of a "
        "killed runner waits for its end.",
    ),
    Setting("nats.url", "text", "nats://127.0.0.1:4222", "NATS servers, separated by commas."),
    Setting(
        "nats.creds_file", "text", None, "Credentials of this runner: a `.creds` file with user JWT and seed."
    ),
    Setting("nats.nkey_file", "text", None, "Credentials of this runner: a file with an nkey seed."),
    Setting("nats.inbox_prefix", "text", "_INBOX", "Inbox prefix for request replies."),
    Setting("nats.tls.required", "switch", "false", "Whether to refuse a server without TLS."),
    Setting("nats.tls.ca_file", "text", None, "Certificates of the authorities to trust, in PEM."),
    Setting("nats.tls.cert_file", "text", None, "Client certificate, in PEM."),
    Setting("nats.tls.key_file", "text", None, "Key of the client certificate, in PEM."),
    Setting("nats.stream", "text", "CYNODE_WORKFLOWS", "Work queue of workflows. The gateway creates it."),
    Setting("nats.consumer", "text", "workflow-runners", "Consumer of the queue, which all runners share."),
    Setting(
        "nats.ack_wait",
        "duration",
        "15s",
        "Time after which the server gives the message of a silent runner to another: that of the consumer.",
    ),
    Setting("gateway.url", "text", "http://127.0.0.1:8790/mcp", "MCP endpoint of the gateway."),
    Setting(
        "gateway.token_file", "text", None, "File with the runner's token: one of agent type `workflow`."
    ),
    Setting(
        "gateway.timeout", "duration", "30s", "Longest wait for one call, besides what the tool itself waits."
    ),
    Setting(
        "gateway.wait",
        "duration",
        "30s",
        "How long one call waits for a job or a handoff, 60s at most, before it is made again.",
    ),
    Setting("admin.listen", "text", "127.0.0.1:8786", "Address for `/livez`, `/readyz` and `/metrics`."),
    Setting("telemetry.log_format", "text", "json", "`json` for machines, or `text` for people."),
    Setting("telemetry.log_level", "text", "info", "`debug`, `info`, `warning` or `error`."),
]
_BY_KEY = {setting.key: setting for setting in SETTINGS}


@dataclass(frozen=True)
class Value:
    """A value as it was written, and where."""

    text: str
    source: str


@dataclass(frozen=True)
class Nats:
    servers: list[str]
    creds_file: str | None
    nkey_file: str | None
    inbox_prefix: str
    tls_required: bool
    tls_ca_file: str | None
    tls_cert_file: str | None
    tls_key_file: str | None
    stream: str
    consumer: str
    ack_wait: float


@dataclass(frozen=True)
class Config:
    """Checked settings."""

    runner_id: str | None
    slots: int
    grace: float
    lease_seconds: int
    nats: Nats
    gateway_url: str
    token_file: str | None
    gateway_timeout: float
    gateway_wait: int
    admin_host: str
    admin_port: int
    log_format: str
    log_level: str


class Settings:
    """Values of all settings with their sources."""

    def __init__(self, values: dict[str, Value]) -> None:
        self.values = values

    @classmethod
    def load(
        cls, flags: Mapping[str, str], environment: Mapping[str, str], file: str | None, *, folder: str = "."
    ) -> Settings:
        """Collects what flags, a file and the environment say. `file` is what `--config` names."""
        values = {
            setting.key: Value(setting.default, "default")
            for setting in SETTINGS
            if setting.default is not None
        }
        values |= _from_environment(environment)
        named = file or environment.get(CONFIG_VARIABLE)
        path = pathlib.Path(named) if named else pathlib.Path(folder) / DEFAULT_FILE
        if named or path.is_file():
            values |= _from_file(path)
        for key, text in flags.items():
            _known(key, "flag")
            values[key] = Value(text, "flag")
        return cls(values)

    def describe(self) -> str:
        """Returns each setting with its value and source."""
        lines = []
        for key in sorted(_BY_KEY):
            value = self.values.get(key)
            if value is None:
                lines.append(f"# {key} is not set")
            else:
                quoted = value.text if _BY_KEY[key].kind in ("count", "switch") else f'"{value.text}"'
                lines.append(f"{key} = {quoted}  # {value.source}")
        return "\n".join(lines)

    def check(self) -> Config:
        """Returns the checked configuration; raises `SettingError` for the first wrong value."""
        host, port = self._address("admin.listen")
        nats = Nats(
            servers=self._servers("nats.url"),
            creds_file=self._optional("nats.creds_file"),
            nkey_file=self._optional("nats.nkey_file"),
            inbox_prefix=self._text("nats.inbox_prefix"),
            tls_required=self._switch("nats.tls.required"),
            tls_ca_file=self._optional("nats.tls.ca_file"),
            tls_cert_file=self._optional("nats.tls.cert_file"),
            tls_key_file=self._optional("nats.tls.key_file"),
            stream=self._text("nats.stream"),
            consumer=self._text("nats.consumer"),
            ack_wait=self._duration("nats.ack_wait", 1, 3600),
        )
        if nats.creds_file and nats.nkey_file:
            raise self._wrong("nats.nkey_file", "nats.creds_file is set too; set one of them")
        return Config(
            runner_id=self._optional("runner.id"),
            slots=self._count("runner.slots", 1, 10_000),
            grace=self._duration("runner.grace", 0, 3600),
            lease_seconds=round(self._duration("runner.lease", 5, 120)),
            nats=nats,
            gateway_url=self._url("gateway.url"),
            token_file=self._optional("gateway.token_file"),
            gateway_timeout=self._duration("gateway.timeout", 0.1, 600),
            gateway_wait=round(self._duration("gateway.wait", 1, 60)),
            admin_host=host,
            admin_port=port,
            log_format=self._one_of("telemetry.log_format", ("json", "text")),
            log_level=self._one_of("telemetry.log_level", LEVELS),
        )

    def _wrong(self, key: str, why: str) -> SettingError:
        value = self.values.get(key)
        return SettingError(f"{key} (from {value.source if value else 'default'}): {why}")

    def _optional(self, key: str) -> str | None:
        value = self.values.get(key)
        return value.text if value and value.text else None

    def _text(self, key: str) -> str:
        text = self._optional(key)
        if text is None:
            raise self._wrong(key, "it must not be empty")
        return text

    def _one_of(self, key: str, allowed: tuple[str, ...]) -> str:
        text = self._text(key)
        if text not in allowed:
            raise self._wrong(key, f"`{text}` is not one of {', '.join(allowed)}")
        return text

    def _switch(self, key: str) -> bool:
        return self._one_of(key, ("true", "false")) == "true"

    def _count(self, key: str, least: int, most: int) -> int:
        text = self._text(key)
        if not text.isdecimal() or not least <= int(text) <= most:
            raise self._wrong(key, f"`{text}` is not a number from {least} to {most}")
        return int(text)

    def _duration(self, key: str, least: float, most: float) -> float:
        try:
            seconds = parse_duration(self._text(key))
        except ValueError as error:
            raise self._wrong(key, str(error)) from None
        if not least <= seconds <= most:
            raise self._wrong(key, f"`{self._text(key)}` is not from {least:g}s to {most:g}s")
        return seconds

    def _servers(self, key: str) -> list[str]:
        servers = [server.strip() for server in self._text(key).split(",") if server.strip()]
        for server in servers:
            if not server.startswith(("nats://", "tls://", "ws://", "wss://")):
                raise self._wrong(key, f"`{server}` is not a NATS server; write it as nats://host:4222")
        return servers

    def _url(self, key: str) -> str:
        text = self._text(key)
        if not text.startswith(("http://", "https://")):
            raise self._wrong(key, f"`{text}` is not a URL; write it as http://127.0.0.1:8790/mcp")
        return text

    def _address(self, key: str) -> tuple[str, int]:
        text = self._text(key)
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise self._wrong(key, f"`{text}` is not an address; write it as 127.0.0.1:8786")
        return host.strip("[]"), int(port)


def reference() -> str:
    """Returns the table of all settings, in Markdown."""
    rows = ["| key | default | what it is |", "|---|---|---|"]
    for setting in SETTINGS:
        default = "–" if setting.default is None else f"`{setting.default}`"  # noqa: RUF001
        rows.append(f"| `{setting.key}` | {default} | {setting.what} |")
    return "\n".join(rows)


def _known(key: str, source: str) -> Setting:
    setting = _BY_KEY.get(key)
    if setting is None:
        near = difflib.get_close_matches(key, _BY_KEY, n=1, cutoff=0.6)
        hint = f"; did you mean {near[0]}?" if near else "; `cynode-workflow config` lists all settings"
        raise SettingError(f"unknown setting {key} (from {source}){hint}")
    return setting


def _from_environment(environment: Mapping[str, str]) -> dict[str, Value]:
    values = {}
    for variable, text in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable == CONFIG_VARIABLE:
            continue
        key = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
        if key not in _BY_KEY:
            known = [setting.variable for setting in SETTINGS]
            near = difflib.get_close_matches(variable, known, n=1, cutoff=0.8)
            hint = f"did you mean {near[0]}?" if near else "`cynode-workflow config` lists all settings"
            raise SettingError(f"unknown setting {variable} (from environment); {hint}")
        values[key] = Value(text, f"environment {variable}")
    return values


def _from_file(path: pathlib.Path) -> dict[str, Value]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(f"cannot read the configuration file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"the configuration file {path} is not valid TOML: {error}") from None
    return {key: Value(text, f"file {path}") for key, text in _flatten(table, "", f"file {path}")}


def _flatten(table: dict[str, Any], prefix: str, source: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, dict):
            found += _flatten(value, key + ".", source)
            continue
        setting = _known(key, source)
        if isinstance(value, bool):
            text = "true" if value else "false"
        elif isinstance(value, int | float | str):
            text = str(value)
        else:
            raise SettingError(f"{key} (from {source}): a {setting.kind} is expected")
        found.append((key, text))
    return found


def replace(config: Config, **changes: Any) -> Config:
    """Returns a copy with some values changed."""
    return dataclasses.replace(config, **changes)
