"""The system-call filters: the x86-64 one is also executed by every other test of this folder; the
arm64 one is NOT executed anywhere, only checked here in a BPF interpreter."""

import pytest
from bpf import run

from groupwise.sandbox.guest import seccomp
from groupwise.sandbox.guest.seccomp import (
    ALLOW,
    AUDIT_ARCH,
    CLOCKS,
    ENOENT,
    ENOSYS,
    EPERM,
    KILL,
    PATHS,
    PLAIN,
    PROCESS_IDS,
    ZERO,
    program,
)

MACHINES = ["x86_64", "aarch64"]
# From the kernel's tables, written down apart from the module's own: (x86-64, arm64).
FORBIDDEN = {
    "socket": (41, 198),
    "connect": (42, 203),
    "sendto": (44, 206),
    "sendmsg": (46, 211),
    "socketpair": (53, 199),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "prctl": (157, 167),
    "seccomp": (317, 277),
    "setrlimit": (160, 164),
    "mount": (165, 40),
    "umount2": (166, 39),
    "chroot": (161, 51),
    "pivot_root": (155, 41),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "shmget": (29, 194),
    "memfd_create": (319, 279),
    "openat2": (437, 437),
    "open_by_handle_at": (304, 265),
    "unlinkat": (263, 35),
    "renameat2": (316, 276),
    "mkdirat": (258, 34),
    "fchmodat": (268, 53),
    "fchownat": (260, 54),
    "truncate": (76, 45),
    "setuid": (105, 146),
    "capset": (126, 91),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "reboot": (169, 142),
    "modify_ldt": (154, None),
    "personality": (135, 92),
    "landlock_create_ruleset": (444, 444),
    "mlock": (149, 228),
    "inotify_init1": (294, 26),
    "sched_setaffinity": (203, 122),
    "setpriority": (141, 140),
    "flock": (73, 32),
    "sysinfo": (99, 179),
    "umask": (95, 166),
    "chdir": (80, 49),
    "timer_create": (222, 107),
    "timerfd_create": (283, 85),
    "eventfd2": (290, 19),
    "epoll_create1": (291, 20),
    "signalfd4": (289, 74),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "ioprio_set": (251, 30),
    "sched_setscheduler": (144, 119),
    "utimensat": (280, 88),
    "mincore": (27, 232),
    "msync": (26, 227),
    "membarrier": (324, 283),
    "fadvise64": (221, 223),
    "readahead": (187, 213),
    "getpgid": (121, 155),
    "getsid": (124, 156),
    "set_tid_address": (218, 96),
    "wait4": (61, 260),
    "statfs": (137, 43),
}


@pytest.fixture(params=MACHINES)
def machine(request):
    return request.param


def number_of(name, machine):
    everything = {
        **PLAIN,
        **PATHS,
        **PROCESS_IDS,
        **CLOCKS,
        **FORBIDDEN,
        "madvise": seccomp.MADVISE,
        "futex": seccomp.FUTEX,
        "sched_getaffinity": seccomp.SCHED_GETAFFINITY,
        "open": seccomp.OPEN,
        "openat": seccomp.OPENAT,
        "ioctl": seccomp.IOCTL,
        "fcntl": seccomp.FCNTL,
        "prlimit64": seccomp.PRLIMIT64,
        "clone": (56, 220),
        "clone3": seccomp.CLONE3,
    }
    return everything[name][MACHINES.index(machine)]


def verdict(machine, name, *arguments, **options):
    code = program(machine, **options)
    return run(code, AUDIT_ARCH[machine], number_of(name, machine), arguments)


def test_known_numbers():
    # asm/unistd_64.h and asm-generic/unistd.h.
    names = ("read", "mmap", "exit_group", "statx", "getpid", "clock_gettime")
    assert [number_of(name, "x86_64") for name in names] == [0, 9, 231, 332, 39, 228]
    assert [number_of(name, "aarch64") for name in names] == [63, 222, 94, 291, 172, 113]


def test_only_listed_calls_pass(machine):
    code, arch = program(machine), AUDIT_ARCH[machine]
    expected = {number_of(name, machine): ALLOW for name in (*PLAIN, *CLOCKS)}
    expected |= {number_of(name, machine): ENOENT for name in (*PATHS, "open", "openat")}
    expected |= {number_of(name, machine): ZERO for name in PROCESS_IDS}
    expected |= {number_of("clone3", machine): ENOSYS, number_of("fcntl", machine): ALLOW}
    for name in ("prlimit64", "sched_getaffinity"):
        expected[number_of(name, machine)] = ALLOW
    for number in range(600):
        assert run(code, arch, number) == expected.get(number, EPERM), number


@pytest.mark.parametrize("name", FORBIDDEN)
def test_forbidden_calls(machine, name):
    if number_of(name, machine) is not None:
        assert verdict(machine, name) == EPERM


