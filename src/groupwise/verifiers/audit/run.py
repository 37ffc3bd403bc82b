"""The audit: gold answers, error rates, mutations, agreement, probes, time.

`audit` measures one verifier (or composition) before anyone trains on it. Left out: the texts
(`probes.py`, `mutations.py`, `sets/`), and what is printed (`report.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.errors import RecipeError
from groupwise.types import Prompt, Score
from groupwise.verifiers.audit.code_probes import CODE_PROBES, is_code_task, wrong_submission
from groupwise.verifiers.audit.forms import (
    Form,
    best_form,
    candidate_forms,
    gold_of,
    parts_of,
    template_form,
)
from groupwise.verifiers.audit.mutations import mutated
from groupwise.verifiers.audit.probes import PROBES, Probe, ProbeTask, task_of
from groupwise.verifiers.audit.report import (
    Agreement,
    AuditReport,
    ProbeFinding,
    Rate,
    SetRates,
)
from groupwise.verifiers.audit.rows import SETS, LabelledRow, shipped_rows
from groupwise.verifiers.audit.scoring import LIMIT, UNASKED, Encode, Scorer
from groupwise.verifiers.audit.second import second_method
from groupwise.verifiers.composition import Composite
from groupwise.verifiers.contract import CaseVerifier, Verifier

FAMILIES: dict[str, tuple[str, ...]] = {
    "number": ("numbers",),
    "boxed": ("numbers",),
    "tagged": ("numbers",),
    "math": ("numbers", "math"),
    "choice": ("choice",),
    "format": ("format",),
    "code": ("code",),
}
"""Which shipped sets a built-in verifier is measured on."""

MARGIN = 0.02
"""What a probe may earn above an honest guess, in parts of right minus wrong, without being one."""


def audit(
    verifier: Verifier,
    rows: Sequence[LabelledRow] = (),
    *,
    sets: Sequence[str] | None = None,
    num_probed: int = 8,
    num_mutated: int = 50,
    agree: bool = True,
    budget: float | None = None,
    limit: float = LIMIT,
    encode: Encode | None = None,
    weights: bool = True,
) -> AuditReport:
    """Measure a verifier.

    `rows` are the user's prompts (and labelled completions); without any, the golds of the shipped
    sets stand in. `sets` names the labelled sets, by default those of the built-in verifier's kind.
    Probes run on `num_probed` prompts, mutations on `num_mutated`, spread over the data. `agree`:
    whether a second method judges the labelled rows too. `weights`: whether the report warns of a
    composition whose weights let something else than correctness dominate. A verdict that takes more
    than `limit` seconds counts as a timeout. After `budget` seconds, or three texts in a row without
    a verdict in time, nothing further is asked of the verifier, and the report says what is missing.
    """
    scorer = Scorer(verifier, encode, budget, limit)
    labelled = _labelled(verifier, rows, sets)
    prompts = [row.prompt for row in rows] or _shipped_prompts(labelled)
    if not prompts:
        raise RecipeError(
            f"verifier {verifier.name!r} has no labelled set of its own; give --data rows.jsonl "
            f"(prompt, answer, ...) or --set, one of {', '.join(SETS)}"
        )
    run = _Run(scorer, prompts)
    golds = run.golds()
    probes = run.probes(num_probed)
    mutations = run.mutations(num_mutated)
    rates = tuple(run.rates(name, own) for name, own in labelled.items())
    agreement = run.agreement([row for own in labelled.values() for row in own]) if agree else None
    return AuditReport(
        verifier=verifier.name,
        signature=verifier.signature(),
        form=run.form.name,
        golds=golds,
        right=run.right,
        wrong=run.wrong,
        sets=tuple(rate for rate in rates if rate is not None),
        mutations=mutations,
        agreement=agreement,
        probes=probes,
        outcomes=dict(scorer.outcomes),
        raised=Rate(
            len(scorer.raised),
            sum(scorer.outcomes.values()),
            tuple(
                {"id": "-", "text": each.text, "reason": each.error} for each in scorer.raised[:20]
            ),
        ),
        notes=tuple(run.notes(verifier, weights)),
        timing=_timing(scorer.seconds),
    )


def kind_of(verifier: Verifier) -> str:
    """The name that decides which labelled sets apply: of a composition, its main part's."""
    while True:
        if isinstance(verifier, Composite):
            verifier = max(verifier.components, key=lambda each: abs(each.weight)).verifier
        elif isinstance(getattr(verifier, "verifier", None), Verifier):
            verifier = getattr(verifier, "verifier")  # noqa: B009 (known to be there)
        else:
            return verifier.name


