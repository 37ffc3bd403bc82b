# ruff: noqa: E501 (tables: one attempt a line)
"""Ways out of the sandbox and ways to a reward that was not earned: one table, for the tests and
for `benchmarks/sandbox.py --probes`.

An entry is a submission, and one that is judged `passed` got through: the function of an escape
returns "through" where it could do one of the things that it tries (`|` between them), and a cheat
does not solve its task. `call` takes a system call's x86-64 and arm64 numbers and counts as through
where the call reached the kernel, whatever the kernel then said of its arguments; the filter's own
answers are EPERM, ENOENT and ENOSYS. None harms anything where it gets through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from groupwise.sandbox import Call, Job, Limits, Program

LIMITS = Limits(time=1.0, total_time=4.0, memory=192 << 20)
CANARY = "expected-51c7e0"
"""What a search of the child's memory must not find."""

HELP = """
import ctypes, fcntl, mmap, os, platform, resource, signal, socket, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
REFUSED = (1, 2, 38)

def call(x86, arm, *arguments):
    number = x86 if platform.machine() == "x86_64" else arm
    if number is None: raise OSError(38, "no such call here")
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) for a in arguments))
    if result < 0 and ctypes.get_errno() in REFUSED: raise OSError(ctypes.get_errno(), "refused")

def reached(action):
    try: action()
    except OSError as error:
        if error.errno in REFUSED: raise

def text(value):
    kept.append(ctypes.create_string_buffer(value))
    return ctypes.addressof(kept[-1])

kept = []

def any_of(*attempts):
    why = "nothing was tried"
    for attempt in attempts:
        try:
            if attempt() is not False: return "through"
        except BaseException as error:
            why = f"{type(error).__name__}: {error}"
    raise OSError(why)
"""
BARE, SHUT = True, False
"""Whether it is harmless outside, where it then has to get through for the test to mean anything."""

