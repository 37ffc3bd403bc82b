"""One contender's process: load once, then one repeat whenever the parent asks for it.

    python -m benchmarks.worker NAME WORKLOAD_JSON

Commands come as JSON lines on standard input, answers leave as JSON lines on what was standard
output; whatever libraries print goes to standard error. Between repeats the process blocks on a
read. Left out: when a repeat is asked for (parent.py).
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any, TextIO

from benchmarks import machine
from benchmarks.contenders import BY_NAME, Command
from benchmarks.workload import Workload

_PR_SET_PDEATHSIG = 1


def main() -> int:
    name, table = sys.argv[1:3]
    out = _private_output()
    _end_with_parent()
    load = time.perf_counter()
    try:
        running = BY_NAME[name].start(Workload(**json.loads(table)))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a peer raises is its row
        return _fail(out, error)
    _say(
        out,
        {
            "ready": True,
            "load_seconds": round(time.perf_counter() - load, 2),
            "resident_bytes": machine.memory("VmRSS"),
            "detail": running.detail,
        },
    )
    try:
        running.serve(_commands(), lambda numbers: _answer(out, numbers))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a peer raises is its row
        return _fail(out, error)
    return 0


def _commands() -> Iterator[Command]:
    for line in sys.stdin:
        command = Command(**json.loads(line))
        machine.reset_peak()
        yield command


def _answer(out: TextIO, numbers: dict[str, Any]) -> None:
    _say(out, {"ok": True, **numbers, "peak_bytes": machine.memory()})


def _fail(out: TextIO, error: BaseException) -> int:
    """The reason in one line for the table, the whole of it on standard error."""
    traceback.print_exception(error)
    first = (str(error).strip() or "no message").splitlines()[0]
    _say(out, {"ok": False, "error": f"{type(error).__name__}: {first}"})
    return 1


def _say(out: TextIO, value: dict[str, Any]) -> None:
    out.write(json.dumps(value) + "\n")
    out.flush()


def _private_output() -> TextIO:
    """Standard output as it was; descriptor 1 becomes standard error."""
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return kept


def _end_with_parent() -> None:
    """A repeat can take minutes: where the parent is killed meanwhile, nobody wants it any more."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
