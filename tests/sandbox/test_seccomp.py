"""The system-call filters: the x86-64 one is also executed by every other test of this folder; the
arm64 one is NOT executed anywhere, only checked here in a BPF interpreter."""

import pytest
from bpf import run

from groupwise.sandbox.guest import seccomp
from groupwise.sandbox.guest.seccomp import ALLOW, AUDIT_ARCH, ENOSYS, EPERM, KILL, PLAIN, program

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
}


@pytest.fixture(params=MACHINES)
def machine(request):
    return request.param


def number_of(name, machine):
    everything = {
        **PLAIN,
        **FORBIDDEN,
        "open": seccomp.OPEN,
        "openat": seccomp.OPENAT,
        "ioctl": seccomp.IOCTL,
        "fcntl": seccomp.FCNTL,
        "prlimit64": seccomp.PRLIMIT64,
        "clone": seccomp.CLONE,
        "clone3": seccomp.CLONE3,
    }
    return everything[name][MACHINES.index(machine)]


def verdict(machine, name, *arguments, threads=False):
    code = program(machine, threads=threads)
    return run(code, AUDIT_ARCH[machine], number_of(name, machine), arguments)


def test_known_numbers():
    # asm/unistd_64.h and asm-generic/unistd.h.
    assert [number_of(name, "x86_64") for name in ("read", "mmap", "exit_group", "statx")] == [
        0,
        9,
        231,
        332,
    ]
    assert [number_of(name, "aarch64") for name in ("read", "mmap", "exit_group", "statx")] == [
        63,
        222,
        94,
        291,
    ]


def test_only_listed_calls_pass(machine):
    code, arch = program(machine), AUDIT_ARCH[machine]
    column = MACHINES.index(machine)
    listed = {numbers[column] for numbers in PLAIN.values()}
    read_only = {"open": (0, 0, 0), "openat": (0, 0, 0), "ioctl": (0, 0x5401), "fcntl": (0, 1)}
    special = {number_of(name, machine) for name in (*read_only, "prlimit64", "clone3")}
    for number in range(600):
        if number in special:
            continue
        expected = ALLOW if number in listed else EPERM
        assert run(code, arch, number) == expected, number


@pytest.mark.parametrize("name", FORBIDDEN)
def test_forbidden_calls(machine, name):
    if number_of(name, machine) is not None:
        assert verdict(machine, name) == EPERM
        assert verdict(machine, name, threads=True) == EPERM


def test_another_architecture_is_killed(machine):
    other = AUDIT_ARCH[MACHINES[1 - MACHINES.index(machine)]]
    assert run(program(machine), other, number_of("read", machine)) == KILL
    assert run(program(machine), 0x40000003, 3) == KILL  # i386


def test_the_x32_calls_are_refused():
    assert run(program("x86_64"), AUDIT_ARCH["x86_64"], 0x40000000) == EPERM
    assert run(program("x86_64"), AUDIT_ARCH["x86_64"], 0x40000000 + 520) == EPERM


def test_files_open_for_reading_only(machine):
    assert verdict(machine, "openat", -100, 1, 0) == ALLOW
    assert verdict(machine, "openat", -100, 1, 0x80000) == ALLOW  # O_CLOEXEC
    for flags in (1, 2, 3, 0x40, 0x241, 0x200, 0x410002):
        assert verdict(machine, "openat", -100, 1, flags) == EPERM
    if machine == "x86_64":
        assert verdict(machine, "open", 1, 0) == ALLOW
        assert verdict(machine, "open", 1, 1) == EPERM


def test_ioctl_and_fcntl_by_command(machine):
    assert verdict(machine, "ioctl", 0, 0x5401) == ALLOW  # TCGETS
    assert verdict(machine, "ioctl", 0, 0x5412) == EPERM  # TIOCSTI
    assert verdict(machine, "ioctl", 0, 0x5401 | 1 << 40) == ALLOW  # the kernel reads 32 bits
    assert verdict(machine, "fcntl", 0, 3) == ALLOW
    assert verdict(machine, "fcntl", 0, 8) == EPERM  # F_SETOWN
    assert verdict(machine, "fcntl", 0, 1031) == EPERM  # F_SETPIPE_SZ


def test_limits_can_be_read_and_not_set(machine):
    assert verdict(machine, "prlimit64", 0, 7, 0, 0x7FFF00000000) == ALLOW
    assert verdict(machine, "prlimit64", 0, 7, 0x7FFF00000000, 0) == EPERM
    assert verdict(machine, "prlimit64", 0, 7, 1, 0) == EPERM
    assert verdict(machine, "prlimit64", 123, 7, 0, 0x1000) == EPERM


def test_threads_only_where_allowed_and_no_other_clone(machine):
    assert verdict(machine, "clone", 0x3D0F00) == EPERM
    assert verdict(machine, "clone", 0x3D0F00, threads=True) == ALLOW
    for flags in (0x11, 0x4111, 0x10000000, 0x3D0F00 | 0x40000000):
        assert verdict(machine, "clone", flags, threads=True) == EPERM
    assert verdict(machine, "clone3") == ENOSYS


def test_jumps_fit_and_every_path_ends(machine):
    code = program(machine, threads=True)
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
