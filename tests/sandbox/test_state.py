# ruff: noqa: E501 (tables: one case a line)
"""What a run leaves for the next one: nothing, in both tiers, each means tried by itself.

Every case is two runs on one warm process: the first does all it can to leave a mark, the second
tells everything it can observe, which must equal what a run before the first one told.
"""

import contextlib
import functools
import os
import sysconfig
from pathlib import Path

import pytest

from groupwise.sandbox import Job, Limits, Sandbox
from groupwise.sandbox.guest.values import decode
from groupwise.sandbox.runs import Solution
from groupwise.sandbox.zygotes import Child

LOOK = """
import ctypes, errno, fcntl, gc, mmap, os, resource, select, signal, stat, sys, threading, time

libc = ctypes.CDLL(None, use_errno=True)

def call(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if type(a) is int else a for a in arguments))
    return (result, ctypes.get_errno() if result < 0 else 0)

def lock_word():
    word = ctypes.c_int(0)
    return call(202, ctypes.byref(word), 6, 0, None, None, 0), word.value  # FUTEX_LOCK_PI

def thread_id_in_memory():
    libc.pthread_self.restype = ctypes.c_void_p
    return ctypes.c_int.from_address(libc.pthread_self() + 720).value

def clock_of(pid):
    out = (ctypes.c_long * 2)()
    return call(228, (~pid << 3) | 2, ctypes.byref(out)), list(out)

def marks():
    found = 0
    for page in {id(each) >> 12 for each in gc.get_objects()}:
        data = ctypes.string_at(page << 12, 4096)
        found += any(part.startswith(b"-4711") for part in data.split(b"MARK")[1:])
    return found

def modules():
    return sorted(sys.modules)

OBSERVED = {
    "flags": lambda: [fcntl.fcntl(n, fcntl.F_GETFL) for n in range(5)],
    "descriptor flags": lambda: [fcntl.fcntl(n, fcntl.F_GETFD) for n in range(5)],
    "open": lambda: [n for n in range(128) if call(72, n, 1)[0] >= 0],
    "offset": lambda: os.lseek(0, 0, 1),
    "owner": lambda: fcntl.fcntl(0, fcntl.F_GETOWN),
    "signal": lambda: fcntl.fcntl(0, fcntl.F_GETSIG),
    "lease": lambda: fcntl.fcntl(0, fcntl.F_GETLEASE),
    "pipe size": lambda: fcntl.fcntl(3, fcntl.F_GETPIPE_SZ),
    "seals": lambda: fcntl.fcntl(0, fcntl.F_GET_SEALS),
    "hint": lambda: fcntl.fcntl(0, 1035),
    "inode": lambda: call(5, 3, ctypes.create_string_buffer(256)),
    "inode of a new pipe": lambda: call(5, os.pipe()[0], ctypes.create_string_buffer(256)),
    "stat": lambda: os.stat("/etc").st_atime,
    "lstat": lambda: os.lstat("/bin").st_atime,
    "library": lambda: os.stat(os.__file__).st_atime,
    "root": lambda: sorted(os.listdir("/")),
    "exists": lambda: [os.path.exists(path) for path in ("/tmp", "/dev/shm/x", "/proc/1", "/", ".")],
    "link": lambda: os.readlink("/bin"),
    "statfs": lambda: os.statvfs("/").f_bfree,
    "ids": lambda: (os.getpid(), os.getppid(), threading.get_native_id(), threading.main_thread().native_id),
    "groups": lambda: (call(121, 0), call(124, 0), call(111)),
    "thread": thread_id_in_memory,
    "lock": lock_word,
    "tid address": lambda: call(218, 0),
    "others' clocks": lambda: [clock_of(pid) for pid in range(1, 6)],
    "others' affinity": lambda: [call(204, pid, 8, ctypes.create_string_buffer(8)) for pid in range(1, 300)],
    "affinity": lambda: sorted(os.sched_getaffinity(0)),
    "priority": lambda: os.getpriority(os.PRIO_PROCESS, 0),
    "scheduler": lambda: os.sched_getscheduler(0),
    "limits": lambda: [resource.getrlimit(n) for n in range(16)],
    "usage of children": lambda: tuple(resource.getrusage(resource.RUSAGE_CHILDREN)),
    "system": lambda: call(99, ctypes.create_string_buffer(256)),
    "memory": lambda: os.sysconf("SC_AVPHYS_PAGES"),
    "cache": lambda: call(27, id(os) & ~4095, 4096, ctypes.create_string_buffer(8)),
    "umask": lambda: os.umask(0),
    "folder": os.getcwd,
    "environment": lambda: sorted(os.environ.items()),
    "handlers": lambda: [signal.getsignal(n) is signal.SIG_DFL for n in range(1, 32)],
    "mask": lambda: sorted(signal.pthread_sigmask(0, [])),
    "alarm": lambda: signal.getitimer(signal.ITIMER_REAL),
    "timers": lambda: call(222, 1, None, None),
    "keys": lambda: call(250, 0, -3, 0),
    "messages": lambda: call(68, 4711, 0),
    "semaphores": lambda: call(64, 4711, 0, 0),
    "shared memory": lambda: call(29, 4711, 4096, 0),
    "queue": lambda: call(240, b"/mark", 0),
    "socket": lambda: __import__("_socket").socket(1, 1),
    "kept modules": lambda: (lambda memory: (hash(memory[:]), len(memory)))(sys.modules["guest.modules"]._memory),
    "woken": lambda: call(202, id(os) & ~4095, 1, 9, None, None, 0),
    "argv": lambda: (sys.argv, sys.path, sys.flags.hash_randomization, hash("MARK")),
    "modules": modules,
    "names": lambda: [sorted(vars(each)) for each in (os, sys.modules["builtins"], sys.modules["guest.solution"])],
    "marks in memory": marks,
    "objects": lambda: len(gc.get_objects()) // 1000,
}

def look():
    found = {}
    for name, observe in OBSERVED.items():
        try:
            found[name] = repr(observe())
        except BaseException as error:
            found[name] = type(error).__name__ + str(getattr(error, "errno", ""))
    return found
"""

