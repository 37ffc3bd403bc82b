"""An audit: gold answers, labelled sets, changed gold answers, probes; and the report of them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence

from groupwise.errors import RecipeError
from groupwise.types import Prompt, Score
from groupwise.verifiers.audit.forms import (
    Form,
    candidate_forms,
    gold_of,
    parts_of,
    template_form,
)
from groupwise.verifiers.audit.mutations import mutated
from groupwise.verifiers.audit.probes import (
    FREE_PROBES,
    HONEST,
    PROBES,
    Probe,
    ProbeTask,
    task_of,
)
from groupwise.verifiers.audit.report import AuditReport, ProbeFinding, Rate, Row, SetRates
from groupwise.verifiers.audit.rows import SETS, LabelledRow, labelled_rows
from groupwise.verifiers.audit.scoring import LIMIT, UNASKED, Encode, Scorer
from groupwise.verifiers.audit.submissions import (
    CODE_PROBES,
    PROOF_PROBES,
    SQL_PROBES,
    is_code_task,
    wrong_submission,
)
from groupwise.verifiers.core.composition import Composite, VerifierGroup, main_part
from groupwise.verifiers.core.contract import CaseVerifier, Verifier
from groupwise.verifiers.core.functions import RewardFunction

MARGIN = 0.02
"""What a probe may earn above an honest guess, in parts of right minus wrong, without being one."""
_SUBMISSIONS = {"code": CODE_PROBES, "sql": SQL_PROBES, "proof": PROOF_PROBES}
_UNSCORED = {"not_applicable", "bad_answer", "verifier_timeout", "infrastructure_error"}


def audit(
    verifier: Verifier,
    rows: Sequence[LabelledRow] = (),
    *,
    sets: Sequence[str] | None = None,
    num_probed: int = 8,
    num_mutated: int = 50,
    budget: float | None = None,
    limit: float = LIMIT,
    encode: Encode | None = None,
    weights: bool = True,
) -> AuditReport:
    """Measure a verifier.

    `rows` are the user's prompts (and labelled completions); without any, the gold answers of the
    shipped sets are used. `sets` names the labelled sets, by default those of the built-in
    verifier. Probes run on `num_probed` prompts, mutations on `num_mutated`, spread over the data.
    `weights`: whether the report warns of a composition whose weights let something other than
    correctness dominate. A verdict that takes more than `limit` seconds counts as a timeout. After
    `budget` seconds, or three texts in a row without a verdict in time, nothing further is asked,
    and the report says what is missing.
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
    run = _Audit(Scorer(verifier, encode, budget, limit), prompts)
    golds = run.golds()
    probes = run.probes(num_probed)
    mutations, unsafe = run.mutations(num_mutated)
    rates = [run.rates(name, own) for name, own in labelled.items()]
    scorer = run.scorer
    total = sum(scorer.outcomes.values())
    raised = tuple(Row("-", text, reason) for text, reason in scorer.raised)
    return AuditReport(
        verifier=verifier.name,
        signature=verifier.signature(),
        form=run.form.name,
        golds=golds,
        right=run.right,
        wrong=run.wrong,
        sets=tuple(rate for rate in rates if rate is not None),
        mutations=mutations,
        unsafe_golds=unsafe,
        probes=probes,
        outcomes=dict(scorer.outcomes),
        cannot_tell=run.tells is False and not run.told_apart and _reads_gold(verifier, prompts[0]),
        raised=Rate(len(raised), total, raised[:20]),
        notes=tuple(run.notes(weights, bool(labelled))),
        timing=_timing(scorer.seconds),
    )


