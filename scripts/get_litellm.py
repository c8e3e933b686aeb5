#!/usr/bin/env python3
"""Puts LiteLLM's proxy into .tools/litellm, for `make bench` to compare with. It is pinned in scripts/litellm."""

from pinned_parts import ROOT, python_part

if __name__ == "__main__":
    python_part("litellm", "LiteLLM", ROOT / "scripts" / "litellm" / "requirements.txt").get("The benches go without it.")