LEFT = {
    "flags": "for n in range(5): fcntl.fcntl(n, fcntl.F_SETFL, os.O_NONBLOCK | os.O_APPEND | os.O_ASYNC | os.O_DIRECT | os.O_NOATIME)",
    "flags, one by one": "for n in range(5):\n for flag in (os.O_NONBLOCK, os.O_APPEND, os.O_ASYNC): fcntl.fcntl(n, fcntl.F_SETFL, fcntl.fcntl(n, fcntl.F_GETFL) | flag)",
    "not blocking": "for n in range(5): os.set_blocking(n, False)",
    "descriptor flags": "for n in range(5): fcntl.fcntl(n, fcntl.F_SETFD, 0)",
    "offset": "for n in range(5): os.lseek(n, 4711, 0)",
    "locks": "for n in range(5): fcntl.flock(n, fcntl.LOCK_EX)",
    "record locks": "for n in range(5): fcntl.lockf(n, fcntl.LOCK_EX, 7)",
    "open file locks": "for n in range(5): fcntl.fcntl(n, 37, bytes([1] + 31 * [0]))",
    "leases": "for n in range(5): fcntl.fcntl(n, fcntl.F_SETLEASE, fcntl.F_RDLCK)",
    "owner": "for n in range(5): fcntl.fcntl(n, fcntl.F_SETOWN, 1)",
    "signal": "for n in range(5): fcntl.fcntl(n, fcntl.F_SETSIG, 40)",
    "notification": "for n in range(5): fcntl.fcntl(n, fcntl.F_NOTIFY, 4)",
    "pipe size": "for n in range(5): fcntl.fcntl(n, fcntl.F_SETPIPE_SZ, 4096)",
    "seals": "for n in range(5): fcntl.fcntl(n, fcntl.F_ADD_SEALS, 1)",
    "hints": "for n in range(5): fcntl.fcntl(n, 1036, 2)",
    "truncation": "for n in range(5): os.ftruncate(n, 0)",
    "times": "for n in range(5): os.utime(n, (1, 1))",
    "mode": "for n in range(5): os.fchmod(n, 0o777)",
    "attributes": "for n in range(5): os.setxattr(n, 'user.mark', b'1')",
    "closed": "os.closerange(0, 3)",
    "left open": "[os.pipe() for _ in range(40)]",
    "pipes, many": "for _ in range(3000):\n read, write = os.pipe(); os.close(read); os.close(write)",
    "a file": "open('/tmp/mark', 'w')",
    "a file in memory": "os.memfd_create('mark')",
    "shared memory": "open('/dev/shm/mark', 'w')",
    "compiled code": "import colorsys, py_compile; py_compile.compile(colorsys.__file__)",
    "a library read": "open(os.__file__).read()",
    "a link followed": "os.stat('/bin/sh'); os.readlink('/bin')",
    "a folder listed": "os.listdir(os.path.dirname(os.__file__))",
    "an import": "import colorsys, asyncio, http.client",
    "process ids": "for _ in range(20): os.fork()",
    "threads": "import _thread\nfor _ in range(20): _thread.start_new_thread(int, ())",
    "the umask": "os.umask(0o777)",
    "the folder": "os.chdir('/')",
    "the environment": "os.environ['MARK'] = '1'; os.putenv('LD_PRELOAD', 'x')",
    "priority": "os.nice(5)",
    "affinity": "os.sched_setaffinity(0, {0})",
    "scheduling": "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))",
    "limits": "resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10))",
    "a timer": "signal.setitimer(signal.ITIMER_REAL, 30)",
    "a signal": "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pthread_sigmask(0, [15])",
    "a pending signal": "signal.pthread_sigmask(0, [10]); os.kill(os.getppid(), 10)",
    "a session": "os.setsid()",
    "keys": "call(248, b'user', b'mark', b'1', 1, -3)",
    "a message queue": "call(68, 4711, 0o1600)",
    "a semaphore": "call(64, 4711, 1, 0o1600)",
    "a segment": "call(29, 4711, 4096, 0o1600)",
    "a name for itself": "call(157, 15, b'mark')",
    "badness": "open('/proc/self/oom_score_adj', 'w').write('1000')",
    "memory": "x = bytearray(20 << 20)",
    "advice": "libc.madvise(ctypes.c_void_p(id(os) & ~4095), 4096, 21)",
    "built-ins": "import builtins; builtins.MARK = 1; os.MARK = 1; sys.modules['guest.solution'].MARK = 1",
    "kept modules": "place = ctypes.c_void_p.from_address(id(sys.modules['guest.modules']._memory) + 16).value\nlibc.mprotect(ctypes.c_void_p(place), 4096, 3)\nctypes.memset(place, 7, 4096)\nassert sys.modules['guest.modules']._memory[:2] == b'\\7\\7'",
    "hooks": "import atexit, gc; atexit.register(print); gc.callbacks.append(print); sys.settrace(print)",
    "a long error": "raise ValueError('MARK' + '-4711' + 'x' * 9000)",
    "a value": "return 'MARK' + '-4711'",
    "a printed word": "print('MARK' + '-4711'); print('MARK' + '-4711', file=sys.stderr)",
    "its exit code": "os._exit(37)",
    "its signal": "ctypes.string_at(0)",
    "a long stay": "import time; time.sleep(9)",
    "too much": "return 'x' * (2 << 20)",
    "a malformed reply": "os.write(4, b'\\0\\0\\0\\2{]')",
    "many replies": "for _ in range(99): os.write(4, b'\\0\\0\\0\\2[]')",
}  # fmt: skip


