"""What a process gives up: privileges and files in the zygote, everything else in each child.

Linux only, by ctypes on the C library; every call that fails raises `OSError`, and the child ends.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
import struct
from collections.abc import Mapping, Sequence

from .landlock import restrict

_PDEATHSIG, _DUMPABLE, _CHILD_SUBREAPER, _NO_NEW_PRIVS = 1, 4, 36, 38
_CAPABILITY_VERSION_3 = 0x20080522


def c_library() -> ctypes.CDLL:
    """The C library, with errno kept."""
    return ctypes.CDLL(None, use_errno=True)


def prctl(libc: ctypes.CDLL, option: int, value: int) -> None:
    """One prctl(2) call."""
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def confine_zygote(libc: ctypes.CDLL, readable: Sequence[str] | None) -> int:
    """No new privileges, no core or ptrace by others, no capabilities, Landlock.

    `readable` None leaves Landlock out. Returns its ABI version, 0 without it.
    """
    prctl(libc, _NO_NEW_PRIVS, 1)
    prctl(libc, _DUMPABLE, 0)
    version = 0 if readable is None else restrict(libc, readable)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    if libc.capset(header, bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), "capset")
    return version


def die_with_parent(libc: ctypes.CDLL, parent: int) -> None:
    """SIGKILL when the zygote ends, also where it ended just now."""
    prctl(libc, _PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def adopt_orphans(libc: ctypes.CDLL) -> None:
    """From here on the descendants of this process whose parent ends become its children."""
    prctl(libc, _CHILD_SUBREAPER, 1)


def children_of(parent: int) -> list[int]:
    """The process ids whose parent is `parent`, with those that ended and were not waited for."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                line = file.read()
        except OSError:  # it has ended meanwhile
            continue
        if int(line.rpartition(b")")[2].split()[1]) == parent:
            found.append(int(name))
    return found


def address_space() -> int:
    """Bytes of address space in use, found by asking the kernel at which limit a page fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    low, high = 0, 1 << 47
    try:
        while high - low > mmap.PAGESIZE:
            middle = (low + high) // 2
            resource.setrlimit(resource.RLIMIT_AS, (middle, hard))
            try:
                mmap.mmap(-1, mmap.PAGESIZE).close()
                high = middle
            except (OSError, MemoryError):
                low = middle
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return high


def set_limits(limits: Mapping[str, int]) -> None:
    """rlimits by name (`RLIMIT_AS`, ...), soft and hard; never above the hard limit in force."""
    for name, value in limits.items():
        which = getattr(resource, name)
        _, hard = resource.getrlimit(which)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))


def take_descriptors(descriptors: Sequence[int]) -> None:
    """Moves `descriptors`, all above their places, to 0, 1, 2, ... and closes every other one."""
    for index, each in enumerate(descriptors):
        os.dup2(each, index, inheritable=False)
    os.closerange(len(descriptors), 4096)
