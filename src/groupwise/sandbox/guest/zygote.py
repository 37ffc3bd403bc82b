"""The warm process that every graded run is forked from.

It is a fresh interpreter that has imported the standard library and given up its privileges; it
holds no tests, no weights and no environment. It is two processes. The *template* does nothing but
copy itself: a packet from the parent asks for one child and carries its five descriptors, the
answer carries the child's pidfd, with which the parent keeps the clock and the kill. What a child
inherits is the template's memory. The *supervisor* is the children's parent in the kernel's eyes,
and the only one who learns how they ended: so no child can find in its memory what an earlier one
did. When the parent's end closes, the supervisor kills its children and ends.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import itertools
import json
import operator
import os
import platform
import random
import select
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from . import modules, seccomp
from .confinement import (
    address_space,
    c_library,
    confine_zygote,
    die_with_parent,
    landlock_version,
    set_limits,
    take_descriptors,
)
from .frames import COMMAND_FD, NAME, REPLY_FD, read_frame, write_frame
from .solution import run_program, serve, settle
from .tester import run_tests

PACKET = 1 << 16

_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE_PIDFD, _CLONE_PARENT = 0x1000, 0x8000
_CLOSE_RANGE = 436
_HEADER = 16
"""Bytes before the descriptors in a control message."""

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
    " zlib zoneinfo asyncio cProfile grp multiprocessing.shared_memory resource termios"
    " encodings.idna encodings.latin_1 encodings.ascii encodings.utf_16 audioop"
    " _multibytecodec _codecs_cn _codecs_hk _codecs_iso2022 _codecs_jp _codecs_kr _codecs_tw"
)


def main() -> None:
    """Boots from the first packet, then serves until the parent is gone."""
    control = socket.socket(fileno=0)
    _occupy_places(control)
    packet, received, _, _ = socket.recv_fds(control, PACKET, 1)
    settings = json.loads(packet)
    requests = socket.socket(fileno=received[0])
    births, reports = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        ready = _boot(settings)
        supervisor = os.getpid()
        template = os.fork()
        if template == 0:
            births.close()
            _occupy_places(requests)
            Template(requests, reports, supervisor, ready).serve()
        reports.close()
        requests.close()
        pidfds = [os.pidfd_open(supervisor), os.pidfd_open(template)]
        socket.send_fds(control, [_packed(ready)], pidfds)
    except Exception as error:  # noqa: BLE001 (sent to the parent, which raises it)
        control.send(_packed({"error": f"{type(error).__name__}: {error}"}))
        return
    Supervisor(control, births).serve()
    os._exit(0)


def _occupy_places(own: socket.socket) -> None:
    """So that no descriptor received later has a number at which a child expects its own."""
    for each in {0, COMMAND_FD, REPLY_FD} - {own.fileno()}:
        os.dup2(own.fileno(), each, inheritable=False)


def _packed(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode()


def _boot(settings: dict[str, Any]) -> dict[str, Any]:
    """Imports what solutions use, then gives up every privilege."""
    libc = c_library()
    for name in STANDARD.split():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if settings["site"]:
        sys.path.append(settings["site"])
    for name in settings["packages"]:
        importlib.import_module(name)
    modules.keep(settings["paths"])
    atexit._clear()
    readable = settings["paths"]
    if settings["landlock_optional"] and landlock_version(libc) < 1:
        readable = None
    landlock = confine_zygote(libc, readable)
    set_limits(LIMITS)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    settle()
    gc.collect()
    gc.freeze()
    return {"landlock": landlock, "base": address_space()}


def _rights(number: int) -> Any:
    """A control message of recvmsg(2) and sendmsg(2) with `number` descriptors, all 0."""
    size = _HEADER + 4 * number
    kind = (socket.SOL_SOCKET, socket.SCM_RIGHTS)
    return ctypes.create_string_buffer(struct.pack("@Nii", size, *kind), (size + 7) // 8 * 8)


def _message(text: Any, control: Any, size: int = 0) -> Any:
    """A `struct msghdr` for `size` bytes of a buffer, or all of it; the buffers must stay."""
    part = ctypes.create_string_buffer(
        struct.pack("@PN", ctypes.addressof(text), size or len(text))
    )
    places = (ctypes.addressof(part), 1, ctypes.addressof(control), len(control))
    made: Any = ctypes.create_string_buffer(struct.pack("@PIPNPNi", 0, 0, *places, 0))
    made.kept = part, text, control
    return made


class Supervisor:
    """The parent of every child: reports how each one ended."""

    def __init__(self, control: socket.socket, births: socket.socket) -> None:
        self._control = control
        self._births = births
        self._children: dict[int, str] = {}

    def serve(self) -> None:
        """Until the parent's end of the socket closes, or the template is gone."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._births, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor in self._children:
                    poll.unregister(descriptor)
                    self._reap(descriptor)
                    continue
                name, pidfds = b"", list[int]()
                if descriptor == self._births.fileno():
                    name, pidfds, _, _ = socket.recv_fds(self._births, PACKET, 1)
                if not pidfds:
                    self._end()
                    return
                self._children[pidfds[0]] = name.decode()
                poll.register(pidfds[0], select.POLLIN)

    def _end(self) -> None:
        for pidfd in self._children:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        self._children.clear()
        self._births.close()
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()

    def _reap(self, pidfd: int) -> None:
        name = self._children.pop(pidfd)
        ended = os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
        os.close(pidfd)
        assert ended is not None
        code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        self._control.send(_packed({"ended": name, "code": code}))