def observed(sandbox):
    job = Job(LOOK, [((), {})], entry="look")
    with sandbox._zygote() as zygote:
        solution = Solution(zygote, job, 1e12)
        kind, value, _ = solution.call("look", [], {}, solution.deadline(), mutated=False)
        solution.end()
    assert kind == "value"
    return decode(value)


@functools.cache
def observed_first(sandbox):
    """Before any run that leaves something: what all later ones must observe, too."""
    return observed(sandbox)


@pytest.fixture(scope="module")
def alone():
    """By tier, a sandbox of one warm process: each run is the next of the one before."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda tier: stack.enter_context(Sandbox(tier=tier, size=1)))


@pytest.fixture(params=["A", "B"])
def tier(request, alone):
    request.getfixturevalue(f"tier_{request.param.lower()}")
    return alone(request.param)


@pytest.mark.parametrize("name", LEFT)
def test_nothing_is_left_for_the_next_run(tier, name):
    before = observed_first(tier)
    limits = Limits(time=0.3 if name == "a long stay" else 5.0)
    lines = LEFT[name].replace("\n", "\n ")
    tests = [((), None), ((), None)]
    source = f"{LOOK}\ndef f():\n {lines}"
    result = tier.grade(Job(source, tests, entry="f", limits=limits))
    assert result.outcome != "infrastructure_error"
    program = f"{LOOK}\ndef f():\n {lines}\nf()"
    tier.grade(Job(program, [("abc", "")] * 2, kind="stdio", limits=limits))
    assert observed(tier) == before


def test_what_can_be_observed_is_what_the_page_says(tier):
    seen = observed(tier)
    assert seen["ids"].startswith("(0, 0, 0, ")
    assert seen["open"] == "[0, 1, 2, 3, 4]"
    assert seen["flags"].startswith("[32770, 32770, 32770")  # O_RDWR | O_LARGEFILE, no other
    for name in ("stat", "lstat", "library", "root", "link"):
        assert seen[name] == "FileNotFoundError2", name
    assert seen["exists"] == "[False, False, False, False, False]"
    for name in ("owner", "signal", "lease", "seals", "hint", "pipe size", "umask", "statfs"):
        assert seen[name] == "PermissionError1", name
    assert seen["marks in memory"] == "0"


def test_no_run_changes_a_time_of_access(tier):
    """Of a file, a folder and a link of the library, looked at from outside."""
    folder = Path(sysconfig.get_path("stdlib"))
    paths = [folder / "colorsys.py", folder / "json", folder / "this.py", Path("/bin")]
    for path in paths[:3]:
        os.utime(path, (1, path.stat().st_mtime))
    before = [os.stat(path, follow_symlinks=False).st_atime_ns for path in paths]
    source = """
