"""The audit: gold answers, error rates, mutations, agreement, probes, time.

`audit` measures one verifier (or composition) before anyone trains on it. Left out: what each
part measures (`measures.py`, `probing.py`), the texts (`probes.py` and its neighbours, `sets/`),
and what is printed (`report.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.errors import RecipeError
from groupwise.verifiers.audit.families import labelled_rows, shipped_prompts
from groupwise.verifiers.audit.measures import Measures
from groupwise.verifiers.audit.probing import run_probes
from groupwise.verifiers.audit.report import AuditReport, Rate
from groupwise.verifiers.audit.rows import SETS, LabelledRow
from groupwise.verifiers.audit.scoring import LIMIT, Encode, Scorer
from groupwise.verifiers.core.composition import Composite
from groupwise.verifiers.core.contract import Verifier

_SCORED = {"correct", "incorrect", "partial", "no_answer", "timeout", "out_of_memory", "crash",
           "limit"}  # fmt: skip
"""Outcomes that have a value."""


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
    composition whose weights let something else than correctness dominate. A verdict that takes
    more than `limit` seconds counts as a timeout. After `budget` seconds, or three texts in a row
    without a verdict in time, nothing further is asked of the verifier, and the report says what
    is missing.
    """
    scorer = Scorer(verifier, encode, budget, limit)
    labelled = labelled_rows(verifier, rows, sets)
    prompts = [row.prompt for row in rows] or shipped_prompts(labelled)
    if not prompts:
        raise RecipeError(
            f"verifier {verifier.name!r} has no labelled set of its own; give --data rows.jsonl "
            f"(prompt, answer, ...) or --set, one of {', '.join(SETS)}"
        )
    run = Measures(scorer, prompts)
    golds = run.golds()
    probes = run_probes(run, num_probed)
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
        notes=tuple(_notes(run, verifier, weights, bool(labelled))),
        timing=_timing(scorer.seconds),
    )


def _notes(measures: Measures, verifier: Verifier, weights: bool, labelled: bool) -> list[str]:
    found = list(verifier.warnings()) if weights and isinstance(verifier, Composite) else []
    right, wrong = measures.right, measures.wrong
    if right is not None and wrong is not None and right <= wrong:
        found.append(
            "a right answer earns no more than a wrong one in any usual form; fine for a "
            "verifier of format or length, else give labelled completions of your own (--data)"
        )
    scorer = measures.scorer
    if not (scorer.outcomes.keys() & _SCORED or scorer.raised or scorer.ended):
        found.append(
            "no text got a value, so nothing is known of how this verifier can be fooled; read "
            "completions, or label some (--data)"
        )
    elif not labelled and wrong is not None and right is None:
        found.append(
            "no prompt has a gold answer, so only texts that hold no answer were tried; read "
            "completions, or label some (--data)"
        )
    if scorer.ended:
        why = scorer.stopped or f"stopped after {scorer.budget:g} s"
        found.append(f"{why}, without {_several(measures.missing) or 'its last texts'}")
    return found


def _several(parts: Sequence[str]) -> str:
    shown = ", ".join(parts[:3])
    return f"{shown} and {len(parts) - 3} more parts" if len(parts) > 3 else shown


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