class _Audit:
    """The parts of one audit, sharing the scorer, the form, and what honest completions earn.

    `right` and `wrong` are those earnings, None if no prompt has a gold answer; `missing` names
    the parts that were no longer asked. `first`: whether a list of gold answers means any of them.
    `told_apart`: every right completion of a labelled set earned more than every wrong one.
    """

    def __init__(self, scorer: Scorer, prompts: Sequence[Prompt]) -> None:
        self.scorer = scorer
        self.prompts = prompts
        self.form: Form = template_form("bare")
        self.first = False
        self.right: float | None = None
        self.wrong: float | None = None
        self.told_apart = False
        self.missing: list[str] = []
        if not all(isinstance(part, CaseVerifier) for part in parts_of(scorer.verifier)):
            two = [prompts[0], prompts[-1]]
            scorer.score(two, [gold_of(prompt) or "" for prompt in two], together=True)
        self._find_form()

    def _find_form(self) -> None:
        """The form whose right answers earn most, and what wrong ones earn in it."""
        tried = _spread([each for each in self.prompts if gold_of(each) is not None], 8)
        if not tried:
            return
        several = any(gold_of(each) != gold_of(each, first=True) for each in tried)
        best: float | None = None
        for first in (False, True)[: 1 + several]:
            for form in candidate_forms(self.scorer.verifier, tried[0]):
                texts = [form.write(each, gold_of(each, first) or "") for each in tried]
                value = _mean(self.scorer.score(tried, texts))
                if value is not None and (best is None or value > best):
                    best, self.form, self.first = value, form, first
        self.right = best
        tasks = self._tasks(tried)
        texts = [task.write(task.wrong) for task in tasks]
        self.wrong = _mean(self.scorer.score([task.prompt for task in tasks], texts))

    def _tasks(self, prompts: Sequence[Prompt]) -> list[ProbeTask]:
        """Those with a gold answer; the others' gold answers are wrong for each."""
        golds = [gold_of(each, self.first) or "" for each in prompts]
        found = [
            task_of(each, self.form, self.first, [*golds[place + 1 :], *golds[:place]])
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
            known = [row for row, each in enumerate(self.prompts) if gold_of(each) is not None]
            tried = [self.prompts[row] for row in known]
            texts = [self.form.write(each, gold_of(each, self.first) or "") for each in tried]
            for row, score in zip(known, self.scorer.score(tried, texts)):
                if score is UNASKED:
                    total -= 1
                elif not self._accepts(score):
                    objections[row] = score.reason or score.outcome
        rejected = [
            Row(self.prompts[row].id, str(self.prompts[row].answer), reason)
            for row, reason in objections.items()
            if reason is not None
        ]
        return Rate(len(rejected), total, tuple(rejected))

    def rates(self, name: str, rows: Sequence[LabelledRow]) -> SetRates | None:
        """The errors on a labelled set."""
        if self._ended(f"the labelled set {name}"):
            return None
        texts = [self.form.fill(row.prompt, row.text) for row in rows]
        scores = self.scorer.score([row.prompt for row in rows], texts)
        accepted, rejected, unscored = list[Row](), list[Row](), list[Row]()
        values: dict[bool, list[float]] = {True: [], False: []}
        total = 0
        for row, text, score in zip(rows, texts, scores):
            if score is UNASKED:
                continue
            total += 1
            found = Row(row.id, text, f"{row.why}; {score.reason}".strip("; "))
            if score.value is None:
                unscored.append(found)
                continue
            values[bool(row.accept)].append(score.value)
            if self._accepts(score) != bool(row.accept):
                (rejected if row.accept else accepted).append(found)
        self.told_apart |= all(values.values()) and min(values[True]) > max(values[False])
        return SetRates(
            name,
            Rate(len(accepted), len(values[False]), tuple(accepted)),
            Rate(len(rejected), len(values[True]), tuple(rejected)),
            Rate(len(unscored), total, tuple(unscored)),
        )

    def mutations(self, number: int) -> tuple[Rate, Rate]:
        """Changed golds with the wrong verdict, and golds with a change that is wrongly accepted.

        Nothing is measured if the verifier does not read answers at all.
        """
        reads = self.tells and main_part(self.scorer.verifier).name not in _SUBMISSIONS
        if self._ended("mutations of gold answers") or not reads:
            return Rate(0, 0), Rate(0, 0)
        chosen = [
            (prompt, mutation)
            for prompt in _spread(self.prompts, number)
            for mutation in mutated(prompt, gold_of(prompt, self.first))
        ]
        texts = [self.form.write(prompt, mutation.text) for prompt, mutation in chosen]
        scores = self.scorer.score([prompt for prompt, _ in chosen], texts)
        scored = [each for each in zip(chosen, scores) if each[1].value is not None]
        wrong: list[Row] = []
        unsafe: dict[str, Row] = {}
        for (prompt, mutation), score in scored:
            if self._accepts(score) == mutation.keep:
                continue
            wanted = "must stay" if mutation.keep else "must flip"
            reason = f"{mutation.name} ({wanted}; gold {prompt.answer})"
            row = Row(prompt.id, mutation.text, reason)
            wrong.append(row)
            if not mutation.keep:
                unsafe.setdefault(prompt.id, row)
        flipped = {prompt.id for (prompt, mutation), _ in scored if not mutation.keep}
        return (
            Rate(len(wrong), len(scored), tuple(wrong)),
            Rate(len(unsafe), len(flipped), tuple(unsafe.values())),
        )

    def probes(self, number: int) -> tuple[ProbeFinding, ...]:
        """Every probe that fits the prompts, against what an honest guess earns there."""
        chosen, tasks, honest = self._plan(number)
        if honest and not self._ended("probes"):
            kinds = [self.scorer.score([t.prompt for t in tasks], kind) for kind in zip(*honest)]
            self.wrong = max(
                (value for value in map(_mean, kinds) if value is not None), default=None
            )
            if chosen is not FREE_PROBES and self.right is None:
                self.right = 1.0
        elif self.wrong is None:
            self._ended("probes")
            return ()
        found = [
            self._probe(each, tasks) for each in chosen if not self._ended(f"probe {each.name}")
        ]
        return tuple(each for each in found if each is not None)

    def _plan(
        self, number: int
    ) -> tuple[Sequence[Probe], Sequence[ProbeTask], Sequence[Sequence[str]]]:
        """Probes, the prompts to try them on, and honest, wrong completions of each prompt.

        Without such completions, what wrong answers earn is known already.
        """
        code = [prompt for prompt in self.prompts if is_code_task(prompt)]
        kind = "code" if code else main_part(self.scorer.verifier).name
        prompts = _spread(code or self.prompts, number)
        if kind in _SUBMISSIONS:
            honest = [[wrong_submission(kind, prompt)] for prompt in prompts]
            return _SUBMISSIONS[kind], [ProbeTask(prompt) for prompt in prompts], honest
        tasks = self._tasks(prompts)
        if tasks:
            return PROBES, tasks, []
        free = [ProbeTask(prompt, HONEST[0], HONEST[0]) for prompt in prompts]
        return FREE_PROBES, free, [HONEST] * len(free)

    def _probe(self, probe: Probe, tasks: Sequence[ProbeTask]) -> ProbeFinding | None:
        made = [
            (task.prompt, place, text)
            for task in tasks
            for place, family in enumerate(probe.make(task))
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
        chance = sum(probe.chance(task) for task in tasks) / len(tasks)
        honest = wrong + chance * max(0.0, right - wrong)
        margin = MARGIN * max(abs(right - wrong), 1e-6)
        hole = earned is not None and earned > honest + margin
        return ProbeFinding(probe.name, probe.what, earned, honest, hole, text, prompt_text)

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
            parts = self.missing[:3]
            rest = len(self.missing) - len(parts)
            missing = ", ".join(parts) + (f" and {rest} more parts" if rest else "")
            found.append(f"{why}, without {missing or 'its last texts'}")
        return found


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


def _timing(seconds: Sequence[float]) -> Mapping[str, float]:
    """Median, 99th percentile and worst, in seconds, of the verdicts asked for one at a time."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    return {
        "median": ordered[len(ordered) // 2],
        "p99": ordered[round(0.99 * (len(ordered) - 1))],
        "worst": ordered[-1],
        "verdicts": float(len(ordered)),
    }
