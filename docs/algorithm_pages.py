"""A page for every algorithm and an index of them, from what `groupwise algorithms show` prints.

Formula, parts and claims come from `groupwise.algorithms.describe`, curves from `curves.py`.
Left out: any fact of one method; those are in the catalogue.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib
import tomli_w
from curves import surrogate_curve
from formulas import inline

from groupwise.algorithms import PRESETS, Algorithm, Description, describe, preset
from groupwise.algorithms.describe import NOTATION, describe_part, every_part
from groupwise.algorithms.surrogates import Cispo, Clip

matplotlib.use("svg")
import matplotlib.pyplot as plt

OLD_PROBABILITY = 0.1
SIGNS = ((1.0, "A > 0", "#3b82f6", "-"), (-1.0, "A < 0", "#e8853a", "--"))
STYLE = {
    "svg.hashsalt": "groupwise",  # the same curves draw the same file
    "svg.fonttype": "none",
    "text.color": "#888888",
    "axes.edgecolor": "#888888",
    "axes.labelcolor": "#888888",
    "xtick.color": "#888888",
    "ytick.color": "#888888",
    "grid.color": "#888888",
    "font.size": 9,
}  # grey and transparent: readable on a light and on a dark page


def write(folder: Path) -> None:
    """Every algorithm's page and plot into `folder`; what is left of gone presets is deleted."""
    folder.mkdir(exist_ok=True, parents=True)
    for left in folder.iterdir():
        if left.stem not in PRESETS:
            left.unlink()
    for name in PRESETS:
        algorithm = preset(name)
        draw(algorithm, folder / f"{name}.svg")
        (folder / f"{name}.md").write_text(page(algorithm), encoding="utf-8")


# --- the index --------------------------------------------------------------------------------


