"""The system calls that a child may make, as a classic BPF program.

An allow-list: everything else is refused with EPERM (clone3 with ENOSYS, so that libc falls back to
clone, whose flags can be read). A call about a file answers that nothing is there, and the process
ids are 0: times of access, inode numbers and process ids would show a run what earlier ones did.
Only the x86-64 numbers have been executed, the arm64 ones are checked in a BPF interpreter in the
tests. Numbers: the kernel's `asm/unistd_64.h` and `asm-generic/unistd.h`; program layout:
`linux/seccomp.h`, `linux/filter.h`.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable

ALLOW = 0x7FFF0000
KILL = 0x80000000
EPERM = 0x00050001
ENOENT = 0x00050002
ENOSYS = 0x00050026
ZERO = 0x00050000
"""The call returns 0 and does nothing."""

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

Numbers = tuple[int, int | None]


def _table(text: str) -> dict[str, Numbers]:
    """Calls by name, with their x86-64 and arm64 numbers; "-" where arm64 has no such call."""
    rows = (row.split() for row in text.split(";"))
    return {name: (int(x86), None if arm == "-" else int(arm)) for name, x86, arm in rows}


PLAIN = _table("""
    read 0 63; write 1 64; mmap 9 222; munmap 11 215; brk 12 214; lseek 8 62; close 3 57;
    rt_sigaction 13 134; rt_sigprocmask 14 135; mprotect 10 226; mremap 25 216;
    getrandom 318 278; readv 19 65; writev 20 66; pread64 17 67; getcwd 79 17;
    rt_sigreturn 15 139; sigaltstack 131 132; set_robust_list 273 99; rseq 334 293;
    sched_yield 24 124; getuid 102 174; geteuid 107 175; getgid 104 176; getegid 108 177;
    getrusage 98 165; getrlimit 97 163; nanosleep 35 101; gettimeofday 96 169; time 201 -;
    times 100 153; exit 60 93; exit_group 231 94; uname 63 160; dup 32 23; dup2 33 -;
    dup3 292 24; pipe 22 -; pipe2 293 59; poll 7 -; ppoll 271 73; select 23 -; pselect6 270 72;
    setitimer 38 103; alarm 37 -; restart_syscall 219 128; close_range 436 436
""")
PATHS = _table("""
    fstat 5 80; newfstatat 262 79; stat 4 -; lstat 6 -; statx 332 291; readlink 89 -;
    readlinkat 267 78; getdents64 217 61; access 21 -; faccessat 269 48; faccessat2 439 439
