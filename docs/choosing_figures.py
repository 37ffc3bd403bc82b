"""Write the computed figures of docs/choosing.md: groups without a signal by size and success rate.

Run: python docs/choosing_figures.py
"""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).parent / "choosing.md"
BEGIN = "<!-- Written by docs/choosing_figures.py; a test keeps it equal. -->"
END = "<!-- The end of what is written. -->"
SIZES = (2, 4, 8, 16, 32)
RATES = (0.01, 0.05, 0.18, 0.3, 0.5, 0.7, 0.9, 0.99)
COMPLETIONS = 128


def silent(p: float, size: int) -> float:
    """The share of groups whose completions are all right or all wrong.

    >>> round(silent(0.18, 8), 3)
    0.204
    """
    return float(p**size + (1 - p) ** size)


def figures() -> str:
    """Both tables as Markdown."""
    head = "| p | " + " | ".join(f"G = {size}" for size in SIZES) + " |\n"
    head += "|---" * (len(SIZES) + 1) + "|\n"
    shares = [
        f"| {p:.0%} | " + " | ".join(f"{silent(p, size):.0%}" for size in SIZES) + " |"
        for p in RATES
    ]
    groups = [
        f"| {p:.0%} | "
        + " | ".join(f"{COMPLETIONS // size * (1 - silent(p, size)):.1f}" for size in SIZES)
        + " |"
        for p in RATES
    ]
    return (
        "Groups without a signal:\n\n" + head + "\n".join(shares)
        + f"\n\nGroups with one, of {COMPLETIONS} completions in groups of G:\n\n"
        + head + "\n".join(groups)
        + "\n\nSmall groups have more of them for the same completions, and each says less: at "
        "p = 1 % no size\nhelps, and other prompts, hints or a supervised start do.\n"
    )  # fmt: skip


def written(page: str) -> str:
    """The page with its figures computed anew."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{figures()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
