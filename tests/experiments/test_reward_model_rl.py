"""A reward model in training: the claims, the page, and one seed against its control."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import reward_model_rl as experiment

from groupwise.stages import load_pipeline

ROOT = Path(__file__).parents[2]


RISEN = experiment.Curve(
    "no penalty", 0, [0, 16, 32], [0.0, 2.0, 4.0], [-1.0, 1.0, 2.0], [0.3, 0.6, 0.5], [15, 30, 40]
)
CONTROL = replace(RISEN, arm="reversed pairs", gold=[0.3, 0.25, 0.2])


def test_the_claims_are_checked() -> None:
    experiment.check([RISEN, CONTROL])
    for bad, words in (
        (replace(RISEN, gold=[0.3, 0.4, 0.35]), "gold never rose"),
        (replace(RISEN, proxy=[-1.0, -0.9, -0.8]), "proxy rose less"),
        (replace(CONTROL, gold=[0.3, 0.4, 0.5]), "the control of seed 0 raised gold by 20%"),
    ):
        with pytest.raises(AssertionError, match=words):
            experiment.check([bad])


def test_the_arms_read_their_own_reward_model() -> None:
    nodes = {node.name: node for node in load_pipeline(experiment.pipeline(1)).order}
    uses = {name: [use.stage for use in node.stage.model_uses()] for name, node in nodes.items()}
    assert uses["no_penalty"] == uses["KL_penalty"] == ["scorer"]
    assert uses["shuffled_pairs"] == ["shuffled"]
    assert nodes["KL_penalty"].table()["algorithm"]["kl"]["coef"] == 0.3


def test_the_page_has_every_seed_of_every_arm_and_the_curve() -> None:
    page = experiment.PAGE.read_text(encoding="utf-8")
    lines = page.partition("<!-- arms -->")[2].partition("<!-- end -->")[0].splitlines()
    rows = [
        line.split(" | ")
        for line in lines
        if line.startswith(tuple(f"| {a} |" for a in experiment.EVERY))
    ]
    assert [(each[0].strip("| "), int(each[1])) for each in rows] == [
        (arm, seed) for arm in experiment.EVERY for seed in experiment.SEEDS
    ]
    shown = ElementTree.parse(experiment.CURVE).getroot()
    drawn = shown.findall(".//{http://www.w3.org/2000/svg}polyline")
    assert len(drawn) == (2 * len(experiment.EVERY) + 1) * len(experiment.SEEDS)
    text = experiment.draw([RISEN, CONTROL], [[(1, 0.0, 0.3), (4, 0.64, 0.5)]])
    assert "best of n" in text
    assert experiment.interval([0.1, 0.2, 0.3]) == "+20.0% (-4.8% to +44.8%)"
    arms = [replace(RISEN, arm=arm, gold=[0.3, high, 0.4]) for arm in experiment.EVERY
            for high in (0.5, 0.6, 0.7)]  # fmt: skip
    shown = experiment.change_lines(arms).splitlines()
    assert len(shown) == 2 + len(experiment.EVERY)
    assert shown[2].startswith("| no penalty | +30.0% (+5.2% to +54.8%) | +10.0% (+10.0% to +10")
    table = {"arms": "x\n"}
    assert experiment.write("a\n<!-- arms -->\nold\n<!-- end -->\nb\n", table) == (
        "a\n<!-- arms -->\nx\n<!-- end -->\nb\n"
    )


@pytest.mark.slow
def test_one_seed_shows_what_the_page_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reward model raises gold and its negative does not, in the first 24 of the page's 80
    steps on half of its held-out sums; of pairs in the order of a coin nothing is learned."""
    text = experiment.RECIPE.read_text(encoding="utf-8")
    for words, shorter in (("steps = 80", "steps = 24"), ("heldout = 200", "heldout = 100")):
        assert text.count(words) == 1
        text = text.replace(words, shorter)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(text, encoding="utf-8")
    monkeypatch.setattr(experiment, "RECIPE", recipe)
    monkeypatch.setattr(experiment, "ARMS", {"no penalty": {}})
    monkeypatch.setattr(experiment, "BESIDE", {"reversed pairs": (-1.0, False)})
    monkeypatch.setattr(experiment, "EVERY", ("no penalty", "reversed pairs"))
    curves, lines, scorers = experiment.play([0], tmp_path)
    experiment.check(curves)
    assert [each.step for each in curves] == [[0, 8, 16, 24]] * 2
    assert lines[0][-1][2] > lines[0][0][2] + 0.1, "best of n by the reward model"
    learned, coin = (each["fit/eval_accuracy"] for each in scorers)
    assert learned > 0.7
    assert 0.35 < coin < 0.65
