"""Where in a user's own code an error was raised, for a message in one line."""

from __future__ import annotations

import sysconfig
from pathlib import Path

_OTHERS = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_PACKAGE = str(Path(__file__).parents[2])


def raised_at(error: BaseException) -> str:
    """` (rewards.py, line 3)`: the innermost line that is neither this package's nor that of an
    installed one; empty where there is none."""
    place, entry = "", error.__traceback__
    while entry is not None:
        file = entry.tb_frame.f_code.co_filename
        if not file.startswith((*_OTHERS, _PACKAGE, "<")):
            place = f" ({file}, line {entry.tb_lineno})"
        entry = entry.tb_next
    return place
