"""Methods and readings by hand on small numbers; names; user-defined parts; rules of the house."""

from __future__ import annotations

import ast
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import groupwise
from algorithms.fixture import f64
from groupwise.algorithms import PRESETS, algorithm_from_table, describe, label, part, preset
from groupwise.algorithms.describe import describe_parts, every_part
from groupwise.algorithms.parts import PARTS, Part, Positive
from groupwise.algorithms.surrogates import Surrogate, TokenTerms
from groupwise.errors import RecipeError
from groupwise.suggestions import nearest, slips

MASK = torch.tensor([[True, True, True], [True, False, False], [True, True, False]])


# methods


def test_opo_weighs_the_mean_by_length() -> None:
    """Lengths 3, 1, 2 and rewards 1, 0, 0.5: b = (3 + 0 + 1)/6."""
    out = preset("opo").advantages(f64([[1.0, 0.0, 0.5]]), mask=MASK)
    torch.testing.assert_close(out, f64([[1 / 3, -2 / 3, -1 / 6]]))
    with pytest.raises(ValueError, match="length_weighted_mean needs mask"):
        preset("opo").advantages(f64([[1.0, 0.0]]))


def test_gpg_scales_by_the_groups_that_carry_a_signal() -> None:
    rewards = f64([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [0.0, 1.0]])
    out = preset("gpg").advantages(rewards)
    assert out.tolist() == [[1.0, -1.0], [0.0, 0.0], [0.0, 0.0], [-1.0, 1.0]]
    std = preset("gpg", scale={"divide_by_std": True}).advantages(rewards)
    assert std[0].tolist() == [2.0, -2.0]


@pytest.mark.parametrize(("k", "right"), [(1, 1), (2, 1), (3, 2), (4, 5)])
def test_pass_at_k_is_zero_on_average_and_favours_the_right(k: int, right: int) -> None:
    rewards = f64([[1.0] * right + [0.0] * (8 - right)])
    out = preset("pass_at_k", transform={"k": k}).advantages(rewards)[0]
    assert out.sum().item() == pytest.approx(0.0, abs=1e-12)
    if out.any():
        assert out[0] > 0 > out[-1]
    if k == 1:
        torch.testing.assert_close(out, preset("dapo").advantages(rewards)[0])


def test_pass_at_k_by_hand() -> None:
    """4 completions, 1 right, k = 2: Rbar = 1 - 3/6, s = 0.5; wrong: (0.5 - 2/3)/0.5."""
    out = preset("pass_at_k", transform={"k": 2}).advantages(f64([[1.0, 0.0, 0.0, 0.0]]))[0]
    torch.testing.assert_close(out, f64([1.0, -1 / 3, -1 / 3, -1 / 3]))
    with pytest.raises(RecipeError, match="give 5 or more"):
        preset("pass_at_k").check(group_size=4)


def test_gmpo_clips_the_harmful_side_of_each_token() -> None:
    old = f64([[-1.0, -1.0], [-1.0, -1.0]])
    new = (old + f64([[0.9, -0.9], [0.9, -0.9]])).requires_grad_(True)
    out = preset("gmpo").loss(
        new, mask=torch.ones(2, 2).bool(), advantages=f64([1.0, -1.0]), old_logprobs=old
    )
    up, down = math.exp((0.4 - 0.9) / 2), math.exp((0.9 - 0.4) / 2)
    assert out.loss.item() == pytest.approx(-(up - down) / 2)
    (gradient,) = torch.autograd.grad(out.loss, new)
    torch.testing.assert_close(gradient, f64([[0.0, -up / 4], [down / 4, 0.0]]))
    assert (out.metrics["clip/high"], out.metrics["clip/low"]) == (0.25, 0.25)


def draws(seed: int) -> torch.Tensor:
    algorithm = preset(
        "clip_cov", filters=[{"kind": "clip_cov", "share": 0.25, "low": -99.0, "high": 99.0,
                              "seed": seed}],
    )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    lp = -torch.rand(8, 8, generator=generator, dtype=torch.float64)
    plan = algorithm.plan_update(
        torch.ones(8, 8).bool(), logprobs=lp, advantages=torch.linspace(-1, 1, 8).double()
    )
    assert plan.keep is not None
    return ~plan.keep


def test_clip_cov_draws_its_share_by_key() -> None:
    assert draws(0).sum() == draws(1).sum() == 16
    assert torch.equal(draws(0), draws(0))
    assert not torch.equal(draws(0), draws(1))


