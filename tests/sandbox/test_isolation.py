"""The 23 isolation probes, one test each and per tier, aimed at things that are really there."""

import ast
import os
import re
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.sandbox.probes import PROBES, SOURCE, context_of, open_probes
from groupwise.sandbox.results import Call, Job, Limits
from groupwise.sandbox.runs import grade

CANARY = "groupwise-canary-91f2"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A secret, a file to delete, an environment variable, listeners: all out of reach."""
    folder = tmp_path_factory.mktemp("world")
    secret, victim = folder / "secret", folder / "victim"
    secret.write_text(CANARY)
    secret.chmod(0o644)
    victim.write_text("here")
    tcp = socket.create_server(("127.0.0.1", 0))
    unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    unix.bind("\0" + CANARY)
    unix.listen()
    os.environ["GROUPWISE_TEST_CANARY"] = CANARY
    yield context_of(
        CANARY,
        secret=str(secret),
        victim=str(victim),
        mode=stat.S_IMODE(secret.stat().st_mode),
        folder=str(folder),
        address=id(CANARY),
        port=tcp.getsockname()[1],
    )
    del os.environ["GROUPWISE_TEST_CANARY"]
    tcp.close()
    unix.close()
    assert secret.read_text() == CANARY
    assert stat.S_IMODE(secret.stat().st_mode) == 0o644
    assert victim.read_text() == "here"
    assert sorted(each.name for each in folder.iterdir()) == ["secret", "victim"]


def test_neither_tier_leaves_one_of_the_23_probes_open(sandbox, world):
    assert len(PROBES) == 23
    with sandbox._zygote() as zygote:
        assert open_probes(zygote, world) == {}


def test_the_probes_get_through_where_nothing_is_closed(world):
    """So that a probe which finds nothing means that there is nothing to find."""
    aims = {**world, "victim": "/nonexistent/file"}
    lines = f"{SOURCE}\nprint({{name: attempt(name, {aims!r})[0] for name in EXPRESSIONS}})"
    with open(world["secret"]) as file:
        command, kept = [sys.executable, "-c", lines], [file.fileno()]
        run = subprocess.run(command, capture_output=True, text=True, check=True, pass_fds=kept)
    through = {name for name, state in ast.literal_eval(run.stdout).items() if state == "open"}
    needs_more = {"delete_file", "read_parent_memory", "trace_parent", "mount", "raise_limits"}
    assert set(PROBES) - through <= needs_more | {"kernel_keys", "new_namespace"}


SEARCH = f'''
import gc, sys
def f():
    frame, found = sys._getframe().f_back, []
    while frame:
        found += [repr(value) for value in frame.f_locals.values()]
        frame = frame.f_back
    found += [repr(each) for each in gc.get_objects() if type(each) in (list, tuple, dict)]
    return any("{CANARY}"[::-1] in each for each in found)
'''


def test_the_expected_value_is_nowhere_in_the_child(sandbox):
    reversed_canary = CANARY[::-1]
    assert reversed_canary not in SEARCH
    job = Job(SEARCH, (Call((), False), Call((), reversed_canary)), entry="f")
    with sandbox._zygote() as zygote:
        assert grade(zygote, job).cases == ("passed", "failed")


def test_the_asserts_are_nowhere_in_the_solution(sandbox):
    source = """
import gc, sys
def f():
    return any("a_name_in_the_tests" in repr(each) for each in
               [*sys.modules, *(vars(each) for each in sys.modules.values())])
"""
    test = "a_name_in_the_tests = 7\nassert f() is False"
    with sandbox._zygote() as zygote:
        result = grade(zygote, Job(source, (test,), "asserts", limits=Limits()))
    assert result.outcome == "passed", result.reason


def test_the_review_notes_tell_the_same():
    notes = Path(__file__).parents[2].joinpath("docs", "security.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|.*\| (\S+) \| (\S+) \|$", notes, re.MULTILINE)
    assert rows == [(name, "closed", "closed") for name in PROBES]
