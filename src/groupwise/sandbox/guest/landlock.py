"""Landlock by system call: which files a process may read, and that it may do nothing else to any.

`linux/landlock.h`; the three calls have the same numbers on x86-64 and arm64. Rights that the
kernel's ABI does not know are left out; what each version lacks is in docs/security.md.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
PATH_BENEATH = 1
READ_FILE, READ_DIR = 1 << 2, 1 << 3
# How many file rights each ABI version handles, and its TCP and scope masks.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
_ALL_FILE_RIGHTS = 16


def abi(libc: ctypes.CDLL) -> int:
    """The kernel's Landlock version; 0 where there is none."""
    version = libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    return max(0, int(version))


def restrict(libc: ctypes.CDLL, readable: Iterable[str]) -> int:
    """From here on this process and its children read beneath `readable` and touch no other file.

    Connecting and binding TCP (ABI 4), abstract sockets and signals to the outside (ABI 6) are
    refused too. Returns the ABI version. `OSError` where the kernel refuses.
    """
    version = abi(libc)
    if version < 1:
        raise OSError(38, "Landlock is not there")
    files = (1 << _FILE_RIGHTS.get(version, _ALL_FILE_RIGHTS)) - 1
    attributes = struct.pack("=Q", files)
    if version >= 4:
        attributes += struct.pack("=Q", 0b11)
    if version >= 6:
        attributes += struct.pack("=Q", 0b11)
    ruleset = libc.syscall(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    try:
        for path in readable:
            _allow_reading(libc, ruleset, path)
        if libc.syscall(RESTRICT_SELF, ruleset, 0) != 0:
            raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    finally:
        os.close(ruleset)
    return version


def _allow_reading(libc: ctypes.CDLL, ruleset: int, path: str) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        rights = READ_FILE | READ_DIR if os.path.isdir(path) else READ_FILE
        rule = struct.pack("=Qi", rights, descriptor)
        if libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, rule, 0) != 0:
            raise OSError(ctypes.get_errno(), f"landlock_add_rule for {path}")
    finally:
        os.close(descriptor)
