#!/usr/bin/env python3
"""Measures what a remembered message id costs nats-server in memory.

Publishes the same number of messages to two servers, one with a long dedupe window and one with a short one, removes the
messages, and divides the difference in resident memory by the number of ids.
"""

import json
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import uuid

SERVER = pathlib.Path(__file__).resolve().parent.parent / ".tools/bin/nats-server"
MESSAGES = 600_000
BATCH = 2_000
NANOSECONDS = 10**9
# Until the server has collected its garbage.
SETTLES_WITHIN = 20


class Client:
    """As much of the NATS protocol as is needed here."""

    def __init__(self, port):
        until = time.monotonic() + 10
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", port))
                break
            except ConnectionRefusedError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
        self.lines = self.socket.makefile("rb")
        self.lines.readline()
        self.socket.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB _INBOX.m 1\r\n')

    def reply(self):
        while True:
            line = self.lines.readline()
            if line.startswith(b"MSG"):
                return json.loads(self.lines.read(int(line.split()[-1]) + 2))
            if line.startswith(b"PING"):
                self.socket.sendall(b"PONG\r\n")

    def request(self, subject, body):
        self.socket.sendall(b"PUB %s _INBOX.m %d\r\n%s\r\n" % (subject.encode(), len(body), body.encode()))
        return self.reply()

    def publish_batch(self):
        out = bytearray()
        for _ in range(BATCH):
            header = f"NATS/1.0\r\nNats-Msg-Id: {uuid.uuid4()}\r\n\r\n".encode()
            out += b"HPUB q %d %d\r\n%sx\r\n" % (len(header), len(header) + 1, header)
        self.socket.sendall(bytes(out))
        # Answered when all before it are stored.
        self.request("q", "last")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def resident_kib(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def measure(window):
    folder, port = tempfile.mkdtemp(), free_port()
    command = [SERVER, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", folder]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        client = Client(port)
        config = {"name": "Q", "subjects": ["q"], "retention": "workqueue", "storage": "file", "duplicate_window": window}
        made = client.request("$JS.API.STREAM.CREATE.Q", json.dumps(config))
        if "error" in made:
            raise SystemExit(f"the stream cannot be created: {made['error']}")
        for _ in range(MESSAGES // BATCH):
            client.publish_batch()
        client.request("$JS.API.STREAM.PURGE.Q", "")
        time.sleep(SETTLES_WITHIN)
        return resident_kib(process)
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def main():
    remembered, forgotten = measure(3_600 * NANOSECONDS), measure(NANOSECONDS // 10)
    bytes_per_id = (remembered - forgotten) * 1_024 / MESSAGES
    print(f"{bytes_per_id:.0f} bytes for each remembered id ({remembered} KiB with {MESSAGES} ids, {forgotten} KiB without)")
    for name, seconds in [("2 minutes", 120), ("1 hour", 3_600)]:
        print(f"at 1,000 handoffs a second, {name}: {bytes_per_id * 1_000 * seconds / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
