"""Notices a run that stalls, and writes down where every thread stands; it interrupts nothing."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Self

from groupwise.errors import GroupwiseError
from groupwise.instants import pulse
from groupwise.records import RunWriter

STALLS = "stalls.txt"
"""The file of the run folder with the stacks and the last events of its stalls."""
_LOOKS = 8
_LAST_EVENTS = 20


class Watchdog:
    """Watches the run of one record while its block runs.

    After `seconds` without an instant (`instants.py`: a completion, a score, a micro-batch, a
    file) the stacks of all threads and the last events go to `stalls.txt`, and an event and `say`
    name what the run's thread does. The stacks are read by a thread that holds the interpreter's
    lock, because reading them without it can crash; native code that keeps the lock is therefore
    reported once it lets go. 0 seconds, or a block inside another one: nothing.
    """

    _watching: ClassVar[bool] = False

    def __init__(self, writer: RunWriter, seconds: float, say: Callable[[str], None]) -> None:
        self.writer = writer
        self.seconds = min(seconds, threading.TIMEOUT_MAX)
        self.say = say
        self.ident = threading.get_ident()
        self.path: Path = writer.folder.absolute() / STALLS
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self.seconds > 0 and not Watchdog._watching:
            Watchdog._watching = True
            self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join()
        Watchdog._watching = False

    def _watch(self) -> None:
        seen, since, reported = -1, time.monotonic(), False
        while not self._stop.wait(self.seconds / _LOOKS):
            if pulse.count != seen:
                seen, since, reported = pulse.count, time.monotonic(), False
            elif not reported and time.monotonic() - since >= self.seconds:
                reported = True
                self._tell(time.monotonic() - since)

    def _tell(self, seconds: float) -> None:
        place = innermost(self.ident)
        text = stacks()
        where = f"{pulse.latest!r} of {pulse.place}"
        try:
            self.writer.event("stalled", seconds=round(seconds, 1), after=where, inside=place)
            events = (self.writer.folder / "events.jsonl").read_text("utf-8").splitlines()
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n".join([text, "last events:", *events[-_LAST_EVENTS:], "", ""]))
        except (GroupwiseError, OSError) as error:
            self.say(f"the stall is not recorded: {error}")
        self.say(
            f"no progress for {seconds:.0f} s: the last was {where}, and the run is inside "
            f"{place}. Nothing is interrupted; the stacks of all threads are in {self.path}"
        )


def stacks() -> str:
    """The stack of every thread of the process, each under its name, the innermost call last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )


def innermost(thread: int) -> str:
    """The innermost function that a thread is in, as `slow (rewards.py, line 7)`."""
    frame = sys._current_frames().get(thread)
    if frame is None:
        return "no function"
    return f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}, line {frame.f_lineno})"
