#!/usr/bin/env python3
"""Puts MCP clients and servers of other makers into .tools, for our tests to meet.

.tools/mcp-peers has a Node with the official conformance suite, server-everything and server-filesystem;
.tools/python and .tools/python-newer have the official Python SDK of the older and of the newer era, the newer one with
FastMCP; .tools/grammars has xgrammar and llguidance. Node comes from a wheel, so that Python 3 with pip is all a machine
needs. Everything is pinned in scripts/mcp-peers.
"""

from pinned_parts import ROOT, get_for_tests, node_part, python_part

PINNED = ROOT / "scripts" / "mcp-peers"
SUITE = node_part("mcp-peers", "the MCP conformance suite and servers for Node", PINNED)
SDK = python_part("python", "the Python SDK of MCP's older era", PINNED / "requirements.txt")
GRAMMARS = python_part(
    "grammars", "xgrammar and llguidance, which constrain models by schemas", PINNED / "requirements-grammars.txt")
NEWER_SDK = python_part(
    "python-newer", "FastMCP and the Python SDK of MCP's newer era", PINNED / "requirements-newer.txt")


if __name__ == "__main__":
    get_for_tests([SUITE, SDK, GRAMMARS, NEWER_SDK])
