"""The isolation probes: 23 things that code in the sandbox must not be able to do.

Each is a function of a context (paths, process ids, ports that the caller prepared) that returns
what it got, or raises; none harms anything where it gets through. The same source runs in the
self-test at start and in the tests, per tier. What each one showed: docs/security.md.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.sandbox.guest.values import encode
from groupwise.sandbox.results import Job, Limits
from groupwise.sandbox.runs import Ended, Solution
from groupwise.sandbox.tiers import Tier
from groupwise.sandbox.zygotes import Zygote

PROBES: tuple[str, ...] = (
    "read_file",
    "list_folder",
    "file_exists",
    "create_file",
    "change_file",
    "delete_file",
    "change_mode",
    "read_environment",
    "inherited_descriptor",
    "read_parent_memory",
    "trace_parent",
    "signal_parent",
    "signal_all",
    "fork",
    "execute",
    "tcp_socket",
    "udp_socket",
    "unix_socket",
    "new_namespace",
    "mount",
    "kernel_keys",
    "shared_memory",
    "raise_limits",
)
KNOWN_OPEN: dict[Tier, frozenset[str]] = {
    "A": frozenset(),
    "B": frozenset(),
    "unsafe": frozenset(PROBES),
}
"""What a tier is known to leave open, stated in docs/security.md."""

SOURCE = """
import ctypes, os, platform, resource, socket, stat

libc = ctypes.CDLL(None, use_errno=True)
x86 = platform.machine() == "x86_64"

def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)

def call(x86_number, arm_number, *arguments):
    number = x86_number if x86 else arm_number
    return checked(libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) for a in arguments)))

def read_file(context):
    return open(context["secret"]).read()

def list_folder(context):
    return os.listdir(os.path.dirname(context["secret"]))

def file_exists(context):
    return os.stat(context["secret"]).st_size

def create_file(context):
    for folder in (context["folder"], "/tmp", "/dev/shm", "."):
        try:
            path = os.path.join(folder, context["canary"] + ".made")
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
            os.unlink(path)
            return folder
        except OSError as error:
            last = error
    raise last

def change_file(context):
    descriptor = os.open(context["secret"], os.O_WRONLY)
    os.close(descriptor)
    return "opened for writing"

def delete_file(context):
    os.unlink(context["victim"])
    return "deleted"

def change_mode(context):
    os.chmod(context["secret"], stat.S_IMODE(context["mode"]))
    return "set to what it was"

def read_environment(context):
    found = [v for v in os.environ.values() if context["canary"] in v]
    try:
        found += [open("/proc/self/environ").read(), open(f"/proc/{context['pid']}/environ").read()]
    except OSError as error:
        if not found:
            raise
    return found

def inherited_descriptor(context):
    found = []
    for descriptor in range(5, 128):
        try:
            found.append([descriptor, os.fstat(descriptor).st_mode])
        except OSError:
            pass
    for descriptor in (0, 1, 2):
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            found.append([descriptor, "socket"])
    if not found:
        raise OSError("none")
    return found

def read_parent_memory(context):
    class Vector(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
    buffer = ctypes.create_string_buffer(8)
    local = Vector(ctypes.addressof(buffer), 8)
    remote = Vector(context["address"], 8)
    try:
        return len(open(f"/proc/{context['pid']}/mem", "rb").read(1))
    except OSError:
        pass
    for pid in (context["pid"], os.getppid()):
        if libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) >= 0:
            return pid
    raise OSError(ctypes.get_errno(), "process_vm_readv")

def trace_parent(context):
    for pid in (context["pid"], os.getppid()):
        if call(101, 117, 0x4206, pid, 0, 0) >= 0:
            return pid

def signal_parent(context):
    for pid in (context["pid"], os.getppid()):
        try:
            os.kill(pid, 0)
            return pid
        except OSError as error:
            last = error
    raise last

def signal_all(context):
    os.kill(-1, 0)
    return "reached"

def fork(context):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    return pid

def execute(context):
    try:
        os.execv("/nonexistent/program", ["program"])
    except FileNotFoundError:
        return "reached the kernel"

def tcp_socket(context):
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    return made.connect_ex(("127.0.0.1", context["port"]))

def udp_socket(context):
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    return made.sendto(b"x", ("127.0.0.1", context["port"]))

def unix_socket(context):
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    return made.connect_ex("\\0" + context["canary"])

def new_namespace(context):
    return call(272, 97, 0x10000000)

def mount(context):
    return call(165, 40, 0, 0, 0, 0, 0)

def kernel_keys(context):
    return call(250, 219, 0, -3, 1)

def shared_memory(context):
    try:
        segment = call(29, 194, 0, 4096, 0o1600)
        call(31, 195, segment, 0, 0)
        return segment
    except OSError:
        name = ctypes.create_string_buffer(b"x")
        return call(319, 279, ctypes.addressof(name), 0)

def raise_limits(context):
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (hard + (1 << 30), hard + (1 << 30)))
    return "raised"

def attempt(name, context):
    try:
        got = globals()[name](context)
    except BaseException as error:
        return ["closed", f"{type(error).__name__}: {error}"]
    return ["open", repr(got)[:200]]
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one probe got."""

    name: str
    open: bool
    evidence: str


def context_of(canary: str = "groupwise-self-test", **given: Any) -> dict[str, Any]:
    """What the probes aim at; by default things that exist on every Linux machine."""
    here = {
        "secret": "/etc/passwd",
        "mode": os.stat("/etc/passwd").st_mode,
        "victim": "/nonexistent/file",
        "folder": "/tmp",
        "canary": canary,
        "pid": os.getpid(),
        "address": 0,
        "port": 9,
    }
    return {**here, **given}


def run_probes(
    zygote: Zygote, context: Mapping[str, Any], names: Sequence[str] = PROBES
) -> list[Finding]:
    """Tries every probe in children of `zygote`; a probe that ends its child counts as closed."""
    limits = Limits(time=5.0, total_time=30.0)
    job = Job(SOURCE, ("",), limits=limits)
    solution = Solution(zygote, job, time.monotonic() + limits.total_time)
    findings: list[Finding] = []
    try:
        for name in names:
            try:
                kind, told, *_ = solution.call(
                    "attempt", [name, encode(dict(context))], {}, solution.deadline(), mutated=False
                )
            except Ended as ended:
                findings.append(Finding(name, False, ended.verdict[1]))
                continue
            if kind != "value":
                findings.append(Finding(name, True, f"the probe itself failed: {told}"))
                continue
            state, evidence = told[1]
            findings.append(Finding(name, state != "closed", evidence))
    finally:
        solution.end()
    return findings


def unexpectedly_open(tier: Tier, findings: Sequence[Finding]) -> list[Finding]:
    """Probes that got through and that the tier is not known to leave open."""
    return [each for each in findings if each.open and each.name not in KNOWN_OPEN[tier]]
