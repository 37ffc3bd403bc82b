"""Liveness, verifier, data, template: what makes everything below it meaningless."""

from __future__ import annotations

from collections import Counter

from groupwise.doctor.facts import Facts, samples_of
from groupwise.doctor.finding import Finding
from groupwise.doctor.texts import TEMPLATE_MARKS

UNSCORED = 0.05
SLOW_SHARE, SLOW_SECONDS = 0.5, 1.0
CONSTANT_TEXTS = 16
NEVER_STOPS = 0.95
MARKED = 0.02


def stopped_early(facts: Facts) -> Finding | None:
    """The run ended with an error, or was interrupted and never resumed."""
    errors = [event for event in facts.events if event["kind"] in ("error", "failed")]
    status = facts.run.summary.get("status")
    if not errors or status == "finished":
        return None
    last = errors[-1]
    return Finding(
        "run_failed", "broken", f"the run failed: {last.get('message') or last.get('error')}",
        {"status": status, "time": last["time"]}, facts.span, "sure",
        "mend what the message names, then resume it with --resume",
    )  # fmt: skip


def record_incomplete(facts: Facts) -> Finding | None:
    """Pieces that the record should hold are not there, or are there twice."""
    gaps = facts.run.gaps()
    if not gaps:
        return None
    return Finding(
        "record_incomplete", "broken", "; ".join(gaps), {"gaps": len(gaps)}, facts.span, "sure",
        "copy the run's folder again from where it was written; the other findings rest on what "
        "is left",
    )  # fmt: skip


def nonfinite_updates(facts: Facts) -> Finding | None:
    """Updates were skipped because their loss or gradient was not finite."""
    skipped, made = (int(sum(facts.series(f"updates{each}"))) for each in ("/nonfinite", ""))
    if not skipped:
        return None
    return Finding(
        "nonfinite_updates", "broken",
        f"{skipped} of {skipped + made} updates were skipped: loss or gradient was not finite",
        {"updates/nonfinite": skipped, "updates": made}, facts.span, "sure",
        "train in float32, or with a lower learning rate; the warnings name step and tensor",
        {"model.dtype": "float32"},
    )  # fmt: skip


def verifier_failing(facts: Facts) -> Finding | None:
    """Many completions have no score."""
    count, unscored = facts.recent("completions/count"), facts.recent("unscored")
    if not count or unscored is None or unscored / count < UNSCORED:
        return None
    rows = [row for row in facts.late_rows if row["reward"] is None]
    outcomes = Counter(row["outcome"] for row in rows)
    slow = outcomes.get("verifier_timeout", 0) > len(rows) / 2
    return Finding(
        "verifier_failing", "broken",
        f"{unscored / count:.0%} of the completions have no score "
        f"({', '.join(f'{name} {number}' for name, number in outcomes.most_common(3))})",
        {"unscored": unscored / count, **{f"outcomes/{k}": v for k, v in outcomes.items()}},
        facts.span, "sure",
        "give the verifier more time" if slow else
        "read the reasons of these samples and mend the verifier or its answers",
        {"environment.verifiers.0.deadline": 1200.0} if slow else {},
        samples_of(rows),
    )  # fmt: skip


def verifier_slow(facts: Facts) -> Finding | None:
    """Most of a step is spent in verifiers."""
    spent, whole = facts.recent("seconds/score"), facts.recent("seconds/step")
    if not spent or not whole or spent < SLOW_SECONDS or spent / whole < SLOW_SHARE:
        return None
    return Finding(
        "verifier_slow", "broken",
        f"verifiers take {spent:.1f} s of a step of {whole:.1f} s",
        {"seconds/score": spent, "seconds/step": whole}, facts.span, "sure",
        "run the verifier in more workers, shorten its time limit, or judge a cheaper answer",
        {"environment.verifiers.0.time_limit": 5.0}
        if ":" in str((facts.get("environment.verifiers") or [{}])[0].get("name", "")) else {},
    )  # fmt: skip


def verifier_constant(facts: Facts) -> Finding | None:
    """One reward, not 0, whatever is written (0 is base_rate_zero)."""
    rows = [row for row in (*facts.early_rows, *facts.late_rows) if row["reward"] is not None]
    values = {row["reward"] for row in rows}
    if len(values) != 1 or 0.0 in values or len({row["text"] for row in rows}) < CONSTANT_TEXTS:
        return None
    value = values.pop()
    return Finding(
        "verifier_constant",
        "broken",
        f"all of {len(rows)} completions, different ones among them, were given {value:g}",
        {"reward": value, "rollouts": len(rows)},
        facts.span,
        "likely",
        "it teaches nothing: audit it (groupwise audit), or take the environment's own",
        {"environment.verifiers": []},
        samples_of(rows),
    )


def never_stops(facts: Facts) -> Finding | None:
    """Nearly everything runs into max_tokens from the first step: a stop id is not known."""
    truncated = facts.series("completions/truncated")
    if len(truncated) < 2 or min(truncated) < NEVER_STOPS:
        return None
    longest, shortest = (
        facts.recent("completions/tokens_max"),
        facts.recent("completions/tokens_min"),
    )
    if longest is None or longest != shortest:
        return None
    return Finding(
        "never_stops", "broken",
        f"every completion of {facts.num_steps} steps runs to the limit of {longest:.0f} tokens",
        {"completions/truncated": min(truncated), "completions/tokens_max": longest},
        facts.span, "likely",
        "the model's stop id or chat template is wrong, or max_tokens is far too small: read a "
        "completion's end; set sampling.stop, or template.stop_ids, or raise max_tokens",
        {"sampling.max_tokens": int(4 * longest)}, samples_of(facts.late_rows),
    )  # fmt: skip


def template_mark(facts: Facts) -> Finding | None:
    """Marks of a chat template stand in the text: the policy writes both sides, or a wrong one."""
    rows = facts.late_rows
    marked = [row for row in rows if TEMPLATE_MARKS.search(row["text"])]
    if not rows or len(marked) / len(rows) < MARKED:
        return None
    found = TEMPLATE_MARKS.search(marked[0]["text"])
    return Finding(
        "template_mark", "broken",
        f"{len(marked) / len(rows):.0%} of the completions hold a template's mark "
        f"({found.group(0) if found else ''})",
        {"share": len(marked) / len(rows)}, facts.span, "likely",
        "the template does not fit the model, or its stop id is missing: name the mark as a stop",
        {"sampling.stop": [found.group(0)] if found else []}, samples_of(marked),
    )  # fmt: skip


BEFORE_ANY_STEP = (stopped_early, record_incomplete)
"""What can be said of a run without steps."""

RULES = (
    *BEFORE_ANY_STEP, nonfinite_updates, verifier_failing, verifier_slow, verifier_constant,
    never_stops, template_mark,
)  # fmt: skip
