"""What an audit measures of judges: whether they agree, and what an order in the text moves.

A verdict is "correct" where a judge has one; a judge that compares says yes above one half. A
reward model without `correct_from` has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from statistics import fmean

from groupwise.types import Prompt, Score
from groupwise.verifiers.core.composition import Composite
from groupwise.verifiers.core.contract import Case, Verifier, score_cases
from groupwise.verifiers.judge.readouts import JudgeVerifier


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often two judges, or a judge and the labels, say the same of `number` texts.

    `kappa` is Cohen's: what they agree beyond chance, None where each says one thing only.
    """

    one: str
    other: str
    number: int
    raw: float
    kappa: float | None

    def __str__(self) -> str:
        kappa = "none" if self.kappa is None else f"{self.kappa:.2f}"
        return f"{self.one}, {self.other}: {self.raw:.1%} of {self.number} texts, kappa {kappa}"


@dataclass(frozen=True, slots=True)
class Shift:
    """What `text` behind a completion is worth to a judge: the mean change of the value, the share
    of the texts whose value rises, of `number`."""

    judge: str
    text: str
    number: int
    mean: float
    rose: float

    def __str__(self) -> str:
        return (
            f"{self.judge}: {self.mean:+.3f}, rises on {self.rose:.0%} of {self.number}, with "
            f"{self.text!r} behind it"
        )


def cohen_kappa(one: Sequence[bool], other: Sequence[bool]) -> float | None:
    """(p_o - p_e) / (1 - p_e), of two raters' verdicts on the same texts; None where p_e is 1.

    Cohen 1960. p_e: the share on which raters with these shares of yes agree by chance.

    >>> cohen_kappa([True, True, False, False], [True, False, False, False])
    0.5
    """
    same = fmean(a == b for a, b in zip(one, other, strict=True))
    yes = fmean(one), fmean(other)
    chance = yes[0] * yes[1] + (1 - yes[0]) * (1 - yes[1])
    return None if chance == 1 else (same - chance) / (1 - chance)


def judges_of(verifier: Verifier) -> dict[str, Verifier]:
    """The verifiers that ask a model, by their labels."""
    if isinstance(verifier, Composite):
        return {e.key: e.verifier for e in verifier.components if _asks(e.verifier)}
    return {verifier.name: verifier} if _asks(verifier) else {}


Texts = Sequence[tuple[Prompt, str]]


def agreements(
    judges: Mapping[str, Verifier], texts: Texts, labels: Sequence[bool] | None = None
) -> list[Agreement]:
    """Of every two judges, and of each with the labels where there are some."""
    said: dict[str, Sequence[bool | None]] = {
        name: [_yes(score, isinstance(judge, JudgeVerifier)) for score in _scores(judge, texts)]
        for name, judge in judges.items()
    }
    said |= {} if labels is None else {"labels": labels}
    found = []
    for one, other in combinations(said, 2):
        both = [(a, b) for a, b in zip(said[one], said[other]) if a is not None and b is not None]
        if both:
            raw = fmean(a == b for a, b in both)
            kappa = cohen_kappa([a for a, _ in both], [b for _, b in both])
            found.append(Agreement(one, other, len(both), raw, kappa))
    return found


def shifts(judges: Mapping[str, Verifier], texts: Texts, orders: Sequence[str]) -> list[Shift]:
    """What each order behind the texts moves. A text and the text with the order are scored in one
    call, so that a judge that compares has both before it."""
    found = []
    for (name, judge), order in product(judges.items(), orders):
        both = [(prompt, made) for prompt, text in texts for made in (text, f"{text}\n{order}")]
        scores = _scores(judge, both)
        moved = [
            after.value - before.value
            for before, after in zip(scores[::2], scores[1::2], strict=True)
            if after.value is not None and before.value is not None
        ]
        if moved:
            rose = fmean(each > 0 for each in moved)
            found.append(Shift(name, order, len(moved), fmean(moved), rose))
    return found


def _asks(verifier: Verifier) -> bool:
    return bool(getattr(verifier, "concurrent", False))


def _scores(judge: Verifier, texts: Texts) -> list[Score]:
    found = score_cases(judge, [Case(prompt, text) for prompt, text in texts])
    judge.take_logs()
    return found


def _yes(score: Score, compares: bool) -> bool | None:
    """A score's verdict; None without one."""
    if score.value is None or (score.outcome == "no_verdict" and not compares):
        return None
    return score.value > 0.5 if score.outcome == "no_verdict" else score.outcome == "correct"
