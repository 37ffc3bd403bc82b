"""results.json from its phases, what is kept of an earlier run, rendering, and a run end to end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.contenders import BY_NAME, CONTENDERS, Contender
from benchmarks.parent import Phase, Rules
from benchmarks.ratios import BARS
from benchmarks.workload import FULL, SMALL

from benchmarks import render, run, workload

ROOT = Path(__file__).parents[2]
KNOWN: dict[str, Any] = {
    "processor": "a processor",
    "instruction_sets": ["avx2"],
    "processors": 2,
    "memory_bytes": 8 * 2**30,
    "platform": "Linux",
    "code": {"commit": "abc"},
}


def entry(rows: list[dict[str, Any]], **failures: str) -> dict[str, Any]:
    return {
        "code": {"commit": "0123456789abcdef", "changed": True},
        "date": "2026-01-01 00:00 UTC",
        "command": "python -m benchmarks.run",
        "seconds": 1.0,
        "kept_loaded": True,
        "failures": failures,
        "details": {"groupwise-bf16": {"detail": {"threads": 2}}},
        "rows": rows,
    }


def row(name: str, seconds: float, foreign: float = 0.0) -> dict[str, Any]:
    return {
        "contender": name,
        "phase": "rollout",
        "seconds": seconds,
        "tokens": 100,
        "peak_bytes": 10**9,
        "shares": {"active": 0.9, "idle_contenders": 0.0, "foreign": foreign},
        "disturbed": foreign > 0.1,
    }


def results() -> dict[str, Any]:
    rows = [
        row("groupwise-bf16", 1.0),
        row("groupwise-bf16", 2.0, foreign=0.5),
        row("generate-bf16", 4.0),
    ]
    return run.assemble(
        {"rollout": entry(rows, openvino="openvino-genai is not installed")},
        workload=FULL,
        foreign_limit=0.1,
        known=KNOWN,
        versions={"torch": "2"},
    )


def test_results_have_the_stable_keys() -> None:
    made = results()
    assert list(made["ratios"]) == [
        "rollout_vs_generate", "rollout_vs_generate_fp32", "rollout_vs_trl", "rollout_vs_trl_fp32",
        "rollout_vs_openvino", "rollout_int8_vs_openvino", "rollout_vs_kernels", "train_vs_trl",
        "train_vs_roofline", "step_vs_trl_best", "step_vs_trl_fp32", "memory_vs_trl",
    ]  # fmt: skip
    assert {"ratios", "machine", "versions", "repeats"} <= set(made)
    assert made["ratios"]["rollout_vs_generate"] == 4.0
    assert made["repeats"] == 1
    assert made["ratios"]["rollout_vs_openvino"] is None
    assert made["missing"]["rollout_vs_openvino"] == "openvino: openvino-genai is not installed"
    json.dumps(made)


def test_the_rendered_page_says_ratios_bars_failures_and_machine() -> None:
    page = render.markdown(results(), None, "## Where the time goes\n\nwords")
    assert "| rollout_vs_generate | 4.00 | at least 4 | 6 | met |" in page
    assert (
        "| rollout_vs_openvino |  | at least 1 | 1.5 | openvino: openvino-genai is not installed |"
        in page
    )
    assert "rollout: openvino is missing: openvino-genai is not installed" in page
    assert "| groupwise, bf16, fp32 masters | 100 [100, 100] |" in page
    assert "rollout 1 (1)" in page
    assert "commit 0123456789ab with changes" in page
    assert "this one does not have it (avx2)" in page
    assert "64 rows of 64 new tokens" in page
    assert page.rstrip().endswith("words")


def test_growth_is_rendered_where_it_was_measured() -> None:
    growth = {
        "points": [
            {
                "sweep": "length", "value": "64", "rows": 8, "tokens": 2000, "seconds": 4.0,
                "peak_bytes": 2e9,
            }
        ],
        "cut": ["length 1024"],
        "linearity": 1.1,
        "steady": {"steps": 300, "growth": 0.001, "slope_bytes_per_step": 12.0},
        "date": "2026-01-01",
        "command": "python -m benchmarks.growth",
    }  # fmt: skip
    page = render.markdown(results(), growth, "")
    assert "| length | 64 | 8 | 2,000 | 4 | 2 | 2.00 |" in page
    assert "Cut by the time budget: length 1024." in page
    assert "resident memory grew by 0.10% after warm-up (12 bytes a step)" in page


def test_phases_of_the_same_work_are_kept_and_others_are_not(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    assert run.kept_phases(path, FULL, {"torch": "2"}, "a processor") == {}
    path.write_text(json.dumps(results()))
    assert set(run.kept_phases(path, FULL, {"torch": "2"}, "a processor")) == {"rollout"}
    assert run.kept_phases(path, SMALL, {"torch": "2"}, "a processor") == {}
    assert run.kept_phases(path, FULL, {"torch": "3"}, "a processor") == {}
    assert run.kept_phases(path, FULL, {"torch": "2"}, "another") == {}


def test_arguments_out_of_range_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.arguments(["--repeats", "0"])
    assert "--repeats 1 or more" in capsys.readouterr().err
    assert run.arguments(["--small"]).output == run.SMALL_OUTPUT


def test_a_small_run_has_no_peer() -> None:
    names = {each.name for each in run.contenders("step", list(BY_NAME), small=True)}
    assert names == {"groupwise-bf16", "groupwise-fp32", "groupwise-checkpointed"}
    assert all(each.needs is None for each in CONTENDERS if each.small)


def test_every_ratio_has_contenders_in_its_phase() -> None:
    phases = {phase for contender in CONTENDERS for phase in contender.phases}
    assert phases == set(workload.PHASES)
    assert len(BARS) == 12


def test_prompts_differ_and_the_reward_spreads() -> None:
    texts = workload.questions("smollm2-135m", 64)
    assert len(set(texts)) == 64
    assert len(set(workload.questions("tiny", 64))) == 64
    rewards = workload.spread_reward(["a", "b", [{"role": "assistant", "content": "a"}]])
    assert rewards[0] == rewards[2] != rewards[1]
    assert all(0 <= reward < 1 for reward in rewards)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_peer_that_is_not_there_or_fails_is_out_and_the_rest_go_on(tmp_path: Path) -> None:
    absent = Contender("absent", "absent", "", "benchmarks.ours", ("rollout",), needs="no-such-x")
    broken = BY_NAME["openvino"]  # knows no GGUF of the tiny model
    works = BY_NAME["kernels-fp32"]
    said: list[str] = []
    made = Phase(
        "rollout",
        [absent, broken, works],
        SMALL,
        Rules(repeats=1, retries=0),
        tmp_path,
        said.append,
    ).run()
    assert made.failures["absent"] == "no-such-x is not installed"
    assert set(made.failures) == {"absent", "openvino"}
    assert [each["contender"] for each in made.rows] == ["kernels-fp32"]
    assert made.rows[0]["tokens"] == 64
    assert any("openvino is out" in line for line in said)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_where_memory_runs_short_idle_contenders_are_ended_and_load_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = [BY_NAME["kernels-fp32"], BY_NAME["kernels-bf16"]]
    rules = Rules(repeats=1, retries=0)
    said: list[str] = []
    phase = Phase("rollout", chosen, SMALL, rules, tmp_path, said.append)
    left = iter([9e9, 1e9])  # at the start, and before the first repeat
    monkeypatch.setattr("benchmarks.parent.machine.available_memory", lambda: next(left))
    monkeypatch.setattr(phase, "_working", lambda: 2e9)
    made = phase.run()
    assert made.kept_loaded is False
    assert [line for line in said if "each loads per repeat" in line] == [
        "rollout: 1.0 GB are left; each loads per repeat from now"
    ]
    assert [each["contender"] for each in made.rows] == ["kernels-fp32", "kernels-bf16"]
    assert said.count("rollout: kernels-bf16 is ready") == 2
    assert made.failures == {}
    assert phase.running == {}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_small_run_end_to_end(tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    command = [sys.executable, "-m", "benchmarks.run", "--small", "--repeats", "1"]
    options = ["--retries", "0", "--output", str(output)]
    done = subprocess.run(
        [*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr
    made = json.loads(output.read_text())
    assert made["failures"] == {}
    assert set(made["phases"]) == {"rollout", "natural", "step"}
    assert made["ratios"]["rollout_vs_generate"] > 0
    assert made["ratios"]["rollout_vs_kernels"] > 0
    assert made["ratios"]["step_vs_trl_best"] is None
    fixed = made["phases"]["rollout"]["rows"]
    assert {each["tokens"] for each in fixed} == {64}
    steps = made["phases"]["step"]["rows"]
    assert {each["contender"] for each in steps} == {
        "groupwise-bf16", "groupwise-fp32", "groupwise-checkpointed",
    }  # fmt: skip
    assert all(each["rollout_seconds"] + each["train_seconds"] <= each["seconds"] for each in steps)
    assert "rollout_vs_generate" in (tmp_path / "RESULTS.md").read_text()
