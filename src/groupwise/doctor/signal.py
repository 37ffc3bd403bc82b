"""Whether the groups teach anything: base rate, prompts too easy or too hard, cut completions."""

from __future__ import annotations

import re
from dataclasses import replace

from groupwise.doctor.facts import Facts, Row, fell_at_once, is_right, mean, samples_of
from groupwise.doctor.finding import Finding
from groupwise.intervals import wilson_interval

NO_SIGNAL = 0.6
EASY, HARD = 0.7, 0.3
ZERO_ROLLOUTS = 100
TRUNCATED = 0.2
GAIN = 0.2


def without_signal(accuracy: float, group_size: int) -> float:
    """The expected share of groups without signal where each completion is right alone by chance.

    >>> round(without_signal(0.18, 8), 2)
    0.2
    """
    return accuracy**group_size + (1.0 - accuracy) ** group_size


def base_rate_zero(facts: Facts) -> Finding | None:
    """No completion was ever right."""
    count = sum(int(value) for value in facts.series("completions/count"))
    if count < ZERO_ROLLOUTS or max(facts.accuracy, default=1.0) > 0 or _rewarded(facts):
        return None
    _, high = wilson_interval(0.0, count)
    rows = [*facts.early_rows, *facts.late_rows]
    bare = facts.share(rows, _ends_in_answer)
    looser = bare > 0 and "number" not in facts.verifiers
    return Finding(
        "base_rate_zero", "signal",
        f"none of {count} completions was right (at most {high:.2%} are, by the 95 % interval)"
        + (f"; the last number of {bare:.0%} is the answer" if looser else ""),
        {"correct": 0, "completions": count, "high": high, "last_number": bare}, facts.span, "sure",
        "the verifier's form is never met, the answers often are: read the last number first, "
        "tighten later" if looser else
        "nothing can be amplified: easier prompts, a looser verifier with a format bonus, a "
        "supervised start, or a stronger model (groupwise suggest measures it)",
        {"environment.verifiers": [{"name": "number"}]} if looser
        else {"sampling.group_size": min(64, 4 * int(facts.get("sampling.group_size", 8)))},
        samples_of([row for row in rows if _ends_in_answer(row)] or facts.late_rows),
    )  # fmt: skip


def _ends_in_answer(row: Row) -> bool:
    """Whether the text's last number is the answer, as it is written."""
    numbers = re.findall(r"-?\d+(?:\.\d+)?", row["text"])
    return bool(numbers) and numbers[-1] == str(row.get("answer"))


def _rewarded(facts: Facts) -> bool:
    """Whether rewards above their smallest occur in many groups all the same."""
    recent = facts.recent("groups/no_signal")
    return recent is not None and recent < NO_SIGNAL and not facts.series("outcomes/no_answer")


def too_hard(facts: Facts) -> Finding | None:
    """Most groups are wrong throughout, and were never right (else it is a divergence)."""
    return None if fell_at_once(facts) else _signal_missing(facts, "too_hard")


def too_easy(facts: Facts) -> Finding | None:
    """Most groups were right throughout from the first steps on."""
    trend = facts.trend("groups/no_signal")
    if trend is None or trend.early < NO_SIGNAL:
        return None
    return _signal_missing(facts, "too_easy")


def solved(facts: Facts) -> Finding | None:
    """Most groups have become right throughout: there is little left to learn here."""
    trend = facts.trend("groups/no_signal")
    found = _signal_missing(facts, "too_easy")
    if trend is None or found is None or trend.early >= NO_SIGNAL:
        return None
    return replace(found, kind="solved", level="info", advice="stop here, or add harder prompts")


def _signal_missing(facts: Facts, kind: str) -> Finding | None:
    missing = facts.recent("groups/no_signal")
    if missing is None or missing < NO_SIGNAL or not facts.accuracy:
        return None
    accuracy = mean(facts.accuracy[-5:])
    hard = accuracy < HARD
    if accuracy == 0 or (kind == "too_hard") != hard or (not hard and accuracy < EASY):
        return None
    size = int(facts.get("sampling.group_size", 8))
    change = (
        {"sampling.group_size": min(64, 4 * size)} if hard
        else {"selection.pool.high": 0.9}
    )  # fmt: skip
    return Finding(
        kind, "signal",
        f"{missing:.0%} of the groups have no signal, with {accuracy:.0%} of completions right",
        {"groups/no_signal": missing, "accuracy": accuracy, "group_size": size},
        facts.span, "sure",
        "larger groups, easier prompts or a curriculum" if hard else
        "harder prompts; leave the solved ones out, or use dynamic sampling",
        change,
    )  # fmt: skip


def truncation(facts: Facts) -> Finding | None:
    """Many completions are cut, and what is cut is mostly wrong."""
    cut = facts.recent("completions/truncated")
    trend = facts.trend("completions/truncated")
    if cut is None or trend is None or cut < TRUNCATED:
        return None
    if trend.early < TRUNCATED and fell_at_once(facts):  # a destroyed policy does not end
        return None
    rows = [row for row in facts.late_rows if row["finish_reason"] == "length"]
    if facts.share(rows, is_right) > 0.5:  # what is cut is right all the same
        return None
    limit = int(facts.get("sampling.max_tokens", 0)) or int(
        facts.recent("completions/tokens_max") or 0
    )
    return Finding(
        "truncation", "signal",
        f"{cut:.0%} of the completions are cut at the limit ({trend.early:.0%} at first)",
        {"completions/truncated": cut, "early": trend.early, "limit": limit}, facts.span, "sure",
        "raise the limit, or mask cut completions out of the loss; if the length grows without "
        "gain, see length_growth",
        {"sampling.max_tokens": 2 * limit} if limit else {}, samples_of(rows),
    )  # fmt: skip


def group_too_small(facts: Facts) -> Finding | None:
    """Another group size would leave far fewer groups without signal."""
    size = facts.get("sampling.group_size")
    if size is None or not facts.accuracy or fell_at_once(facts):
        return None
    accuracy = mean(facts.accuracy[-10:])
    here = without_signal(accuracy, int(size))
    if not 0.02 < accuracy < 0.85 or here < NO_SIGNAL:
        return None
    better = next((g for g in (4, 8, 16, 32) if g > size and without_signal(accuracy, g) < 0.5), 32)
    there = without_signal(accuracy, better)
    if here - there < GAIN:
        return None
    return Finding(
        "group_too_small", "tuning",
        f"at {accuracy:.0%} right, {here:.0%} of groups of {size} can have no signal, and "
        f"{there:.0%} of groups of {better}",
        {"accuracy": accuracy, "group_size": size}, facts.span, "likely",
        "larger groups, fewer prompts a step", {"sampling.group_size": better},
    )  # fmt: skip


RULES = (base_rate_zero, too_hard, too_easy, solved, truncation, group_too_small)
