"""The page of every algorithm has what `algorithms show` has, a plot, and links that lead there."""

from __future__ import annotations

import importlib.util
import math
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from groupwise.algorithms import PRESETS, algorithm_from_table, describe, preset

DOCS = Path(__file__).parents[2] / "docs"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


formulas = load("formulas")
surrogate_curve = load("curves").surrogate_curve
pages = load("algorithm_pages")


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_page_has_what_show_has(name: str) -> None:
    shown, text = describe(preset(name)), pages.page(preset(name))
    assert "\n".join(shown.formula) in text
    plain = text.replace("\\", "")
    for slot, kind, formula in shown.parts:
        assert f"| {slot} | `{kind}` |" in plain
        assert not formula or formulas.inline(formula).replace("|", "\\|") in text
    for line in (*shown.verified, *shown.unsettled, *shown.needs, shown.citation, shown.typical):
        assert line in plain
    assert f"({name}.svg)" in text
    for other in re.findall(r"\]\((\w+)\.md\)", text):
        assert other in PRESETS


@pytest.mark.parametrize("name", ["grpo", "dppo_topk_kl", "raft", "ppo"])
def test_the_recipe_on_the_page_is_the_preset(name: str) -> None:
    block = re.search(r"    ```toml\n(.*?)    ```", pages.page(preset(name)), re.DOTALL)
    assert block is not None
    table = tomllib.loads(re.sub(r"^    ", "", block[1], flags=re.MULTILINE))["algorithm"]
    del table["preset"]
    assert algorithm_from_table({"name": name, **table}) == preset(name)


def test_index_has_every_preset_once() -> None:
    listed = re.findall(r"^\| \[`(\w+)`\]\(algorithms/\1\.md\)", pages.index(), re.MULTILINE)
    assert listed == list(PRESETS)


@pytest.mark.parametrize("name", ["dapo", "gspo", "gmpo"])
def test_plot_is_transparent_and_repeatable(name: str, tmp_path: Path) -> None:
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    pages.draw(preset(name), first)
    pages.draw(preset(name), second)
    text = first.read_text(encoding="utf-8")
    assert text == second.read_text(encoding="utf-8")
    assert "gradient weight" in text
    assert "opacity: 0" in text
    assert len(text) < 60_000


def test_a_gone_preset_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PRESETS", {"grpo": PRESETS["grpo"]})
    (tmp_path / "gone.md").write_text("old")
    pages.write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["grpo.md", "grpo.svg"]


def test_navigation_puts_the_pages_under_their_index(tmp_path: Path) -> None:
    folder = tmp_path / "generated" / "algorithms"
    folder.mkdir(parents=True)
    (folder / "grpo.md").write_text("x")
    config = {
        "docs_dir": str(tmp_path),
        "nav": [{"Start": "index.md"}, {"Algorithms": "generated/algorithms.md"}],
    }
    nav = load("navigation").on_config(config)["nav"]
    assert nav == [
        {"Start": "index.md"},
        {
            "Algorithms": [
                {"All of them": "generated/algorithms.md"},
                {"grpo": "generated/algorithms/grpo.md"},
            ]
        },
    ]


@pytest.mark.parametrize(
    ("formula", "drawn"),
    [
        ("x_i = y", "<msub><mi>x</mi><mi>i</mi></msub><mo>=</mo><mi>y</mi>"),
        ("1/(B·n)", "<mfrac><mn>1</mn><mrow><mi>B</mi><mo>·</mo><mi>n</mi></mrow></mfrac>"),
        ("Σ_i,t f", "<munder><mo>Σ</mo><mi>i,t</mi></munder><mi>f</mi>"),
        ("r^k", "<msup><mi>r</mi><mi>k</mi></msup>"),
        ("√(q)", "<msqrt><mi>q</mi></msqrt>"),
        (
            "the log-probability",
            "<mtext>&nbsp;the&nbsp;</mtext><mtext>&nbsp;log-probability&nbsp;</mtext>",
        ),
        ("no KL", "<mtext>&nbsp;no&nbsp;</mtext><mi>KL</mi>"),
        ("a < b", "<mtext>&nbsp;a&nbsp;</mtext><mo>&lt;</mo><mi>b</mi>"),
        (
            "exp(lp - old)",
            "<mrow><mi>exp</mi><mrow><mo>(</mo><mi>lp</mi><mo>−</mo><mi>old</mi><mo>)</mo></mrow></mrow>",
        ),
    ],
)
def test_formulas_are_drawn_as_mathml(formula: str, drawn: str) -> None:
    assert formulas.inline(formula) == f"<math>{drawn}</math>"


def test_a_formula_fence_becomes_a_block_and_other_fences_stay() -> None:
    page = "a\n```formula\nx = y\nA_i\n```\n```text\nx = y\n```\n"
    drawn = formulas.render_page(page)
    assert drawn.count("<math>") == 2
    assert "```text\nx = y\n```" in drawn
    assert "```formula" not in drawn


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_formula_is_well_formed(name: str) -> None:
    for line in describe(preset(name)).formula:
        ElementTree.fromstring(formulas.inline(line).replace("&nbsp;", " "))


RATIOS = [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 3.0, 1e9]


def test_curves() -> None:
    up = surrogate_curve(preset("dapo"), RATIOS)
    assert up.ratios == (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 3.0)
    assert up.weight == pytest.approx((0.25, 0.5, 0.75, 1.0, 1.25, 0.0, 0.0))
    assert up.objective[-1] == pytest.approx(1.28)
    down = surrogate_curve(preset("dapo"), RATIOS, advantage=-2.0)
    assert down.weight == pytest.approx((0.0, 0.0, 0.0, 1.0, 1.25, 1.5, 3.0))
    with pytest.raises(ValueError, match="other than 0"):
        surrogate_curve(preset("dapo"), RATIOS, advantage=0.0)


@pytest.mark.parametrize("name", sorted(PRESETS))
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_every_weight_is_one_at_ratio_one(name: str, sign: float) -> None:
    curve = surrogate_curve(preset(name), [1.0], advantage=sign)
    want = 1.0
    assert curve.weight == pytest.approx((want,))
    assert math.isfinite(curve.objective[0])
