"""What a search reads of a completion: its answer, whether it is right, its score, its steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from groupwise.errors import RecipeError
from groupwise.evaluation.result import written_answer
from groupwise.scorers import check_classifiers
from groupwise.search.drafts import Asked, Draft, ScoreDrafts, Writer
from groupwise.search.methods import combine_steps
from groupwise.search.settings import LIKELIHOOD, SearchSettings
from groupwise.templates import Template, token_ends
from groupwise.verifiers import Case, Verifier, score_cases
from groupwise.verifiers.answers.numbers import parse_number
from groupwise.verifiers.answers.tokens import plain
from groupwise.verifiers.core.composition import main_part


def read_answer(verifier: Verifier, text: str) -> str | None:
    """The answer of a completion as the verifier finds it, without the gold answer; None: none.

    Numbers are one answer however they are written.
    """
    located = getattr(main_part(verifier), "located", None)
    given = written_answer(text) if located is None else located(text)
    if not isinstance(given, str) or not plain(given):
        return None
    number = parse_number(given)
    return plain(given) if number is None else f"{number.value} {number.unit or ''}".strip()


def gives_steps(verifier: Verifier) -> bool:
    return verifier.gives_steps or hasattr(verifier, "step_values")


def step_values(verifier: Verifier, cases: Sequence[Case]) -> list[Sequence[float] | None]:
    """The values of every case's steps; None where it could not be scored."""
    if hasattr(verifier, "step_values"):
        return list(verifier.step_values(cases))
    scores = score_cases(verifier, cases, on_error="skip")
    return [None if s.value is None else [each.value for each in s.steps or ()] for s in scores]


def likelihood(draft: Draft) -> float | None:
    """The geometric mean of the sampled tokens' probabilities; None without a token."""
    own = [each for each in draft.logprobs if each is not None]
    return math.exp(math.fsum(own) / len(own)) if own else None


def step_likelihoods(template: Template, draft: Draft, separator: str) -> list[float]:
    """The `likelihood` of each step, a step ending behind its separator."""
    lengths = [len(step) + len(separator) for step in draft.text.split(separator)]
    ends = sorted({min(end, len(draft.text)) for end in accumulate(lengths)} - {0})
    places = token_ends(draft.ids, draft.text, ends, template.decode_completion)
    found, start = [], 0
    for place in places:
        value = likelihood(Draft(logprobs=draft.logprobs[start : place + 1]))
        found += [] if value is None else [value]
        start = place + 1
    return found


def scorer(writer: Writer, verifier: Verifier | None, *, steps: bool) -> ScoreDrafts:
    """Scores of drafts by the verifier, or by the policy's own likelihood; by whole drafts, or by
    their steps combined."""
    settings = writer.settings

    def score(asked: Sequence[Asked]) -> list[float | None]:
        if verifier is None and not steps:
            return [likelihood(draft) for _, draft in asked]
        if verifier is None:
            template, separator = writer.template, settings.separator
            rows = [step_likelihoods(template, draft, separator) for _, draft in asked]
            return [combine_steps(row, settings.combine) for row in rows]
        cases = [writer.case(each) for each in asked]
        if not steps:
            return [score.value for score in score_cases(verifier, cases, on_error="skip")]
        return [
            None if row is None else combine_steps(row, settings.combine)
            for row in step_values(verifier, cases)
        ]

    return score


def looking_ahead(writer: Writer, score: ScoreDrafts) -> ScoreDrafts:
    """A beginning's score: the mean over `lookahead` completions of it (a finished one's own)."""

    def ahead(asked: Sequence[Asked]) -> list[float | None]:
        counts = [1 if draft.reason else writer.settings.lookahead for _, draft in asked]
        many = [each for each, count in zip(asked, counts, strict=True) for _ in range(count)]
        ended = zip(many, writer.extend(many), strict=True)
        values = iter(score([(place, whole) for (place, _), whole in ended]))
        means: list[float | None] = []
        for count in counts:
            own = [value for value in (next(values) for _ in range(count)) if value is not None]
            means.append(math.fsum(own) / len(own) if own else None)
        return means

    return ahead


def check_scorer(settings: SearchSettings, verifier: Verifier | None) -> None:
    """Raises RecipeError where the method reads steps and the verifier gives none, where it reads
    no scores, and for a model that is not the verifier's."""
    if verifier is None:
        return
    if not settings.uses_scores:
        raise RecipeError(
            f"method {settings.method!r} reads no scores, and verifier {verifier.name!r} gives "
            "them; leave it out, or choose best_of_n or weighted"
        )
    reads_steps = settings.method == "process" or (
        settings.method == "beam" and not settings.lookahead
    )
    if reads_steps and not gives_steps(verifier):
        other = ", or lookahead = 4" if settings.method == "beam" else ""
        raise RecipeError(
            f"method {settings.method!r} scores steps, and verifier {verifier.name!r} gives none; "
            f"give steps, process_reward_model{other}, or leave it out ({LIKELIHOOD})"
        )
    check_classifiers(verifier)