def _labelled(
    verifier: Verifier, rows: Sequence[LabelledRow], sets: Sequence[str] | None
) -> dict[str, list[LabelledRow]]:
    names = FAMILIES.get(kind_of(verifier), ()) if sets is None else sets
    arguments = _arguments(verifier)
    found = {name: [row for row in shipped_rows(name) if _fits(row, arguments)] for name in names}
    own = [row for row in rows if row.accept is not None]
    return {**found, "data": own} if own else found


def _arguments(verifier: Verifier) -> Mapping[str, Any]:
    if isinstance(verifier, Composite):
        verifier = max(verifier.components, key=lambda each: abs(each.weight)).verifier
    return verifier.arguments


def _fits(row: LabelledRow, arguments: Mapping[str, Any]) -> bool:
    return all(arguments.get(name, value) == value for name, value in row.arguments.items())


def _shipped_prompts(labelled: Mapping[str, Sequence[LabelledRow]]) -> list[Prompt]:
    """One prompt for each gold answer of the sets."""
    rows = [row for own in labelled.values() for row in own]
    return list({str((row.prompt.answer, row.prompt.columns)): row.prompt for row in rows}.values())


def _spread(prompts: Sequence[Prompt], number: int) -> list[Prompt]:
    """At most `number` prompts, evenly spaced."""
    if len(prompts) <= number:
        return list(prompts)
    return [prompts[place * len(prompts) // number] for place in range(number)]


class _Run:
    """The parts of one audit, sharing the scorer, the form, and what honest completions earn."""

    def __init__(self, scorer: Scorer, prompts: Sequence[Prompt]) -> None:
        self.scorer = scorer
        self.prompts = prompts
        self.form: Form = template_form("bare")
        self.right: float | None = None
        self.wrong: float | None = None
        self._missing: list[str] = []
        if not all(isinstance(part, CaseVerifier) for part in parts_of(scorer.verifier)):
            two = [prompts[0], prompts[-1]]
            scorer.check_batch(two, [gold_of(prompt) or "" for prompt in two])
        self._find_form()

    def _find_form(self) -> None:
        """The form whose right answers earn most, and what wrong ones earn in it."""
        tried = [prompt for prompt in self.prompts if gold_of(prompt) is not None]
        tried = _spread(tried, 8)
        if not tried:
            return
        forms = candidate_forms(self.scorer.verifier, tried[0])
        values = [_mean(self._write(form, tried)) for form in forms]
        place = forms.index(best_form(forms, [_or(value, -1e9) for value in values]))
        self.form, self.right = forms[place], values[place]
        tasks = [task for task in (task_of(prompt, self.form) for prompt in tried) if task]
        scores = self.scorer.score(
            [task.prompt for task in tasks], [task.write(task.wrong) for task in tasks]
        )
        self.wrong = _mean(scores)

    def _write(self, form: Form, prompts: Sequence[Prompt]) -> list[Score]:
        texts = [form.write(prompt, gold_of(prompt) or "") for prompt in prompts]
        return self.scorer.score(prompts, texts)

    def over_budget(self, part: str) -> bool:
        if not self.scorer.ended:
            return False
        self._missing.append(part)
        return True

    def accepts(self, score: Score) -> bool:
        """Whether a score is a right answer's: `correct`, or all that right ones earn here."""
        if score.outcome == "correct":
            return True
        if score.value is None or self.right is None or self.wrong is None:
            return False
        return self.right > self.wrong and score.value >= self.right - 1e-9

    def golds(self) -> Rate:
        """Prompts whose gold answer is rejected, written in the form found."""
        verifier = self.scorer.verifier
        if self.scorer.stopped and self.over_budget("gold answers"):
            return Rate(0, 0)
        total = len(self.prompts)
        objections = verifier.check_answers(self.prompts)
        rows = [
            {"id": prompt.id, "text": str(prompt.answer), "reason": reason}
            for prompt, reason in zip(self.prompts, objections)
            if reason is not None
        ]
        if not rows and not self.form.name.endswith("own") and self.right is not None:
            tried = [each for each in self.prompts if gold_of(each) is not None]
            for prompt, score in zip(tried, self._write(self.form, tried)):
                if score is UNASKED:
                    total -= 1
                elif not self.accepts(score):
                    reason = score.reason or score.outcome
                    rows.append({"id": prompt.id, "text": str(prompt.answer), "reason": reason})
        return Rate(len(rows), total, tuple(rows))

    def rates(self, name: str, rows: Sequence[LabelledRow]) -> SetRates | None:
        if self.over_budget(f"the labelled set {name}"):
            return None
        texts = [self.form.fill(row.prompt, row.text) for row in rows]
        scores = self.scorer.score([row.prompt for row in rows], texts)
        wrong: dict[str, list[dict[str, str]]] = {"accepted": [], "rejected": [], "unscored": []}
        count = {True: 0, False: 0}
        asked = sum(score is not UNASKED for score in scores)
        for row, text, score in zip(rows[:asked], texts, scores):
            entry = {"id": row.id, "text": text, "reason": f"{row.why}; {score.reason}".strip("; ")}
            if score.value is None:
                wrong["unscored"].append(entry)
                continue
            count[bool(row.accept)] += 1
            if self.accepts(score) and not row.accept:
                wrong["accepted"].append(entry)
            elif row.accept and not self.accepts(score):
                wrong["rejected"].append(entry)
        return SetRates(
            name,
            Rate(len(wrong["accepted"]), count[False], tuple(wrong["accepted"])),
            Rate(len(wrong["rejected"]), count[True], tuple(wrong["rejected"])),
            Rate(len(wrong["unscored"]), asked, tuple(wrong["unscored"])),
        )

    def mutations(self, number: int) -> Rate:
        """Changed golds with the wrong verdict; only where the verifier reads answers at all."""
        if self.over_budget("mutations of gold answers") or not self._discriminates:
            return Rate(0, 0)
        chosen = [
            (prompt, mutation, answer)
            for prompt in _spread(self.prompts, number)
            for mutation, answer in mutated(prompt)
        ]
        texts = [self.form.write(prompt, answer) for prompt, _, answer in chosen]
        scores = self.scorer.score([prompt for prompt, _, _ in chosen], texts)
        rows = []
        scored = 0
        for (prompt, mutation, answer), score in zip(chosen, scores):
            if score.value is None:
                continue
            scored += 1
            if self.accepts(score) != mutation.keep:
                wanted = "must stay" if mutation.keep else "must flip"
                reason = f"{mutation.name} ({wanted}; gold {prompt.answer})"
                rows.append({"id": prompt.id, "text": answer, "reason": reason})
        return Rate(len(rows), scored, tuple(rows))

    @property
    def _discriminates(self) -> bool:
        return self.right is not None and self.wrong is not None and self.right > self.wrong

    def agreement(self, rows: Sequence[LabelledRow]) -> Agreement | None:
        """Verdicts on the labelled rows against those of another method, where there is one."""
        second = second_method(kind_of(self.scorer.verifier))
        if second is None or not rows or self.over_budget("agreement with a second method"):
            return None
        pairs = [(row, self.form.fill(row.prompt, row.text)) for row in rows]
        own = self.scorer.score([row.prompt for row, _ in pairs], [text for _, text in pairs])
        other = Scorer(second).score(
            [row.prompt for row, _ in pairs],
            [template_form("boxed").fill(row.prompt, row.text) for row, _ in pairs],
        )
        both = [
            (row, text, self.accepts(a), b.outcome == "correct")
            for (row, text), a, b in zip(pairs, own, other)
            if a.value is not None and b.value is not None
        ]
        differing = tuple(
            {
                "id": row.id,
                "text": text,
                "reason": f"{row.why}; accepted {'here' if a else f'by {second.name}'} only",
            }
            for row, text, a, b in both
            if a != b
        )
        return Agreement(second.name, len(both) - len(differing), len(both), differing)

    def probes(self, number: int) -> tuple[ProbeFinding, ...]:
        """Every probe on a few prompts, against what an honest guess earns there."""
        code = [prompt for prompt in self.prompts if is_code_task(prompt)]
        if code:
            tasks = [ProbeTask(prompt, "", "", (), _submission) for prompt in _spread(code, number)]
            scores = self.scorer.score(
                [task.prompt for task in tasks], [wrong_submission(task.prompt) for task in tasks]
            )
            self.wrong = _mean(scores)
            self.right = 1.0 if self.right is None else self.right
            return self._probe_all(CODE_PROBES, tasks)
        found = [task_of(prompt, self.form) for prompt in _spread(self.prompts, number)]
        tasks = [task for task in found if task is not None]
        if self.wrong is None:
            self.over_budget("probes")
            return ()
        return self._probe_all(PROBES, tasks) if tasks else ()

    def _probe_all(
        self, probes: Sequence[Probe], tasks: Sequence[ProbeTask]
    ) -> tuple[ProbeFinding, ...]:
        findings = []
        for probe in probes:
            if self.over_budget(f"probe {probe.name}"):
                continue
            finding = self._probe(probe, tasks)
            if finding is not None:
                findings.append(finding)
        return tuple(findings)

    def _probe(self, probe: Probe, tasks: Sequence[ProbeTask]) -> ProbeFinding | None:
        made = [(task, place, text) for task in tasks for place, family in
                enumerate(probe.make(task)) for text in family]  # fmt: skip
        if not made:
            return None
        scores = self.scorer.score([task.prompt for task, _, _ in made], [t for _, _, t in made])
        families: dict[int, list[float]] = {}
        best = (float("-inf"), "", "")
        for (_, place, _), score in zip(made, scores):
            if score.value is not None:
                families.setdefault(place, []).append(score.value)
        means = {place: sum(values) / len(values) for place, values in families.items()}
        top = max(means, key=lambda place: means[place]) if means else -1
        for (task, place, text), score in zip(made, scores):
            if score.value is not None and place == top and score.value > best[0]:
                best = (score.value, text, task.prompt.last_text)
        wrong, right = _or(self.wrong, 0.0), _or(self.right, 1.0)
        chance = sum(probe.chance(task) for task in tasks) / len(tasks)
        honest = wrong + chance * max(0.0, right - wrong)
        margin = MARGIN * max(abs(right - wrong), 1e-6)
        earned = means.get(top)
        hole = earned is not None and earned > honest + margin
        return ProbeFinding(probe.name, probe.what, earned, honest, hole, best[1], best[2])

    def notes(self, verifier: Verifier, weights: bool) -> list[str]:
        found = list(verifier.warnings()) if weights and isinstance(verifier, Composite) else []
        if self.right is not None and self.wrong is not None and self.right <= self.wrong:
            found.append(
                "a right answer earns no more than a wrong one in any usual form; fine for a "
                "verifier of format or length, else give labelled completions of your own (--data)"
            )
        if all(gold_of(prompt) is None and not is_code_task(prompt) for prompt in self.prompts):
            found.append(
                "no prompt has a gold answer, so no probe was tried: nothing is known of how this "
                "verifier can be fooled; read completions, or label some (--data)"
            )
        if self.scorer.ended:
            why = self.scorer.stopped or f"stopped after {self.scorer.budget:g} s"
            found.append(f"{why}, without {_several(self._missing) or 'its last texts'}")
        return found


_submission = Form("code", lambda _prompt, answer: answer)


def _mean(scores: Sequence[Score]) -> float | None:
    values = [score.value for score in scores if score.value is not None]
    return sum(values) / len(values) if values else None


def _several(parts: Sequence[str]) -> str:
    shown = ", ".join(parts[:3])
    return f"{shown} and {len(parts) - 3} more parts" if len(parts) > 3 else shown


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _timing(seconds: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and worst, in seconds, of the verdicts asked for one at a time."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    place = min(len(ordered) - 1, round(0.99 * (len(ordered) - 1)))
    return {
        "median": ordered[len(ordered) // 2],
        "p99": ordered[place],
        "worst": ordered[-1],
        "verdicts": float(len(ordered)),
    }
