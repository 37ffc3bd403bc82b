# ruff: noqa: E501 (tables: one case a line)
"""Attacks by someone who did not write the sandbox: counters, sizes, and idioms of honest programs."""

import time
from decimal import Decimal
from fractions import Fraction

import pytest

from groupwise.sandbox import Job, Limits
from groupwise.sandbox.comparison import matches, same_output
from groupwise.sandbox.guest.values import decode
from groupwise.sandbox.runs import Solution

COUNT = """
import ctypes, gc, itertools, os, random, socket, sys, tempfile, threading, uuid
zygote = sys.modules["guest.zygote"]

def word(place): return ctypes.c_uint64.from_address(place).value

def state():
    get = ctypes.pythonapi.PyThreadState_Get
    get.restype = ctypes.c_void_p
    return [word(get() + 8 * n) for n in range(40)]

def code(function):
    return hash(ctypes.string_at(id(function.__code__), function.__code__.__sizeof__()))

def allocated(size):
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    return libc.malloc(size)

COUNTERS = {
    "objects that the collector knows": gc.get_count,
    "collections": gc.get_stats,
    "blocks of memory": sys.getallocatedblocks,
    "the version of a new dict": lambda: word(id({}) + 24),
    "addresses of objects": lambda: [id(each) for each in (object(), [], {}, set(), b"x" * 3000, "y" * 100, 10**40)],
    "addresses of memory": lambda: [allocated(size) for size in (24, 100, 400, 5000, 70000)],
    "references": lambda: [sys.getrefcount(each) for each in (None, True, 0, 1, 5, -1, "", b"", (), str, OSError)],
    "the interpreter's own thread": state,
    "bytecode of the template": lambda: [code(each) for each in (zygote.Template.serve, zygote.Template.__init__, socket.recv_fds, socket.send_fds)],
    "bytecode of the library": lambda: [code(each) for each in (zygote.json.loads, threading.Thread.start, random.Random.seed)],
    "names of threads": lambda: threading.Thread().name,
    "the main thread": lambda: (threading.main_thread().native_id, threading.get_ident()),
    "names of files": lambda: next(tempfile._get_candidate_names()) and tempfile._once_lock.locked(),
    "unique ids": lambda: (uuid._last_timestamp, uuid._node),
    "numbers of descriptors": lambda: [os.dup(0), *os.pipe()],
    "peak memory": lambda: sys.modules["resource"].getrusage(0).ru_maxrss // 4096,
    "interned text": lambda: id(sys.intern("groupwise" + str(4711))),
}

def look(): return {name: repr(count()) for name, count in COUNTERS.items()}
"""


def test_no_run_can_tell_how_many_came_before_it(sandbox):
    """A solution that crashes costs one more process: a count of them is a word to the next run."""
    job = Job(COUNT, [((), {})], entry="look")
    crash = Job("import os\ndef f(): os._exit(1)", [((), 1)] * 3, entry="f")
    seen = []
    with sandbox._zygote() as zygote:
        for _ in range(5):
            solution = Solution(zygote, job, 1e12)
            kind, value, *_ = solution.call("look", [], {}, solution.deadline(), mutated=False)
            solution.end()
            assert kind == "value", value
            seen.append(decode(value))
            for _ in range(4):
                zygote.fork("calls", crash.limits).end()
    for name in seen[1]:
        assert len({each[name] for each in seen}) == 1, name


FORGED = [  # (what `f` of the test below sends or is, the expected value)
    ("[n, 'value', ['s', [1, 1]], None]", {1}), ("[n, 'value', ['d', [[1, 2], [1, 2]]], None]", {1: 2}),
    ("[n, 'value', ['d', [[1, 2], [True, 3]]], None]", {1: 2}), ("[n, 'value', ['l', [['l', [3]]]], None]", [3]),
    ("[n, 'value', ['i', '0x3'], None, None]", 3), ("[n, 'value', ['i', 3], None]", 3), ("[n, 'value', ['n', '3'], None]", 3),
    ("[n, 'value', ['q', [3, 1]], None]", 3), ("[n, 'value', [['i'], '0x3'], None]", 3), ("[n, 'value', ['it', [['l', [3]], False]], None]", [3]),
    ("[n, 'value', ['b', '03'], None]", bytearray(b"\3")), ("[n, 'value', ['dk', [3]], None]", {3}), ("[n, 'value', ['c', [3.0, 0.0]], None]", 3),
    ("[n, 'value', 'nan', None]", float("nan")), ("[n, 'value', True, None]", 1), ("[n, 'value', '3', None]", 3),
]  # fmt: skip


@pytest.mark.parametrize(("reply", "expected"), FORGED)
def test_no_writing_of_a_wrong_value_is_taken_for_the_right_one(sandbox, reply, expected):
    source = f"""
import sys
guest = sys.modules["guest.solution"]
send = guest.write_frame
def hostile(message, *rest):
    n = str(message[0])
    send({reply} if message[0] else message)
guest.write_frame = hostile
def f(): return 4
"""
    result = sandbox.grade(Job(source, [((), expected)], entry="f", limits=Limits(time=1.0)))
    assert (result.passed, result.outcome in ("failed", "crash")) == (0, True), result


WITHIN = [
    (1 / 3 + 1j, 0.33333 + 1j, 1e-3, True), (1j, 1.1j, 1e-3, False), (1j, 1.0, 0.5, False), (1 + 1j, 1 + 1j, 0.0, True),
    ([5e-324], [0.0], 0.5, True), (1e308, 1.7e308, 0.5, False), (3, Decimal(3), 0.5, False), (Fraction(1, 3), 1 / 3, 0.5, False),
    ({1.0: 2}, {1.0000001: 2}, 0.5, False), (True, 1.0, 0.5, False), (2**53 + 1, float(2**53), 0.0, False), ((1, 2), [1, 2], 0.5, False),
]  # fmt: skip


