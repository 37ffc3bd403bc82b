"""Rows for recipes/star.toml: sums whose answer stands behind the question, worked out in steps.

They are to `tiny-reasoner` what a prompt's examples are to a large model: what a hint is for.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from groupwise.policies.tiny_reasoner import ReasonerRecipe, reasoner_row

ROWS = 192


def hinted_sums() -> Iterator[dict[str, str]]:
    """Rows of `prompt` (`7+8+5= (20)`) and `completion`, the steps without a slip.

    >>> next(hinted_sums())["prompt"]
    '7+1+5+9= (22)'
    """
    recipe = ReasonerRecipe(thinks=1.0, slips=0.0, chinese_slips=0.0, bare=0.0)
    draw = random.Random(0)
    left = ROWS
    while left:
        text = "".join(token for token, _ in reasoner_row(recipe, draw))
        question, _, rest = text.partition("<|user|>")[2].partition("<|end|>")
        completion = rest.removeprefix("<|assistant|>").removesuffix("<|end|>")
        if "<think>" not in completion:
            continue
        answer = completion.partition("<answer>")[2].removesuffix("</answer>")
        left -= 1
        yield {"prompt": f"{question} ({answer})", "completion": completion}