def test_kl_cov_holds_the_tokens_of_the_largest_covariance() -> None:
    old = f64([[-0.1, -2.0], [-0.5, -1.0]])
    new = (old + 0.5).requires_grad_(True)
    out = preset("kl_cov").loss(
        new, mask=torch.ones(2, 2).bool(), advantages=f64([1.0, -1.0]), old_logprobs=old
    )
    (gradient,) = torch.autograd.grad(out.loss, new)
    r = math.exp(0.5)
    torch.testing.assert_close(gradient, f64([[1 - r, -r], [r, r]]) / 4)


# readings


def test_reinforce_pp_baseline_whitens_over_tokens_or_rows() -> None:
    """Rewards 1, 0 with 3 tokens and 1: mean over tokens 0.25·0.5·..., over rows 0."""
    rewards, mask = f64([[1.0, 0.0]]), MASK[:2]
    tokens = preset("reinforce_pp_baseline").advantages(rewards, mask=mask)
    values = f64([0.5, 0.5, 0.5, -0.5])
    want = (f64([0.5, -0.5]) - values.mean()) / values.std(correction=0)
    torch.testing.assert_close(tokens[0], want)
    rows = preset("reinforce_pp_baseline", scale={"over": "rows"}).advantages(rewards, mask=mask)
    assert rows.tolist() == [[1.0, -1.0]]


def test_reinforce_pp_without_kl_is_the_limit_of_a_small_one() -> None:
    rewards, lp = f64([[1.0, 0.0, 0.25]]), torch.rand(3, 3).double()
    inputs: dict[str, Any] = {"mask": MASK, "old_logprobs": lp, "ref_logprobs": lp - 0.3}
    none = preset("reinforce_pp", kl_coef=0).advantages(rewards, **inputs)
    small = preset("reinforce_pp", kl_coef=1e-9).advantages(rewards, **inputs)
    torch.testing.assert_close(small, none[0].unsqueeze(1) * MASK, atol=1e-7, rtol=0)


@pytest.mark.parametrize("spread", ["suffix_sum", "per_token", "broadcast"])
@pytest.mark.parametrize("over", ["rows", "tokens"])
@pytest.mark.parametrize("baseline", ["group_mean", "none", "batch_mean", "leave_one_out"])
def test_a_spread_and_whitening_go_together(spread: str, over: str, baseline: str) -> None:
    algorithm = preset(
        "grpo", spread=spread, baseline=baseline, scale={"kind": "batch_whiten", "over": over}
    )
    out = algorithm.advantages(f64([1.0, 0.0, 0.5]), [0, 0, 0], mask=MASK)
    weights = MASK.sum(1).double() if over == "tokens" else torch.ones(3).double()
    assert (weights * out).sum().item() == pytest.approx(0.0, abs=1e-9)
    assert (weights * out.square()).sum().item() == pytest.approx(float(weights.sum()))


# names


def test_a_preset_under_another_name() -> None:
    made = preset("grpo", name="x")
    assert (made.name, made.preset) == ("x", "grpo")
    assert made.to_table()["preset"] == "grpo"
    assert algorithm_from_table({"preset": "grpo", "name": "x"}) == made
    assert algorithm_from_table(made.to_table()) == made
    assert describe(made).name == "x"
    assert describe(made).verified == describe(preset("grpo")).verified
    for bad in ("", 3, None):
        with pytest.raises(RecipeError, match=r"algorithm.name = .*give a text"):
            preset("grpo", name=bad)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({}, "grpo"),
        ({"surrogate": "unclipped"}, "grpo with surrogate = unclipped"),
        ({"surrogate": {"high": 0.3}}, "grpo with surrogate.high = 0.3"),
        ({"kl_coef": 0, "weight": "per_token"}, "grpo with weight = per_token, kl.coef = 0.0"),
        ({"filters": ["overlong_mask"]}, "grpo with filters = ['overlong_mask']"),
        ({"name": "mine"}, "mine (grpo)"),
        ({"name": "mine", "scale": "none"}, "mine (grpo with scale = none)"),
    ],
)
def test_a_changed_preset_is_described_as_what_it_is(overrides: Any, said: str) -> None:
    assert label(preset("grpo", **overrides)) == said


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("gpro", "grpo"), ("grop", "grpo"), ("dpao", "dapo"), ("gsop", "gspo"), ("rlo", "rloo"),
        ("dr-grpo", "dr_grpo"), ("reinforc", "reinforce"), ("cisop", "cispo"),
    ],
)  # fmt: skip
def test_the_nearest_name_counts_a_swap_as_one_slip(typed: str, meant: str) -> None:
    with pytest.raises(RecipeError, match=f"did you mean '{meant}'"):
        preset(typed)