import colorsys, os
def f():
    for path in PATHS:
        for act in (os.listdir, os.readlink, os.stat, lambda path: open(path).read(), lambda path: os.stat(path + "/sh")):
            try: act(path)
            except OSError: pass
    import this
    return 5
""".replace("PATHS", repr([str(path) for path in paths]))
    assert tier.grade(Job(source, [((), 5)], entry="f")).passed_all
    after = [os.stat(path, follow_symlinks=False).st_atime_ns for path in paths]
    assert after == before


def test_guess_remember_read_back_finds_no_hidden_value(tier):
    """The attack that worked with shared open files: alternate the answer by a flag."""
    source = """
import fcntl, os
def f():
    marked = [n for n in (0, 1, 2) if fcntl.fcntl(n, fcntl.F_GETFL) & (os.O_APPEND | os.O_NONBLOCK)]
    for n in (0, 1, 2):
        fcntl.fcntl(n, fcntl.F_SETFL, 0 if marked else os.O_APPEND | os.O_NONBLOCK)
    return bool(marked)
"""
    outcomes = [tier.grade(Job(source, [((), True)], entry="f")).outcome for _ in range(4)]
    assert outcomes == ["failed"] * 4


def test_no_case_is_told_its_number(tier, monkeypatch):
    sent = []
    send = Child.send
    monkeypatch.setattr(Child, "send", lambda *given: (sent.append(given[1]), send(*given)))
    job = Job("def f(): return 1", [((), 1)] * 3, entry="f", fresh=True)
    assert tier.grade(job).passed_all
    nonces = [message[0] for message in sent if isinstance(message, list)]
    assert [len(nonce) for nonce in nonces] == [16] * 3
    assert len(set(nonces)) == 3
