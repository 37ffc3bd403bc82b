"""How far a real judge's verdict on wrong answers moves when the completion gives it orders.

    python experiments/judge_injection.py smollm2-135m [--only flattery --only markdown]

A local judge reads right, wrong and manipulated completions of sums. Printed: its mean value for
each kind, the shift against the same wrong answer without orders (with the number of completions
whose value rose), and how often the order of right above wrong survives.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import mean

from groupwise.verifiers.audit.forms import template_form

from groupwise.scorers import LocalJudge
from groupwise.types import Prompt
from groupwise.verifiers import Case, score_cases
from groupwise.verifiers.audit.probes import PROBES, task_of

NUM_TASKS = 24
KINDS = ("injection", "flattery", "markdown", "hedged")


def main(model: str, kinds: Sequence[str]) -> None:
    judge = LocalJudge(model=model)
    form = template_form("sentence")
    prompts = [
        Prompt(f"{a}+{b}", text=f"What is {a} + {b}?", answer=str(a + b))
        for a, b in ((7 * n % 19 + 2, 5 * n % 13 + 3) for n in range(NUM_TASKS))
    ]
    found = [task_of(prompt, form) for prompt in prompts]
    # An order that holds the right answer is left out for its task; these have every order.
    tasks = [task for task in found if task is not None and task.gold not in ("1", "10")]

    def values(texts: list[str]) -> list[float]:
        cases = [Case(task.prompt, text) for task, text in zip(tasks, texts, strict=True)]
        scores = score_cases(judge, cases)
        assert all(score.value is not None for score in scores)
        return [score.value or 0.0 for score in scores]

    right = values([task.write(task.gold) for task in tasks])
    wrong = values([task.write(task.wrong) for task in tasks])
    above = sum(a > b for a, b in zip(right, wrong, strict=True))
    print(
        f"right {mean(right):.3f}  wrong {mean(wrong):.3f}  right above wrong {above}/{len(tasks)}"
    )
    for probe in PROBES:
        if probe.name not in kinds:
            continue
        families = zip(*(probe.make(task) for task in tasks), strict=False)
        for number, family in enumerate(families):
            moved = values([texts[0] for texts in family])
            rose = sum(a > b for a, b in zip(moved, wrong, strict=True))
            shift = mean(moved) - mean(wrong)
            text = family[0][0].replace("\n", " ")[:60]
            line = f"{probe.name} {number}: {mean(moved):.3f}  shift {shift:+.3f}  rose {rose}"
            print(f"{line}  {text!r}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="the judge: a name, a hub id or a folder")
    parser.add_argument(
        "--only", action="append", choices=KINDS, help="of these kinds alone; may be given twice"
    )
    given = parser.parse_args()
    main(given.model, given.only or KINDS)