@pytest.mark.parametrize(("expected", "given", "tolerance", "equal"), WITHIN)
def test_what_a_tolerance_is_for(expected, given, tolerance, equal):
    from groupwise.sandbox.guest.values import encode

    assert matches(expected, encode(given), tolerance=tolerance) == equal


LARGE = {
    "a word of digits": lambda: same_output("1", "9" * 10**6, 1e-3),
    "a long fraction": lambda: same_output("1", "0." + "1" * 10**6, 1e-3),
    "an exponent": lambda: same_output("1", "1e" + "9" * 10**6, 1e-3),
    "blank lines": lambda: same_output("1", "\n" * 10**6 + "2"),
    "blanks at ends": lambda: same_output("1\n" * 1000, (" " * 999 + "\n") * 1000, 0.1),
    "a list beside a short one": lambda: matches([[1]], ["l", [["l", [1] * 300_000]]]),
    "a huge range": lambda: matches(range(3), ["r", [0, 10**18, 1]]),
    "an exponent of a decimal": lambda: matches(Decimal(3), ["n", "1E+999999999"]),
    "long fractions": lambda: matches({Fraction(n + 1, 7) for n in range(60)}, ["s", [["q", [["i", "0x" + "f" * 8000], ["i", "0x" + "e" * 8001]]]] * 60]),
    "a long text in a set": lambda: matches({"a"}, ["s", ["x" * 900_000]]),
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
def test_what_is_large_costs_the_trainer_little(name):
    began = time.process_time()
    assert LARGE[name]() is False
    assert time.process_time() - began < 1.0


HONEST = {  # programs: input, output
    "input after a read": ("import sys\na = input()\nprint(a, sys.stdin.read().strip())", "1\n2", "1 2"),
    "lines by bytes": ("import sys\nr = sys.stdin.buffer.readline\nprint(int(r()), r().decode().strip())", "1\nab\n", "1 ab"),
    "files of lines": ("import fileinput\nprint(sum(int(line) for line in fileinput.input()))", "7\n8", "15"),
    "until the end": ("while True:\n try: print(input())\n except EOFError: break", "a\nb", "a\nb"),
    "an output file left open": ("out = open(1, 'w')\nout.write('x')", "", "x"),
    "an output file of a function": ("import os\nout = os.fdopen(1, 'w')\ndef main(): out.write('x')\nmain()", "", "x"),
    "standard output reopened": ("import sys\nsys.stdout = open(1, 'w')\nprint('x')", "", "x"),
    "a deeper stack": ("import resource, sys\nresource.setrlimit(resource.RLIMIT_STACK, (resource.RLIM_INFINITY,) * 2)\nsys.setrecursionlimit(10**6)\ndef d(n): return n and 1 + d(n - 1)\nprint(d(int(input())))", "50000", "50000"),
    "a thread without join": ("import threading\ndef main(): print(input())\nthreading.Thread(target=main).start()", "7", "7"),
    "pickled classes": ("import pickle\nclass A: x = 3\nprint(pickle.loads(pickle.dumps(A())).x)", "", "3"),
    "its own module": ("import __main__\nx = 3\nprint(__main__.x)", "", "3"),
    "standard input by asyncio": ("import asyncio, sys\nasync def main():\n print(await asyncio.get_running_loop().run_in_executor(None, input))\nasyncio.run(main())", "7", "7"),
    "standard input by select": ("import select, sys\nprint(bool(select.select([sys.stdin], [], [], 0)[0]) and input())", "7", "7"),
    "bytes written": ("import sys\nprint('x', flush=True)\nsys.stdout.buffer.write(b'y')", "", "x\ny"),
    "line ends of Windows": ("n = int(input()); print(len(input().strip()), n)", "3\r\nab\r\n", "2 3"),
    "codecs of Asia": ("print('あ'.encode('shift_jis').hex(), '中'.encode('gbk').hex(), '中'.encode('big5').hex(), 'ü'.encode('cp437').hex())", "", "82a0 d6d0 a4a4 81"),
    "a data class with its future": ("from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass P:\n x: int\n y: P | None = None\nprint(P(1))", "", "P(x=1, y=None)"),
    "long numbers": ("import sys\nsys.set_int_max_str_digits(0)\nprint(len(str(2**50000)))", "", "15052"),
    "a timer": ("import threading\nout = []\nt = threading.Timer(0.01, out.append, [1]); t.start(); t.join()\nprint(out)", "", "[1]"),
    "a group of tasks": ("import asyncio\nasync def g(n): return await asyncio.sleep(0.001, n)\nasync def main():\n async with asyncio.TaskGroup() as t: ts = [t.create_task(g(n)) for n in range(3)]\n print([each.result() for each in ts])\nasyncio.run(main())", "", "[0, 1, 2]"),
    "a queue between threads": ("import queue, threading\nq = queue.Queue()\nt = threading.Thread(target=lambda: [q.put(n) for n in range(3)], daemon=True); t.start(); t.join(timeout=1)\nprint([q.get() for _ in range(3)])", "", "[0, 1, 2]"),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_pass(sandbox, name):
    source, given, expected = HONEST[name]
    result = sandbox.grade(Job(source, [(given, expected)], kind="stdio"))
    assert result.outcome == "passed", result.reason
    wrong = sandbox.grade(Job(source, [(given, expected + "0")], kind="stdio"))
    assert wrong.outcome == "failed"
