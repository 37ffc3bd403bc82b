"""What is measured on gold answers and labelled rows: acceptance, mutations, agreement.

Left out: texts that try to earn without solving (`probing.py`), and the order of it all (`run.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.types import Prompt, Score
from groupwise.verifiers.audit.families import kind_of, spread
from groupwise.verifiers.audit.forms import (
    Form,
    best_form,
    candidate_forms,
    gold_of,
    parts_of,
    template_form,
)
from groupwise.verifiers.audit.mutations import mutated
from groupwise.verifiers.audit.probes import task_of
from groupwise.verifiers.audit.report import Agreement, Rate, SetRates
from groupwise.verifiers.audit.rows import LabelledRow
from groupwise.verifiers.audit.scoring import UNASKED, Scorer
from groupwise.verifiers.audit.second import second_method
from groupwise.verifiers.core.contract import CaseVerifier


class Measures:
    """The parts of one audit, sharing the scorer, the form, and what honest completions earn.

    `right` and `wrong` are those earnings, None where no prompt has a gold answer; `missing` names
    the parts that were not asked any more.
    """

    def __init__(self, scorer: Scorer, prompts: Sequence[Prompt]) -> None:
        self.scorer = scorer
        self.prompts = prompts
        self.form: Form = template_form("bare")
        self.right: float | None = None
        self.wrong: float | None = None
        self.missing: list[str] = []
        if not all(isinstance(part, CaseVerifier) for part in parts_of(scorer.verifier)):
            two = [prompts[0], prompts[-1]]
            scorer.check_batch(two, [gold_of(prompt) or "" for prompt in two])
        self._find_form()

    def _find_form(self) -> None:
        """The form whose right answers earn most, and what wrong ones earn in it."""
        tried = [prompt for prompt in self.prompts if gold_of(prompt) is not None]
        tried = spread(tried, 8)
        if not tried:
            return
        forms = candidate_forms(self.scorer.verifier, tried[0])
        values = [mean(self._write(form, tried)) for form in forms]
        place = forms.index(
            best_form(forms, [-1e9 if value is None else value for value in values])
        )
        self.form, self.right = forms[place], values[place]
        tasks = [task for task in (task_of(prompt, self.form) for prompt in tried) if task]
        scores = self.scorer.score(
            [task.prompt for task in tasks], [task.write(task.wrong) for task in tasks]
        )
        self.wrong = mean(scores)

    def _write(self, form: Form, prompts: Sequence[Prompt]) -> list[Score]:
        texts = [form.write(prompt, gold_of(prompt) or "") for prompt in prompts]
        return self.scorer.score(prompts, texts)

    def over_budget(self, part: str) -> bool:
        if not self.scorer.ended:
            return False
        self.missing.append(part)
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
            for prompt in spread(self.prompts, number)
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


def mean(scores: Sequence[Score]) -> float | None:
    """The mean value of those that have one; None of nothing."""
    values = [score.value for score in scores if score.value is not None]
    return sum(values) / len(values) if values else None