ESCAPES: list[tuple[str, str, bool, str]] = [
    ("processes", "fork behind exec", SHUT, "os.execv(sys.executable, [sys.executable, '-c', 'import os; os.fork()']) | os.execve('/bin/sh', ['sh', '-c', ':'], {}) | call(59, 221, text(b'/bin/true'), 0, 0) | call(322, 281, -100, text(b'/bin/true'), 0, 0, 0)"),
    ("processes", "posix_spawn", BARE, "os.posix_spawn('/bin/true', ['true'], {}) | os.posix_spawnp('true', ['true'], {})"),
    ("processes", "a shell", BARE, "__import__('subprocess').run(['true'], check=True) | os.system('true') == 0 | os.popen('true').close() is None"),
    ("processes", "multiprocessing", SHUT, "__import__('multiprocessing').get_context('fork').Process(target=int).start() | __import__('multiprocessing').get_context('spawn').Process(target=int).start()"),
    ("processes", "many forks", SHUT, "[os.fork() or os._exit(0) for _ in range(64)]"),
    ("processes", "vfork and clone", SHUT, "call(57, None) | call(58, None) | call(56, 220, 17, 0, 0, 0, 0) | call(56, 220, 0x10000011, 0, 0, 0, 0)"),
    ("processes", "clone3", BARE, "call(435, 435, text(bytes(88)), 1)"),
    ("processes", "a real thread", BARE, "__import__('_thread').start_new_thread(lambda: None, ())"),
    ("processes", "exec of a memory file", SHUT, "call(322, 281, os.memfd_create('x'), text(b''), 0, 0, 0x1000)"),
    ("proc and namespaces", "/proc of itself", BARE, "open('/proc/self/maps').read() | open('/proc/self/environ').read() | os.listdir('/proc/self/fd') | os.readlink('/proc/self/exe')"),
    ("proc and namespaces", "/proc of others", BARE, "open('/proc/1/cmdline').read() | os.listdir('/proc/1/fd') | open('/proc/meminfo').read() | os.listdir('/proc')"),
    ("proc and namespaces", "settings in /proc", BARE, "open('/proc/sys/kernel/core_pattern').read() | open('/proc/self/oom_score_adj', 'w')"),
    ("proc and namespaces", "/proc/self/mem", BARE, "open('/proc/self/mem', 'r+b')"),
    ("proc and namespaces", "descriptors as paths", BARE, "open('/dev/fd/0') | open('/proc/thread-self/fd/4', 'w') | os.open('/dev/stdin', os.O_RDONLY)"),
    ("proc and namespaces", "devices and /sys", BARE, "open('/dev/zero').read(1) | open('/etc/hostname').read() | os.listdir('/sys')"),
    ("proc and namespaces", "joining a namespace", BARE, "call(308, 268, 0, 0)"),
    ("proc and namespaces", "namespaces of its own", BARE, "call(272, 97, 0x10000000) | call(272, 97, 0x40000000) | call(272, 97, 0x08000000)"),
    ("proc and namespaces", "another root", SHUT, "os.chroot('/') | call(155, 41, text(b'/'), text(b'/')) | os.chdir('/') | os.fchdir(0)"),
    ("proc and namespaces", "mounts by descriptor", SHUT, "call(430, 430, text(b'tmpfs'), 0) | call(428, 428, -100, text(b'/'), 1) | call(429, 429, -1, 0, -1, 0, 0) | call(442, 442, -1, 0, 0, 0, 0)"),
    ("descriptors", "inherited beyond 128", SHUT, "any(not refused for refused in map(closed, range(5, 4096)))"),
    ("descriptors", "handles of files", BARE, "call(303, 264, -100, text(b'/'), text(bytes(128)), text(bytes(8)), 0) | call(304, 265, -100, text(bytes(128)), 0)"),
    ("descriptors", "those of another process", BARE, "call(434, 434, 1, 0) | call(438, 438, 0, 0, 0)"),
    ("descriptors", "passing one on", BARE, "call(53, 199, 1, 1, 0, text(bytes(8))) | call(46, 211, 1, 0, 0)"),
    ("descriptors", "watchers", BARE, "call(294, 26, 0) | call(291, 20, 0) | call(290, 19, 0, 0) | call(289, 74, -1, text(bytes(8)), 8, 0) | call(283, 85, 0, 0) | call(300, 262, 0, 0)"),
    ("descriptors", "splice, tee, sendfile", BARE, "call(275, 76, 0, 0, 1, 0, 1, 0) | call(276, 77, 0, 1, 1, 0) | call(278, 75, 1, 0, 0, 0) | call(40, 71, 1, 0, 0, 1) | call(326, 285, 0, 0, 1, 0, 1, 0)"),
    ("descriptors", "locks, leases, owners", BARE, "reached(lambda: fcntl.flock(0, 6)) | reached(lambda: fcntl.fcntl(0, 1024, 2)) | reached(lambda: fcntl.fcntl(0, 8, 0))"),
    ("descriptors", "a larger pipe", BARE, "reached(lambda: fcntl.fcntl(1, 1031, 1 << 16))"),
    ("tracing", "being traced", BARE, "call(101, 117, 99, 0, 0, 0)"),
    ("tracing", "seizing the first process", SHUT, "call(101, 117, 0x4206, 1, 0, 0) | call(101, 117, 16, 1, 0, 0)"),
    ("tracing", "memory of others", BARE, "call(311, 271, 0x7ffffff, text(bytes(16)), 1, text(bytes(16)), 1, 0) | call(310, 270, 0x7ffffff, text(bytes(16)), 1, text(bytes(16)), 1, 0)"),
    ("tracing", "being dumpable", BARE, "call(157, 167, 4, 1, 0, 0, 0) | call(157, 167, 0x59616d61, -1, 0, 0, 0)"),
    ("tracing", "comparing processes", BARE, "call(312, 272, 0x7ffffff, 0x7ffffff, 0, 0, 0)"),
    ("tracing", "a filter of its own", BARE, "call(317, 277, 1, 8, 0) | call(157, 167, 21, 0, 0, 0, 0)"),
    ("core dumps", "a core dump", SHUT, "resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20)) | resource.getrlimit(resource.RLIMIT_CORE) != (0, 0)"),
    ("terminals", "typing (TIOCSTI)", BARE, "reached(lambda: fcntl.ioctl(0, 0x5412, b'x')) | reached(lambda: fcntl.ioctl(1, 0x5412, b'x')) | reached(lambda: fcntl.ioctl(2, 0x5412, b'x'))"),
    ("terminals", "the console (TIOCLINUX)", BARE, "reached(lambda: fcntl.ioctl(0, 0x541C, b'x')) | reached(lambda: fcntl.ioctl(0, 0x540E, 0))"),
    ("terminals", "a terminal of its own", BARE, "os.openpty() | open('/dev/ptmx', 'r+b')"),
    ("terminals", "size and flow", BARE, "reached(lambda: fcntl.ioctl(1, 0x5414, bytes(8))) | reached(lambda: fcntl.ioctl(1, 0x540A, 0))"),
    ("signals", "to the parent's group", SHUT, "os.killpg(0, 0) | os.kill(0, 0) | os.kill(-1, 0) | call(234, 131, 0x7ffffff, 0x7ffffff, 0) | call(200, 130, 0x7ffffff, 0)"),
    ("signals", "queued and by pidfd", BARE, "call(129, 138, 0x7ffffff, 0, text(bytes(128))) | call(424, 424, -1, 0, 0, 0)"),
    ("signals", "a session of its own", SHUT, "os.setsid() | os.setpgid(0, 0) | os.tcsetpgrp(0, 0)"),
    ("signals", "priorities and owners", BARE, "os.setpriority(os.PRIO_PROCESS, 0, 19) | os.sched_setaffinity(0, [0]) | call(251, 30, 1, 0, 0)"),
    ("exhaustion", "inodes", SHUT, "[os.mkdir(f'/tmp/i{n}') for n in range(9)] | [open(f'/dev/shm/i{n}', 'x') for n in range(9)] | os.mknod('i') | os.mkfifo('i') | [os.memfd_create('i') for _ in range(9)]"),
    ("exhaustion", "names in the kernel", BARE, "call(240, 180, text(b'gw'), 0, 0, 0) | call(65, 193, -1, 0, 0) | call(68, 186, -1, 0)"),
    ("exhaustion", "locked memory", BARE, "call(149, 228, 0, 4096) | call(151, 230, 0) | call(325, 284, 0, 4096, 0)"),
    ("exhaustion", "limits of itself", SHUT, "resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 20,) * 2) | resource.prlimit(0, resource.RLIMIT_NPROC, (99, 99)) | resource.setrlimit(resource.RLIMIT_CPU, (9999, 9999))"),
    ("files", "links out of the folder", SHUT, "os.symlink('/etc/passwd', 'out') or open('out').read() | os.link('/etc/passwd', 'out') | os.rename('/etc/passwd', '/etc/passwd')"),
    ("files", "owners, times, attributes", SHUT, "os.chown('/etc/passwd', 0, 0) | os.utime('/etc/passwd') | os.truncate('/etc/passwd', 1 << 40) | os.setxattr('/etc/passwd', 'user.x', b'x')"),
    ("files", "disk state", BARE, "call(137, 43, text(b'/'), text(bytes(200))) | call(138, 44, 0, text(bytes(200))) | call(73, 32, -1, 0)"),
    ("network", "abstract and paired sockets", BARE, "socket.socket(1, socket.SOCK_STREAM).bind('\\0gw-attempt') | call(53, 199, 1, 1, 0, text(bytes(8)))"),
    ("network", "netlink, packets, crypto", SHUT, "socket.socket(16, 3, 0) | socket.socket(17, 3, 0) | socket.socket(38, 5, 0) | socket.socket(40, 1, 0) | socket.socket(10, 1, 0)"),
    ("network", "names and bluetooth", BARE, "socket.getaddrinfo('localhost', 80) | socket.create_server(('127.0.0.1', 0))"),
    ("shared memory", "of every make", BARE, "__import__('multiprocessing.shared_memory').shared_memory.SharedMemory(create=True, size=1).unlink() | call(29, 194, 0, 4096, 0) | call(447, 447, 0) | call(319, 279, text(b'gw'), 0)"),
    ("shared memory", "of processes", BARE, "call(256, 238, 0x7ffffff, 0, 0, 0) | call(279, 239, 0x7ffffff, 0, 0, 0, 0, 0) | call(440, 440, -1, 0, 0, 0, 0) | call(237, 235, 0, 0, 0, 0, 0, 0)"),
    ("privileges", "other users", SHUT, "os.setuid(0) | os.setgid(0) | os.setgroups([]) | os.setresuid(0, 0, 0) | os.setfsuid(0) if hasattr(os, 'setfsuid') else call(122, 151, 0)"),
    ("privileges", "capabilities", BARE, "call(125, 90, text(bytes(8)), 0) | call(157, 167, 47, 4, 0, 0, 0)"),
    ("privileges", "the machine's state", SHUT, "call(169, 142, 0, 0, 0, 0) | call(175, 105, 0, 0, 0) | call(246, 104, 0, 0, 0, 0) | call(103, 116, 10, 0, 0) | call(163, 89, 1) | call(167, 224, 1, 0)"),
    ("privileges", "its clock and name", SHUT, "call(159, 171, 0) | call(227, 112, 99, 0) | call(170, 161, 0, -1) | call(164, 170, 1, 1)"),
    ("privileges", "other calls of the machine", SHUT, "call(172, None, 0) | call(173, None, 0, 0, 0) | call(154, None, 9, 0, 0) | call(135, 92, 0xffffffff) | call(134, None)"),
    ("privileges", "32-bit calls", SHUT, "ctypes.CFUNCTYPE(ctypes.c_int)(code_at(b'\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3'))() > 0"),
    ("kernel", "io_uring", BARE, "call(425, 425, 1, 0) | call(426, 426, -1, 0, 0, 0, 0, 0) | call(427, 427, -1, 0, 0, 0)"),
    ("kernel", "older asynchronous calls", BARE, "call(206, 0, 1, 0) | call(209, 2, 0, 0, 0)"),
    ("kernel", "perf and bpf", BARE, "call(298, 241, 0, 0, -1, -1, 0) | call(321, 280, 99, 0, 0)"),
    ("kernel", "keyrings", BARE, "call(250, 219, 99, 0, 0, 0, 0) | call(248, 217, 0, 0, 0, 0, 0) | call(249, 218, 0, 0, 0, 0)"),
    ("kernel", "userfaultfd", BARE, "call(323, 282, 0x40000000)"),
    ("kernel", "barriers and landlock", BARE, "call(324, 283, 99, 0) | call(444, 444, 0, 0, 1) | call(446, 446, -1, 0)"),
    ("secrets", "variables", SHUT, "set(os.environ) - {'PATH', 'HOME', 'LANG', 'LC_ALL', 'LC_CTYPE', 'PYTHONHASHSEED', 'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS', 'TZ', 'PWD'} or False"),
    ("secrets", "variables in memory", SHUT, "any(b'CANARY' in each for each in variables())"),
]  # fmt: skip
"""Kind, name, whether it may run outside, what it tries."""

