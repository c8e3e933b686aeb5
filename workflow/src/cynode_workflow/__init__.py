"""Drives the tasks of cynode to completion.

A runner pulls `workflow.run` messages, holds the lease of a workflow, and runs its graph. Everything that it
does, it does through tools of the gateway, each with the epoch of its lease; it calls no model and opens no
database.
"""

import os

__version__ = "0.1.0"

# LangGraph's dependencies would send every state to a service if the environment asked for it.
for _variable in ("LANGSMITH_TRACING", "LANGSMITH_TRACING_V2", "LANGCHAIN_TRACING", "LANGCHAIN_TRACING_V2"):
    os.environ[_variable] = "false"
