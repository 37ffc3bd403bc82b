# ruff: noqa: E501 (tables: one case a line)
"""Replies that the completion forged: each is a 0 of its own, never an exception here, never ours."""

import gc
import json
import os
import random
import time
import tracemalloc
from collections import deque

import pytest

from groupwise.sandbox import Job, Limits
from groupwise.sandbox.comparison import matches
from groupwise.sandbox.guest.values import decode
from groupwise.sandbox.runs import _is_reply, _short, printable, reported_error
from groupwise.sandbox.zygotes import Child, Expired, Garbled, Gone, TooMuch

COMPLETIONS_OWN = {"failed", "crash", "limit", "timeout", "out_of_memory"}

# What a solution that owns its process may send with the right nonce in place of a reply.
REPLIES = [
    "[n]", "[n, 'value']", "[n, 'value', 5]", "[n, 'value', ['l'], None]", "[n, 'value', {}, None]",
    "[n, 'value', ['l', [[[]]]], 7]", "[n, 'error']", "[n, 'error', 5]", "[n, 'error', []]",
    "[n, 'error', [1, 2, 3]]", "[n, 'error', ['E', {}, 'SystemExit']]", "[n, 'memory', 1]", "[n, ['value']]",
    "[n, 'passed', 3, None]", "{'passed': True}", "[]", "5", "None", "[n, 'value', ['n', 'sNaN'], None]",
    "[n, 'value', ['i', 'f' * 100000], None]", "[n, 'value', ['q', [['i', 'f' * 9000], ['i', '1' * 9000]]], None]",
    "['result', 0, True, '']", "[n + 'x', 'value', 3, None]", "[n, 'value', 3]",
    # deques and iterators
    "[n, 'value', ['dq', [['it', [['l', [1]], True]], None]], None]", "[n, 'value', ['dq', [['r', [0, 30000000, 1]], None]], None]",
    "[n, 'value', ['dq', [['s', [1]], 3]], None]", "[n, 'value', ['dq', ['abc', None]], None]", "[n, 'value', ['dq', [['l', []], -1]], None]",
    "[n, 'value', ['it', [['l', [3]], True]], None]", "[n, 'value', ['l', [['it', [['l', [3]], True]]]], None]",
    "[n, 'value', ['dk', [['dq', [['l', []], None]]]], None]", "[n, 'value', ['di', [['t', [1, 2, 3]]]], None]",
    # numbers
    "[n, 'value', ['r', [0, 10**18, 1]], None]", "[n, 'value', ['r', [0, 5, 0]], None]", "[n, 'value', ['c', [['i', 'ff'], 1.0]], None]",
    "[n, 'value', ['q', [1, 0]], None]", "[n, 'value', ['n', '1E+999999999999999999'], None]", "[n, 'value', ['n', 'NaN' + '1' * 99], None]",
    "[n, 'value', ['i', '0x' + '_'.join('1' * 99)], None]", "[n, 'value', 1e400, None]", "[n, 'value', ['b', 'zz'], None]",
    "[n, 'value', ['i', '٣'], None]",
    # collisions of hashes
    "[n, 'value', ['s', [['i', hex(k * (2**61 - 1))] for k in range(1, 20000)]], None]",
    "[n, 'value', ['s', [['q', [['i', hex(3 + k * (2**61 - 1))], 7]] for k in range(9000)]], None]",
    "[n, 'value', ['d', [[['t', [['q', [1, 3]], ['i', hex(k * (2**61 - 1))]]], 0] for k in range(8000)]], None]",
    "[n, 'value', ['f', [['t', [0.5] * 90 + [['i', hex(k * (2**61 - 1))]]] for k in range(900)]], None]",
    # text, names and tags
    "[n, 'value', '\\ud800', None]", "[n, 'value', ['\\ud800', []], None]", "[n, 'error', ['\\ud800', '\\udfff', '\\ud800', None]]",
    "[n, 'not_data', '\\ud800' * 500]", "[n, 'error', ['E' * 90000, 'm' * 90000, 'ModuleNotFoundError', None]]",
    "[n, 'error', ['infrastructure_error', 'infrastructure_error', 'OSError', ['t', []]]]", "[n, 'infrastructure_error', 'x']",
    "['broken', 'no module']", "['broken', 'no module', None]", "[n, 'broken', 'no module']", "['confined']", "[n, 'gone', 'x']",
    "[n, 'error', ['ModuleNotFoundError', 'x', 'ModuleNotFoundError', ['t', ['x']]]]", "[n, 'untold', 'x']",
    # depth, size and desynchronisation
    "[n, 'value', (lambda f: f(f, 400))(lambda f, k: ['l', [f(f, k - 1)]] if k else 3), None]",
    "[n, 'value', ['l', [['l', []]] * 90000], None]", "[n, 'value', [[]] * 300000, None]", "[n, 'value', 'x' * 900000, None]",
    "[[n], 'value', 3, None]", "[None, 'value', 3, None]", "[0, 'value', 3, None]", "[True, 'value', 3, None]", "[n, None, 3, None]",
]  # fmt: skip


