#!/usr/bin/env python3
"""Has the model at INFERENCE_URL, named MODEL, do the same small task several times, each from handoff to workflow.

    INFERENCE_URL=http://127.0.0.1:8080/v1 MODEL=qwen2.5-7b make bench-task

Each run is a `schedule` handoff on a fresh local stack: the manager writes the task and starts its workflow, which
plans the steps, runs them in sandboxes and verifies them. Prints how each ended, and why.
"""

import argparse
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CTL = ROOT / "target" / "debug" / "cynodectl"
PROMPT = (
    "Write a Python script convert.py that converts a CSV file with a header to a JSON array of objects, "
    "and a test test_convert.py that runs it on a small CSV file and checks the result."
)
ENDED = {"done", "failed", "cancelled", "waiting"}


def free_port(count):
    """Returns a port that is free together with the ones after it."""
    while True:
        with socket.socket() as first:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
        try:
            for offset in range(count):
                with socket.socket() as tried:
                    tried.bind(("127.0.0.1", port + offset))
            return port
        except OSError:
            continue


class Stack:
    def __init__(self, folder):
        self.nats, self.gateway, api = free_port(1), free_port(2), free_port(8)
        self.folder = folder
        command = [CTL, "up", "--stay", "--data", folder, "--nats-port", self.nats, "--gateway-port", self.gateway]
        self.log = open(folder / "up.log", "w", encoding="utf-8")
        self.process = subprocess.Popen([str(part) for part in [*command, "--api-port", api]], cwd=ROOT, stdout=self.log,
                                        stderr=self.log, stdin=subprocess.DEVNULL)

    def call(self, *arguments, limit=60):
        """Returns the JSON documents that a command prints, or None and what it says if it fails."""
        address = ["--server", f"nats://127.0.0.1:{self.nats}", "--gateway", f"http://127.0.0.1:{self.gateway + 1}"]
        token = ["--admin-token-file", str(self.folder / "gateway" / "admin.token"), "--json"]
        done = subprocess.run([str(CTL), *arguments, *address, *token], capture_output=True, text=True, timeout=limit)
        documents = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return (documents, "") if done.returncode == 0 else (None, done.stderr.strip())

    def wait_until_ready(self):
        until = time.monotonic() + 120
        while self.call("workflows", "ls")[0] is None:
            if self.process.poll() is not None or time.monotonic() > until:
                log = pathlib.Path(self.log.name).read_text(encoding="utf-8")
                sys.exit(f"The stack did not start:\n{log}")
            time.sleep(0.5)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)
        self.log.close()


def run(stack, minutes):
    """Returns how one task ended, and why if it is not done."""
    limit = {"limit": minutes * 60 + 30}
    answers, refusal = stack.call("handoff", "schedule", PROMPT, "--user", "ada", "--timeout", f"{minutes}m", **limit)
    until = time.monotonic() + minutes * 60
    while time.monotonic() < until:
        workflows, _ = stack.call("workflows", "ls")
        if workflows == []:
            answer = (answers or [{}])[0]
            return "not started", refusal or answer.get("error") or answer.get("message")
        if workflows and workflows[0]["status"] in ENDED:
            return workflows[0]["status"], workflows[0].get("reason") or workflows[0].get("question")
        time.sleep(1)
    return "too slow", f"not ended after {minutes} minutes"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--minutes", type=int, default=15, help="longest time of a run")
    arguments = parser.parse_args()
    for name in ("INFERENCE_URL", "MODEL"):
        if name not in os.environ:
            sys.exit(f"Set {name}: INFERENCE_URL=http://127.0.0.1:8080/v1 MODEL=name make bench-task")
    ended = []
    for number in range(1, arguments.runs + 1):
        with tempfile.TemporaryDirectory() as folder:
            stack = Stack(pathlib.Path(folder))
            started = time.monotonic()
            try:
                stack.wait_until_ready()
                how, why = run(stack, arguments.minutes)
            finally:
                stack.stop()
        ended.append(how)
        line = f"run {number}: {how}, {time.monotonic() - started:.0f} s"
        print(line if how == "done" else f"{line}: {' '.join(str(why).split())[:300]}", flush=True)
    print(f"{ended.count('done')} of {len(ended)} done")


if __name__ == "__main__":
    main()
