"""The translation tables: complete for the installed TRL, and every snippet is legal here."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path

import pytest
from transformers import TrainingArguments
from trl import DistillationConfig, GRPOConfig, RLOOConfig, SFTConfig

from groupwise.algorithms import PRESETS, preset
from groupwise.recipe import field_table

PAGE = (Path(__file__).parents[2] / "docs" / "from_other_libraries.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("| ").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and " | " in line
]
SLOTS = (
    "transform|baseline|scale|ratio|surrogate|weight|correction|kl|kl_coef|filters|shapers|extras"
)
SNIPPETS = sorted(
    {
        match[1]
        for row in ROWS
        for match in re.finditer(rf"`((?:algorithm\.)?(?:{SLOTS}) = [^`]+)`", row[-1])
    }
)


def test_every_field_of_trls_configs_is_translated_or_named_as_missing() -> None:
    inherited = {field.name for field in dataclasses.fields(TrainingArguments)}
    own = {
        field.name for config in (GRPOConfig, RLOOConfig) for field in dataclasses.fields(config)
    }
    # RLOO's own spellings of clipping and rewards; `vllm_*` is one row.
    named = set(re.findall(r"`([a-z_0-9]+)(?: = [^`]*)?`", PAGE))
    missing = {name for name in own - inherited - named if not name.startswith("vllm_")}
    assert not missing


def test_every_field_of_trls_distillation_is_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    from trl.experimental.gkd import GKDConfig

    inherited = {field.name for field in dataclasses.fields(SFTConfig)}
    own = {
        field.name
        for config in (GKDConfig, DistillationConfig)
        for field in dataclasses.fields(config)
    }
    named = set(re.findall(r"`([a-z_0-9]+)(?: = [^`]*)?`", PAGE))
    missing = {name for name in own - inherited - named if not name.startswith("vllm_")}
    assert not missing


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_every_algorithm_setting_is_legal(snippet: str) -> None:
    table = tomllib.loads(snippet.removeprefix("algorithm."))
    algorithm = preset("grpo", **table)
    assert algorithm != preset("grpo") or set(table) & {"weight", "ratio", "scale"}


def test_there_are_enough_snippets_to_mean_something() -> None:
    assert len(SNIPPETS) > 25


def test_every_recipe_field_and_preset_named_exists() -> None:
    fields = {row[0] for row in field_table()}
    tables = {name.rpartition(".")[0] for name in fields} | {"algorithm"}
    for row in ROWS:
        for name in re.findall(r"`((?:[a-z_]+\.)+[a-z_]+)(?: = [^`]*)?`", row[-1]):
            if name.split(".")[0] in {table.split(".")[0] for table in tables}:
                assert name in fields or name.startswith("algorithm."), name
        for names in re.findall(r"presets? ((?:`[a-z_]+`(?:, )?)+)", row[-1]):
            assert set(re.findall(r"`([a-z_]+)`", names)) <= set(PRESETS), names
