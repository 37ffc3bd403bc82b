"""An agent as a process of its own: what it gets, when it ends, and what is left of it then.

It is the user's program and not a sandbox: it may do what any program of this user may. It gets its
task on standard input, the server's address and its key as environment variables, and none of the
trainer's own variables but those on a list. Its whole process group ends with it, and so does every
other process that has its key in its environment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from groupwise.texts import shortened, whole_text

PASSED_ON = (
    "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH",
    "SYSTEMROOT", "TOKENIZERS_PARALLELISM", "OMP_NUM_THREADS",
)  # fmt: skip
"""The trainer's variables that an agent gets; keys and tokens of services are not among them."""
KEY = "OPENAI_API_KEY"
_STEP = 0.02
_LAST_WORDS = 400


@dataclass(frozen=True, slots=True)
class Ended:
    """How an agent ended: `done` with its output, or why there is none that counts."""

    kind: Literal["done", "timeout", "crash"]
    output: str
    reason: str = ""


def variables(address: str, key: str, model: str, more: Sequence[str]) -> dict[str, str]:
    """An agent's environment; `more` names further variables of the trainer that it may see."""
    passed = {name: os.environ[name] for name in (*PASSED_ON, *more) if name in os.environ}
    return {**passed, "OPENAI_BASE_URL": address, KEY: key, "OPENAI_MODEL": model}


class Process:
    """One agent, from now on; `on_end` gets how it ended, in another thread.

    `seconds` None: no deadline. Of its output `characters` are kept.
    """

    def __init__(
        self,
        command: Sequence[str],
        task: str,
        environment: Mapping[str, str],
        *,
        seconds: float | None,
        characters: int | None,
        on_end: Callable[[Ended], None],
    ) -> None:
        self._command, self._task, self._environment = list(command), task, dict(environment)
        self._seconds, self._characters, self._on_end = seconds, characters, on_end
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="groupwise-agent", daemon=True).start()

    def stop(self) -> None:
        """Ends it soon, whatever it is doing."""
        self._stopped.set()

    def _run(self) -> None:
        try:
            ended = self._ended()
        except Exception as error:  # noqa: BLE001 (a command that cannot start, a full disk)
            ended = Ended("crash", "", f"it did not start: {type(error).__name__}: {error}")
        self._on_end(ended)

    def _ended(self) -> Ended:
        # Files and not pipes: a process that it leaves behind would keep a pipe open.
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as errors,
        ):
            given.write(self._task.encode())
            given.seek(0)
            process = subprocess.Popen(
                self._command,
                stdin=given,
                stdout=out,
                stderr=errors,
                env=self._environment,
                start_new_session=True,
            )
            try:
                code = self._waited(process)
            finally:
                end_processes(process, f"{KEY}={self._environment[KEY]}")
            output = _read(out, self._characters)
            if code is None:
                stopped = "it was stopped" if self._stopped.is_set() else "it did not end"
                within = "" if self._seconds is None else f" within {self._seconds:g} s"
                return Ended("timeout", output, f"the agent: {stopped}{within}")
            if code == 0:
                return Ended("done", output)
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - 4 * _LAST_WORDS))
            words = whole_text(errors.read().decode("utf-8", "replace")).strip()[-_LAST_WORDS:]
            return Ended("crash", output, f"the agent ended with {how}: {words}".rstrip(": "))

    def _waited(self, process: subprocess.Popen[bytes]) -> int | None:
        """Its exit code; None where it was stopped or overran."""
        started = time.monotonic()
        while not self._stopped.is_set():
            with suppress(subprocess.TimeoutExpired):
                return process.wait(_STEP)
            if self._seconds is not None and time.monotonic() - started > self._seconds:
                return None
        return None


def _read(file: object, characters: int | None) -> str:
    file.seek(0)  # type: ignore[attr-defined]
    most = -1 if characters is None else 4 * characters + 4
    text = whole_text(file.read(most).decode("utf-8", "replace"))  # type: ignore[attr-defined]
    return text if characters is None else shortened(text, characters)


def end_processes(process: subprocess.Popen[bytes], mark: str) -> None:
    """Ends the process, its group, and (on Linux) every process with `mark` in its environment,
    which those that left the group have."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    for _ in range(5):  # one that forked while the list was read is in the next one
        found = marked(mark)
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            break
    process.wait()


def marked(mark: str) -> list[int]:
    """The processes, other than this one, whose environment holds `NAME=value`; none where there is
    no /proc."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            values = (folder / "environ").read_bytes().split(b"\0")
            if mark.encode() in values and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found
