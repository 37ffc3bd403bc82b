"""The built-in tiny policy: how often it is right, that it is made the same each time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from groupwise.policies import Policy, load_policy, sequence_logprobs
from groupwise.policies.tiny import TinyRecipe, build_tiny, label_shares, sums
from groupwise.types import Prompt

SHORT = TinyRecipe(updates=12)


@pytest.fixture(scope="module")
def tiny() -> Policy:
    return load_policy("tiny", device="cpu")


def answers(policy: Policy) -> torch.Tensor:
    """[55, 10]: the probability that the completion to a sum is exactly this digit."""
    prompts = [
        policy.template.encode_prompt(
            Prompt("p", messages=({"role": "user", "content": f"{a}+{b}="},))
        )
        for a, b in sums()
    ]
    digits = [policy.template.encode(str(digit))[0] for digit in range(10)]
    with torch.no_grad():
        logprobs = sequence_logprobs(
            policy,
            [prompt for prompt in prompts for _ in digits],
            [(digit, 2) for _ in prompts for digit in digits],
        ).logprobs
    return logprobs.sum(1).exp().view(55, 10)


def test_there_are_55_sums() -> None:
    assert len(set(sums())) == 55
    assert all(a + b <= 9 for a, b in sums())


def test_about_42_percent_right_and_every_digit_possible(tiny: Policy) -> None:
    table = answers(tiny)
    right = torch.stack([table[row, a + b] for row, (a, b) in enumerate(sums())])
    assert 0.40 <= right.mean().item() <= 0.45
    assert right.min().item() >= 0.35
    assert right.max().item() <= 0.50
    assert table.min().item() > 2e-4
    assert table.sum(1).min().item() > 0.95
    assert table.argmax(1).tolist() == [a + b for a, b in sums()]


@pytest.mark.parametrize("total", [0, 4, 9])
def test_noisy_labels_are_spread_by_distance(total: int) -> None:
    shares = label_shares(total, TinyRecipe())
    assert sum(shares) == pytest.approx(1.0)
    assert shares[total] == TinyRecipe().right
    by_distance = sorted(set(range(10)) - {total}, key=lambda digit: abs(digit - total))
    values = [shares[digit] for digit in by_distance]
    assert values == sorted(values, reverse=True)


def test_same_recipe_same_bits_other_seed_other_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Path] = []
    for place, recipe in enumerate((SHORT, SHORT, TinyRecipe(updates=12, seed=1))):
        monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path / str(place)))
        torch.manual_seed(place)
        state = torch.get_rng_state()
        built.append(build_tiny(recipe))
        assert torch.equal(torch.get_rng_state(), state)
    weights = [load_file(folder / "model.safetensors") for folder in built]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not torch.equal(*(w["model.embed_tokens.weight"] for w in (weights[0], weights[2])))
    assert built[0].name == built[1].name != built[2].name


def test_the_cache_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path))
    folder = build_tiny(SHORT)
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert build_tiny(SHORT) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
    assert folder.parent == tmp_path / "models"


def test_text_of_small_tasks_survives(tiny: Policy) -> None:
    text = '<answer>What is (3 - 4) * 5? \n it\'s "-5"</answer>'
    assert tiny.template.decode(tiny.template.encode(text)) == text
    chat = ({"role": "system", "content": "add"}, {"role": "user", "content": "3+4="})
    ids = tiny.template.encode_prompt(Prompt("p", messages=chat))
    assert tiny.template.decode(ids) == (
        "<|bos|><|system|>add<|end|><|user|>3+4=<|end|><|assistant|>"
    )
    assert ids.count(1) == 1
    assert tiny.template.stop_ids == {2}
    assert tiny.template.encode("é") == (3,)