MORE_HELP = """
def closed(n):
    try: os.close(os.dup(n))
    except OSError: return True
    return False

def code_at(code):
    if platform.machine() != "x86_64": raise OSError("another machine")
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(code)
    kept.append(page)
    return ctypes.addressof(ctypes.c_char.from_buffer(page))

def variables():
    place = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, "environ")
    n = 0
    while place and place[n]:
        yield place[n]
        n += 1
"""

_WRITE = "import os, json\ndef frame(m):\n raw = json.dumps(m).encode(); return len(raw).to_bytes(4, 'big') + raw\n"
_GUEST = "import sys\nguest = sys.modules['guest.solution']\n"
ODD = [((2,), 5), ((3,), 7)]
SOUGHT = [((), CANARY)]
CHEATS: list[tuple[str, str, str, Any, str]] = [
    ("lying objects", "equality", "calls", ODD, "class A:\n def __eq__(s, o): return True\n def __ne__(s, o): return False\ndef f(n): return A()"),
    ("lying objects", "a number's equality", "calls", ODD, "class A(int):\n def __eq__(s, o): return True\n def __hash__(s): return hash(5)\n def __index__(s): return 5\ndef f(n): return A(0)"),
    ("lying objects", "hashes in a set", "calls", [((2,), {5}), ((3,), {7})], "class A(int):\n def __eq__(s, o): return True\n def __hash__(s): return 5\ndef f(n): return {A(0)}"),
    ("lying objects", "its class", "calls", ODD, "class A:\n __class__ = property(lambda s: int)\n def __int__(s): return 5\n def __repr__(s): return '5'\ndef f(n): return A()"),
    ("lying objects", "a list with other items each time", "calls", [((2,), [5]), ((3,), [7])], "class A(list):\n def __iter__(s): return iter([5, 7])\n def __len__(s): return 1\ndef f(n): return A([0])"),
    ("lying objects", "equality in a test", "asserts", ["assert f(2) == 5", "assert f(3) == 7"], "class A:\n def __eq__(s, o): return True\n def __bool__(s): return True\ndef f(n): return A()"),
    ("lying objects", "order in a test", "asserts", ["assert 4 < f(2) < 6", "assert sorted([f(3), 7]) == [7, 7]"], "class A(int):\n def __lt__(s, o): return True\n __gt__ = __eq__ = __lt__\n def __hash__(s): return 7\ndef f(n): return A(0)"),
    ("lying objects", "text of every number", "stdio", [("2", "5"), ("3", "7")], "class A:\n def __str__(s): return '5 7'\nprint(A())"),
    ("names", "a wide letter", "calls", ODD, "class A:\n def __eq__(s, o): return True\ndef f(n): return 2 * n + 1\ndef \uff46(n): return A()"),
    ("names", "a letter that looks alike", "asserts", ["assert f(2) == 5", "assert f(3) == 7"], "def \u0192(n): return 2 * n + 1\ndef f(n): return 0"),
    ("names", "assert by another name", "asserts", ["assert f(2) == 5", "assert f(3) == 7"], "\u0430ssert = 1\nAssertionError = type('A', (Exception,), {})\nimport builtins\nbuiltins.AssertionError = AssertionError\ndef f(n): return 0"),
    ("names", "the entry in the built-ins", "calls", ODD, "import builtins\nbuiltins.f = lambda n: 5\nglobals()['__getattr__'] = lambda n: 5"),
    ("values without end", "a generator", "calls", [((2,), [5]), ((3,), [7])], "def f(n):\n while True: yield 5"),
    ("values without end", "a counter", "asserts", ["assert list(f(2)) == [5]"], "import itertools\ndef f(n): return itertools.repeat(5)"),
    ("values without end", "a list of its own length", "calls", [((2,), [5]), ((3,), [7])], "class A(list):\n def __iter__(s):\n  while True: yield 5\ndef f(n): return A([5])"),
    ("values without end", "a list in itself", "calls", [((2,), [5]), ((3,), [7])], "def f(n):\n x = [5]; x.append(x); return x"),
    ("values without end", "hashing for ever", "calls", [((2,), {5}), ((3,), {7})], "class A(int):\n def __hash__(s):\n  while True: pass\ndef f(n): return {A(5)}"),
    ("huge values", "a representation", "calls", ODD, "class A:\n def __repr__(s): return 'x' * 10**9\n __str__ = __repr__\ndef f(n): return A()"),
    ("huge values", "a message", "calls", ODD, "class E(Exception):\n def __str__(s): return 'x' * 10**9\ndef f(n): raise E('y' * 10**7)"),
    ("huge values", "digits", "calls", ODD, "def f(n): return 10 ** 10 ** 7"),
    ("huge values", "depth", "calls", ODD, "def f(n):\n x = 5\n for _ in range(10**5): x = [x]\n return x"),
    ("huge values", "elements", "calls", ODD, "def f(n): return [[]] * 10**7"),
    ("huge values", "output", "stdio", [("2", "5"), ("3", "7")], "import os\nwhile True: os.write(1, b'5\\n' * 10**5); os.write(2, b'x' * 10**5)"),
    ("huge values", "memory", "calls", ODD, "def f(n):\n x = [bytearray(1 << 26) for _ in range(99)]; return 5"),
    ("huge values", "the C stack", "calls", ODD, "import sys\nsys.setrecursionlimit(10**9)\nclass A: pass\nA.__repr__ = lambda s: repr(s)\nA.__eq__ = lambda s, o: s == o\ndef f(n): return repr(A()) and A() == A()"),
    ("looking for the answer", "tracing", "calls", SOUGHT, "import sys\nfound = []\ndef look(frame, event, arg):\n found.extend(str(v) for v in frame.f_locals.values()); return look\nsys.settrace(look); sys.setprofile(look)\ndef f(): return next(x for x in found if x.startswith('expected-'))"),
    ("looking for the answer", "monitoring", "calls", SOUGHT, "import sys\ntool = getattr(sys, 'monitoring', None)\nfound = []\nif tool:\n tool.use_tool_id(1, 'x'); tool.set_events(1, tool.events.CALL)\n tool.register_callback(1, tool.events.CALL, lambda c, o, fn, a: found.append(str(a)))\ndef f(): return next(x for x in found if x.startswith('expected-'))"),
    ("looking for the answer", "the collector", "calls", SOUGHT, "import gc\nPREFIX = 'expec' + 'ted-'\ndef f():\n for o in gc.get_objects():\n  for x in (o if type(o) in (list, tuple, set) else o.values() if type(o) is dict else ()):\n   if type(x) is str and x.startswith(PREFIX) and len(x) > 9: return x"),
    ("looking for the answer", "frames", "calls", SOUGHT, "import sys\nPREFIX = 'expec' + 'ted-'\ndef f():\n frame = sys._getframe()\n while frame:\n  for space in (frame.f_locals, frame.f_globals, frame.f_builtins):\n   for x in space.values():\n    if type(x) is str and x.startswith(PREFIX) and len(x) > 9: return x\n  frame = frame.f_back"),
    ("looking for the answer", "the memory around", "calls", SOUGHT, "import ctypes\nPREFIX = b'expec' + b'ted-'\ndef f():\n for o in (object(), [], {}, 'x' * 9, b'x' * 99):\n  raw = ctypes.string_at(id(o) & ~0xFFF, 4096)\n  if PREFIX in raw: return raw[raw.index(PREFIX):][:15].decode()"),
    ("looking for the answer", "in a test's frames", "asserts", [f"want = {CANARY!r}\nassert f() == want"], "import sys\ndef f():\n frame = sys._getframe()\n while frame:\n  if 'want' in frame.f_locals: return frame.f_locals['want']\n  frame = frame.f_back"),
    ("patching", "built-ins", "calls", ODD, "import builtins, json\nfor name in ('len', 'isinstance', 'type', 'repr', 'int', 'list', 'str'):\n setattr(builtins, name, lambda *a: 5)\ndef f(n): return 0"),
    ("patching", "the reply's writer", "calls", ODD, _GUEST + "guest.encode = lambda value: ['passed', 5, 7]\ndef f(n): return 0"),
    ("patching", "the reply itself", "calls", ODD, _GUEST + "send = guest.write_frame\nguest.write_frame = lambda m: send([m[0], 'result', True, None] if m[0] else m)\ndef f(n): return 0"),
    ("patching", "the comparison", "asserts", ["assert f(2) == 5", "assert f(3) == 7"], "import builtins, unittest, operator\noperator.eq = lambda a, b: True\nunittest.TestCase.assertEqual = lambda *a: None\ndef f(n): return 0"),
    ("the answer channel", "two replies to one call", "calls", ODD, _GUEST + "send = guest.write_frame\ndef both(m):\n send(m)\n if m[0]: send([m[0], 'value', 5, None]); send([m[0], 'value', 7, None])\nguest.write_frame = both\ndef f(n): return 0"),
    ("the answer channel", "replies before the question", "calls", ODD, _WRITE + "for _ in range(9): os.write(4, frame(['0' * 16, 'value', 5, None]))\ndef f(n): return 0"),
    ("the answer channel", "half a reply", "calls", ODD, _WRITE + "def f(n):\n os.write(4, frame(['x', 'value', 5, None])[:9]); return 5 if n == 3 else 7"),
    ("the answer channel", "a length of 4 GB", "calls", ODD, "import os\ndef f(n):\n os.write(4, b'\\xff' * 4); return 5"),
    ("the answer channel", "the channel closed", "calls", ODD, "import os\ndef f(n):\n os.close(4); return 5"),
    ("the answer channel", "the channel turned round", "calls", ODD, "import os\nos.dup2(3, 9); os.dup2(4, 3); os.dup2(9, 4)\ndef f(n): return 5"),
    ("the answer channel", "the verdict of a test", "asserts", ["assert f(2) == 5", "assert f(3) == 7"], _WRITE + "def f(n):\n os.write(4, frame(['result', 0, True, ''])); return 0"),
    ("changing after", "a value changed by a timer", "calls", [((2,), [5]), ((3,), [7])], "import signal\nx = [0]\ndef late(*_): x[:] = [5]\nsignal.signal(signal.SIGALRM, late)\ndef f(n):\n signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001); return x"),
    ("changing after", "a mapped value", "calls", [((2,), b"5"), ((3,), b"7")], "import mmap\npage = mmap.mmap(-1, 4096)\ndef f(n):\n page[:1] = b'0'; view = memoryview(page)[:1]; return view"),
    ("changing after", "a buffer of ctypes", "calls", [((2,), bytearray(b"5")), ((3,), bytearray(b"7"))], "import ctypes\nraw = ctypes.create_string_buffer(b'0')\nclass A(bytearray):\n def __bytes__(s): return b'57'\ndef f(n): return A(raw)"),
    ("changing after", "a thread behind the answer", "calls", ODD, _WRITE + "import threading\ndef late():\n os.write(4, frame(['', 'value', 7, None]))\ndef f(n):\n threading.Timer(0.01, late).start(); return 0"),
    ("changing after", "at the end", "calls", ODD, _WRITE + "import atexit\natexit.register(lambda: os.write(4, frame(['', 'value', 5, None])))\nclass A:\n def __del__(s): os.write(4, frame(['', 'value', 5, None]))\nkept = A()\ndef f(n): return 0"),
    ("changing after", "output at the end", "stdio", [("2", "5"), ("3", "7")], "import atexit, os\natexit.register(lambda: os._exit(0))\nprint(0)"),
    ("leaving", "an exit in every way", "calls", ODD, "import os, sys\ndef f(n):\n if n == 2: sys.exit(0)\n os._exit(0)"),
    ("leaving", "errors that tests wait for", "asserts", ["try:\n r = f(2)\nexcept StopIteration:\n r = 0\nassert r == 5"], "def f(n): raise StopIteration(5)"),
    ("leaving", "an end that no one catches", "asserts", ["assert f(2) == 5"], "def f(n): raise SystemExit(0)"),
    ("leaving", "a signal to itself", "calls", ODD, "import ctypes, signal\nsignal.signal(signal.SIGSEGV, lambda *_: None)\ndef f(n): ctypes.string_at(0)"),
    ("leaving", "its own input read twice", "stdio", [("2", "5"), ("3", "7")], "import os\nos.lseek(0, 0, 0)\nprint(os.read(0, 99).decode(), os.pread(0, 99, 0).decode())"),
    ("exhaustion", "descriptors", "calls", ODD, "import os\ndef f(n):\n try:\n  while True: os.dup(0)\n except OSError: return 0"),
    ("exhaustion", "mappings", "calls", ODD, "import mmap\nkept = []\ndef f(n):\n try:\n  while True: kept.append(mmap.mmap(-1, 4096))\n except (OSError, MemoryError): kept.clear(); return 0"),
    ("exhaustion", "time, against the alarm", "calls", ODD, "import signal\nfor s in range(1, 65):\n try: signal.signal(s, signal.SIG_IGN)\n except (OSError, ValueError): pass\ndef f(n):\n while True:\n  try:\n   while True: pass\n  except BaseException: pass"),
]  # fmt: skip
"""Kind, name, kind of tests, tests, a submission that does not solve them."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One submission; `bare` as in `ESCAPES`."""

    kind: str
    name: str
    job: Job
    bare: bool = False


def _escape(kind: str, name: str, bare: bool, tried: str) -> Attempt:
    parts = ", ".join(f"lambda: {each}" for each in tried.split(" | "))
    source = f"{HELP}{MORE_HELP}\ndef f(): return any_of({parts})"
    return Attempt(kind, name, Job(source, (Call((), "through"),), entry="f", limits=LIMITS), bare)


def _cheat(kind: str, name: str, tests_kind: Any, tests: Any, source: str) -> Attempt:
    if tests_kind == "stdio":
        tests = [Program(*each) for each in tests]
    entry = "f" if tests_kind == "calls" else None
    return Attempt(kind, name, Job(source, tests, tests_kind, entry=entry, limits=LIMITS))


ATTEMPTS = [_escape(*each) for each in ESCAPES] + [_cheat(*each) for each in CHEATS]
