"""docs/preference.md: its stages are legal, its table is what each method sets, recipes run."""

from __future__ import annotations

import copy
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import groupwise as gw
from groupwise.algorithms.preference import METHODS
from groupwise.scorers import RewardModel
from groupwise.stages import KINDS, load_pipeline
from groupwise.stages.preference import LossSettings
from pipeline_helpers import pipeline, write_rows

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "preference.md").read_text(encoding="utf-8")
STAGES, VERIFIER = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)


def test_the_stages_are_legal_and_every_option_is_one(tmp_path: Path) -> None:
    rows = [{"prompt": f"{n}+1=", "chosen": str(n + 1), "rejected": "0"} for n in range(1, 9)]
    data = write_rows(tmp_path / "pairs.jsonl", rows)
    stages = tomllib.loads(STAGES.replace("pairs.jsonl", str(data)))["stages"]
    stages += (later := tomllib.loads(VERIFIER)["stages"])
    kinds = [node.stage.kind for node in load_pipeline(pipeline(data, *stages), None).order]
    assert kinds == ["rejection", "preference", "reward_model", "rl"]
    (given,) = later[0]["environment"]["verifiers"]
    assert RewardModel(**{**given["arguments"], "model": "a folder"}).length_control
    assert KINDS["reward_model"].changes_weights is False


def test_the_table_of_methods() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", TEXT, re.MULTILINE))
    assert METHODS.keys() <= rows.keys()
    for name in METHODS:
        found = LossSettings(method=name)  # type: ignore[arg-type]
        text = rows[name]
        assert f"beta {found.beta:g}" in text
        assert ("no reference" in text) is not found.reference
        assert ("length_normalised" in text) is found.length_normalised
        assert ("odds" in text) is found.odds
        assert ("squared" in text) is (found.shape == "squared")
        for field in ("margin", "coef", "nll"):
            default: Any = LossSettings.model_fields[field].default
            value = getattr(found, field)
            assert (f"{field} {value:g}" in text) is (value != default)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tulu_rlvr", "reward_model"])
def test_the_recipes_run_small(name: str, tmp_path: Path) -> None:
    run = gw.train(ROOT / "recipes" / f"{name}.toml", output=tmp_path / "run", small=True)
    assert {each["status"] for each in run.summary["stages"]} == {"finished"}


@pytest.mark.slow
def test_dpo_raises_accuracy_and_the_same_pairs_by_a_coin_do_not(tmp_path: Path) -> None:
    table = tomllib.loads((ROOT / "recipes" / "tulu_rlvr.toml").read_text(encoding="utf-8"))
    *before, dpo, _ = table["stages"]
    coin = copy.deepcopy(dpo)
    coin |= {"name": "coin", "from": "sft"}
    coin["data"][0]["pairing"]["by"] = "coin"
    del table["small"]
    run = gw.train({**table, "stages": [*before, dpo, coin]}, output=tmp_path / "run")
    found = {each["name"]: each["last"] for each in run.summary["stages"]}
    right = {name: last.get("guard/accuracy") for name, last in found.items()}
    assert right["sft"] > 0.38, "the base model: 0.29"
    assert right["dpo"] > right["sft"] + 0.05
    assert right["coin"] < right["dpo"] - 0.08
    assert found["dpo"]["fit/eval_accuracy"] > 0.6
    assert 0.35 < found["coin"]["fit/eval_accuracy"] < 0.65
