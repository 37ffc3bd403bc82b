"""How an audit scores: gold answers, labelled rows and probes, asked of one verifier.

An exception is a finding here: the audit asks what a verifier does with texts that nobody expected,
so it is kept with its text and the row is left unscored. After a verifier hangs or the budget is
spent nothing further is asked: the rest is `UNASKED`.
"""

from __future__ import annotations

import inspect
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from groupwise.errors import RecipeError, VerifierError
from groupwise.types import Prompt, Score
from groupwise.verifiers.audit.judges import Agreement, Shift, agreements, judges_of, shifts
from groupwise.verifiers.audit.probes import (
    FORMS,
    ORDERS,
    Form,
    Probe,
    ProbeTask,
    gold_of,
    honest_of,
    is_code_task,
    probes_of,
    task_of,
    usual_form,
)
from groupwise.verifiers.audit.report import AuditReport, ProbeFinding, Rate, Row, SetRates
from groupwise.verifiers.audit.rows import SETS, LabelledRow, labelled_rows
from groupwise.verifiers.core.composition import Composite, VerifierGroup, main_part
from groupwise.verifiers.core.contract import (
    Case,
    Verifier,
    describe_error,
    score_cases,
)
from groupwise.verifiers.core.scores import BadAnswer
from groupwise.verifiers.core.user import RewardFunction

MARGIN = 0.02
"""What a probe may earn above an honest guess, in parts of right minus wrong, without being one."""
TOGETHER = 32
"""Verdicts asked at a time of a verifier whose cases wait for a model; else one at a time."""
LIMIT = 60.0
"""Default seconds for one verdict."""
MAX_TIMEOUTS = 3
"""After so many texts in a row without a verdict in time, nothing further is asked."""
UNASKED = Score(None, "not_applicable", "not asked: the audit had stopped")
"""In place of a verdict after the audit stopped; not counted."""
_UNSCORED = {"not_applicable", "bad_answer", "verifier_timeout", "infrastructure_error"}

Encode = Callable[[str], Sequence[int]]


def audit(
    verifier: Verifier,
    rows: Sequence[LabelledRow] = (),
    *,
    sets: Sequence[str] | None = None,
    num_probed: int = 8,
    budget: float | None = None,
    limit: float = LIMIT,
    encode: Encode | None = None,
    weights: bool = True,
) -> AuditReport:
    """Measure a verifier.

    `rows` are the user's prompts (and labelled completions); without any, the gold answers of the
    shipped sets are used. `sets` names the labelled sets, by default those of the built-in
    verifier. Probes run on `num_probed` prompts, spread over the data. `weights`: whether the
    report warns of a composition whose weights let something other than correctness dominate. A
    verdict that takes more than `limit` seconds counts as a timeout. After `budget` seconds, or
    three texts in a row without a verdict in time, nothing further is asked, and the report says
    what is missing. `encode` gives the ids that a text would have had. Raises RecipeError without
    any prompt.
    """
    labelled = labelled_rows(verifier, rows, sets)
    every = [row.prompt for row in rows or [row for own in labelled.values() for row in own]]
    distinct = {str((each.text, each.messages, each.answer, each.columns)): each for each in every}
    prompts = list(distinct.values())
    if not prompts:
        raise RecipeError(
            f"verifier {verifier.name!r} has no labelled set of its own; give --data rows.jsonl "
            f"(prompt, answer, ...) or --set, one of {', '.join(SETS)}"
        )
    scorer = Scorer(verifier, encode, budget, limit)
    run = _Audit(scorer, prompts)
    golds, probes = run.golds(), run.probes(num_probed)
    rates = [run.rates(name, own) for name, own in labelled.items()]
    agreed, moved = run.judges(num_probed, [row for own in labelled.values() for row in own])
    raised = tuple(Row("-", text, reason) for text, reason in scorer.raised)
    return AuditReport(
        verifier=verifier.name,
        signature=verifier.signature(),
        form=run.form.name,
        golds=golds,
        right=run.right,
        wrong=run.wrong,
        sets=tuple(rate for rate in rates if rate is not None),
        probes=probes,
        outcomes=dict(scorer.outcomes),
        cannot_tell=run.tells is False and not run.told_apart and _reads_gold(verifier, prompts[0]),
        raised=Rate(len(raised), sum(scorer.outcomes.values()), raised[:20]),
        notes=tuple(run.notes(weights, bool(labelled))),
        agreements=tuple(agreed),
        shifts=tuple(moved),
    )


def asks_a_model(verifier: Verifier) -> bool:
    """Whether each verdict waits for a model (`concurrent`), in a composition for any part's."""
    members = verifier.members if isinstance(verifier, VerifierGroup) else ()
    return getattr(verifier, "concurrent", False) or any(map(asks_a_model, members))


