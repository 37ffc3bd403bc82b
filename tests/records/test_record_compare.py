"""`diff`: the first step where two runs differ, and in what."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.errors import RecipeError
from groupwise.records import RunWriter, diff, open_run, rollout_rows
from record_helpers import group


def write(
    folder: Path,
    *,
    recipe: str = "seed = 0\n",
    changed_at: int | None = None,
    change: str = "",
    seconds: float = 1.0,
    steps: int = 3,
) -> Path:
    with RunWriter.create(folder, recipe, {"versions": {"torch": "2.13.0"}}) as writer:
        for step in range(steps):
            now = change if step == changed_at else ""
            reward = 0.25 if now == "reward" else 1.0
            tokens = 3 if now == "ids" else 2
            groups = [group("p", [reward, 0.0], tokens=[tokens, 2], step=step)]
            advantages = [0.5 if now == "advantage" else 1.0, -1.0]
            writer.rollouts(step, rollout_rows(step, groups, advantages))
            values = {"reward": 0.5, "seconds/step": seconds, "tokens_per_second": 1 / seconds}
            writer.metrics(step, {**values, "grad_norm": 2.0 if now == "grad" else 1.0})
    return folder


def test_equal_runs_are_equal_whatever_the_clock_says(tmp_path: Path):
    found = diff(write(tmp_path / "a"), write(tmp_path / "b", seconds=7.0))
    assert found.equal
    assert found.first_step is None
    assert found.lines() == ["no difference in the 3 common steps"]


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ("ids", ["sampled ids (completion_ids)", "sampler log-probabilities"]),
        ("reward", ["rewards (reward)"]),
        ("advantage", ["advantages (advantage)"]),
        ("grad", ["grad_norm"]),
    ],
)
def test_the_first_step_that_differs_and_in_what(tmp_path: Path, change: str, names: list[str]):
    a, b = write(tmp_path / "a"), write(tmp_path / "b", changed_at=1, change=change)
    found = diff(open_run(a), open_run(b))
    assert not found.equal
    assert found.first_step == 1
    assert len(found.causes) == len(names)
    for cause, name in zip(found.causes, names):
        assert cause.name.startswith(name)
    assert found.lines()[0] == "first difference at step 1"
    assert set(found.parted.values()) == {1}
    assert found.to_dict()["first_difference"]["step"] == 1


def test_where_it_differs_is_said(tmp_path: Path):
    a, b = write(tmp_path / "a"), write(tmp_path / "b", changed_at=2, change="reward")
    (cause,) = diff(a, b).causes
    assert "in 1 of 2 rows, first prompt_id p, visit 0, group_index 0" in cause.name
    assert (cause.a, cause.b) == (1.0, 0.25)


def evaluated(folder: Path, reward: float = 1.0, accuracy: float = 0.5) -> Path:
    write(folder)
    with RunWriter.reopen(folder) as writer:
        for version in (0, 3):
            now = reward if version == 3 else 1.0
            rows = rollout_rows(version, [group("p", [now, 0.0], step=version)], [1.0, -1.0])
            writer.evaluation(version, {"eval/greedy": accuracy if version else 0.5}, rows)
    return folder


def test_evaluations_are_compared(tmp_path: Path):
    a = evaluated(tmp_path / "a")
    assert diff(a, evaluated(tmp_path / "same")).equal
    found = diff(a, evaluated(tmp_path / "b", reward=0.25))
    assert (found.equal, found.first_step, found.first_version) == (False, None, 3)
    assert found.lines() == [
        "no difference in the 3 common steps",
        "first evaluation that differs: version 3",
        "  rewards (reward) in 1 of 2 rows, first prompt_id p, visit 0, group_index 0: 1.0 -> 0.25",
    ]
    assert found.to_dict()["first_version"] == 3
    (cause,) = diff(a, evaluated(tmp_path / "c", accuracy=0.75)).evaluation_causes
    assert str(cause) == "eval/greedy: 0.5 -> 0.75"


def test_an_evaluation_that_is_missing_differs_and_a_damaged_one_is_named(tmp_path: Path):
    a, b = evaluated(tmp_path / "a"), evaluated(tmp_path / "b")
    path = b / "evaluations" / "version_000000.parquet"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(RecipeError, match=r"evaluations/version_000000\.parquet cannot be read"):
        diff(a, b)
    path.unlink()
    found = diff(a, b)
    assert (found.equal, found.first_version) == (False, 0)
    assert [str(each) for each in found.evaluation_causes] == ["rollouts: 2 -> 0"]


def test_a_field_that_a_resume_changed_is_compared_as_it_is_since_then(tmp_path: Path):
    a = write(tmp_path / "a", recipe="[training]\nsteps = 2\n")
    b = write(tmp_path / "b", recipe="[training]\nsteps = 3\n")
    assert [str(each) for each in diff(a, b).recipe] == ["training.steps: 2 -> 3"]
    with RunWriter.reopen(a) as writer:
        writer.event("resumed", step=1, changed={"training.steps": [2, 3]})
    assert diff(a, b).equal
    with RunWriter.reopen(a) as writer:
        writer.event("resumed", step=1, changed={"training.steps": 3})
    with pytest.raises(RecipeError, match=r"changed = \{'training\.steps': 3\}; expected field"):
        diff(a, b)


def test_recipes_and_lengths_are_compared(tmp_path: Path):
    a = write(tmp_path / "a", recipe="seed = 0\n[training]\nsteps = 3\n")
    b = write(tmp_path / "b", recipe="seed = 1\n[training]\nsteps = 2\n", steps=2)
    found = diff(a, b)
    assert [str(d) for d in found.recipe] == ["seed: 0 -> 1", "training.steps: 3 -> 2"]
    assert (found.steps_a, found.steps_b, found.first_step) == (3, 2, None)
    assert not found.equal
    assert found.lines()[-1] == "steps: 3 -> 2"


def test_environments_are_compared_and_may_differ(tmp_path: Path):
    a, b = write(tmp_path / "a"), write(tmp_path / "b")
    (b / "environment.json").write_text('{"record_version": 2, "versions": {"torch": "2.14.0"}}')
    found = diff(a, b)
    assert [str(d) for d in found.environment] == ["versions.torch: '2.13.0' -> '2.14.0'"]
    assert found.lines()[0] == "versions: versions.torch: '2.13.0' -> '2.14.0'"
    assert found.equal


def test_what_differs_is_called_code_data_verifier_or_machine(tmp_path: Path):
    a, b = write(tmp_path / "a"), write(tmp_path / "b")
    text = (
        '{"record_version": 2, "versions": {"torch": "2.13.0"}, "code": {"commit": "abc"}, '
        '"environment": {"data_hash": "d"}, "cpus": 2, "algorithm": {"preset": "grpo"}, '
        '"audit": {"hash": "h", "probes": [1], "strict": {"hash": "s", "raised": {"rate": 0}}}}'
    )
    (b / "environment.json").write_text(text)
    found = diff(a, b).lines()
    assert found[:5] == [
        "code: code.commit: None -> 'abc'",
        "data: environment.data_hash: None -> 'd'",
        "machine: cpus: None -> 2",
        "verifier: audit.hash: None -> 'h'",
        "verifier: audit.strict.hash: None -> 's'",
    ]
    assert not any("algorithm" in line for line in found)
    assert not any("probes" in line or "raised" in line for line in found)
