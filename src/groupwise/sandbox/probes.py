"""The isolation probes: 23 things that code in the sandbox must not be able to do.

Each is an expression over a context (paths, process ids, ports that the caller prepared) that is
what it got, or raises; none harms anything if it gets through. The same source runs in the
self-test at start and in the tests, per tier. What each one showed: docs/security.md.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from typing import Any

from groupwise.sandbox.guest.values import encode
from groupwise.sandbox.results import Job, Limits
from groupwise.sandbox.runs import Ended, Solution
from groupwise.sandbox.zygotes import Zygote

_EXPRESSIONS = {
    "read_file": "open(c['secret']).read()",
    "list_folder": "os.listdir(os.path.dirname(c['secret']))",
    "file_exists": "os.stat(c['secret']).st_size",
    "create_file": "first(create, (c['folder'], '/tmp', '/dev/shm', '.'), c)",
    "change_file": "os.open(c['secret'], os.O_WRONLY)",
    "delete_file": "[os.unlink(c['victim'])]",
    "change_mode": "[os.chmod(c['secret'], stat.S_IMODE(c['mode']))]",
    "read_environment": "first(environment, ('', 'self', c['pid']), c)",
    "inherited_descriptor": "some(n for n in range(5, 128) if is_open(n))",
    "read_parent_memory": "first(read_memory, parents(c), c)",
    "trace_parent": "first(lambda pid, c: call(101, 117, 0x4206, pid, 0, 0), parents(c), c)",
    "signal_parent": "first(lambda pid, c: [os.kill(pid, 0)], parents(c), c)",
    "signal_all": "[os.kill(-1, 0)]",
    "fork": "os.fork() or os._exit(0)",
    "execute": "execute()",
    "tcp_socket": "socket.socket(2, socket.SOCK_STREAM).connect_ex(('127.0.0.1', c['port']))",
    "udp_socket": "socket.socket(2, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', c['port']))",
    "unix_socket": "socket.socket(1, socket.SOCK_STREAM).connect_ex('\\0' + c['canary'])",
    "new_namespace": "call(272, 97, 0x10000000)",
    "mount": "call(165, 40, 0, 0, 0, 0, 0)",
    "kernel_keys": "call(250, 219, 0, -3, 1)",
    "shared_memory": "first(lambda make, c: make(), (segment, memory_file), c)",
    "raise_limits": "[resource.setrlimit(resource.RLIMIT_AS, (1 << 50, 1 << 50))]",
}
"""What each probe evaluates, with the context as `c`: a value means that it got through."""

PROBES = tuple(_EXPRESSIONS)

SOURCE = (
    """
import ctypes, os, platform, resource, socket, stat

libc = ctypes.CDLL(None, use_errno=True)

def call(x86_number, arm_number, *arguments):
    number = x86_number if platform.machine() == "x86_64" else arm_number
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) for a in arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)

def first(attempt, targets, context):
    for target in targets:
        try:
            return attempt(target, context)
        except OSError as error:
            last = error
    raise last

def some(found):
    found = list(found)
    if not found:
        raise OSError("none")
    return found

def parents(context):
    return [pid for pid in (context["pid"], os.getppid()) if pid]  # 0 where the filter hides it

def create(folder, context):
    path = os.path.join(folder, context["canary"] + ".made")
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    os.unlink(path)
    return folder

def environment(process, context):
    text = open(f"/proc/{process}/environ").read() if process else repr(os.environ)
    return some([text] if process or context["canary"] in text else [])

def is_open(descriptor):
    try:
        return os.lseek(descriptor, 0, os.SEEK_CUR) >= 0
    except OSError as error:
        return error.errno != 9  # EBADF

def read_memory(pid, context):
    class Vector(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
    local = Vector(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
    remote = Vector(context["address"], 8)
    if libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) < 0:
        return len(open(f"/proc/{pid}/mem", "rb").read(1))

def execute():
    try:
        os.execv("/nonexistent/program", ["program"])
    except FileNotFoundError:
        return "reached the kernel"

def segment():
    made = call(29, 194, 0, 4096, 0o1600)
    call(31, 195, made, 0, 0)
    return made

def memory_file():
    return call(319, 279, ctypes.addressof(ctypes.create_string_buffer(b"x")), 0)

def attempt(name, c):
    try:
        return ["open", repr(eval(EXPRESSIONS[name], globals(), {"c": c}))[:200]]
    except BaseException as error:
        return ["closed", f"{type(error).__name__}: {error}"]
"""
    + f"\nEXPRESSIONS = {_EXPRESSIONS!r}\n"
)


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


def open_probes(zygote: Zygote, context: Mapping[str, Any]) -> dict[str, str]:
    """The probes that got through, each with what it got; one that ends its child did not."""
    limits = Limits(time=5.0, total_time=30.0)
    job = Job(SOURCE, [((), None)], entry="attempt", limits=limits)
    solution = Solution(zygote, job, time.monotonic() + limits.total_time)
    aims = encode(dict(context))
    found: dict[str, str] = {}
    try:
        for name in PROBES:
            with contextlib.suppress(Ended):
                reply = solution.call("attempt", [name, aims], {}, solution.deadline(), False)
                if reply[0] != "value":
                    found[name] = f"the probe itself failed: {reply[1:]}"
                elif reply[1][1][0] != "closed":
                    found[name] = reply[1][1][1]
    finally:
        solution.end()
    return found