class Template:
    """Copies itself for each request; the copy becomes the child.

    Its memory is what every child inherits. So from one request to the next it executes no Python,
    but the same C functions on the same buffers: addresses, reference counts, versions of dicts and
    counters in bytecode would show a child how many were started before it.
    """

    def __init__(
        self, requests: socket.socket, births: socket.socket, supervisor: int, ready: dict[str, Any]
    ) -> None:
        self._requests = requests
        self._supervisor = supervisor
        self._base = ready["base"]
        self._libc = c_library()
        die_with_parent(self._libc, supervisor)
        self._filters = [
            seccomp.prepare(seccomp.program(platform.machine(), files)) for files in (False, True)
        ]
        self._request = ctypes.create_string_buffer(PACKET)
        self._received, pidfd = _rights(5), _rights(1)
        self._pidfd = ctypes.c_int.from_buffer(pidfd, _HEADER)
        forked = ctypes.create_string_buffer(b"forked", 6)
        first = max(requests.fileno(), births.fileno()) + 2
        while os.dup(0) < first - 1:  # so that what is received has the numbers from `first` on
            pass
        names = ("syscall", "syscall", "recvmsg", "sendmsg", "memcmp", "memset")
        clone, close_range, receive, send, compare, clear = (c_library()[name] for name in names)
        receive.restype = send.restype = (1).__gt__  # whether it failed, or the parent is gone
        clone.restype = close_range.restype = clear.restype = None  # no process id as an object
        compare.restype = (0).__eq__
        place = ctypes.byref(self._pidfd)
        flags = _CLONE_PIDFD | _CLONE_PARENT | signal.SIGCHLD
        self._round = (
            partial(receive, requests.fileno(), _message(self._request, self._received), 0),
            partial(clone, _CLONE[platform.machine()], flags, None, place, None, None),
            partial(compare, place, bytes(4), 4),  # 0 in the child
            partial(send, births.fileno(), _message(self._request, pidfd, NAME), 0),
            partial(send, requests.fileno(), _message(forked, pidfd), 0),
            partial(close_range, _CLOSE_RANGE, first, 4096, 0),
            partial(clear, place, 0, 4),
            partial(clear, self._request, 0, PACKET),
        )
        for hook in ("PyOS_BeforeFork", "PyOS_AfterFork_Child"):
            getattr(ctypes.pythonapi, hook).restype = None

    def serve(self) -> None:
        """Until the parent's end of the socket closes. Never returns."""
        try:
            ctypes.set_errno(0)
            any(map(operator.call, itertools.chain.from_iterable(itertools.repeat(self._round))))
            if ctypes.get_errno():
                self._requests.send(os.strerror(ctypes.get_errno()).encode())
            elif self._request.value:  # not the end of the socket, so this is the child
                descriptors = struct.unpack_from("5i", self._received, _HEADER)
                self._become(json.loads(self._request.value[NAME:]), descriptors)
        finally:
            os._exit(70)

    def _become(self, request: dict[str, Any], descriptors: Sequence[int]) -> None:
        die_with_parent(self._libc, self._supervisor)
        take_descriptors(descriptors)
        set_limits(
            {"RLIMIT_AS": self._base + request["memory"], "RLIMIT_CPU": request["processor"]}
        )
        prepared, _ = self._filters[request["files"]]
        seccomp.install(self._libc, prepared)
        ctypes.pythonapi.PyOS_BeforeFork()
        ctypes.pythonapi.PyOS_AfterFork_Child()  # behind the filter, so that its thread id is 0
        random.seed(0)  # in each child the same numbers: a fork reseeds them
        gc.enable()
        write_frame(["confined"])
        job = read_frame()
        role = request["role"]
        if role == "stdio":
            os._exit(run_program(job))
        (serve if role == "calls" else run_tests)(job)
        os._exit(0)