""")
PROCESS_IDS = _table("getpid 39 172; getppid 110 173; gettid 186 178")
CLOCKS = _table("clock_gettime 228 113; clock_getres 229 114; clock_nanosleep 230 115")
OPEN, OPENAT = (2, None), (257, 56)
IOCTL, FCNTL, PRLIMIT64, MADVISE = (16, 29), (72, 25), (302, 261), (28, 233)
FUTEX, SCHED_GETAFFINITY, CLONE3 = (202, 98), (204, 123), (435, 435)

WRITE_FLAGS = 0x3 | 0x40 | 0x200 | 0x400000
"""open(2): write access, O_CREAT, O_TRUNC, O_TMPFILE; the same bits on both architectures."""
IOCTL_ALLOWED = (0x5401, 0x5421, 0x5450, 0x5451)
"""TCGETS (isatty), FIONBIO, FIONCLEX, FIOCLEX."""
FCNTL_ALLOWED = (0, 1, 2, 3, 4, 1030)
"""F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC."""
MADVISE_ALLOWED = (4, 8, 14, 15)
"""MADV_DONTNEED, FREE, HUGEPAGE, NOHUGEPAGE: none reaches the page cache."""
_PRIVATE, _REALTIME = 128, 256
FUTEX_ALLOWED = tuple(
    operation | flags | _PRIVATE
    for operation in (0, 1, 3, 4, 5, 9, 10)  # WAIT, WAKE, REQUEUE, ... without the PI ones
    for flags in (0, _REALTIME)
)
"""FUTEX_LOCK_PI and its like would write the thread's id into memory; a futex that is not private,
on a page of a library, could be waited for by one run and woken by another."""
OTHER_CLOCKS = 0x80000000
"""The bit of a clock id that stands for the processor time of another process."""

X32_BIT = 0x40000000

_LD_ABS, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_NR, _ARCH = 0, 4

Instruction = tuple[int, int, int, int]
"""code, jump if true, jump if false, constant."""
_PASS: Instruction = (_RET, 0, 0, ALLOW)
_REFUSED: Instruction = (_RET, 0, 0, EPERM)
_NOTHING_THERE: Instruction = (_RET, 0, 0, ENOENT)


def program(machine: str, files: bool = False) -> list[Instruction]:
    """The filter for `machine` ("x86_64" or "aarch64").

    `files` lets files be looked up and opened for reading, as far as Landlock lets them. Each check
    is self-contained: it returns or falls through with the call's number still loaded. `ValueError`
    for another machine.
    """
    if machine not in AUDIT_ARCH:
        raise ValueError(f"no system-call table for {machine!r}; there is x86_64 and aarch64")
    column = 0 if machine == "x86_64" else 1
    code: list[Instruction] = [
        (_LD_ABS, 0, 0, _ARCH),
        (_JEQ, 1, 0, AUDIT_ARCH[machine]),
        (_RET, 0, 0, KILL),
        (_LD_ABS, 0, 0, _NR),
    ]
    if machine == "x86_64":
        code += [(_JGE, 0, 1, X32_BIT), _REFUSED]
    if files:
        reading = [_without_bits(argument, WRITE_FLAGS) for argument in (1, 2)]
    else:
        reading = [[_NOTHING_THERE]] * 2
    rules: list[tuple[Iterable[Numbers], list[Instruction]]] = [
        (PLAIN.values(), [_PASS]),
        (PROCESS_IDS.values(), [(_RET, 0, 0, ZERO)]),
        (CLOCKS.values(), _without_bits(0, OTHER_CLOCKS)),
        (PATHS.values(), [_PASS if files else _NOTHING_THERE]),
        ([OPEN], reading[0]),
        ([OPENAT], reading[1]),
        ([MADVISE], _one_of(2, MADVISE_ALLOWED)),
        ([IOCTL], _one_of(1, IOCTL_ALLOWED)),
        ([FCNTL], _one_of(1, FCNTL_ALLOWED)),
        ([FUTEX], _one_of(1, FUTEX_ALLOWED)),
        ([SCHED_GETAFFINITY], _one_of(0, (0,))),
        ([PRLIMIT64], _own_limits()),
        ([CLONE3], [(_RET, 0, 0, ENOSYS)]),
    ]
    for calls, body in rules:
        for numbers in calls:
            if (number := numbers[column]) is not None:
                code += [(_JEQ, 0, len(body), number), *body]
    return [*code, _REFUSED]


def _low(argument: int) -> Instruction:
    return (_LD_ABS, 0, 0, 16 + 8 * argument)


def _high(argument: int) -> Instruction:
    return (_LD_ABS, 0, 0, 20 + 8 * argument)


def _without_bits(argument: int, bits: int) -> list[Instruction]:
    return [_low(argument), (_JSET, 0, 1, bits), _REFUSED, _PASS]


def _one_of(argument: int, values: tuple[int, ...]) -> list[Instruction]:
    body = [_low(argument)]
    for value in values:
        body += [(_JEQ, 0, 1, value), _PASS]
    return [*body, _REFUSED]


def _own_limits() -> list[Instruction]:
    """prlimit64 of this process (pid 0) with no new limit: reading only."""
    body: list[Instruction] = []
    for load in (_low(0), _low(2), _high(2)):
        body += [load, (_JEQ, 1, 0, 0), _REFUSED]
    return [*body, _PASS]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def packed(code: list[Instruction]) -> bytes:
    """The program as the kernel reads it."""
    return b"".join(struct.pack("=HBBI", *each) for each in code)


def prepare(code: list[Instruction]) -> tuple[_Program, ctypes.Array[ctypes.c_char]]:
    """The argument of `install`, made once; keep both alive."""
    raw = packed(code)
    memory = ctypes.create_string_buffer(raw, len(raw))
    return _Program(len(code), ctypes.addressof(memory)), memory


def install(libc: ctypes.CDLL, prepared: _Program) -> None:
    """Puts the filter on this process for good; it must already have no_new_privs. `OSError`."""
    if libc.prctl(22, 2, ctypes.byref(prepared), 0, 0) != 0:  # PR_SET_SECCOMP, MODE_FILTER
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_SECCOMP)")
