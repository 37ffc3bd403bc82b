"""Sharded gradients equal those of one process, for every preset."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from groupwise.algorithms import PRESETS, Algorithm, preset
from groupwise.batches import align, make_batch, split_groups
from groupwise.distributed import ALONE, Ranks
from groupwise.errors import NonFiniteError
from helpers import make_rich_groups
from preset_learner import make_learner, moved
from rank_helpers import on_ranks

pytestmark = pytest.mark.cluster

NAMES = [name for name in PRESETS if not preset(name).needs.values]


def algorithm_of(name: str) -> Algorithm:
    return preset(name, **({"transform": {"k": 2}} if name == "pass_at_k" else {}))


def weights_after(ranks: Ranks, names: list[str]) -> dict[str, Tensor]:
    """Every trained weight after two updates; three groups, which 2 and 4 ranks do not divide."""
    made = {}
    for name in names:
        algorithm = algorithm_of(name)
        groups = make_rich_groups(3, algorithm.needs.group_size or 4, top_k=algorithm.needs.top_k)
        made[name] = moved(make_learner(algorithm, 40, ranks=ranks), groups)
    return made


@pytest.fixture(scope="module")
def alone() -> dict[str, Tensor]:
    return weights_after(ALONE, NAMES)


@pytest.mark.parametrize("size", [2, 4])
def test_gradients_of_every_preset_equal_one_process(size: int, alone: dict[str, Tensor]) -> None:
    before = torch.cat([
        p.detach().flatten() for p in make_learner(preset("grpo"), 40).policy.model.parameters()
    ])  # fmt: skip
    for found in on_ranks(size, "cluster.test_gradients:weights_after", NAMES):
        for name, weights in found.items():
            update = float((alone[name] - before).norm())
            assert update > 1e-5, name
            assert float((weights - alone[name]).norm()) < 1e-5 * update, name


def after_nan(ranks: Ranks) -> tuple[str, dict[str, float | None]]:
    """What an update says whose first row has no finite advantage, and the metrics of one that
    skips it."""
    learner = make_learner(preset("dr_grpo", kl_coef=0.0), 40, ranks=ranks)
    groups = make_rich_groups(3, 4)
    rows = align(groups)
    batch = make_batch(groups, rows, learner.algorithm, max_tokens=8)
    batch.advantages[0] = float("nan")
    passes = [split_groups(rows.group_ids, 1, seed=0, step=0, pass_index=0)]
    with pytest.raises(NonFiniteError) as raised:
        learner.learn(batch, passes, step=5)
    learner.faults.settings = learner.settings.model_copy(update={"skip_nonfinite": 1})
    return str(raised.value), learner.learn(batch, passes, step=6)


def test_a_loss_that_is_not_finite_on_one_rank_is_so_on_all() -> None:
    said, metrics = after_nan(ALONE)
    assert said.startswith("step 5, update 0: the loss is not finite")
    assert metrics["updates/nonfinite"] == 1
    for found, values in on_ranks(2, "cluster.test_gradients:after_nan"):
        assert found == said
        assert values["updates/nonfinite"] == 1
        assert values["updates"] == 0
