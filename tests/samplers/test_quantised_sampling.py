"""`sampling.quantise = "int8"`: what is rounded, how far it may be off, and where it is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from groupwise.errors import NonFiniteError, RecipeError
from groupwise.policies import sequence_logprobs
from groupwise.recipe import load_recipe
from groupwise.samplers import LocalSampler, make_sampler
from groupwise.samplers.local import weights
from groupwise.samplers.local.weights import Int8Weight, why_not_int8
from groupwise.training.preparing import prepare
from groupwise.training.start import train
from model_families import family_policy
from sampler_requests import requests, unending

REASON = why_not_int8(torch.device("cpu"))
needs_int8 = pytest.mark.skipif(REASON is not None, reason=str(REASON))
RECIPE = {
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic"},
    "algorithm": {"preset": "grpo"},
}


def rounded(values: torch.Tensor, dim: int) -> torch.Tensor:
    step = values.abs().amax(dim, keepdim=True) / 127
    return (values / step).round() * step


@needs_int8
def test_a_product_is_that_of_rounded_rows_and_outputs() -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(n, 96, generator=generator) for n in (7, 40))
    x[:, 5] *= 50.0  # an input that would leave the others few levels
    expected = rounded(x, 1) @ rounded(weight, 1).T
    torch.testing.assert_close(Int8Weight(weight)(x), expected, rtol=1e-5, atol=1e-4)
    smooth = (weight.abs().amax(0) / x.abs().amax(0)).sqrt()
    expected = rounded(x * smooth, 1) @ rounded(weight / smooth, 1).T
    made = Int8Weight(weight, x.abs().amax(0))(x)
    torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-4)
    exact = x @ weight.T
    assert float((made - exact).norm()) < 0.5 * float((Int8Weight(weight)(x) - exact).norm())
    assert torch.equal(Int8Weight(weight)(x[3:4])[0], Int8Weight(weight)(x)[3])
    assert torch.equal(Int8Weight(torch.zeros(8, 96))(x), torch.zeros(7, 8))


@needs_int8
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3_moe", "gemma2", "phi3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_samples_nearly_the_policy_and_follows_it(family: str, dtype: torch.dtype) -> None:
    policy = dataclasses.replace(unending(family_policy(family)), dtype=dtype)
    asked = requests(10, max_tokens=13)
    sampler = LocalSampler(policy, quantise=True)
    made = sampler.sample(asked)
    with torch.no_grad():
        learned = sequence_logprobs(
            policy, [r.prompt_ids for r in asked], [c.token_ids for c in made]
        ).logprobs
    gap = (torch.tensor([c.sampler_logprobs for c in made]) - learned).abs()
    assert 1e-4 < float(gap.mean()) < 0.1
    if dtype == torch.float32:
        shared = make_sampler("local", policy, quantise="int8", batch_rows=3).sample(asked)
        assert [c.token_ids for c in shared] == [c.token_ids for c in made]
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=torch.manual_seed(1)))
    sampler.load(policy, 1)
    fresh = LocalSampler(policy, quantise=True)
    assert sampler.sample(asked) == [dataclasses.replace(c, version=1) for c in fresh.sample(asked)]


@needs_int8
def test_values_that_are_not_finite_are_refused() -> None:
    policy = family_policy("llama")
    nn.init.constant_(policy.model.model.layers[0].mlp.down_proj.weight, float("nan"))
    with pytest.raises(NonFiniteError, match="not finite"):
        LocalSampler(policy, quantise=True).sample(requests(2))


@needs_int8
def test_a_run_measures_the_gap_and_corrects_it(tmp_path: Any) -> None:
    recipe = {**RECIPE, "sampling": {"quantise": "int8"}}
    run = train(recipe, output=tmp_path / "run", small=True)
    metrics = run.metrics().to_pandas()
    assert (metrics["sampler_gap/mean"] > 1e-5).all()
    assert (metrics["correction/mean"] - 1.0).abs().max() < 0.1


def test_it_is_corrected_by_default_and_never_left_without() -> None:
    quantised = {**RECIPE, "sampling": {"quantise": "int8"}}
    made = load_recipe(quantised)
    assert made.algorithm.correction.kind == "truncate"
    assert load_recipe(RECIPE).algorithm.correction.kind == "none"
    kept = load_recipe({**quantised, "algorithm": {"preset": "grpo", "correction": "mask"}})
    assert kept.algorithm.correction.kind == "mask"
    anchored = load_recipe({**quantised, "algorithm": {"preset": "scale_rl"}})
    assert anchored.algorithm.correction.kind == "none"
    with pytest.raises(RecipeError, match=r'quantise = .*correction = "truncate"'):
        load_recipe({**quantised, "algorithm": {"preset": "grpo", "correction": "none"}})


def test_it_is_refused_where_it_is_not_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecipeError, match="quantise = 'int8': the sampler 'transformers'"):
        load_recipe({**RECIPE, "sampling": {"quantise": "int8", "sampler": "transformers"}})
    with pytest.raises(RecipeError, match="quantise = 'int8': models of type 'gpt2'"):
        make_sampler("auto", family_policy("gpt2"), quantise="int8")
    assert "on cuda" in str(why_not_int8(torch.device("cuda")))
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict)
    with pytest.raises(RecipeError, match="quantise = 'int8': this processor has no instr"):
        LocalSampler(family_policy("llama"), quantise=True)
    with pytest.raises(RecipeError, match="quantise = 'int8': this processor has no instr"):
        prepare(load_recipe({**RECIPE, "sampling": {"quantise": "int8"}}))  # no weights load
    monkeypatch.undo()
    if REASON is None:
        monkeypatch.setattr(weights, "_ZERO_POINT", 0)
        assert why_not_int8(torch.device("cpu")) == "they are wrong on this processor"
