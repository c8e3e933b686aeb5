#!/usr/bin/env python3
"""Serves the model in .tools/model by the OpenAI chat protocol, on loopback; with a command, only as long as that runs.

    .tools/model/bin/python scripts/serve_model.py [--port PORT] [-- COMMAND...]

The address is printed, and a command finds it as INFERENCE_URL, with the name in MODEL.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import urllib.request

# Before the engine loads: threads that wait should not keep the cores from everything else.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import xllamacpp  # noqa: E402

WEIGHTS = pathlib.Path(__file__).resolve().parent.parent / ".tools" / "model" / "model.gguf"
NAME = "smollm2-135m"


def serve(port):
    params = xllamacpp.CommonParams()
    params.model.path = str(WEIGHTS)
    params.model_alias = NAME
    params.hostname, params.port = "127.0.0.1", port
    # Two conversations at a time, each with half of the context.
    params.n_ctx, params.n_parallel = 16384, 2
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = os.cpu_count() or 2
    params.cache_ram_mib = 256
    params.use_jinja, params.webui = True, False
    return xllamacpp.Server(params)


def wait_until_loaded(address):
    """Waits until requests are answered: the address is there before the model is read."""
    while True:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=10) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0, help="0 is any free one")
    parser.add_argument("command", nargs="*")
    arguments = parser.parse_args()
    server = serve(arguments.port)
    wait_until_loaded(server.listening_address)
    url = f"{server.listening_address}/v1"
    print(f"{NAME} is served at {url}", flush=True)
    if arguments.command:
        # Ctrl-C is for the command; we end with it.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        environment = {**os.environ, "INFERENCE_URL": url, "MODEL": NAME}
        restore = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
        status = subprocess.run(arguments.command, env=environment, preexec_fn=restore).returncode
    else:
        stop, status = threading.Event(), 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        while not stop.wait(1):
            pass
    sys.stdout.flush()
    # The engine's threads do not end by themselves.
    os._exit(status)


if __name__ == "__main__":
    main()
