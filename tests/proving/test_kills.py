"""Which instants a run is killed at, and how a child process ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.errors import RecipeError
from groupwise.instants import INSTANTS
from groupwise.proving import verify_resume
from groupwise.proving.check import INSIDE, RANDOM, SECOND_EPOCH, plan_kills
from groupwise.proving.child import Ended

KEYS = [
    "start | start | 1",
    "stage sft, step 0 | optimiser | 1",
    "stage sft, step 1 | optimiser | 1",
    "stage sft, step 1 | epoch | 1",
    "stage sft, step 1 | record | 1",
    "stage sft, step 1 | between stages | 1",
    "stage rl | evaluation | 1",
]
WHOLE = Ended([(float(place), key) for place, key in enumerate(KEYS)], 9.0)


def test_every_kind_of_instant_is_killed_once() -> None:
    kills = plan_kills(WHOLE, 0, seed=0)
    by_kind = {kill.kind: kill.key for kill in kills if kill.kind != INSIDE}
    assert by_kind.pop("optimiser") in KEYS[1:3]
    assert by_kind.pop(SECOND_EPOCH) in KEYS[3:]
    assert by_kind == {
        "epoch": KEYS[3],
        "record": KEYS[4],
        "between stages": KEYS[5],
        "evaluation": KEYS[6],
    }
    inside = [kill.key for kill in kills if kill.kind == INSIDE]
    assert len(inside) == 2
    assert inside[0] in KEYS[1:5]
    assert inside[1] == KEYS[6]


def test_random_kills_are_between_two_instants_and_seeded() -> None:
    kills = [kill for kill in plan_kills(WHOLE, 40, seed=1) if kill.kind == RANDOM]
    assert len(kills) == 40
    assert all(0.0 <= kill.delay < 1.0 for kill in kills)
    assert {kill.key for kill in kills} == set(KEYS[:-1]), "the run ends at its last instant"
    assert plan_kills(WHOLE, 40, seed=1) == plan_kills(WHOLE, 40, seed=1)
    assert plan_kills(WHOLE, 40, seed=1) != plan_kills(WHOLE, 40, seed=2)


CHILD = """
import sys
from pathlib import Path
from groupwise import instants
instants.passed("save")  # not armed: nothing
instants.arm(Path(sys.argv[1]), {"stage sft, step 4 | save | 2": 0.0})
instants.entered_stage("sft")
for step in (3, 4):
    instants.entered_step(step)
    instants.passed("save")
    instants.passed("save")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_process_dies_at_its_instant_and_leaves_the_trace(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(tmp_path / "trace")]
    done = subprocess.run(command, env=dict(os.environ), check=False)
    assert done.returncode == -signal.SIGKILL
    lines = [line.split("\t")[1] for line in (tmp_path / "trace").read_text().splitlines()]
    where = [f"stage sft, step {step} | save | {count}" for step in (3, 4) for count in (1, 2)]
    assert lines == ["start | start | 1", *where, where[-1]]
    assert "start" not in INSTANTS, "the start of a process is not an instant of the run"


def test_a_bad_recipe_and_a_bad_count_are_refused() -> None:
    with pytest.raises(RecipeError, match="kills = -1"):
        verify_resume("tiny_arithmetic", kills=-1)
    with pytest.raises(RecipeError, match=r"training\.step"):
        verify_resume("tiny_arithmetic", {"training.step": 3})
