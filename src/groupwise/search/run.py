"""`search`: a policy, prompts with gold answers, a method -> accuracy with its cost."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from groupwise.errors import RecipeError
from groupwise.evaluation import answer_entropy, distinct_n, mean_interval
from groupwise.policies import Policy
from groupwise.samplers import Sampler, make_sampler
from groupwise.search.drafts import Asked, Draft, Writer, beam, budgeted
from groupwise.search.result import Candidate, SearchPoint, SearchResult, points_of
from groupwise.search.scoring import check_scorer, looking_ahead, read_answer, scorer
from groupwise.search.settings import LIKELIHOOD, SearchSettings
from groupwise.search.verbalized import read_verbalized, verbalized_prompt
from groupwise.templates import Template
from groupwise.types import Prompt
from groupwise.verifiers import Verifier, check_verdicts, score_cases

Groups = list[list[Candidate]]


def search(
    policy: Policy | None,
    prompts: Sequence[Prompt],
    settings: SearchSettings,
    *,
    correct_by: Verifier,
    verifier: Verifier | None = None,
    sampler: Sampler | None = None,
    template: Template | None = None,
) -> SearchResult:
    """Search an answer to every prompt and measure how often it is right.

    `correct_by` says what the answer of a completion is and whether it is right; `verifier` scores
    completions for the choice (None: the policy's own likelihood). `sampler` and `template` replace
    the policy's (a scripted sampler in tests).

    Raises RecipeError without prompts, for a `correct_by` without verdicts, for a method that
    reads steps with a verifier that gives none, and for prompts that do not fit.
    """
    if not prompts:
        raise RecipeError("no prompts to search; give at least one row with prompt and answer")
    check_verdicts(correct_by, "correct_by")
    check_scorer(settings, verifier)
    if policy is None and (sampler is None or template is None):
        raise TypeError("give a policy, or a sampler and a template")
    template = template or (policy.template if policy is not None else None)
    engine = sampler or make_sampler("auto", policy)  # type: ignore[arg-type]
    assert template is not None
    longest = None if policy is None else policy.max_length
    writer = Writer(engine, template, prompts, settings)
    began = time.perf_counter()
    try:
        found = _Search(writer, correct_by, verifier, longest).run()
    finally:
        if sampler is None:
            engine.close()
    return replace(found, seconds=time.perf_counter() - began)


class _Search:
    """One search: the parts that its methods share."""

    def __init__(
        self, writer: Writer, correct_by: Verifier, verifier: Verifier | None, longest: int | None
    ) -> None:
        self.writer, self.correct_by, self.verifier = writer, correct_by, verifier
        self.settings, self.longest = writer.settings, longest
        self.uses_scores = self.settings.uses_scores
        self.divided = False

    def run(self) -> SearchResult:
        method = self.settings.method
        counts: dict[str, int] = {}
        diversity: dict[str, Mapping[str, float | None]] = {}
        if method == "beam":
            points, groups = self._beam()
        elif method == "budget":
            points, groups = self._budgets()
            counts = dict(self.writer.forced)
        elif method == "verbalized":
            groups, counts = self._verbalized()
            points = [self._single(groups)]
            tokens = self.writer.tokens
            plain = self._groups(self._plain())
            diversity["plain"] = _diversity(plain)
            counts["plain_tokens"] = self.writer.tokens - tokens
            self.writer.tokens = tokens
        else:
            groups = self._groups(self._plain())
            points = points_of(groups, self.settings, self.writer.tokens)
        diversity = {method: _diversity(groups), **diversity}
        scores = [each.score for group in groups for each in group]
        own = LIKELIHOOD if self.verifier is None else self.verifier.name
        return SearchResult(
            method,
            own if self.uses_scores else None,
            len(self.writer.prompts),
            points,
            self.writer.tokens,
            0.0,
            scores.count(None) if self.uses_scores else 0,
            diversity,
            counts,
            self._notes(),
        )

    def _notes(self) -> list[str]:
        notes = list[str]()
        method, separator = self.settings.method, self.settings.separator
        by_separator = method == "beam" or (method == "process" and self.verifier is None)
        if by_separator and not self.divided:
            notes.append(f"separator {separator!r} is in no completion: each was one step")
        if self.uses_scores and self.verifier is not None and self.verifier.needs_answer:
            notes.append(
                f"verifier {self.verifier.name!r} reads the gold answer, which nobody has at test "
                "time: this accuracy is an upper bound"
            )
        return notes

    def _places(self) -> list[int]:
        """The place of each completion's prompt: `samples` of each, in order."""
        return [p for p in range(len(self.writer.prompts)) for _ in range(self.settings.samples)]

    def _plain(self) -> list[Draft]:
        return self.writer.extend([(place, Draft()) for place in self._places()])

    def _groups(self, drafts: Sequence[Draft]) -> Groups:
        """The candidates of each prompt, from `samples` drafts each."""
        asked = list(zip(self._places(), drafts, strict=True))
        scores: list[float | None] = [None] * len(asked)
        if self.uses_scores:
            steps = self.settings.method == "process"
            scores = scorer(self.writer, self.verifier, steps=steps)(asked)
        every = self._candidates(asked, scores)
        size = self.settings.samples
        return [every[start : start + size] for start in range(0, len(every), size)]

    def _candidates(
        self, asked: Sequence[Asked], scores: Sequence[float | None]
    ) -> list[Candidate]:
        cases = [self.writer.case(each) for each in asked]
        verdicts = score_cases(self.correct_by, cases)
        self.divided |= any(self.settings.separator in case.text for case in cases)
        return [
            Candidate(
                case.text,
                read_answer(self.correct_by, case.whole),
                verdict.outcome == "correct",
                score,
            )
            for case, verdict, score in zip(cases, verdicts, scores, strict=True)
        ]

    def _budgets(self) -> tuple[list[SearchPoint], Groups]:
        """A point for each thinking budget; the groups are those of the largest."""
        points, spent = list[SearchPoint](), 0
        groups: Groups = []
        for budget in self.settings.budgets:
            groups = self._groups(budgeted(self.writer, self._places(), budget))
            tokens = (self.writer.tokens - spent) / len(groups)
            points.append(replace(self._single(groups), tokens=tokens, budget=budget))
            spent = self.writer.tokens
        return points, groups

    def _beam(self) -> tuple[list[SearchPoint], Groups]:
        ahead = self.settings.lookahead > 0
        score = scorer(self.writer, self.verifier, steps=not ahead)
        best = beam(self.writer, looking_ahead(self.writer, score) if ahead else score)
        asked = [(place, draft) for place, (draft, _) in enumerate(best)]
        groups = [[each] for each in self._candidates(asked, [value for _, value in best])]
        return [self._single(groups)], groups

    def _single(self, groups: Groups) -> SearchPoint:
        """The accuracy of an answer drawn from each group by its shares, exactly."""
        shares = [
            sum(each.share * each.correct for each in group) / sum(each.share for each in group)
            for group in groups
        ]
        drawn = sum(map(len, groups)) if self.settings.method == "budget" else len(groups)
        tokens = self.writer.tokens / len(groups)
        interval = mean_interval(shares, drawn)
        return SearchPoint(self.settings.samples, sum(shares) / len(shares), interval, tokens)

    def _verbalized(self) -> tuple[Groups, dict[str, int]]:
        """Each prompt's stated answers; one plain completion where none can be read."""
        settings = self.settings
        size = settings.samples
        asked = [verbalized_prompt(prompt, size) for prompt in self.writer.prompts]
        lengths = [len(self.writer.template.encode_prompt(prompt)) for prompt in asked]
        room = size * settings.max_tokens
        if self.longest is not None:
            room = min([room, *(self.longest - each for each in lengths if each < self.longest)])
        long = {
            place
            for place, each in enumerate(lengths)
            if self.longest is not None and each >= self.longest
        }
        places = [place for place in range(len(asked)) if place not in long]
        writer = replace(self.writer, prompts=asked, tokens=0)
        drafts = writer.extend([(place, Draft()) for place in places], max_tokens=room)
        self.writer.tokens += writer.tokens
        stated = {p: read_verbalized(draft.text) for p, draft in zip(places, drafts, strict=True)}
        plain = [place for place in range(len(asked)) if stated.get(place) is None]
        fallback = iter(self.writer.extend([(place, Draft()) for place in plain]))
        groups: Groups = []
        counts = {"fallback": len(plain), "uniform": 0, "dropped": 0, "prompt_too_long": len(long)}
        for place in range(len(asked)):
            given = stated.get(place)
            if given is None:
                groups.append(self._candidates([(place, next(fallback))], [None]))
                continue
            counts["uniform"] += given.uniform
            counts["dropped"] += given.dropped
            own = [(place, Draft(text=text, reason="stop")) for text in given.texts]
            made = self._candidates(own, [None] * len(own))
            pairs = zip(made, given.probabilities, strict=True)
            groups.append([replace(each, share=share) for each, share in pairs])
        return groups, counts


def _diversity(groups: Groups) -> dict[str, float | None]:
    """Mean over prompts of distinct-1, distinct-2 and the answers' entropy."""
    rows = [
        (
            distinct_n([each.text.split() for each in group], 1),
            distinct_n([each.text.split() for each in group], 2),
            answer_entropy([each.answer for each in group], [each.share for each in group]),
        )
        for group in groups
    ]
    found: dict[str, float | None] = {}
    for name, column in zip(("distinct_1", "distinct_2", "answer_entropy"), zip(*rows)):
        known = [value for value in column if value is not None]
        found[name] = sum(known) / len(known) if known else None
    return found
