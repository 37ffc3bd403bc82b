"""An agent of its own process learns to use its tool: 3 seeds, and the same agent without it.

Runs recipes/agent.toml, asserts that the 95 % interval of the held-out gain is above 0 for every
seed with the tool and that nothing is learnt without it, and writes docs/agents_figures.md.

    python experiments/agent.py            # two to five minutes a run
    python experiments/agent.py --fresh    # not from the runs that are there
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

from arms import ROOT, Row, delete_if_fresh, of_arm, play, table

RECIPE = ROOT / "recipes" / "agent.toml"
PAGE = ROOT / "docs" / "agents_figures.md"
RUNS = ROOT / "runs" / "agent"
SEEDS = (0, 1, 2)
TOOL, NONE = "calculator", "no tool"
ARMS: dict[str, dict[str, Any]] = {
    TOOL: {},
    NONE: {"environment.function": "groupwise.examples.tiny_agent:guess"},
}


def page(rows: list[Row]) -> str:
    """The table that the docs show."""
    head = (
        "# An agent learns to use its tool\n\n<!-- Written by experiments/agent.py. -->\n\n"
        "`groupwise.examples.tiny_agent` is a process of its own for every rollout; it asks the "
        "policy `tiny_tools` over\nthe OpenAI API for products of two-digit numbers. 20 steps of "
        "GRPO, 8 prompts of 8 rollouts\n(`recipes/agent.toml`); 40 held-out products with 4 "
        "samples each. Without the tool all else is the same.\n\n"
    )
    return head + table(rows)


def check(rows: list[Row]) -> None:
    """What the experiment claims. AssertionError with the row that does not show it."""
    for row in of_arm(rows, TOOL):
        assert row.gain[1] > 0, f"no gain: {row.line}"
    for row in of_arm(rows, NONE):
        assert fmean(row.after.values()) < 0.05, f"learnt without the tool: {row.line}"


def main() -> None:
    delete_if_fresh(__doc__, RUNS)
    rows = play(RECIPE, ARMS, SEEDS, RUNS)
    check(rows)
    PAGE.write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