class Scorer:
    """One verifier under audit: every outcome counted, no exception lost.

    `raised` holds the texts on which the verifier raised, with the error; `stopped` says why
    nothing further is asked, if it is not the budget.
    """

    def __init__(
        self,
        verifier: Verifier,
        encode: Encode | None = None,
        budget: float | None = None,
        limit: float = LIMIT,
    ) -> None:
        self.verifier = verifier
        self.outcomes: Counter[str] = Counter()
        self.raised: list[tuple[str, str]] = []
        self.started = time.monotonic()
        self.budget = budget
        self.limit = limit
        self.stopped = ""
        self._timeouts = 0
        self._encode = encode or (lambda text: tuple(text.encode()))
        self._size = TOGETHER if asks_a_model(verifier) else 1

    @property
    def ended(self) -> bool:
        """Whether nothing further is asked."""
        spent = time.monotonic() - self.started
        return bool(self.stopped) or (self.budget is not None and spent > self.budget)

    def score(
        self, prompts: Sequence[Prompt], texts: Sequence[str], together: bool = False
    ) -> list[Score]:
        """One score per text, in order; in one call of the verifier if `together`.

        One text at a time hides a function that returns a list of the wrong length.
        """
        cases = [
            Case(prompt, text, tuple(self._encode(text)))
            for prompt, text in zip(prompts, texts, strict=True)
        ]
        size = len(cases) if together else self._size
        starts = range(0, len(cases), size)
        scores = [score for start in starts for score in self._ask(cases[start : start + size])]
        self.verifier.take_logs()
        return scores

    def _ask(self, cases: Sequence[Case]) -> list[Score]:
        if self.ended:
            return [UNASKED] * len(cases)
        try:
            scores = score_cases(self.verifier, cases, deadline=self.limit * len(cases))
        except VerifierError as error:
            if len(cases) > 1 and error.__cause__ is not None:
                return [self._ask([case])[0] for case in cases]
            reason = describe_error(error.__cause__ or error)
            self.raised.append((" | ".join(case.text for case in cases), reason))
            scores = [Score(None, "infrastructure_error", f"raised {reason}")] * len(cases)
            if len(cases) > 1:
                self.stopped = "what the verifier returns breaks its contract: stopped"
        for score in scores:
            self.outcomes[score.outcome] += 1
            self._timeouts = self._timeouts + 1 if score.outcome == "verifier_timeout" else 0
            if self._timeouts >= MAX_TIMEOUTS and not self.stopped:
                self.stopped = (
                    f"{self._timeouts} texts in a row got no verdict in time ({score.reason}), so "
                    "the verifier hangs or its time limit is too short: stopped"
                )
        return scores


