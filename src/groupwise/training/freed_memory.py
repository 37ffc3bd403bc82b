"""What the C library does with freed memory: keep it for the next pass, or give it back at once.

A pass allocates gigabytes of activations and frees them again. glibc maps each large tensor anew,
and the system then clears it a page at a time: a third of a pass on a CPU. Kept, the same memory
serves every pass, and the process stays at its largest size; what lies unused between pieces in use
adds up over passes of different lengths, so it is trimmed now and then.
Left out: GPUs, whose memory PyTorch keeps.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

# Names and defaults of glibc's malloc.h and mallopt(3).
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_MAPPINGS, _TRIMMED = 65_536, 128 * 1024
_NEVER = 2**31 - 1


@cache
def _library() -> Any:
    """The C library, where it is glibc; else None."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    known = all(hasattr(library, name) for name in ("gnu_get_libc_version", "mallopt"))
    return library if known else None


_keeps = False
"""Whether this process keeps it now; like the C library's rule, one for the whole process."""


def keep_freed_memory() -> bool:
    """From now on freed memory stays in this process. False where the C library cannot."""
    global _keeps
    library = _library()
    _keeps = library is not None and bool(
        library.mallopt(_MMAP_MAX, 0) and library.mallopt(_TRIM_THRESHOLD, _NEVER)
    )
    return _keeps


def trim_freed_memory() -> None:
    """What was kept and is free now goes back to the system, this once."""
    if _keeps:
        _library().malloc_trim(0)


def give_back_freed_memory() -> None:
    """What was kept goes back, and glibc's own rule holds again. Nothing where nothing was kept:
    the rule may be one that the user set.
    """
    global _keeps
    if not _keeps:
        return
    trim_freed_memory()
    _library().mallopt(_MMAP_MAX, _MAPPINGS)
    _library().mallopt(_TRIM_THRESHOLD, _TRIMMED)
    _keeps = False