def test_slips() -> None:
    assert (slips("gpro", "grpo"), slips("gpro", "gtpo"), slips("", "ab")) == (1, 2, 2)
    assert nearest("zzzz", ["grpo"]) is None


@pytest.mark.parametrize(
    "name",
    ["online_pair_logistic", "symmetric_tv_mask", "batch_norm_clip_higher", "ref_surprise_weight"],
)
def test_a_form_that_moved_is_refused_with_its_place(name: str) -> None:
    with pytest.raises(RecipeError, match=r"experiments/misread_forms\.py"):
        preset(name)


# parts


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("tis", [("correction", "truncate")]), ("mis", [("correction", "mask")]),
        ("k3", [("kl", "kl")]), ("dynamic_sampling", [("filters", "dynamic_sampling")]),
        ("per_token", [("spread", "per_token"), ("weight", "per_token")]),
        ("seq-mean-token-mean", [("weight", "per_sequence")]), ("opsm",
        [("filters", "off_policy_sequence_mask")]), ("TIS", [("correction", "truncate")]),
    ],
)  # fmt: skip
def test_a_part_is_found_by_any_of_its_names(name: str, found: list[tuple[str, str]]) -> None:
    shown = describe_parts(name)
    assert [(each.slot, each.kind) for each in shown] == found
    for each in shown:
        assert each.formula in each.text()
        assert f"{each.slot} = " in each.text()


def test_every_part_says_what_it_is() -> None:
    for cls in every_part():
        (shown,) = [d for d in describe_parts(cls.kind or cls.slot) if d.slot == cls.slot]
        assert len(shown.words) > 5
        assert shown.formula
    with pytest.raises(RecipeError, match="nearest names are tis"):
        describe_parts("tsi")


def test_a_user_defined_part_is_ten_lines() -> None:
    @part
    class Squashed(Surrogate):
        """f = cap tanh(r/cap) A."""

        kind = "squashed"
        cap: Positive = 2.0

        def __call__(self, terms: TokenTerms) -> torch.Tensor:
            return self.cap * (terms.ratio / self.cap).tanh() * terms.advantages

    try:
        table = {"preset": "dapo", "surrogate": {"kind": "squashed", "cap": 3}}
        made = algorithm_from_table(table)
        assert algorithm_from_table(made.to_table()) == made
        assert label(made) == "dapo with surrogate = squashed"
        lp = f64([[-1.0]]).requires_grad_(True)
        out = made.loss(lp, mask=torch.ones(1, 1).bool(), advantages=f64([2.0]))
        assert out.loss.item() == pytest.approx(-6 * math.tanh(1 / 3))
        with pytest.raises(RecipeError, match=r"surrogate.cap = 0.0: .* greater than 0.* 2.0"):
            Squashed(cap=0.0)
    finally:
        del PARTS["surrogate"]["squashed"]


# house rules

SOURCE = Path(groupwise.__file__).parent / "algorithms"


def test_no_part_is_asked_for_its_class() -> None:
    """What a neighbour asks of a part is a trait, never its class."""
    parts = {cls.__name__ for cls in every_part()} - {"Kl"}
    for path in SOURCE.glob("*.py"):
        for found in re.findall(r"isinstance\(\w[\w.]*, ([\w |]+)\)", path.read_text()):
            assert not parts & set(re.findall(r"\w+", found)), (path.name, found)


def imports(path: Path) -> set[str]:
    """Modules of the room that a file imports, inside functions too, not for type checking."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "groupwise.algorithms":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and "groupwise.algorithms." in (node.module or ""):
            found.add(str(node.module).rsplit(".", 1)[1])
        waiting += ast.iter_child_nodes(node)
    return found


def test_no_import_circle() -> None:
    graph = {path.stem: imports(path) for path in SOURCE.glob("*.py") if path.stem != "__init__"}
    done: set[str] = set()
    while True:
        free = {name for name, needs in graph.items() if not (needs & graph.keys()) - done}
        if free <= done:
            break
        done |= free
    assert set(graph) == done


def test_no_file_is_long() -> None:
    for path in SOURCE.glob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 450, path.name


def test_a_preset_is_one_entry() -> None:
    for name, entry in PRESETS.items():
        assert entry.algorithm.name == entry.algorithm.preset == name
        assert entry.title
        assert entry.citation
        assert all(isinstance(each, Part) for each in entry.algorithm.parts)
