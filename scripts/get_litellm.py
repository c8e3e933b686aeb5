#!/usr/bin/env python3
"""Puts LiteLLM's proxy into .tools/litellm, for `make bench` to compare with.

It is pinned in scripts/litellm. Where it cannot be fetched the benches leave the comparison out and say so.
"""

import shutil
import sys

from get_mcp_peers import PIP, ROOT, TOOLS, step

PINNED = ROOT / "scripts" / "litellm" / "requirements.txt"
TARGET = TOOLS / "litellm"


def main():
    stamp, wanted = TARGET / "stamp", PINNED.read_text(encoding="utf-8")
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return
    print("getting LiteLLM ...", flush=True)
    shutil.rmtree(TARGET, ignore_errors=True)
    try:
        step("making an environment", [sys.executable, "-m", "venv", TARGET])
        step("fetching packages", [TARGET / "bin" / "python", *PIP, "--requirement", PINNED])
    except (OSError, RuntimeError) as error:
        print(f"LiteLLM could not be got: {error}\nThe benches go without it.", file=sys.stderr)
        return
    # Last, so that what was interrupted is begun anew.
    stamp.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()