def index() -> str:
    lines = [
        "# Algorithms",
        "",
        "Every preset is a composition of parts. What its page says is rendered from the parts "
        "themselves, so it cannot differ from what runs; `groupwise algorithms show NAME` prints "
        "the same, and takes the name of a [part](parts.md) too. [Which method "
        "when](../choosing.md) helps to choose, and every one of them [trains the tiny "
        "policy](../every_preset.md).",
        "",
        "| preset | what it is | advantage | ratio | surrogate | weight | KL | checked against |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [_index_row(name) for name in PRESETS]
    lines += [
        "",
        "*Checked against*: **golden** values of the written formula (1e-9 in float64), an "
        "independent **reference** in plain loops (1e-9), **TRL**'s own loss function (1e-6). "
        "What else was verified is on each page.",
        "",
        "Any part can be replaced in a recipe, and parts can be put together without a preset:",
        "",
        "```toml",
        "[algorithm]",
        'preset = "dapo"',
        'surrogate = { kind = "clip", low = 0.2, high = 0.3 }',
        'kl = { placement = "loss", estimator = "k3", coef = 0.001 }',
        "```",
        "",
        "A loss that is not here: [Write a loss](../losses.md).",
        "",
    ]
    return "\n".join(lines)


def _index_row(name: str) -> str:
    shown = describe(preset(name))
    kinds = {slot: kind for slot, kind, _ in shown.parts}
    signal = "" if kinds["transform"] == "identity" else f"{kinds['transform']}, "
    advantage = f"{signal}{kinds['baseline']} / {kinds['scale']}"
    ratio = (
        kinds["ratio"] if kinds["anchor"] == "none" else f"{kinds['ratio']} to {kinds['anchor']}"
    )
    claims = " ".join(shown.verified)
    kinds_of_proof = (("golden", "golden"), ("reference", "reference"), ("TRL", "TRL"))
    checked = [word for word, sign in kinds_of_proof if sign in claims]
    cells = (
        f"[`{name}`](algorithms/{name}.md)", shown.title, advantage, ratio, kinds["surrogate"],
        kinds["weight"], kinds["kl"], ", ".join(checked),
    )  # fmt: skip
    return _row(cells)


# --- parts ------------------------------------------------------------------------------------


def write_parts(folder: Path) -> None:
    """A page for every part of the library; what is left of gone parts is deleted."""
    folder.mkdir(exist_ok=True, parents=True)
    pages = {f"{each.slot}_{each.kind}": each for each in map(describe_part, every_part())}
    for left in folder.iterdir():
        if left.stem not in pages:
            left.unlink()
    for name, each in pages.items():
        text = [f"# `{each.kind}`, a part for `{each.slot}`", "", "```text", each.text(), "```", ""]
        (folder / f"{name}.md").write_text("\n".join(text), encoding="utf-8")


def parts_index() -> str:
    """Every part with its other names and formula, slot by slot."""
    lines = [
        "# Parts",
        "",
        "What an algorithm is made of, by slot; `groupwise algorithms show NAME` takes the kind or "
        "any of its other names.",
        "",
        "| slot | part | also called | formula |",
        "|---|---|---|---|",
    ]
    for each in map(describe_part, every_part()):
        link = f"[`{each.kind}`](parts/{each.slot}_{each.kind}.md)"
        lines.append(_row((each.slot, link, ", ".join(each.aliases), f"`{each.formula}`")))
    return "\n".join([*lines, ""])


# --- one page ---------------------------------------------------------------------------------


def page(algorithm: Algorithm) -> str:
    shown = describe(algorithm)
    lines = [f"# {shown.name}", "", f"**{shown.title}.** {shown.citation}", ""]
    if shown.source:
        lines += [f"Source of the formula: {shown.source}.", ""]
    lines += _formula(shown)
    lines += _parts(shown, algorithm)
    lines += _section("Typical values", [shown.typical] if shown.typical else [])
    lines += _section("What it needs", shown.needs)
    lines += _picture(shown, algorithm)
    lines += _section("What was verified", shown.verified)
    lines += _section("What is not settled", shown.unsettled)
    lines += _section("How it is often misread", [f"{shown.misread}."] if shown.misread else [])
    lines += _section("Warnings", shown.warnings)
    return "\n".join(lines)


def _formula(shown: Description) -> list[str]:
    return ["## Formula", "", "```formula", *shown.formula, "```", "", f"{NOTATION}.", ""]


def _parts(shown: Description, algorithm: Algorithm) -> list[str]:
    lines = ["## Parts", "", "| slot | part | formula |", "|---|---|---|"]
    lines += [
        _row((slot, f"`{kind}`", inline(text) if text else "")) for slot, kind, text in shown.parts
    ]
    table = {key: value for key, value in algorithm.to_table().items() if value != []}
    written = tomli_w.dumps({"algorithm": table}).strip()
    return [
        *lines, "", '??? info "The same in full, as a recipe"', "", "    ```toml",
        *(f"    {line}".rstrip() for line in written.splitlines()), "    ```", "",
    ]  # fmt: skip


def _picture(shown: Description, algorithm: Algorithm) -> list[str]:
    against = {"sampler": "the sampler's", "old": "the old policy's", "none": "the old policy's"}
    lines = [
        "## Surrogate and gradient weight",
        "",
        f"![Objective and gradient weight of {shown.name} against the ratio]({shown.name}.svg)",
        "",
        "One token, advantage +1 and -1, against the ratio of its probability to "
        f"{against[algorithm.anchor]}, which is {OLD_PROBABILITY:g}. The weight φ says how hard "
        "the token is pushed: the gradient of f with respect to its log-probability is A·φ.",
    ]
    if algorithm.surrogate.detached:
        lines[-1] += (
            " The objective holds a weight without gradient times the log-probability, so its "
            "height means little."
        )
    if algorithm.needs.whole_groups:
        lines[-1] += " The pair's other completion is at ratio 1."
    return [*lines, ""]


def _section(title: str, entries: Sequence[str]) -> list[str]:
    if not entries:
        return []
    body = [entries[0]] if len(entries) == 1 else [f"- {entry}" for entry in entries]
    return [f"## {title}", "", *(_escaped(line) for line in body), ""]


def _link(name: str) -> str:
    return f"[`{name}`]({name}.md)"


def _row(cells: Iterable[str]) -> str:
    """A line of a table; Python-Markdown takes a bar inside of backticks as it is."""
    shown = (cell if cell.startswith("`") else cell.replace("|", "\\|") for cell in cells)
    return "| " + " | ".join(shown) + " |"


def _escaped(text: str) -> str:
    """Asterisks and underscores of names stay what they are."""
    return text if "](" in text else text.replace("*", "\\*").replace("_", "\\_")


# --- its plot ---------------------------------------------------------------------------------


def narrow(algorithm: Algorithm) -> float:
    """The reach of a clip that would not be seen from 0 to 3, else 0."""
    surrogate = algorithm.surrogate
    if not isinstance(surrogate, Clip):
        return 0.0
    widest = max(surrogate.low, surrogate.high)
    return 4 * widest if widest < 0.01 else 0.0


def ratios(algorithm: Algorithm) -> list[float]:
    """Where a shape shows: to 3, past a cap, or only around 1 under a narrow clip."""
    reach = narrow(algorithm)
    if reach:
        return [1 - reach + 2 * reach * i / 400 for i in range(401)]
    last, surrogate = 3.0, algorithm.surrogate
    if isinstance(surrogate, Cispo) and math.isfinite(surrogate.cap):
        last = 1.4 * surrogate.cap
    return [last * (i + 1) / 600 for i in range(600)]


def draw(algorithm: Algorithm, target: Path) -> None:
    """Objective and weight against the ratio, for both signs of the advantage."""
    zoomed = narrow(algorithm) > 0
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 2.8), layout="constrained")
        for sign, label, colour, dash in SIGNS:
            curve = surrogate_curve(algorithm, ratios(algorithm), sign, math.log(OLD_PROBABILITY))
            x = [1e3 * (r - 1) for r in curve.ratios] if zoomed else curve.ratios
            f = [1e3 * (v - sign) for v in curve.objective] if zoomed else curve.objective
            left.plot(x, f, dash, color=colour, label=label, lw=1.8)
            right.plot(x, curve.weight, dash, color=colour, label=label, lw=1.8)
        left.set_title("1000 (f - A)" if zoomed else "objective f")
        right.set_title("gradient weight φ")
        right.set_ylim(bottom=0)
        for axes in (left, right):
            axes.set_xlabel("1000 (ratio - 1)" if zoomed else "ratio")
            axes.axvline(0 if zoomed else 1, color="#888888", lw=0.6, ls=":")
            axes.grid(alpha=0.2)
            axes.spines[["top", "right"]].set_visible(False)
        right.legend(frameon=False)
        figure.savefig(target, transparent=True, metadata={"Date": None})
        plt.close(figure)
