"""GSM8K-shaped rows of our own: `(the answer column, the gold answer, right and wrong endings)`.

GSM8K (Cobbe et al. 2021, arXiv 2110.14168) writes a solution with `<<...>>` calculations and the
gold answer behind `####`, with commas between thousands and no unit; its check compares that text.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise.environments import load_environment

pytestmark = pytest.mark.peers

ROWS = [
    ("She sells 3 * 4 = <<3*4=12>>12 jars.\n#### 12", "12", ["12", "$12", "12.0"], ["13", "-12"]),
    ("It costs 1,200 * 3 = <<1200*3=3600>>3,600.\n#### 3,600", "3,600",
     ["3600", "3,600", "$3,600.00"], ["3,601", "36,00", "360"]),
    ("That is 10 - 14 = -4 degrees.\n#### -4", "-4", ["-4", "\u22124"], ["4", "-5"]),
    ("Each gets 5 / 2 = <<5/2=2.5>>2.5 cakes.\n#### 2.5", "2.5", ["2.5", "5/2"], ["2", "25"]),
    ("No one is left.\n####  0 ", "0", ["0", "0.0"], ["1", "10"]),
    ("He saves a million.\n#### 1000000", "1000000", ["1,000,000", "1000000"], ["100000"]),
    ("See #1 of 2.\n#### 7", "7", ["7"], ["1", "2"]),
]  # fmt: skip


@pytest.mark.parametrize(("column", "gold", "right", "wrong"), ROWS)
def test_a_row_loads_and_is_judged(
    tmp_path: Path, column: str, gold: str, right: list[str], wrong: list[str]
) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps({"question": "How many?", "answer": column}), encoding="utf-8")
    environment = load_environment("gsm8k", path=str(path))
    (prompt,) = environment.prompts()
    assert prompt.answer == gold
    assert prompt.columns["answer"] == column
    assert environment.verify(prompt, column).value == 1.0
    for ending in right:
        assert environment.verify(prompt, f"So the answer is {ending}").value == 1.0, ending
    for ending in wrong:
        assert environment.verify(prompt, f"So the answer is {ending}").value == 0.0, ending
