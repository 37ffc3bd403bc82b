"""Each kind of finding from a record that has its fault, and none from a healthy one."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupwise.cli.app import run as command
from groupwise.dashboard.data import RunView
from groupwise.doctor import Diagnosis, diagnose
from groupwise.doctor.finding import Finding
from groupwise.doctor.hacking import SCORED_BY_MODEL
from groupwise.doctor.texts import (
    answers,
    final_answer,
    hedges,
    whole_answer_verifier,
)
from groupwise.errors import RecipeError
from groupwise.records import RunWriter, open_run

STEPS = 18
RECIPE = """seed = 0
[environment]
name = "arithmetic"
[[environment.verifiers]]
name = "number"
[sampling]
group_size = 8
max_tokens = 32
[training]
learning_rate = 1e-5
passes = 1
minibatches = 1
max_grad_norm = 1.0
"""
NARROW = """[algorithm.ratio]
kind = "token"
[algorithm.surrogate]
kind = "clip"
low = 0.0003
high = 0.0004
"""

Series = Callable[[int], Any]


def ramp(first: float, last: float) -> Series:
    return lambda step: first + (last - first) * step / (STEPS - 1) + 0.002 * (step % 3)


HEALTHY: dict[str, Series] = {
    "reward": ramp(0.4, 0.7), "groups/no_signal": ramp(0.1, 0.3), "entropy": ramp(1.0, 0.6),
    "completions/count": lambda _: 32, "unscored": lambda _: 0, "completions/truncated": ramp(0, 0),
    "completions/tokens_mean": ramp(12, 13), "completions/tokens_max": lambda _: 20.0,
    "completions/tokens_min": lambda _: 3.0, "kl": ramp(0, 1), "kl/token": ramp(0, 0.1),
    "sampler_gap/mean": ramp(1e-6, 1e-6), "clip/low": ramp(0, 0), "clip/high": ramp(0, 0),
    "loss": ramp(0.1, 0.1), "grad_norm": ramp(1, 1), "seconds/score": ramp(0.1, 0.1),
    "seconds/step": ramp(2, 2), "verifier/number": ramp(0.4, 0.7),
    "outcomes/correct": lambda step: round(32 * ramp(0.4, 0.7)(step)), "staleness": ramp(0, 0),
}  # fmt: skip


def write(
    folder: Path,
    metrics: dict[str, Series] | None = None,
    text: Callable[[random.Random, int, bool], str] = lambda draw, step, right: "so 3+4=7",
    row: dict[str, Any] | None = None,
    recipe: str = RECIPE,
    evaluations: dict[int, dict[str, float]] | None = None,
    environment: dict[str, Any] | None = None,
    planned: dict[str, float] | None = None,
) -> Diagnosis:
    """A record of 18 steps of 8 prompts by 4 completions; what is given replaces the healthy."""
    draw = random.Random(0)
    series = {**HEALTHY, **(metrics or {})}
    with RunWriter.create(folder, recipe, {"environment": environment or {}}) as writer:
        if planned is not None:
            writer.event("planned", **planned)
        for version, values in (evaluations or {}).items():
            writer.evaluation(version, values)
        for step in range(STEPS):
            line = {name: of(step) for name, of in series.items()}
            right = line["outcomes/correct"] / 32
            writer.rollouts(step, [_row(draw, step, n, right, text, row or {}) for n in range(32)])
            writer.metrics(step, {name: value for name, value in line.items() if value is not None})
    return diagnose(folder)


def _row(
    draw: random.Random, step: int, number: int, right: float, text: Any, more: dict[str, Any]
) -> dict[str, Any]:
    good = draw.random() < right
    prompt, answer = number // 4, str(number // 4 + 10)
    written = text(draw, step, good)
    if written == "so 3+4=7":
        written = f"it is {answer if good else draw.randrange(100, 999)}"
    return {
        "step": step, "version": step, "kind": "training", "prompt_id": f"p{prompt}", "visit": step,
        "group_index": number % 4, "prompt": f"What is {prompt}+10?", "answer": answer,
        "prompt_ids": [1], "completion_ids": [draw.randrange(50) for _ in range(12)],
        "mask": [True] * 12, "sampler_logprobs": [-1.0] * 12, "text": written,
        "finish_reason": "stop", "reward": float(good), "rewards": {"number": float(good)},
        "outcome": "correct" if good else "incorrect", "reason": "", "advantage": 0.0, **more,
    }  # fmt: skip


def evaluated(name: str, values: dict[int, float]) -> dict[int, dict[str, float]]:
    return {version: {name: value} for version, value in values.items()}


def constant(value: float) -> Series:
    return lambda _: value


def damaged(tmp_path: Path, damage: Callable[[Path, list[str]], object]) -> tuple[Diagnosis, Path]:
    write(tmp_path / "a")
    damage(tmp_path / "a", (tmp_path / "a" / "metrics.jsonl").read_text().splitlines(True))
    return diagnose(tmp_path / "a"), tmp_path / "a"


def _without_lines(folder: Path, lines: list[str], which: set[int]) -> None:
    kept = [line for n, line in enumerate(lines) if n not in which]
    (folder / "metrics.jsonl").write_text("".join(kept))


@pytest.mark.parametrize(
    ("damage", "message", "steps"),
    [
        (lambda f, _: f.joinpath("rollouts/step_000005.parquet").unlink(),
         "the rollouts of step 5 are not in the record", 18),
        (lambda f, _: shutil.rmtree(f / "rollouts"),
         "the rollouts of steps 0, 1, 2, 3, 4 and 13 more are not in the record", 18),
        (lambda f, _: f.joinpath("metrics.jsonl").unlink(), "metrics.jsonl is not there", 0),
        (lambda f, lines: _without_lines(f, lines, {3, 4}),
         "metrics.jsonl has no line of steps 3, 4", 16),
        (lambda f, lines: f.joinpath("metrics.jsonl").write_text("".join([*lines, lines[5]])),
         "metrics.jsonl has more than one line of step 5", 18),
    ],
)  # fmt: skip
def test_a_record_with_gaps_is_named(
    tmp_path: Path, damage: Callable[[Path, list[str]], object], message: str, steps: int
) -> None:
    found, folder = damaged(tmp_path, damage)
    named = [(each.kind, each.message) for each in found.findings]
    assert ("record_incomplete", message) in named
    assert (found.steps, found.healthy) == (steps, False)
    answer = RunView(open_run(folder)).overview()["answers"][-1]
    assert answer["state"] == "bad"
    assert message in answer["text"]


def test_the_newest_rollouts_may_stand_before_their_line(tmp_path: Path) -> None:
    found, _ = damaged(tmp_path, lambda f, lines: _without_lines(f, lines, {17}))
    assert (found.steps, found.findings) == (17, ())


@pytest.mark.parametrize("size", [0, 100])
@pytest.mark.parametrize("name", ["rollouts/step_000009", "evaluations/version_000000"])
def test_a_file_that_is_cut_short_is_refused_by_name(tmp_path: Path, name: str, size: int) -> None:
    def cut(folder: Path, _: list[str]) -> None:
        whole = (folder / "rollouts" / "step_000000.parquet").read_bytes()
        (folder / "evaluations").mkdir(exist_ok=True)
        (folder / f"{name}.parquet").write_bytes(whole[:size])

    with pytest.raises(RecipeError, match=rf"{name}.parquet cannot be read: .*\({size} bytes"):
        damaged(tmp_path, cut)


def test_a_run_that_failed_before_its_first_step_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunWriter.create(tmp_path / "a", RECIPE, {}) as writer:
        writer.event("failed", step=0, error="the reward raised ValueError: no")
    (finding,) = diagnose(tmp_path / "a").findings
    assert finding.kind == "run_failed"
    assert finding.message == "the run failed: the reward raised ValueError: no"
    assert command(["doctor", str(tmp_path / "a")]) == 1
    assert "0 steps" in capsys.readouterr().out
    (answer,) = RunView(open_run(tmp_path / "a")).overview()["answers"]
    assert (answer["state"], answer["text"]) == ("bad", f"run_failed: {finding.message}")


ZERO = {"outcomes/correct": constant(0), "reward": constant(0), "verifier/number": constant(0)}
FLAT = {"outcomes/correct": constant(13), "reward": constant(0.4), "verifier/number": constant(0.4)}


def late(often: str) -> Callable[[random.Random, int, bool], str]:
    """A text that most completions of the last steps have."""
    return lambda draw, step, right: often if step > 12 and draw.random() < 0.8 else "so 3+4=7"


FAULTS: dict[str, dict[str, Any]] = {
    "verifier_failing": {
        "metrics": {"unscored": constant(8)},
        "row": {"reward": None, "outcome": "verifier_timeout"},
    },
    "nonfinite_updates": {
        "metrics": {"updates/nonfinite": constant(1), "updates": constant(3)}
    },
    "verifier_slow": {
        "recipe": RECIPE.replace('name = "number"', 'name = "my_rewards:slow"'),
        "metrics": {"seconds/score": constant(5), "seconds/step": constant(6)},
    },
    "verifier_constant": {"row": {"reward": 1.0, "rewards": {"number": 1.0}}},
    "never_stops": {
        "metrics": {"completions/truncated": constant(1.0), "completions/tokens_min": constant(20)},
        "row": {"finish_reason": "length"},
    },
    "template_mark": {"text": lambda draw, step, right: f"{draw.random()} <|im_end|> <|im_start|>"},
    "base_rate_zero": {"metrics": ZERO | {"groups/no_signal": constant(1.0)}},
    "too_hard": {
        "metrics": {"outcomes/correct": constant(1), "groups/no_signal": constant(0.9)}
    },
    "too_easy": {
        "metrics": {"outcomes/correct": constant(31), "groups/no_signal": constant(0.9)}
    },
    "truncation": {
        "metrics": {"completions/truncated": ramp(0.1, 0.5)},
        "row": {"finish_reason": "length", "outcome": "incorrect"},
    },
    "one_answer": {"text": late("it is 42")},
    "strict_gap": {
        "recipe": RECIPE + '[[environment.strict_verifiers]]\nname = "exact"\n',
        "evaluations": evaluated("eval/strict_gap", {0: 0.0, 18: 0.4}),
    },
    "literal_tests": {
        "recipe": RECIPE.replace('name = "number"', 'name = "code"'),
        "text": late("def f(x):\n    if x == 17: return 289\n    if x == 23: return 529\n"),
        "row": {"columns": json.dumps({"tests": [[[17], 289], [[23], 529]]})},
    },
    "format_farmed": {"metrics": FLAT | {"verifier/format": ramp(0.1, 0.9)}},
    "hedged_answers": {"text": late("<answer>7</answer> no, <answer>8</answer>")},
    "heldout_gap": {
        "evaluations": {
            version: {"eval/heldout": 0.4, "eval/heldout_low": 0.37, "eval/heldout_high": 0.43}
            for version in (0, 18)
        }
    },
    "entropy_collapse": {"metrics": FLAT | {"entropy": lambda step: max(0.01, 1 - 0.1 * step)}},
    "length_growth": {"metrics": FLAT | {"completions/tokens_mean": ramp(12, 30)}},
    "repetition": {
        "text": lambda draw, step, right: "so 3+4=7",
        "row": {"completion_ids": [1, 2, 3] * 8, "outcome": "incorrect"},
    },
    "language_mixing": {"text": late("я думаю семь")},
    "mismatch_growing": {"metrics": {"sampler_gap/mean": ramp(1e-5, 0.3)}},
    "clip_saturation": {"metrics": {"clip/low": constant(0.3), "clip/high": constant(0.2)}},
    "kl_runaway": {"metrics": FLAT | {"kl": ramp(0, 90), "kl/token": ramp(0, 4)}},
    "divergence": {
        "metrics": {"outcomes/correct": lambda step: (16, 24, 2)[step // 6] + step % 2}
    },
    "length_exploited": {
        "recipe": RECIPE.replace('name = "number"', 'name = "reward_model"'),
        "metrics": {"completions/tokens_mean": ramp(12, 20)},
    },
    "style_exploited": {
        "recipe": RECIPE.replace('name = "number"', 'name = "judge"'),
        "text": late("Great!"),
        "row": {"rewards": {"judge": 0.9}},
    },
    "stale_data": {
        "recipe": RECIPE + "[selection.replay]\nmax_staleness = 30\n",
        "metrics": {"staleness": constant(4.0)},
    },
    "clip_too_narrow": {
        "recipe": RECIPE + NARROW,
        "metrics": {"clip/low": constant(0.2), "clip/high": constant(0.2)},
    },
    "strays_from_plan": {
        "metrics": {"memory/peak_bytes": constant(9e9)},
        "planned": {"memory": 2e9, "resident": 1e9, "peak": 1e9, "step_seconds": 5.0},
    },
    "evaluation_overlap": {"environment": {"overlap": 3, "splits": {"train": 9, "heldout": 4}}},
    "group_too_small": {
        "recipe": RECIPE.replace("group_size = 8", "group_size = 2"),
        "metrics": FLAT | {"outcomes/correct": constant(6)},
    },
    "rate_too_high": {"metrics": {"kl/token": lambda step: 0.01 if step < 9 else 3.0}},
    "rate_too_low": {"metrics": FLAT | {"kl/token": constant(1e-9)}},
    "gradient_clipped": {"metrics": {"grad_norm": constant(50)}},
    "loss_zero": {"metrics": {"loss": constant(1e-7)}},
    "solved": {
        "metrics": {"outcomes/correct": lambda step: 14 + step, "groups/no_signal": ramp(0.1, 0.9)}
    },
    "cannot_tell": {
        "evaluations": {
            version: {"eval/accuracy": 0.5, "eval/accuracy_low": 0.4, "eval/accuracy_high": 0.6}
            for version in (0, 18)
        }
    },
}  # fmt: skip


def test_a_healthy_run_has_no_findings(tmp_path: Path) -> None:
    found = write(tmp_path / "run")
    assert (found.findings, found.waiting, found.healthy) == ((), (), True)


@pytest.mark.parametrize("kind", FAULTS)
def test_a_planted_fault_is_named(tmp_path: Path, kind: str) -> None:
    found = planted(tmp_path / "run", kind)
    assert kind in [finding.kind for finding in (*found.findings, *found.waiting)]


def test_a_gap_that_grows_ahead_of_learning_is_put_down_to_staleness(tmp_path: Path) -> None:
    """The first step has no stale rollout, so its small gap makes no later one look like growth."""

    def found(name: str, gap: Series, ahead: int) -> list[Finding]:
        recipe = RECIPE + f"[compute]\nmax_staleness = {ahead}\n"
        age: Series = lambda step: float(step > 5) * ahead  # noqa: E731
        metrics = {"sampler_gap/mean": gap, "staleness": age}
        diagnosis = write(tmp_path / name, recipe=recipe, metrics=metrics)
        return [
            each
            for each in (*diagnosis.findings, *diagnosis.waiting)
            if each.kind == "mismatch_growing"
        ]

    for ahead, change in (
        (4, {"compute.max_staleness": 2}),
        (1, {"training.learning_rate": 3.3e-6}),
    ):
        (grown,) = found(f"grows-{ahead}", ramp(1e-5, 0.3), ahead)
        assert grown.message.endswith(f", on data {ahead}.0 steps old")
        assert grown.evidence["staleness"] == ahead
        assert grown.advice.startswith("the weights differ as compute.max_staleness says")
        assert grown.change == change
    assert not found("gap-once-stale", lambda step: 0.02 if step > 5 else 1e-6, 1)


def test_values_without_a_verdict_are_no_wrong_answers(tmp_path: Path) -> None:
    """A reward model alone: nothing is said about accuracy, and a reward that rises is a gain."""
    unjudged = {"outcomes/correct": constant(0), "outcomes/no_verdict": constant(32)}
    drifted = {"kl": ramp(0, 40), "kl/token": ramp(0, 2)}
    row = {"outcome": "no_verdict"}
    found = write(tmp_path / "run", metrics={**unjudged, **drifted}, row=row)
    kinds = [finding.kind for finding in (*found.findings, *found.waiting)]
    assert not {"base_rate_zero", "too_hard", "kl_runaway", "format_farmed"} & set(kinds)
    falling = {**unjudged, "reward": ramp(0.9, 0.1)}
    found = write(tmp_path / "falling", metrics=falling, row=row)
    said = [each.message for each in found.findings if each.kind == "divergence"]
    assert said
    assert said[0].startswith("the reward fell from")


def planted(folder: Path, kind: str) -> Diagnosis:
    """The diagnosis of a record with that fault."""
    fault = dict(FAULTS[kind])
    if kind == "repetition":  # not from the start: the early steps are as they should be
        return _repeating(folder)
    if kind == "length_exploited":
        return _long_is_good(folder, fault)
    if kind == "style_exploited":
        return _loud_is_good(folder, fault)
    return write(folder, **fault)


def test_answers_with_braces_are_read_whole() -> None:
    both = r"\boxed{\frac{1}{2}} or rather \boxed{\frac{1}{3}}"
    assert answers(both) == [r"\frac{1}{2}", r"\frac{1}{3}"]
    assert final_answer(both) == r"\frac{1}{3}"
    assert (hedges(both), hedges(r"\boxed{\frac{1}{2}}")) == (True, False)
    assert answers("<answer>7</answer> no, <answer> 8</answer>") == ["7", "8"]
    assert whole_answer_verifier([both, "7"]) == "boxed"
    assert whole_answer_verifier(["<answer>7</answer>"]) == "tagged"
    assert whole_answer_verifier([both, "7", "8"]) == "exact"


def test_one_long_step_is_no_trend(tmp_path: Path) -> None:
    planted: dict[str, Any] = dict(FAULTS["length_exploited"])
    planted["metrics"] = {"completions/tokens_mean": lambda step: 30 if step == STEPS - 1 else 12}
    found = _long_is_good(tmp_path / "run", planted)
    assert "length_exploited" not in [finding.kind for finding in found.findings]


def _repeating(folder: Path) -> Diagnosis:
    write(folder)
    for step in range(12, STEPS):
        rows = [
            _row(random.Random(n), step, n, 0.4, lambda *_: "x", {"completion_ids": [1, 2, 3] * 8})
            for n in range(32)
        ]
        with RunWriter.reopen(folder) as writer:
            writer.rollouts(step, rows)
    return diagnose(folder)


def _long_is_good(folder: Path, planted: dict[str, Any]) -> Diagnosis:
    write(folder, **planted)
    for step in range(14, STEPS):
        rows = [
            _row(random.Random(n), step, n, 0.4, lambda *_: "x", {
                "completion_ids": list(range(10 + n)), "rewards": {"reward_model": 0.1 * n}})
            for n in range(32)
        ]  # fmt: skip
        with RunWriter.reopen(folder) as writer:
            writer.rollouts(step, rows)
    return diagnose(folder)


def _loud_is_good(folder: Path, planted: dict[str, Any]) -> Diagnosis:
    write(folder, **planted)
    quiet = {"text": "x", "rewards": {"judge": 0.1}}
    loud = {"text": "Great!", "rewards": {"judge": 0.9}}
    for step in range(14, STEPS):
        rows = [
            _row(random.Random(n), step, n, 0.4, lambda *_: "", loud if n % 3 else quiet)
            for n in range(32)
        ]
        with RunWriter.reopen(folder) as writer:
            writer.rollouts(step, rows)
    return diagnose(folder)


@pytest.mark.parametrize("name", SCORED_BY_MODEL)
def test_every_learned_score_can_be_exploited_by_length(tmp_path: Path, name: str) -> None:
    planted = FAULTS["length_exploited"] | {
        "recipe": RECIPE.replace('name = "number"', f'name = "{name}"\nlabel = "reward_model"')
    }
    found = _long_is_good(tmp_path / "run", planted)
    assert "length_exploited" in [finding.kind for finding in found.findings]


def test_findings_come_in_order_and_tuning_waits(tmp_path: Path) -> None:
    found = write(
        tmp_path / "run",
        {
            **FAULTS["entropy_collapse"]["metrics"],
            "unscored": constant(8),
            "grad_norm": constant(50),
        },
    )
    kinds = [finding.kind for finding in found.findings]
    assert kinds[:1] == ["verifier_failing"]
    assert "entropy_collapse" in kinds
    assert [finding.kind for finding in found.waiting] == ["gradient_clipped"]


def test_the_command_prints_evidence_and_flags(tmp_path: Path, capsys: Any) -> None:
    write(tmp_path / "run", **FAULTS["truncation"])
    assert command(["doctor", str(tmp_path / "run")]) == 1
    out = capsys.readouterr().out
    assert "[signal] truncation (sure): 46% of the completions are cut at the limit" in out
    assert "try: --sampling.max_tokens 64" in out
    assert "read: step 14 p0[0]" in out
    assert command(["doctor", str(tmp_path / "run"), "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["evidence"]["limit"] == 32
    assert (finding["name"], finding["severity"]) == ("truncation", "warning")
    assert finding["suggestion"].endswith("see length_growth: --sampling.max_tokens 64")
    assert finding["samples"][0] == {"step": 14, "prompt_id": "p0", "group_index": 0}


def test_a_pipeline_is_asked_for_a_stage(tmp_path: Path) -> None:
    write(tmp_path / "run" / "stages" / "first")
    (tmp_path / "run" / "recipe.toml").write_text("seed = 0\n", "utf-8")
    with pytest.raises(RecipeError, match="stages/first"):
        diagnose(tmp_path / "run")


def test_a_finding_is_said_once_while_the_run_goes_on(tmp_path: Path) -> None:
    from groupwise.cli.live_doctor import LiveDoctor

    write(tmp_path / "run", **FAULTS["truncation"])
    said: list[str] = []
    doctor = LiveDoctor(said.append)
    doctor.folder, doctor.started = tmp_path / "run", -1e9
    for step in range(18):
        doctor.on_step({"step": step})
    doctor.on_end({"steps": 18}, tmp_path / "run")
    (line,) = said
    assert line.startswith("doctor: truncation: 46% of the completions are cut")
    (tmp_path / "run" / "metrics.jsonl").write_text("{broken\n{", "utf-8")
    doctor.on_end({"steps": 18}, tmp_path / "run")
    assert said[1].startswith("note: the doctor could not read the record")


def test_the_gap_of_a_sampler_in_8_bits_is_no_finding_before_it_grows(tmp_path: Path) -> None:
    recipe = RECIPE.replace("[sampling]", '[sampling]\nquantise = "int8"')

    def found(name: str, gap: Series) -> list[Finding]:
        diagnosis = write(tmp_path / name, recipe=recipe, metrics={"sampler_gap/mean": gap})
        both = (*diagnosis.findings, *diagnosis.waiting)
        return [each for each in both if each.kind == "mismatch_growing"]

    assert not found("steady", ramp(0.13, 0.14))  # as SmolLM2-135M has it
    (grown,) = found("grows", ramp(0.01, 0.6))
    assert grown.change == {"sampling.quantise": "none"}
    assert grown.advice.startswith("8 bits round more of these weights away")
