"""Forks a child for each line of its input, so that a child that is killed has LangGraph loaded at once.

A line has the URL of the gateway, a task and a run. Written are the child's process id, then how it ended.
"""

from __future__ import annotations

import asyncio
import os
import sys

from driving import work


def main() -> None:
    for line in sys.stdin:
        url, task_id, run = line.split()
        child = os.fork()
        if child == 0:
            asyncio.run(work(url, task_id, int(run)))
            os._exit(0)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
