#!/usr/bin/env python3
"""Starts a local stack on this machine: NATS, the MCP gateway, a project manager, a project analyst.

With a terminal it stays until Ctrl-C; without one it shows a short tour and leaves.
"""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / ".cynode"
BIN = ROOT / "target" / "debug"
PORT = int(os.environ.get("NATS_PORT", "4222"))
URL = f"nats://127.0.0.1:{PORT}"
GATEWAY_PORT = int(os.environ.get("GATEWAY_PORT", "8790"))
GATEWAY = f"http://127.0.0.1:{GATEWAY_PORT}/mcp"
ADMIN = f"http://127.0.0.1:{GATEWAY_PORT + 1}"
ADMIN_TOKEN = DATA / "gateway" / "admin.token"
MANAGER_TOKEN = DATA / "manager.token"
# A model server instead of the offline model: INFERENCE_URL=http://127.0.0.1:8080/v1 MODEL=name make run
MODEL = os.environ.get("INFERENCE_URL") and (os.environ["INFERENCE_URL"], os.environ.get("MODEL", "default"))

# A worker refuses to start where it finds the key of a provider; whoever has one in the shell should still see it run.
# The gateway would take GATEWAY_PORT for a setting of its own.
KEYS = ("_API_KEY", "_AUTH_TOKEN", "_ADMIN_KEY")
CLEAN = {name: value for name, value in os.environ.items()
         if not name.endswith(KEYS) and name not in ("HF_TOKEN", "GATEWAY_PORT")}

children = []


def say(text):
    print(text, flush=True)


def start(name, *command):
    """Starts one process of the stack; its output goes to a log file."""
    log = open(DATA / f"{name}.log", "w")
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, env=CLEAN,
                               start_new_session=True)
    children.append((name, process))
    return process


def stop():
    """Ends all in the opposite order: workers hand back what they have before NATS goes."""
    for _, process in reversed(children):
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout=25)
            except subprocess.TimeoutExpired:
                process.kill()


def wait_for(what, condition, seconds=20):
    """Waits for a condition; a process of ours that ends meanwhile is the answer."""
    until = time.monotonic() + seconds
    while not condition():
        for name, process in children:
            if process.poll() is not None:
                fail(f"{name} ended while waiting for {what}", name)
        if time.monotonic() > until:
            fail(f"{what} took more than {seconds} s", children[-1][0])
        time.sleep(0.05)


def fail(why, name):
    tail = "\n".join((DATA / f"{name}.log").read_text().splitlines()[-8:])
    stop()
    sys.exit(f"{why}. The end of .cynode/{name}.log:\n{tail}")


def listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def ctl(*arguments, quiet=False):
    command = [str(BIN / "cynodectl"), "--server", URL, *arguments]
    environment = {**CLEAN, "CYNODE_GATEWAY": ADMIN, "CYNODE_ADMIN_TOKEN_FILE": str(ADMIN_TOKEN)}
    if not quiet:
        say("\n$ cynodectl " + " ".join(f'"{word}"' if " " in word else word for word in arguments))
    return subprocess.run(command, cwd=ROOT, capture_output=quiet, text=True, env=environment)


def instances():
    found = ctl("--json", "status", quiet=True)
    return len(json.loads(found.stdout)["instances"]) if found.returncode == 0 else 0


def give_manager_a_token():
    """A token of its own for this stack; the one of the last stack is forgotten."""
    MANAGER_TOKEN.unlink(missing_ok=True)
    issued = ctl("tokens", "issue", "project_manager", "--label", "local manager", "--lives", "1day",
                 "--out", str(MANAGER_TOKEN), quiet=True)
    if issued.returncode != 0:
        fail("the manager got no token: " + issued.stderr.strip(), "gateway")


def main():
    DATA.mkdir(exist_ok=True)
    for port, name in ((PORT, "NATS_PORT"), (GATEWAY_PORT, "GATEWAY_PORT"), (GATEWAY_PORT + 1, "GATEWAY_PORT")):
        if listening(port):
            sys.exit(f"port {port} is taken: a stack may be running already. Stop it, or choose another port with "
                     f"{name}=… make run.")
    say(f"starting nats-server on {URL} (data in .cynode/nats)")
    start("nats", str(ROOT / ".tools/bin/nats-server"), "-a", "127.0.0.1", "-p", str(PORT), "-js", "-sd", str(DATA / "nats"))
    wait_for("NATS", lambda: listening(PORT))
    say(f"starting the gateway on {GATEWAY} (store in .cynode/gateway)")
    start("gateway", str(BIN / "cynode-gateway"), f"--data={DATA / 'gateway'}", f"--listen=127.0.0.1:{GATEWAY_PORT}",
          f"--admin-listen=127.0.0.1:{GATEWAY_PORT + 1}", f"--set=nats.url={URL}", "--set=audit.seal_every=1s")
    wait_for("the gateway", lambda: listening(GATEWAY_PORT))
    give_manager_a_token()
    say("starting a project manager and a project analyst")
    model = MODEL and [f"--set=inference.base_url={MODEL[0]}", f"--set=inference.model={MODEL[1]}"] or []
    start("manager", str(BIN / "cynode-pma"), "run", "--role=project_manager", f"--nats-url={URL}",
          "--set=analysts.enabled=true", f"--set=gateway.url={GATEWAY}", f"--set=gateway.token_file={MANAGER_TOKEN}", *model)
    start("analyst", str(BIN / "cynode-pma"), "run", "--role=project_analyst", f"--nats-url={URL}", *model)
    wait_for("the workers", lambda: instances() == 2)
    ctl("status")
    ctl("handoff", "chat", "What is left to do for the release?")
    if not sys.stdin.isatty():
        ctl("handoff", "plan", "Publish the documentation", "--criterion", "the site is up")
        ctl("handoff", "verify", "deploy-docs-2", "--criterion", "the site is up")
        ctl("dead", "ls")
        ctl("audit", "query", "--limit", "5")
        ctl("audit", "verify")
        say("\nthat was the tour; `make run` in a terminal keeps the stack up")
        return
    say(f"\nThe stack is up. In another terminal:\n\n  {BIN.relative_to(ROOT)}/cynodectl handoff chat \"hello\"\n"
        f"  {BIN.relative_to(ROOT)}/cynodectl watch\n  {BIN.relative_to(ROOT)}/cynodectl status\n"
        f"  {BIN.relative_to(ROOT)}/cynodectl audit tail\n\n"
        f"The gateway's console is at {ADMIN}/console; sign in with the token in .cynode/gateway/admin.token.\n"
        "Logs are in .cynode/. Ctrl-C ends everything.")
    while all(process.poll() is None for _, process in children):
        time.sleep(0.2)
    for name, process in children:
        if process.poll() is not None:
            fail(f"{name} ended by itself", name)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        main()
    except KeyboardInterrupt:
        say("\nstopping ...")
    finally:
        stop()
