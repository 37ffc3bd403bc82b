"""Which probes fit a prompt, and what each of them earns against an honest guess.

Four kinds: submissions of code, queries and proofs, answers, and prompts without a gold answer.
Left out: the texts (`probes.py`, `code_probes.py`, `query_probes.py`, `free_probes.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.types import Prompt, Score
from groupwise.verifiers.audit.code_probes import CODE_PROBES, is_code_task, wrong_submission
from groupwise.verifiers.audit.families import kind_of, spread
from groupwise.verifiers.audit.forms import Form
from groupwise.verifiers.audit.free_probes import FREE_PROBES, HONEST, free_task
from groupwise.verifiers.audit.measures import Measures, mean
from groupwise.verifiers.audit.probes import PROBES, Probe, ProbeTask, task_of
from groupwise.verifiers.audit.query_probes import (
    PROOF_PROBES,
    SQL_PROBES,
    WRONG_PROOF,
    WRONG_QUERY,
)
from groupwise.verifiers.audit.report import ProbeFinding

MARGIN = 0.02
"""What a probe may earn above an honest guess, in parts of right minus wrong, without being one."""

_SUBMISSION = Form("submission", lambda _prompt, answer: answer)


@dataclass(frozen=True, slots=True)
class Plan:
    """Probes for some prompts, and for each prompt the honest completions that are wrong.

    None as `honest`: what wrong answers earn is known already.
    """

    probes: Sequence[Probe]
    tasks: Sequence[ProbeTask]
    honest: Sequence[Sequence[str]] | None


def plan_probes(measures: Measures, number: int) -> Plan:
    """The probes for at most `number` prompts, spread over the data."""
    prompts = measures.prompts
    code = [prompt for prompt in prompts if is_code_task(prompt)]
    if code:
        tasks = [_submission(prompt) for prompt in spread(code, number)]
        return Plan(CODE_PROBES, tasks, [[wrong_submission(task.prompt)] for task in tasks])
    kind = kind_of(measures.scorer.verifier)
    if kind in ("sql", "proof"):
        probes, wrong = (SQL_PROBES, WRONG_QUERY) if kind == "sql" else (PROOF_PROBES, WRONG_PROOF)
        tasks = [_submission(prompt) for prompt in spread(prompts, number)]
        return Plan(probes, tasks, [[wrong]] * len(tasks))
    found = [task_of(prompt, measures.form) for prompt in spread(prompts, number)]
    tasks = [task for task in found if task is not None]
    if tasks:
        return Plan(PROBES, tasks, None)
    tasks = [free_task(prompt) for prompt in spread(prompts, number)]
    return Plan(FREE_PROBES, tasks, [HONEST] * len(tasks))


def _submission(prompt: Prompt) -> ProbeTask:
    return ProbeTask(prompt, "", "", (), _SUBMISSION)


def run_probes(measures: Measures, number: int) -> tuple[ProbeFinding, ...]:
    """Every probe on a few prompts, against what an honest guess earns there."""
    plan = plan_probes(measures, number)
    if plan.honest is not None and not measures.over_budget("probes"):
        measures.wrong = _honest(measures, plan)
        if plan.probes is not FREE_PROBES and measures.right is None:
            measures.right = 1.0
    if measures.wrong is None:
        measures.over_budget("probes")
        if plan.honest is None:
            return ()
    findings = []
    for probe in plan.probes:
        if measures.over_budget(f"probe {probe.name}"):
            continue
        finding = _probe(measures, probe, plan.tasks)
        if finding is not None:
            findings.append(finding)
    return tuple(findings)


def _honest(measures: Measures, plan: Plan) -> float | None:
    """What the better kind of honest, wrong completion earns on average."""
    assert plan.honest is not None
    kinds = [
        measures.scorer.score([task.prompt for task in plan.tasks], texts)
        for texts in zip(*plan.honest, strict=True)
    ]
    values = [value for value in map(mean, kinds) if value is not None]
    return max(values) if values else None


def _probe(measures: Measures, probe: Probe, tasks: Sequence[ProbeTask]) -> ProbeFinding | None:
    made = [
        (task, place, text)
        for task in tasks
        for place, family in enumerate(probe.make(task))
        for text in family
    ]
    if not made:
        return None
    scores = measures.scorer.score([task.prompt for task, _, _ in made], [t for _, _, t in made])
    earned, text, prompt = _best_family(made, scores)
    wrong = 0.0 if measures.wrong is None else measures.wrong
    right = max(abs(wrong), 1.0) if measures.right is None else measures.right
    chance = sum(probe.chance(task) for task in tasks) / len(tasks)
    honest = wrong + chance * max(0.0, right - wrong)
    margin = MARGIN * max(abs(right - wrong), 1e-6)
    hole = earned is not None and earned > honest + margin
    return ProbeFinding(probe.name, probe.what, earned, honest, hole, text, prompt)


def _best_family(
    made: Sequence[tuple[ProbeTask, int, str]], scores: Sequence[Score]
) -> tuple[float | None, str, str]:
    """The mean of the family that earns most, and its best text with its prompt."""
    families: dict[int, list[float]] = {}
    for (_, place, _), score in zip(made, scores):
        if score.value is not None:
            families.setdefault(place, []).append(score.value)
    means = {place: sum(values) / len(values) for place, values in families.items()}
    if not means:
        return None, "", ""
    top = max(means, key=lambda place: means[place])
    best = (float("-inf"), "", "")
    for (task, place, text), score in zip(made, scores):
        if score.value is not None and place == top and score.value > best[0]:
            best = (score.value, text, task.prompt.last_text)
    return means[top], best[1], best[2]
