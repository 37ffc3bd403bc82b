"""The warm process that every graded run is forked from.

It is a fresh interpreter that has imported the standard library and given up its privileges; it
holds no tests, no weights and no environment. Its standard input is a socket to the parent. One
packet asks for one child and carries its five descriptors; the answer carries the child's pidfd,
with which the parent keeps the clock and the kill. When the parent's end closes, it kills its
children and ends.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import platform
import select
import signal
import socket
import sys
import time
from typing import Any

from . import seccomp
from .confinement import (
    address_space,
    adopt_orphans,
    c_library,
    children_of,
    confine_zygote,
    die_with_parent,
    set_limits,
    take_descriptors,
)
from .frames import COMMAND_FD, REPLY_FD, read_frame, write_frame
from .landlock import abi
from .solution import leave, run_program, serve, settle, settle_child
from .tester import run_tests

PACKET = 1 << 16

STRAYS = 1.5
"""Seconds for ending what an unconfined child left; below what the parent waits for a zygote."""

# The same for the zygote and every child; memory and processor time are set for each child.
LIMITS = {
    "RLIMIT_FSIZE": 0,
    "RLIMIT_NOFILE": 128,
    "RLIMIT_CORE": 0,
    "RLIMIT_STACK": 64 << 20,
    "RLIMIT_MEMLOCK": 0,
    "RLIMIT_MSGQUEUE": 0,
}

# What solutions import; loaded once so that a child finds it there.
STANDARD = (
    "abc argparse array ast base64 binascii bisect bz2 calendar cmath codecs collections"
    " collections.abc contextlib copy csv ctypes dataclasses datetime decimal difflib enum"
    " fractions functools gzip"
    " hashlib heapq hmac html inspect io itertools json keyword locale logging lzma math numbers"
    " operator os pathlib pickle pprint queue random re secrets shlex shutil signal sqlite3"
    " statistics string struct sys tempfile textwrap threading time timeit traceback types typing"
    " unicodedata unittest unittest.mock urllib.parse uuid warnings weakref xml.etree.ElementTree"
    " zlib zoneinfo encodings.idna encodings.latin_1 encodings.ascii encodings.utf_16"
)


def main() -> None:
    """Boots from the first packet, then serves until the parent is gone."""
    control = socket.socket(fileno=0)
    for each in (COMMAND_FD, REPLY_FD):  # so that no descriptor received later has their numbers
        os.dup2(0, each, inheritable=False)
    settings = json.loads(control.recv(PACKET))
    try:
        zygote = Zygote(control, settings)
    except Exception as error:  # noqa: BLE001 (told to the parent, which raises it)
        control.send(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        return
    zygote.serve()


class Zygote:
    """Forks children and tells how each ended."""

    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        self._control = control
        self._libc = c_library()
        self._children: dict[int, int] = {}
        for name in STANDARD.split():
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        if settings["site"]:
            sys.path.append(settings["site"])
        for name in settings["packages"]:
            importlib.import_module(name)
        atexit._clear()
        settle()
        self._filters = _prepared_filters() if settings["seccomp"] else {}
        readable = settings["readable"]
        if settings["landlock_optional"] and abi(self._libc) < 1:
            readable = None
        landlock = confine_zygote(self._libc, readable)
        if not self._filters:
            adopt_orphans(self._libc)
        set_limits(LIMITS)
        self._base = address_space()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        gc.collect()
        gc.freeze()
        self._send({"ready": True, "landlock": landlock, "base": self._base})

    def _send(self, message: dict[str, Any]) -> None:
        self._control.send(json.dumps(message).encode())

    def serve(self) -> None:
        """Until the parent's end of the socket closes."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor != self._control.fileno():
                    poll.unregister(descriptor)
                    self._reap(descriptor)
                elif not self._request(poll):
                    return

    def _request(self, poll: select.poll) -> bool:
        raw, descriptors, _, _ = socket.recv_fds(self._control, PACKET, 5)
        if not raw:
            for child in self._children.values():
                os.kill(child, signal.SIGKILL)
            self._children.clear()
            if not self._filters:
                self._end_strays()
            return False
        try:
            child = self._fork(json.loads(raw), descriptors)
        except OSError as error:
            self._send({"error": f"fork: {error}"})
            return True
        finally:
            for each in descriptors:
                os.close(each)
        pidfd = os.pidfd_open(child)
        self._children[pidfd] = child
        poll.register(pidfd, select.POLLIN)
        socket.send_fds(self._control, [json.dumps({"child": child}).encode()], [pidfd])
        return True

    def _reap(self, pidfd: int) -> None:
        child = self._children.pop(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(child, 0)
        if not self._filters:
            self._end_strays()
        self._send({"ended": child, "status": status})

    def _end_strays(self) -> None:
        """Ends what unconfined children started, in whatever group or session it went.

        An orphan is the zygote's own, and so are its children once it is killed.
        """
        until = time.monotonic() + STRAYS
        while time.monotonic() < until:
            strays = set(children_of(os.getpid())) - set(self._children.values())
            if not strays:
                return
            for each in strays:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(each, signal.SIGKILL)
            for each in strays:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(each, os.WNOHANG)

    def _fork(self, request: dict[str, Any], descriptors: list[int]) -> int:
        parent = os.getpid()
        child = os.fork()
        if child:
            return child
        try:
            die_with_parent(self._libc, parent)
            if not self._filters:
                os.setsid()  # out of reach of a signal to the zygote's whole group
            self._become(request, descriptors)
        finally:
            leave(70)
        return 0

    def _become(self, request: dict[str, Any], descriptors: list[int]) -> None:
        take_descriptors(descriptors)
        set_limits(
            {"RLIMIT_AS": self._base + request["memory"], "RLIMIT_CPU": request["processor"]}
        )
        settle_child(request["threads"])
        if self._filters:
            seccomp.install(self._libc, self._filters[request["threads"]][0])
        gc.enable()
        write_frame(["confined"])
        job = read_frame()
        role = request["role"]
        if role == "stdio":
            leave(run_program(job))
        (serve if role == "calls" else run_tests)(job)
        leave(0)


def _prepared_filters() -> dict[bool, Any]:
    machine = platform.machine()
    return {
        threads: seccomp.prepare(seccomp.program(machine, threads=threads))
        for threads in (False, True)
    }
