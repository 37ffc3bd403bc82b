"""What a process gives up: privileges and files in the zygote, everything else in each child.

Linux only, by ctypes on the C library; every call that fails raises `OSError`, and the child ends.
Landlock (`linux/landlock.h`): its calls have the same numbers on x86-64 and arm64. Rights that the
kernel's ABI does not know are left out; what each version lacks is in docs/security.md.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
import struct
from collections.abc import Mapping, Sequence

_PDEATHSIG, _DUMPABLE, _NO_NEW_PRIVS = 1, 4, 38
_CAPABILITY_VERSION_3 = 0x20080522
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""How many rights to files each ABI version of Landlock knows; later ones know 16."""


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


def landlock_version(libc: ctypes.CDLL) -> int:
    """The kernel's Landlock ABI; 0 where there is none."""
    return max(0, int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)))


def restrict(libc: ctypes.CDLL, readable: Sequence[str]) -> int:
    """From here on this process and its children read beneath `readable` and touch no other file.

    Connecting and binding TCP (ABI 4), abstract sockets and signals to the outside (ABI 6) are
    refused too. Returns the ABI version.
    """
    version = landlock_version(libc)
    if version < 1:
        raise OSError(38, "Landlock is not there")
    masks = [(1 << _FILE_RIGHTS.get(version, 16)) - 1]
    masks += [0b11] * ((version >= 4) + (version >= 6))
    attributes = struct.pack(f"={len(masks)}Q", *masks)
    ruleset = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    try:
        for path in filter(os.path.exists, readable):
            _allow_reading(libc, ruleset, path)
        if libc.syscall(_RESTRICT_SELF, ruleset, 0) != 0:
            raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    finally:
        os.close(ruleset)
    return version


def _allow_reading(libc: ctypes.CDLL, ruleset: int, path: str) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rights = _READ_FILE | _READ_DIR if os.path.isdir(path) else _READ_FILE
        rule = struct.pack("=Qi", rights, descriptor)
        if libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0) != 0:
            raise OSError(ctypes.get_errno(), f"landlock_add_rule for {path}")
    finally:
        os.close(descriptor)


def die_with_parent(libc: ctypes.CDLL, parent: int) -> None:
    """SIGKILL when the zygote ends, also where it ended just now."""
    prctl(libc, _PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


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
