"""A nats-server of its own for each test, with the queue as the gateway provisions it."""

from __future__ import annotations

import base64
import binascii
import json
import pathlib
import subprocess
import tempfile
import time
from typing import Any

import nats
from nats.aio.client import Client
from nats.js.api import ConsumerConfig, RetentionPolicy, StreamConfig

TOOLS = pathlib.Path(__file__).resolve().parents[2] / ".tools" / "bin"
STREAM, CONSUMER, SUBJECT = "CYNODE_WORKFLOWS", "workflow-runners", "workflow.run"


class NatsServer:
    """A real server, killed at the end. It can be stopped and started again with its store."""

    def __init__(self, config: str = "") -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="cynode-workflow-nats-")
        self.folder = pathlib.Path(self._folder.name)
        self._config = self.folder / "nats.conf"
        self._config.write_text(config, encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None
        self._port = -1
        self.start()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._port}"

    def start(self) -> None:
        for file in self.folder.glob("*.ports"):
            file.unlink()
        arguments: list[str | pathlib.Path] = [
            "-js",
            "-sd",
            self.folder / "store",
            "-a",
            "127.0.0.1",
            "-p",
            str(self._port),
        ]
        self._process = subprocess.Popen(
            [TOOLS / "nats-server", "-c", self._config, *arguments, "--ports_file_dir", self.folder],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 20
        while (
            not (files := list(self.folder.glob("*.ports")))
            or not files[0].read_text(encoding="utf-8").strip()
        ):
            assert time.monotonic() < deadline, "nats-server does not start"
            time.sleep(0.02)
        self._port = int(json.loads(files[0].read_text(encoding="utf-8"))["nats"][0].rsplit(":", 1)[1])

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> NatsServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._folder.cleanup()


async def provision(url: str, ack_wait: float = 2.0, **options: Any) -> Client:
    """Creates stream and consumer, and returns a client."""
    client = await nats.connect(url, **options)
    context = client.jetstream()
    await context.add_stream(
        StreamConfig(name=STREAM, subjects=[SUBJECT], retention=RetentionPolicy.WORK_QUEUE)
    )
    await context.add_consumer(
        STREAM, ConsumerConfig(durable_name=CONSUMER, ack_wait=ack_wait, filter_subject=SUBJECT)
    )
    return client


async def publish(client: Client, task_id: str, run: int = 1) -> None:
    body = json.dumps({"v": 1, "task_id": task_id, "run": run}).encode()
    await client.jetstream().publish(SUBJECT, body, headers={"Nats-Msg-Id": f"{task_id}.{run}"})


async def queued(client: Client) -> int:
    """Returns how many messages the queue has, delivered ones included."""
    return int((await client.jetstream().stream_info(STREAM)).state.messages)


def nkey_seed(raw: bytes) -> str:
    """Returns the seed of a user as NATS writes it."""
    body = bytes([18 << 3 | 5, 0]) + raw
    return base64.b32encode(body + binascii.crc_hqx(body, 0).to_bytes(2, "little")).decode().rstrip("=")
