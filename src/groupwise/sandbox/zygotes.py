"""The parent's end: one zygote process, and the children it forks.

A child is a pidfd and pipes. Every wait on it has a deadline and a cap on bytes; the kill is the
parent's. What is sent, and what a reply is worth: `runs.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import time
import weakref
from collections.abc import Mapping
from typing import Any, Literal

from groupwise.sandbox.guest.frames import NAME, decode, packed
from groupwise.sandbox.results import Limits, SandboxUnavailable
from groupwise.sandbox.tiers import ENVIRONMENT, Start

BOOT_LIMIT = 60.0
"""Seconds within which a zygote must be ready; about 0.3 are usual, more with packages."""

ANSWER_LIMIT = 15.0
"""Seconds within which an idle zygote must fork, and report that a killed child has ended."""

_PACKET = 1 << 16
_SECONDS_OF_CPU_BEYOND = 2

Role = Literal["calls", "stdio", "tester"]


class ZygoteLost(Exception):  # noqa: N818 (inside this room: a fault to repair)
    """The zygote is gone or does not answer."""


class Fault(Exception):  # noqa: N818 (inside this room: an outcome)
    """What can be wrong with a child that is waited for."""


class Expired(Fault):
    """The deadline passed."""


class TooMuch(Fault):
    """More bytes came than the cap."""


class Gone(Fault):
    """The child closed its pipe: it has ended, or is about to."""


class Garbled(Fault):
    """The reply is malformed."""


def reap(pidfd: int) -> None:
    """Ends a process whose parent ended before it, and closes its pidfd.

    Where this process adopts orphans (a container's first process, a subreaper) it would stay.
    """
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    ended = select.poll()
    ended.register(pidfd, select.POLLIN)
    ended.poll(2000)
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    os.close(pidfd)


_open: weakref.WeakSet[Zygote] = weakref.WeakSet()


def _forget_in_child() -> None:
    """A fork of the trainer keeps no end of a socket, so that zygotes end with the trainer."""
    for zygote in list(_open):
        zygote.forget()


if hasattr(os, "register_at_fork"):  # elsewhere importing must work, so that a refusal says why
    os.register_at_fork(after_in_child=_forget_in_child)


class Zygote:
    """A warm process that forks children. Not thread-safe: one run at a time."""

    def __init__(self, start: Start) -> None:
        kind = (socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control, its_control = socket.socketpair(*kind)  # with the supervisor
        self._requests, its_requests = socket.socketpair(*kind)  # with the template
        self._ended: dict[str, int] = {}
        self._inside: list[int] = []
        messages = os.memfd_create("groupwise-zygote", os.MFD_CLOEXEC)
        try:
            self._process = subprocess.Popen(
                list(start.command),
                stdin=its_control.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=messages,
                env=ENVIRONMENT,
                process_group=0,  # out of reach of Ctrl-C, and in the trainer's scheduling group
            )
            _open.add(self)
            its_control.close()
            self.landlock = self._boot(start, its_requests, messages)
        except OSError as error:
            self.close()
            raise SandboxUnavailable(f"tier {start.tier}: {error}") from error
        finally:
            os.close(messages)
            its_control.close()
            its_requests.close()

    @property
    def pid(self) -> int:
        """The process started here: the zygote's, or that of bubblewrap around it."""
        return self._process.pid

    def _boot(self, start: Start, its_requests: socket.socket, messages: int) -> int:
        cause: Any = ""
        try:
            self._control.settimeout(BOOT_LIMIT)
            settings = json.dumps(start.settings).encode()
            socket.send_fds(self._control, [settings], [its_requests.fileno()])
            its_requests.close()
            raw, received, _, _ = socket.recv_fds(self._control, _PACKET, 2)
            reply = json.loads(raw or b"{}")
            cause = reply.get("error", "")
            if "landlock" in reply:
                self._inside = received
                self._control.settimeout(ANSWER_LIMIT)
                self._requests.settimeout(ANSWER_LIMIT)
                return int(reply["landlock"])
        except (OSError, ValueError) as error:
            cause = f"{type(error).__name__}: {error}"
        printed = os.pread(messages, 2000, 0).decode(errors="replace").strip()
        self.close()
        raise SandboxUnavailable(
            f"tier {start.tier}: the zygote did not start: {printed or cause or 'it ended'}"
        )

    def fork(
        self, role: Role, limits: Limits, stdin: bytes | None = None, read_files: bool = False
    ) -> Child:
        """A confined child that waits for its job. `ZygoteLost` where the zygote cannot.

        `stdin` makes a stdio child: these bytes are its standard input, and its output is kept.
        Every open file that it gets is its own, as flags and offsets outlive a process.
        `read_files` lets it open what Landlock lets it read.
        """
        with contextlib.ExitStack() as its, contextlib.ExitStack() as kept:

            def pipe(reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> tuple[int, int]:
                ends = os.pipe2(os.O_CLOEXEC)
                for stack, end in zip((reader, writer), ends):
                    stack.callback(os.close, end)
                return ends

            command_read, command_write = pipe(its, kept)
            reply_read, reply_write = pipe(kept, its)
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            its.callback(os.close, null)
            read, write, output = null, null, None
            if stdin is not None:
                read = os.memfd_create("stdin", os.MFD_CLOEXEC)
                its.callback(os.close, read)
                with open(read, "wb", closefd=False) as file:
                    file.write(stdin)
                os.lseek(read, 0, os.SEEK_SET)
                output, write = pipe(kept, its)
            request = {
                "role": role,
                "files": read_files,
                "memory": int(limits.memory),
                "processor": int(limits.total_time) + _SECONDS_OF_CPU_BEYOND,
            }
            name = secrets.token_hex(NAME // 2)
            pidfd = self._ask(name, request, [read, write, null, command_read, reply_write])
            kept.pop_all()
        return Child(self, name, pidfd, command_write, reply_read, output)

    def _ask(self, name: str, request: Mapping[str, Any], descriptors: list[int]) -> int:
        try:
            raw = (name + json.dumps(request)).encode()
            socket.send_fds(self._requests, [raw], descriptors)
            answer, received, _, _ = socket.recv_fds(self._requests, _PACKET, 1)
        except OSError as error:
            raise ZygoteLost(f"{type(error).__name__}: {error}") from error
        if not received:
            raise ZygoteLost(f"fork: {answer.decode()}" if answer else "the zygote has ended")
        return received[0]

    def exit_code_of(self, name: str) -> int:
        """The exit code of a child that has ended or was killed, -N for signal N."""
        while name not in self._ended:
            try:
                raw = self._control.recv(_PACKET)
            except OSError as error:
                raise ZygoteLost(f"the end of a child was not reported: {error}") from error
            if not raw:
                raise ZygoteLost("the zygote has ended")
            report = json.loads(raw)
            self._ended[report["ended"]] = report["code"]
        return self._ended.pop(name)

    def close(self) -> None:
        """Ends the zygote and what it forked. Safe to call twice."""
        self.forget()
        process = getattr(self, "_process", None)
        if process is None or process.returncode is not None:
            return
        try:
            process.wait(2.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        while self._inside:
            reap(self._inside.pop())

    def forget(self) -> None:
        """Closes this process's ends and nothing else."""
        self._control.close()
        self._requests.close()


class Child:
    """One confined process: frames in and out, standard output where it was kept, and the kill."""

    def __init__(
        self, zygote: Zygote, name: str, pidfd: int, command: int, reply: int, output: int | None
    ) -> None:
        self._zygote = zygote
        self._name = name
        self._pidfd = pidfd
        self._command = command
        self._reply = reply
        self._output = output
        self._buffer = bytearray()
        self._code: int | None = None
        for each in (command, reply, output):
            if each is not None:
                os.set_blocking(each, False)

    def send(self, message: Any, deadline: float) -> None:
        """One frame to the child. `Gone`, `Expired`."""
        data = packed(message)
        while data:
            try:
                data = data[os.write(self._command, data) :]
            except BlockingIOError:
                _wait(self._command, deadline, select.POLLOUT)
            except BrokenPipeError:
                raise Gone from None

    def receive(self, deadline: float, cap: int) -> list[Any]:
        """The next frame, a list. `Gone`, `Expired`, `TooMuch` (above `cap` bytes), `Garbled`.

        What is in the list may be anything that JSON can say: its sender may be hostile.
        """
        length = int.from_bytes(self._take(4, deadline), "big")
        if length > cap:
            raise TooMuch
        try:
            message = decode(self._take(length, deadline).decode())
        except (ValueError, RecursionError):
            raise Garbled from None
        if not isinstance(message, list) or not message:
            raise Garbled
        return message

    def _take(self, count: int, deadline: float) -> bytes:
        while len(self._buffer) < count:
            _wait(self._reply, deadline)
            chunk = os.read(self._reply, 1 << 16)
            if not chunk:
                raise Gone
            self._buffer += chunk
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def read_output(self, deadline: float, cap: int) -> bytes:
        """All of standard output, until the child has ended. `Expired`, `TooMuch`."""
        assert self._output is not None
        data = bytearray()
        while True:
            _wait(self._output, deadline)
            chunk = os.read(self._output, 1 << 16)
            if not chunk:
                break
            data += chunk
            if len(data) > cap:
                raise TooMuch
        _wait(self._pidfd, deadline)
        return bytes(data)

    def end(self) -> int:
        """Kills it if it still runs, waits for its end, closes all; the exit code, -N for signal N.

        The kill goes through the pidfd, so that it can reach no other process. `ZygoteLost`.
        """
        if self._code is None:
            self._code = -signal.SIGKILL
            try:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
                self._code = self._zygote.exit_code_of(self._name)
            finally:
                reap(self._pidfd)
                for each in (self._command, self._reply, self._output):
                    if each is not None:
                        os.close(each)
        return self._code

    def ended(self, seconds: float) -> int | None:
        """The exit code if it ends by itself within `seconds`; it is then closed."""
        try:
            _wait(self._pidfd, time.monotonic() + seconds)
        except Expired:
            return None
        return self.end()


def _wait(descriptor: int, deadline: float, event: int = select.POLLIN) -> None:
    """Until the event is there. `Expired`."""
    poll = select.poll()
    poll.register(descriptor, event)
    left = deadline - time.monotonic()
    if left <= 0 or not poll.poll(left * 1000):
        raise Expired