class _Audit:
    """The parts of one audit, sharing the scorer, the form, and what honest completions earn.

    `right` and `wrong` are those earnings, None if no prompt has a gold answer; `missing` names
    the parts that were no longer asked. `told_apart`: every right completion of a labelled set
    earned more than every wrong one.
    """

    def __init__(self, scorer: Scorer, prompts: Sequence[Prompt]) -> None:
        self.scorer = scorer
        self.prompts = prompts
        self.form = usual_form("bare")
        self.right: float | None = None
        self.wrong: float | None = None
        self.told_apart = False
        self.missing: list[str] = []
        self.parts = [scorer.verifier]
        if isinstance(scorer.verifier, Composite):
            self.parts = list(scorer.verifier.members)
        if not all(part.judges_singly for part in self.parts):
            two = [prompts[0], prompts[-1]]
            scorer.score(two, [gold_of(prompt) or "" for prompt in two], together=True)
        self._find_form()

    def _find_form(self) -> None:
        """The form whose right answers earn most, and what wrong ones earn in it."""
        tried = _spread([each for each in self.prompts if gold_of(each) is not None], 8)
        if not tried:
            return
        own = [_own_form(each) for each in self.parts if _gold_completion(each, tried[0])]
        for form in [*own, *map(usual_form, FORMS)]:
            texts = [form.write(each, gold_of(each) or "") for each in tried]
            value = _mean(self.scorer.score(tried, texts))
            if value is not None and (self.right is None or value > self.right):
                self.right, self.form = value, form
        tasks = self._tasks(tried)
        texts = [task.form.write(task.prompt, task.wrong) for task in tasks]
        self.wrong = _mean(self.scorer.score([task.prompt for task in tasks], texts))

    def _tasks(self, prompts: Sequence[Prompt]) -> list[ProbeTask]:
        """Those with a gold answer; the others' gold answers are wrong for each."""
        golds = [gold_of(each) or "" for each in prompts]
        found = [
            task_of(each, self.form, [*golds[place + 1 :], *golds[:place]])
            for place, each in enumerate(prompts)
        ]
        return [task for task in found if task is not None]

    @property
    def tells(self) -> bool | None:
        """Whether a right answer earns more than a wrong one in a usual form; None if unknown."""
        return None if self.right is None or self.wrong is None else self.right > self.wrong

    def _ended(self, part: str) -> bool:
        if self.scorer.ended:
            self.missing.append(part)
        return self.scorer.ended

    def _accepts(self, score: Score) -> bool:
        """Whether a score is a right answer's: `correct`, or all that right ones earn here."""
        if score.outcome == "correct":
            return True
        if score.value is None or self.right is None or not self.tells:
            return False
        return score.value >= self.right - 1e-9

    def golds(self) -> Rate:
        """Prompts whose gold answer is rejected, written in the form found."""
        if self.scorer.stopped and self._ended("gold answers"):
            return Rate(0, 0)
        objections = dict(enumerate(self.scorer.verifier.check_answers(self.prompts)))
        total = len(self.prompts)
        reads = self.right and self.tells is not False and not self.form.name.endswith("own")
        if reads and not any(objections.values()):
            golds = {row: gold_of(each) for row, each in enumerate(self.prompts)}
            known = [row for row, gold in golds.items() if gold is not None]
            texts = [self.form.write(self.prompts[row], golds[row] or "") for row in known]
            scores = self.scorer.score([self.prompts[row] for row in known], texts)
            total -= scores.count(UNASKED)
            for row, score in zip(known, scores):
                if score is not UNASKED and not self._accepts(score):
                    objections[row] = score.reason or score.outcome
        rejected = [
            Row(prompt.id, str(prompt.answer), reason)
            for prompt, reason in zip(self.prompts, objections.values())
            if reason is not None
        ]
        return Rate(len(rejected), total, tuple(rejected))

    def rates(self, name: str, rows: Sequence[LabelledRow]) -> SetRates | None:
        """The errors on a labelled set."""
        if self._ended(f"the labelled set {name}"):
            return None
        texts = [self.form.fill(row.prompt, row.text) for row in rows]
        scores = self.scorer.score([row.prompt for row in rows], texts)
        asked = [each for each in zip(rows, texts, scores) if each[2] is not UNASKED]
        unscored = list[Row]()
        wrong: dict[bool, list[Row]] = {True: [], False: []}
        values: dict[bool, list[float]] = {True: [], False: []}
        for row, text, score in asked:
            found, label = Row(row.id, text, f"{row.why}; {score.reason}".strip("; ")), row.accept
            if score.value is None:
                unscored.append(found)
                continue
            values[bool(label)].append(score.value)
            if self._accepts(score) != bool(label):
                wrong[bool(label)].append(found)
        self.told_apart |= all(values.values()) and min(values[True]) > max(values[False])
        return SetRates(
            name,
            Rate(len(wrong[False]), len(values[False]), tuple(wrong[False])),
            Rate(len(wrong[True]), len(values[True]), tuple(wrong[True])),
            Rate(len(unscored), len(asked), tuple(unscored)),
        )

    def probes(self, number: int) -> tuple[ProbeFinding, ...]:
        """Every probe that fits the prompts, against what an honest guess earns there."""
        code = [prompt for prompt in self.prompts if is_code_task(prompt)]
        kind = "code" if code else main_part(self.scorer.verifier).name
        prompts = _spread(code or self.prompts, number)
        tasks = [ProbeTask(prompt) for prompt in prompts]
        if kind not in ("code", "sql"):
            kind, tasks = "gold", self._tasks(prompts)
        if not tasks:
            kind, honest = "free", honest_of("free")[0]
            tasks = [ProbeTask(prompt, honest, honest) for prompt in prompts]
        if self._ended("probes"):
            return ()
        if kind != "gold":
            earned = [
                _mean(self.scorer.score(prompts, [task.written(text) for task in tasks]))
                for text in honest_of(kind)
            ]
            self.wrong = max((value for value in earned if value is not None), default=None)
            if kind != "free" and self.right is None:
                self.right = 1.0
        elif self.wrong is None:
            return ()
        found = [
            self._probe(each, tasks)
            for each in probes_of(kind)
            if not self._ended(f"probe {each.name}")
        ]
        return tuple(each for each in found if each is not None)

    def _probe(self, probe: Probe, tasks: Sequence[ProbeTask]) -> ProbeFinding | None:
        made = [
            (task.prompt, place, text)
            for task in tasks
            for place, family in enumerate(probe.families(task))
            for text in family
        ]
        if not made:
            return None
        scores = self.scorer.score([prompt for prompt, _, _ in made], [text for *_, text in made])
        families: dict[int, list[tuple[float, str, str]]] = {}
        for (prompt, place, text), score in zip(made, scores):
            if score.value is not None:
                families.setdefault(place, []).append((score.value, text, prompt.last_text))
        means = [(sum(v for v, *_ in each) / len(each), each) for each in families.values()]
        earned, best = max(means, key=lambda each: each[0], default=(None, [(0.0, "", "")]))
        _, text, prompt_text = max(best, key=lambda each: each[0])
        wrong = 0.0 if self.wrong is None else self.wrong
        right = max(abs(wrong), 1.0) if self.right is None else self.right
        chance = sum(map(probe.share, tasks)) / len(tasks)
        honest = wrong + chance * max(0.0, right - wrong)
        margin = MARGIN * max(abs(right - wrong), 1e-6)
        hole = earned is not None and earned > honest + margin
        return ProbeFinding(probe.name, probe.what, earned, honest, hole, text, prompt_text)

    def judges(
        self, number: int, labelled: Sequence[LabelledRow]
    ) -> tuple[list[Agreement], list[Shift]]:
        """How the judges agree on labelled texts (else right and wrong answers), and what orders
        behind wrong answers move; nothing under a budget (a run's start) or where one raised."""
        judges, scorer = judges_of(self.scorer.verifier), self.scorer
        if not judges or scorer.budget is not None or scorer.raised or self._ended("judges"):
            return [], []
        prompts = _spread(self.prompts, number)
        tasks = self._tasks(prompts)
        wrong = [(task.prompt, task.written("⟦$wrong⟧")) for task in tasks]
        wrong = wrong or [(each, honest_of("free")[0]) for each in prompts]
        texts = wrong + [(task.prompt, task.written("⟦$gold⟧")) for task in tasks]
        labels = None
        if labelled:
            labels = [bool(row.accept) for row in labelled]
            texts = [(row.prompt, self.form.fill(row.prompt, row.text)) for row in labelled]
        return agreements(judges, texts, labels), shifts(judges, wrong, ORDERS)

    def notes(self, weights: bool, labelled: bool) -> list[str]:
        """What a reader must know beside the figures, a sentence each."""
        scorer = self.scorer
        composite = scorer.verifier if isinstance(scorer.verifier, Composite) else None
        found = list(composite.warnings()) if weights and composite else []
        if self.tells is False and not _reads_gold(scorer.verifier, self.prompts[0]):
            found.append(
                "a right answer earns no more than a wrong one in any usual form; expected of a "
                "verifier of format or length, otherwise give labelled completions (--data)"
            )
        if scorer.outcomes.keys() <= _UNSCORED and not (scorer.raised or scorer.ended):
            found.append(
                "no text got a value, so the audit says nothing about how this verifier can be "
                "fooled; read completions, or label some (--data)"
            )
        elif not labelled and self.wrong is not None and self.right is None:
            found.append(
                "no prompt has a gold answer, so only texts that hold no answer were tried; read "
                "completions, or label some (--data)"
            )
        if scorer.ended:
            why = scorer.stopped or f"stopped after {scorer.budget:g} s"
            rest = len(self.missing) - 3
            missing = ", ".join(self.missing[:3]) + (f" and {rest} more parts" if rest > 0 else "")
            found.append(f"{why}, without {missing or 'its last texts'}")
        return found


