"""The main program of an agent that is a Python function: `module:function` is its argument.

The task is read from standard input; what the function returns is written to standard output, and
what it prints to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys


def main() -> None:
    """Calls `function(base_url, task)`, awaited where it is a coroutine."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    os.dup2(2, 1)
    task = json.load(sys.stdin)
    module, _, name = sys.argv[1].partition(":")
    function = getattr(importlib.import_module(module), name)
    answer = function(os.environ["OPENAI_BASE_URL"], task)
    if hasattr(answer, "__await__"):
        import asyncio  # loading it takes longer than the rest of a short agent

        answer = asyncio.run(answer)
    with answers:
        if answer is not None:
            answers.write(str(answer))