@pytest.mark.parametrize("kind", ["calls", "asserts"])
@pytest.mark.parametrize("reply", REPLIES)
def test_no_forged_reply_raises_passes_or_leaves_the_run_out(sandbox, reply, kind):
    source = f"""
import sys
guest = sys.modules["guest.solution"]
send = guest.write_frame
def hostile(message, *rest):
    n = str(message[0])
    send({reply} if message[0] else message)
guest.write_frame = hostile
def f(x): return 4
"""
    test = ((1,), 3) if kind == "calls" else "assert f(1) == 3"
    limits = Limits(time=1.0, memory=256 << 20)
    start, spent = time.monotonic(), time.process_time()
    result = sandbox.grade(Job(source, [test], kind=kind, entry="f", limits=limits))
    assert result.passed == 0
    assert result.outcome in COMPLETIONS_OWN, result
    assert time.process_time() - spent < 2.0
    assert time.monotonic() - start < 15.0  # a limit of 1 second, on a busy machine
    result.reason.encode()


RAW = [
    "b''", "b'\\xff' * 8", "b'\\0\\0\\0\\2{]'", "b'\\x7f' * 9", "b'\\0\\0\\4\\0' + b'[' * 1024", "b'\\0\\0\\0\\2[]'", "b'\\0\\0\\0\\0'",
    "b'\\0\\0\\0\\4null'", "b'\\0\\0\\0\\3\"\\xff\"'", "b'\\0\\0\\0\\x08[\"\\\\ud8\"]'", "b'\\0\\0\\0\\7[1e999]'", "b'\\0\\0\\0\\5[NaN]'",
    "b'\\0\\1\\0\\0' + b'[' + b'9' * 65534 + b']'", "b'\\0\\0\\xff\\xff' + b'[' * 65535", "b'\\0\\0\\0\\x0d[0,\"value\",3]'",
]  # fmt: skip


@pytest.mark.parametrize("raw", RAW)
@pytest.mark.parametrize("kind", ["calls", "stdio", "asserts"])
def test_no_bytes_on_the_reply_pipe_raise_pass_or_leave_the_run_out(sandbox, raw, kind):
    source = f"import os\nos.write(4, {raw})\ndef f(x): return 4"
    test = {"calls": ((1,), 3), "stdio": ("", "3"), "asserts": "assert f(1) == 3"}[kind]
    limits = Limits(time=1.0)
    result = sandbox.grade(Job(source, [test], kind=kind, entry="f", limits=limits))
    assert result.passed == 0
    assert result.outcome in COMPLETIONS_OWN, result


# What a tester sends whose test lets the reply act, as `eval(f(1))` does.
TESTER = [
    "['result', 0, 1, '']", "['result', 0, True]", "['result', None, True, '']", "['result', 0, True, 5]", "['broken', 'x']", "['broken']",
    "['call', 'f', 5, {}]", "['call', 5, [], {}]", "['call', 'f', [], []]", "['call', 'f']", "['unknown', 1, 2, 3]", "['confined']", "[[]]",
    "['call', 'f', [['dq', [['it', []], None]]], {}]", "['call', '\\ud800', [], {}]", "['broken', ['x']]", "['result', 0, False, '\\ud800']",
    "['call', 'os.system', ['true'], {}]", "['call', 'f', [5], {'\\ud800': 5}]", "[None]",
]  # fmt: skip


@pytest.mark.parametrize("message", TESTER)
def test_a_tester_that_a_reply_took_over_is_believed_nothing_malformed(tier_b, message):
    test = f"f(1)\nimport sys\nsys.modules['guest.tester'].write_frame({message})\nassert False"
    job = Job("def f(x): return 1", [test], kind="asserts", limits=Limits(time=1.0))
    result = tier_b.grade(job)
    assert (result.passed, result.outcome in COMPLETIONS_OWN) == (0, True), result
    result.reason.encode()


