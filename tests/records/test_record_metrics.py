"""The metric table: same keys for everyone, no undocumented name, fault 62."""

from __future__ import annotations

import doctest
import math
import re
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from groupwise.records import COMMON_KEYS, METRICS, complete_step, find_metric
from groupwise.records import metric_table as table_module
from groupwise.records import metrics as metrics_module
from groupwise.types import Outcome


def test_every_metric_is_once_in_the_docs_with_unit_and_definition():
    text = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    found = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    assert [name for name, *_ in found] == [f"`{metric.name}`" for metric in METRICS]
    for metric, (_, unit, definition, better) in zip(METRICS, found, strict=True):
        assert unit
        assert len(definition) > 10, metric.name
        measured = "; differs between equal runs" if metric.measured else ""
        assert better == (metric.better or "-") + measured
    assert "Not a progress signal" in next(line for line in lines if line.startswith("| `loss`"))


def test_common_keys_are_the_names_without_a_pattern():
    assert set(COMMON_KEYS) == {m.name for m in METRICS if "<" not in m.name}
    for name in (
        *("step", "reward", "reward_std", "groups/no_signal", "unscored", "entropy", "kl"),
        *("kl/token", "ratio/mean", "ratio/min", "ratio/max", "clip/low", "clip/high"),
        *("completions/tokens_mean", "completions/truncated", "grad_norm", "learning_rate"),
        *("loss", "surrogate", "sampler_gap/mean", "sampler_gap/max", "tokens", "tokens_total"),
        *("tokens_per_second", "seconds/rollout", "seconds/step", "updates", "updates/skipped"),
        *("version", "staleness", "memory/peak_bytes", "eval/accuracy", "eval/heldout_low"),
    ):
        assert name in COMMON_KEYS


def test_every_line_has_the_same_common_keys_whatever_was_measured():
    plain = complete_step(0, {"reward": 0.5})
    rich = complete_step(0, {"kl": 0.1, "correction/ess": 0.9, "verifier/number": 1.0})
    assert list(plain) == list(COMMON_KEYS)
    assert list(rich)[: len(COMMON_KEYS)] == list(COMMON_KEYS)
    assert set(rich) - set(plain) == {"correction/ess", "verifier/number"}
    assert plain["kl"] is None
    assert rich["kl"] == 0.1


def test_an_undefined_name_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match=r"no metric is called 'rewards': did you mean reward"):
        complete_step(0, {"rewards": 1.0})


@pytest.mark.parametrize(
    "name",
    [
        "verifier/number",
        "verifier/my_module:reward",
        "correction/max",
        "filter/overlong",
        "eval/pass@4",
        "eval/heldout_greedy_verifier/format",
        *(f"outcomes/{outcome}" for outcome in get_args(Outcome)),
    ],
)
def test_patterns_match(name: str):
    assert "<" in find_metric(name).name


@pytest.mark.parametrize("name", ["verifier/", "eval/", "verifier", "outcomes//x"])
def test_patterns_need_a_name(name: str):
    with pytest.raises(ValueError, match="no metric"):
        find_metric(name)


def test_values_are_plain_json_numbers():
    line = complete_step(
        1,
        {
            "loss": math.nan,
            "ratio/max": math.inf,
            "ratio/min": -math.inf,
            "reward": np.float64(0.25),
            "reward_std": np.float32(0.5),
            "tokens": np.int64(7),
        },
    )
    assert line["loss"] is None
    assert line["ratio/max"] == 1.7976931348623157e308
    assert line["ratio/min"] == -1.7976931348623157e308
    assert (line["reward"], line["reward_std"], line["tokens"]) == (0.25, 0.5, 7)
    assert type(line["tokens"]) is int


def test_a_tensor_or_text_is_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="'loss' must be a number or None, got Tensor"):
        complete_step(0, {"loss": torch.tensor(1.0)})
    with pytest.raises(TypeError, match="got bool"):
        complete_step(0, {"loss": True})


def test_a_contradicting_step_is_refused():
    with pytest.raises(ValueError, match="of step 2, not of step 3"):
        complete_step(3, {"step": 2})


@pytest.mark.parametrize("module", [table_module, metrics_module])
def test_examples(module):
    assert doctest.testmod(module).failed == 0