def test_another_architecture_is_killed(machine):
    other = AUDIT_ARCH[MACHINES[1 - MACHINES.index(machine)]]
    assert run(program(machine), other, number_of("read", machine)) == KILL
    assert run(program(machine), 0x40000003, 3) == KILL  # i386


def test_the_x32_calls_are_refused():
    assert run(program("x86_64"), AUDIT_ARCH["x86_64"], 0x40000000) == EPERM
    assert run(program("x86_64"), AUDIT_ARCH["x86_64"], 0x40000000 + 520) == EPERM


def test_no_path_can_be_looked_up_unless_files_are_allowed(machine):
    for name in ("newfstatat", "statx", "readlinkat", "faccessat2", "getdents64", "fstat"):
        assert verdict(machine, name, -100, 1, 0x1000, 0x1000) == ENOENT
        assert verdict(machine, name, -100, 1, files=True) == ALLOW
    assert verdict(machine, "openat", -100, 1, 0) == ENOENT


def test_files_open_for_reading_only(machine):
    assert verdict(machine, "openat", -100, 1, 0, files=True) == ALLOW
    assert verdict(machine, "openat", -100, 1, 0x80000, files=True) == ALLOW  # O_CLOEXEC
    for flags in (1, 2, 3, 0x40, 0x241, 0x200, 0x410002):
        assert verdict(machine, "openat", -100, 1, flags, files=True) == EPERM
    if machine == "x86_64":
        assert verdict(machine, "open", 1, 0, files=True) == ALLOW
        assert verdict(machine, "open", 1, 1, files=True) == EPERM


def test_no_call_tells_a_process_id(machine):
    # private WAIT, WAKE and WAIT_BITSET; the same and LOCK_PI not private; LOCK_PI, UNLOCK_PI
    for operation in (128, 129, 393):
        assert verdict(machine, "futex", 4096, operation) == ALLOW
    for operation in (0, 1, 9, 6, 134, 135, 141):
        assert verdict(machine, "futex", 4096, operation) == EPERM
    assert verdict(machine, "sched_getaffinity", 0, 128) == ALLOW
    assert verdict(machine, "sched_getaffinity", 1, 128) == EPERM


def test_clocks_of_other_processes_and_pages_of_files_stay_out_of_reach(machine):
    for name in CLOCKS:
        assert verdict(machine, name, 3) == ALLOW
        assert verdict(machine, name, ~1234 << 3 | 2) == EPERM  # processor time of process 1234
    for advice, expected in ((4, ALLOW), (14, ALLOW), (21, EPERM), (20, EPERM), (9, EPERM)):
        assert verdict(machine, "madvise", 0, 4096, advice) == expected


def test_ioctl_and_fcntl_by_command(machine):
    assert verdict(machine, "ioctl", 0, 0x5401) == ALLOW  # TCGETS
    assert verdict(machine, "ioctl", 0, 0x5412) == EPERM  # TIOCSTI
    assert verdict(machine, "ioctl", 0, 0x5401 | 1 << 40) == ALLOW  # the kernel reads 32 bits
    assert verdict(machine, "fcntl", 0, 3) == ALLOW
    # F_SETLK, F_SETOWN, F_SETSIG, F_OFD_SETLK, F_SETLEASE, F_NOTIFY, F_SETPIPE_SZ, F_ADD_SEALS,
    # F_SET_RW_HINT
    for command in (6, 8, 10, 37, 1024, 1026, 1031, 1033, 1036):
        assert verdict(machine, "fcntl", 0, command) == EPERM


def test_limits_can_be_read_and_not_set(machine):
    assert verdict(machine, "prlimit64", 0, 7, 0, 0x7FFF00000000) == ALLOW
    assert verdict(machine, "prlimit64", 0, 7, 0x7FFF00000000, 0) == EPERM
    assert verdict(machine, "prlimit64", 0, 7, 1, 0) == EPERM
    assert verdict(machine, "prlimit64", 123, 7, 0, 0x1000) == EPERM


def test_no_process_and_no_thread_is_made(machine):
    for flags in (0x3D0F00, 0x11, 0x4111, 0x10000000):
        assert verdict(machine, "clone", flags) == EPERM
    assert verdict(machine, "clone3") == ENOSYS


def test_jumps_fit_and_every_path_ends(machine):
    code = program(machine)
    for place, (operation, true, false, _) in enumerate(code):
        assert 0 <= true < 256
        assert 0 <= false < 256
        if operation not in (0x20, 0x06):
            assert place + 1 + max(true, false) < len(code)
    assert code[-1] == (0x06, 0, 0, EPERM)
    assert len(seccomp.packed(code)) == 8 * len(code) < 8 * 4096


def test_a_machine_without_a_table_is_refused():
    with pytest.raises(ValueError, match="riscv64"):
        program("riscv64")