# Completions that would rather be left out than be 0: (source, kind, test).
LEAVE_OUT = {
    "a missing module": ("raise ModuleNotFoundError('x')", None),
    "a missing module, later": ("def f(x): raise ModuleNotFoundError(\"No module named 'x'\", name='x')", None),
    "an import": ("def f(x): import no_such_module", None),
    "a subclass": ("class M(ModuleNotFoundError): pass\ndef f(x): raise M('x')", None),
    "a hundred of them": ("def f(x): raise ModuleNotFoundError(x)", "for n in range(150):\n try: f(n)\n except ImportError as e: last = e\nraise last"),
    "the first of them": ("def f(x): raise ModuleNotFoundError(x)", "first = None\nfor n in range(150):\n try: f(n)\n except ImportError as e: first = first or e\nraise first"),
    "raised again": ("def f(x): raise ModuleNotFoundError(x)", "try: f(1)\nexcept ImportError as e: raise ModuleNotFoundError(str(e))"),
    "as a cause": ("def f(x): raise ModuleNotFoundError(x)", "try: f(1)\nexcept ImportError as e: raise ValueError from e"),
    "a name to import": ("def f(x): return 'no_such_module'", "import importlib\nassert importlib.import_module(f(1))"),
    "a name of ours": ("class infrastructure_error(Exception): pass\ndef f(x): raise infrastructure_error('infrastructure_error')", None),
    "the words for broken tests": ("def f(x): raise ValueError(\"the tests' own source does not run\")", None),
    "a zygote that is lost": ("class ZygoteLost(Exception): pass\ndef f(x): raise ZygoteLost('the zygote has ended')", None),
    "all of the memory": ("def f(x):\n y = []\n while True: y.append(bytearray(1 << 20))", None),
    "all of the memory while loading": ("x = []\nwhile True: x.append(bytearray(1 << 20))", None),
    "memory in the reply": ("def f(x): return [0] * (40 << 20)", None),
    "a lone surrogate": ("def f(x): return '\\ud800'", None),
    "a lone surrogate raised": ("def f(x): raise ValueError('\\ud800')", None),
    "a lone surrogate in a name": ("def f(x): raise type('E', (Exception,), {'__qualname__': 'E'})('\\udcff' * 400)", None),
    "a lone surrogate in a key": ("def f(x): return {'\\ud800': 1}", None),
    "a source that is no text": ("def f(x): return '\ud800'", None),
    "a null in the source": ("def f(x): return 3\0", None),
    "a source too deep": ("x = " + "(" * 5000, None),
    "a source too deep, closed": ("x = " + "-" * 100_000 + "1", None),
    "no stack left": ("import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return f(x)", None),
    "its pipes closed": ("import os\ndef f(x): os.closerange(0, 128)", None),
    "its reply pipe closed": ("import os\ndef f(x): os.close(4)", None),
    "its command pipe closed": ("import os\ndef f(x): os.close(3)\ndef g(x): return 1", "f(1)\nassert f(1)"),
    "a pipe in its place": ("import os\ndef f(x): os.dup2(os.pipe()[1], 4)", None),
    "the exit code of a child not confined": ("import os\ndef f(x): os._exit(70)", None),
    "killed": ("import os, signal\ndef f(x): os.kill(os.getpid(), signal.SIGKILL)", None),
    "a stop": ("import os, signal\ndef f(x): signal.raise_signal(signal.SIGSTOP)", None),
    "an alarm": ("import signal, time\ndef f(x):\n signal.setitimer(signal.ITIMER_REAL, 0.1)\n time.sleep(3)", None),
    "a profiling timer": ("import signal\nsignal.setitimer(signal.ITIMER_PROF, 0.01)\ndef f(x):\n while True: pass", None),
    "out of descriptors": ("import os\nx = []\ndef f(x):\n while True: os.pipe()", None),
}  # fmt: skip


CHOSEN = [
    (name, kind)
    for name, (_, test) in LEAVE_OUT.items()
    for kind in (("calls", "stdio", "asserts") if test is None else ("asserts",))
]


@pytest.mark.parametrize(("name", "kind"), CHOSEN)
def test_no_completion_chooses_to_be_left_out(sandbox, name, kind):
    source, test = LEAVE_OUT[name]
    tests = {"calls": ((1,), 3), "stdio": ("1", "3"), "asserts": test or "assert f(1) == 3"}
    source += "\nf(1)" if kind == "stdio" else ""
    limits = Limits(time=0.8, memory=128 << 20)
    result = sandbox.grade(
        Job(source, [tests[kind]], kind=kind, entry="f" if kind == "calls" else None, limits=limits)
    )
    assert result.passed == 0
    assert result.outcome in COMPLETIONS_OWN, result
    result.reason.encode()