def _own_form(verifier: Verifier) -> Form:
    """How the verifier's own gold completions state an answer."""

    def write(prompt: Prompt, answer: str) -> str:
        return _gold_completion(verifier, replace(prompt, answer=answer)) or answer

    return Form(f"{verifier.name}'s own", write)


def _gold_completion(verifier: Verifier, prompt: Prompt) -> str | None:
    try:
        return verifier.gold_completion(prompt)
    except BadAnswer:
        return None


def _reads_gold(verifier: Verifier, prompt: Prompt) -> bool:
    """Whether it or a part reads gold; a function does if it names `answer` or gold's column."""
    if isinstance(verifier, VerifierGroup):
        return any(_reads_gold(each, prompt) for each in verifier.members)
    if not isinstance(verifier, RewardFunction):
        return verifier.needs_answer
    code = getattr(verifier.function, "__code__", None)
    names = {*inspect.signature(verifier.function).parameters, *(code.co_consts if code else ())}
    columns = {name for name, value in prompt.columns.items() if str(value) == str(prompt.answer)}
    return not names.isdisjoint({"answer", *columns})


def _spread(prompts: Sequence[Prompt], number: int) -> list[Prompt]:
    """At most `number` prompts, evenly spaced."""
    if len(prompts) <= number:
        return list(prompts)
    return [prompts[place * len(prompts) // number] for place in range(number)]


def _mean(scores: Sequence[Score]) -> float | None:
    """The mean value of the scores that have one; None if none has."""
    values = [score.value for score in scores if score.value is not None]
    return sum(values) / len(values) if values else None
