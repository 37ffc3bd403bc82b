"""`tiny-reasoner`: what it is started on, that it is made the same each time, its base rates."""

from __future__ import annotations

import random
import re
from pathlib import Path
from statistics import fmean

import pytest

import groupwise as gw
from groupwise.policies import load_policy
from groupwise.policies.catalogue import get_model
from groupwise.policies.tiny import vocabulary
from groupwise.policies.tiny_reasoner import (
    CHINESE,
    ENGLISH,
    PIECES,
    ReasonerRecipe,
    build_tiny_reasoner,
    reasoner_row,
)


def written(recipe: ReasonerRecipe, draw: random.Random) -> tuple[str, str]:
    text = "".join(token for token, _ in reasoner_row(recipe, draw))
    question, label = text.split("<|assistant|>")
    return question.removeprefix("<|bos|><|user|>").removesuffix("=<|end|>"), label


def test_every_number_and_word_is_a_token_of_its_own() -> None:
    assert len(PIECES) == len(set(PIECES)) == 112
    assert not set(PIECES) & set(vocabulary())
    words = [ENGLISH.numbers[n] for n in (0, 13, 20, 45)]
    assert words == ["zero", "thirteen", "twenty", "forty-five"]
    assert [CHINESE.numbers[n] for n in (0, 10, 13, 20, 45)] == [
        "零",
        "十",
        "十三",
        "二十",
        "四十五",
    ]


def test_a_label_without_noise_adds_up() -> None:
    recipe = ReasonerRecipe(
        slips=0.0, chinese_slips=0.0, switches=0.0, chinese=0.0, bare=0.0, spread=0
    )
    for seed in range(50):
        question, label = written(recipe, random.Random(seed))
        operands = [int(digit) for digit in question.split("+")]
        assert label.endswith(f"<answer>{sum(operands)}</answer><|end|>")
        steps = label.count("first, ") + label.count("second, ") + label.count("third, ")
        assert steps == (len(operands) - 1 if label.startswith("<think>") else 0)
        lines = re.findall(r"(\S+) plus (\S+) is (\S+)\.\n", label)
        for line in lines:
            first, second, third = map(ENGLISH.numbers.index, line)
            assert first + second == third


def test_thinking_checks_slips_and_languages_have_their_shares() -> None:
    recipe, draw = ReasonerRecipe(), random.Random(1)
    rows = [[each for each in reasoner_row(recipe, draw) if each[1]] for _ in range(3000)]
    traces = [row for row in rows if row[0][0] == "<think>"]
    opening = sum(row[0][1] for row in rows)
    assert sum(row[0][1] for row in traces) / opening == pytest.approx(recipe.thinks, abs=0.03)
    # behind "<think>" and the seven tokens of the first step
    checked = sum(row[8][1] for row in traces if row[8][0] in ("wait, ", "等等"))
    assert checked / sum(row[8][1] for row in traces) == pytest.approx(recipe.checks, abs=0.03)
    for words, slips, share in (
        (ENGLISH, recipe.slips, 0.58),
        (CHINESE, recipe.chinese_slips, 0.42),
    ):
        lines = [row[1:7] for row in traces if row[1][0] == words.places[0]]
        numbers = [[words.numbers.index(line[at][0]) for at in (1, 3, 5)] for line in lines]
        assert len(lines) / len(traces) == pytest.approx(share, abs=0.03)
        wrong = [abs(a + b - result) for a, b, result in numbers if a + b != result]
        assert set(wrong) == {1}
        assert len(wrong) / len(lines) == pytest.approx(slips, abs=0.04)


@pytest.mark.slow
def test_the_same_recipe_makes_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import load_file

    recipe = ReasonerRecipe(updates=12)
    made = []
    for name in ("a", "b"):
        monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path / name))
        made.append(load_file(build_tiny_reasoner(recipe) / "model.safetensors"))
    assert all((made[0][key] == made[1][key]).all() for key in made[0])
    monkeypatch.undo()
    entry = get_model("tiny-reasoner")
    assert entry is not None
    assert build_tiny_reasoner() == entry.folder


def test_mostly_wrong_at_once_and_mostly_right_in_steps() -> None:
    policy = load_policy("tiny-reasoner", device="cpu")
    entry = get_model("tiny-reasoner")
    assert entry is not None
    assert policy.num_parameters == entry.num_parameters
    draw = random.Random(0)
    sums = [[draw.randint(1, 9) for _ in range(draw.randint(3, 4))] for _ in range(150)]
    prompts = [[{"role": "user", "content": "+".join(map(str, each)) + "="}] for each in sums]
    samples = gw.sample(policy, prompts, group_size=8, max_tokens=80, seed=0)
    rows = [(sum(each), c.text) for each, group in zip(sums, samples, strict=True) for c in group]
    steps = [row for row in rows if "<think>" in row[1]]
    direct = [row for row in rows if "<think>" not in row[1]]
    assert 0.28 < len(steps) / len(rows) < 0.42
    assert 0.08 < right(direct) < 0.25
    assert 0.5 < right(steps) < 0.75
    checked = [row for row in steps if re.search("wait|等等", row[1])]
    unchecked = [row for row in steps if row not in checked]
    assert 0.3 < len(checked) / len(steps) < 0.5
    assert right(checked) > right(unchecked) + 0.03
    assert 0.35 < fmean("加" in text for _, text in steps) < 0.65
    assert 0.85 < fmean("<answer>" in text for _, text in rows) < 0.95


def right(rows: list[tuple[int, str]]) -> float:
    """Share of completions that end with the sum, in its tag or bare."""
    return fmean(re.split(r"</think>|<answer>", text.removesuffix("</answer>"))[-1] == str(total)
                 for total, text in rows)  # fmt: skip