def test_a_trusted_functions_failure_names_its_outcome_whatever_it_raises(tier_b):
    from groupwise.sandbox import TrustedCallFailed

    for source, outcome in (
        ("class infrastructure_error(Exception): pass\ndef f(): raise infrastructure_error('\\ud800')", "failed"),
        ("def f(): return bytearray(8 << 30)", "out_of_memory"),
        ("import os\ndef f(): os._exit(70)", "crash"),
        ("def f(): return object()", "failed"),
        ("def f():\n while True: pass", "timeout"),
        ("def f(): return 'x' * (2 << 20)", "limit"),
    ):  # fmt: skip
        with pytest.raises(TrustedCallFailed) as caught:
            tier_b.evaluate(source, "f", limits=Limits(time=0.5))
        assert caught.value.outcome == outcome
        str(caught.value).encode()
    assert tier_b.evaluate("def f(): return ['\\ud800', {'\\ud800': 1}]", "f") == [
        "\\ud800",
        {"\\ud800": 1},
    ]


# The frame decoder, fuzzed: whatever the bytes, one of the four exceptions or a list, in little time.

SCALARS = [
    None,
    True,
    False,
    0,
    1,
    -1,
    3,
    2**61,
    0.5,
    1e308,
    float("nan"),
    "",
    "a",
    "n",
    "\ud800",
    "ff",
    "1E+99",
    [],
    {},
]
TAGS = [
    "l",
    "t",
    "s",
    "f",
    "d",
    "i",
    "b",
    "ba",
    "n",
    "c",
    "r",
    "q",
    "dq",
    "dk",
    "dv",
    "di",
    "it",
    "x",
    "",
]
EXPECTED = [
    3,
    0.5,
    True,
    None,
    "a",
    [1],
    (1, 2),
    {1, 2},
    frozenset({1}),
    {1: 2, "a": [3]},
    b"a",
    1j,
    range(3),
    10**30,
]


def message(draw, depth=0):
    choice = draw.random()
    if depth > 5 or choice < 0.3:
        return draw.choice(SCALARS)
    if choice < 0.8:
        parts = [message(draw, depth + 1) for _ in range(draw.choice((0, 1, 2, 2, 3)))]
        return [draw.choice(TAGS), draw.choice((parts, message(draw, depth + 1)))]
    return [message(draw, depth + 1) for _ in range(draw.randrange(5))]


def frame(draw):
    kind = draw.choice(
        ("value", "value", "error", "not_data", "memory", "result", draw.choice(TAGS))
    )
    body = ["n", kind, *(message(draw) for _ in range(draw.choice((0, 1, 2, 2, 2, 3))))]
    raw = bytearray(json.dumps(body if draw.random() < 0.9 else message(draw)).encode())
    for _ in range(draw.choice((0, 0, 0, 1, 2, 5))):  # flipped, dropped and doubled bytes
        place = draw.randrange(len(raw) + 1)
        raw[place : place + draw.randrange(3)] = draw.randbytes(draw.randrange(3)) * draw.choice(
            (1, 1, 9)
        )
    length = draw.choice((len(raw),) * 30 + (len(raw) + 3, len(raw) // 2, draw.randrange(1 << 32)))
    return length.to_bytes(4, "big") + raw


def judged(raw, expected):
    """All that this process does with a frame, where any of `expected` would be right."""
    reply, command, pidfd = os.memfd_create("reply"), os.pipe(), os.open(os.devnull, os.O_RDONLY)
    try:
        with open(reply, "wb", closefd=False) as file:
            file.write(raw)
        os.lseek(reply, 0, os.SEEK_SET)
        child = Child(None, "", pidfd, command[1], reply, None)
        try:
            message = child.receive(time.monotonic() + 5.0, 1 << 20)
        except (Gone, Expired, TooMuch, Garbled) as error:
            return type(error).__name__
        if not _is_reply(message[1:]):
            return "malformed"
        if message[1] in ("error", "not_data"):
            return printable(reported_error(message[2:])).encode()
        for each in expected if message[1] == "value" else ():
            assert matches(each, message[2], tolerance=1e-6, alike=True) in (True, False)
        return printable(_short(message[2])).encode() if message[1] == "value" else "memory"
    finally:
        for each in (reply, *command, pidfd):
            os.close(each)


def fuzz(seed, count):
    draw = random.Random(seed)
    slowest = 0.0
    found = set()
    for _ in range(count):
        start = time.perf_counter()
        outcome = judged(frame(draw), EXPECTED)
        slowest = max(slowest, time.perf_counter() - start)
        found.add(outcome if isinstance(outcome, str) else "text")
    assert found >= {"Gone", "Garbled", "TooMuch", "malformed", "text", "memory"}
    assert slowest < 1.0


def test_the_frame_decoder_holds():
    fuzz(0, 3000)


@pytest.mark.slow
def test_the_frame_decoder_holds_for_100_000_messages():
    fuzz(1, 100_000)


BIG = 1 << 20
LARGEST = {
    "nested": lambda: "[" * 400 + "3" + "]" * 400,
    "nested, too deep": lambda: "[" * 100_000,
    "empty lists": lambda: "[" + ",".join(["[]"] * 340_000) + "]",
    "dicts": lambda: "[" + ",".join(['{"":0}'] * 140_000) + "]",
    "integers": lambda: '["l",[' + ",".join(["1000"] * 200_000) + "]]",
    "floats": lambda: '["t",[' + ",".join(["1e9"] * 250_000) + "]]",
    "lists of lists": lambda: '["l",[' + ",".join(['["l",[]]'] * 110_000) + "]]",
    "digits": lambda: "9" * 4300,
    "too many digits": lambda: "9" * 1_000_000,
    "a long float": lambda: "0." + "1" * 1_000_000,
    "hexadecimal": lambda: '["l",[' + ",".join(['["i","0x' + "f" * 8000 + '"]'] * 125) + "]]",
    "fractions": lambda: '["l",[' + ",".join(['["q",[["i","0x' + "f" * 8000 + '"],["i","0x' + "e" * 8001 + '"]]]'] * 62) + "]]",
    "colliding fractions": lambda: '["s",[' + ",".join(f'["q",[["i","{hex(3 + n * (2**61 - 1))}"],7]]' for n in range(20_000)) + "]]",
    "colliding tuples": lambda: '["s",[' + ",".join(f'["t",[["q",[1,3]],["i","{hex(n * (2**61 - 1))}"]]]' for n in range(15_000)) + "]]",
    "colliding complex": lambda: '["s",[' + ",".join(f'["c",[{float(-1000003 * n)},{float(n)}]]' for n in range(25_000)) + "]]",
    "decimals": lambda: '["s",[' + ",".join(f'["n","1E+{99999 + n}"]' for n in range(40_000)) + "]]",
    "sets of sets": lambda: '["s",[' + ",".join(f'["f",[["f",[{n}]]]]' for n in range(50_000)) + "]]",
    "a long deque": lambda: '["dq",[["r",[0,30000000,1]],null]]',
    "a long deque of items": lambda: '["dq",[["l",[' + ",".join(["1"] * 500_000) + "]],2]]",
    "an iterator": lambda: '["dq",[["it",[["l",[1]],true]],null]]',
    "keys": lambda: '["d",[' + ",".join(f"[{n},0]" for n in range(90_000)) + "]]",
    "bytes": lambda: '["b","' + "00" * 500_000 + '"]',
    "text": lambda: '"' + "\\ud800" * 170_000 + '"',
    "a range": lambda: '["r",[0,["i","0x' + "f" * 8000 + '"],1]]',
}  # fmt: skip


def largest(name):
    body = f'["n","value",{LARGEST[name]()},null]'.encode()[:BIG]
    return len(body).to_bytes(4, "big") + body


@pytest.fixture(scope="module")
def frozen():
    """What earlier tests left is not what a reply costs."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("name", LARGEST)
def test_the_largest_replies_cost_a_second_at_most(frozen, name):
    raw = largest(name)
    start = time.process_time()
    judged(raw, [deque([1]) if "deque" in name else [1]])
    assert time.process_time() - start < 1.0


TRACED = ["empty lists", "dicts", "lists of lists", "floats", "sets of sets"]


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) for n in TRACED])
def test_the_largest_replies_cost_50_megabytes_at_most(name):
    raw = largest(name)
    tracemalloc.start()
    try:
        judged(raw, [])
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


def test_keys_that_collide_are_looked_up_in_little_time():
    """The expected side is trusted and long; every key that comes collides."""
    expected = {(n, n): 0 for n in range(3000)}
    hostile = [
        "d",
        [[["f", [["q", [["i", hex(3 + n * (2**61 - 1))], 7]] for n in range(300)]], 0]] * 3000,
    ]
    start = time.process_time()
    assert not matches(expected, hostile, tolerance=0.0, alike=False)
    assert time.process_time() - start < 3.0


def test_decode_refuses_what_encode_does_not_make():
    for data in (
        ["s", [1, 1]],
        ["d", [[1, 2], [1, 3]]],
        ["dk", [1, 1]],
        ["r", [True, 2, 1]],
        ["c", [1, 2]],
    ):
        with pytest.raises(ValueError, match=r"."):
            decode(data)
