"""The reward satisfied another way than it was meant: gaps, farmed parts, habits of the text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from groupwise.doctor.facts import (
    CLEAR,
    FLAT,
    MORE,
    OFTEN,
    Facts,
    Row,
    gained,
    is_right,
    mean,
    more_kl,
    samples_of,
    variance,
)
from groupwise.doctor.finding import Finding
from groupwise.doctor.texts import (
    STYLES,
    copies_tests,
    final_answer,
    hedges,
    mixes_scripts,
    repetition,
    whole_answer_verifier,
)

ONE_ANSWER, SPREAD = 0.5, 0.35
GAP = 0.15
COPIES = 0.1
REPEATED = 0.5
FORMAT_GAIN = 0.2
FOLLOWS, LONGER = 0.5, 1.15
SCORED_BY_MODEL = ("reward_model", "process_reward_model", "judge", "local_judge", "rubric")


def one_answer(facts: Facts) -> Finding | None:
    """Different prompts, one answer."""
    late = [final_answer(row["text"]) for row in facts.late_rows]
    if len({row["prompt_id"] for row in facts.late_rows}) < 8:
        return None
    ((answer, number),) = Counter(late).most_common(1)
    early = [final_answer(row["text"]) for row in facts.early_rows].count(answer)
    wanted = Counter(str(row.get("answer")) for row in facts.late_rows).most_common(1)[0][1]
    share, before = number / len(late), early / max(1, len(facts.early_rows))
    if share < ONE_ANSWER or wanted / len(late) > SPREAD or share < before + MORE:
        return None
    rows = [row for row in facts.late_rows if final_answer(row["text"]) == answer]
    return Finding(
        "one_answer", "drift",
        f"{share:.0%} of the completions of different prompts end in {answer!r:.60} ({before:.0%} "
        "at first)",
        {"share": share, "early": before}, facts.span, "sure",
        "a constant answer satisfies the reward: a verifier that reads the prompt's own answer, "
        "a gate, or a KL term",
        more_kl(facts), samples_of(rows),
    )  # fmt: skip


def strict_gap(facts: Facts) -> Finding | None:
    """The reward calls right what the strict verifiers call wrong."""
    gaps = [e["eval/strict_gap"] for e in facts.evaluations if e.get("eval/strict_gap") is not None]
    alarm = float(facts.get("evaluation.strict_gap_alarm", 0.1))
    if not gaps or gaps[-1] < alarm:
        return None
    strict = facts.get("environment.strict_verifiers")
    return Finding(
        "strict_gap", "drift",
        f"the reward's accuracy is {gaps[-1]:.2f} above the strict verifiers' ({gaps[0]:.2f} at "
        "first)",
        {"eval/strict_gap": gaps[-1], "first": gaps[0]}, facts.span, "sure",
        "the reward is being gamed: train on the strict verifiers, or close the hole that the "
        "samples show",
        {"environment.verifiers": strict} if strict else {},
        samples_of([row for row in facts.late_rows if is_right(row)]),
    )  # fmt: skip


def literal_tests(facts: Facts) -> Finding | None:
    """Programs look up the tests' inputs, by their text."""
    return _texts(
        facts, "literal_tests", copies_tests, COPIES,
        "of the programs answer the tests' inputs literally",
        "hide the tests that are scored (held-out cases), and draw new ones", {},
    )  # fmt: skip


def format_farmed(facts: Facts) -> Finding | None:
    """One part of the reward rises, what is right does not."""
    if gained(facts) > FLAT:
        return None
    for name in facts.names("verifier/"):
        trend = facts.trend(name)
        if trend is None or trend.change < FORMAT_GAIN or trend.z < CLEAR or trend.early < 0:
            continue
        if len(facts.names("verifier/")) < 2:
            continue
        return Finding(
            "format_farmed", "drift",
            f"{name} rose from {trend.early:.2f} to {trend.late:.2f}, accuracy by "
            f"{gained(facts):+.2f}",
            {name: trend.late, "early": trend.early, "accuracy_gain": gained(facts)},
            facts.span, "likely",
            "give the easy part only where the answer is right (a gate), or less weight",
            {"environment.combine": "product"}, samples_of(facts.late_rows),
        )  # fmt: skip
    return None


def hedged(facts: Facts) -> Finding | None:
    """Several answers in one completion, one of which will be read."""
    texts = [row["text"] for row in facts.late_rows]
    return _texts(
        facts, "hedged_answers", lambda row: hedges(row["text"]), OFTEN,
        "of the completions give several answers",
        "a verifier that takes one whole answer",
        {"environment.verifiers": [{"name": whole_answer_verifier(texts)}]},
    )  # fmt: skip


def heldout_gap(facts: Facts) -> Finding | None:
    """The training reward rises, held-out accuracy does not."""
    held = [e for e in facts.evaluations if e.get("eval/heldout") is not None]
    reward = facts.started
    if len(held) < 2 or reward is None or reward.z < CLEAR or reward.change < GAP:
        return None
    first, last = held[0]["eval/heldout"], held[-1]["eval/heldout"]
    high = held[-1].get("eval/heldout_high") or last
    low = held[0].get("eval/heldout_low") or first
    if high - low > 0.5 * reward.change:
        return None
    return Finding(
        "heldout_gap", "drift",
        f"training accuracy rose by {reward.change:.2f}, held-out accuracy by {last - first:.2f}",
        {"training": reward.late, "eval/heldout": last, "eval/heldout_first": first},
        facts.span, "likely",
        "prompts are memorised, or the verifier is gamed: more prompts, fewer epochs, a KL term; "
        "read samples",
        more_kl(facts), samples_of(facts.late_rows),
    )  # fmt: skip


def repeats(facts: Facts) -> Finding | None:
    """Completions repeat themselves; right ones count too where a verifier was chosen for it."""
    excused = not facts.get("environment.verifiers")  # the task itself may ask for it
    return _texts(
        facts, "repetition",
        lambda row: repetition(row) > REPEATED and not (excused and is_right(row)), OFTEN,
        "of the completions repeat themselves",
        "clip-higher or a KL term against a collapse; a repetition penalty in the reward",
        more_kl(facts),
    )  # fmt: skip


def language_mixing(facts: Facts) -> Finding | None:
    """Another script than the prompt's."""
    chosen = list(facts.get("environment.verifiers") or [])
    rewarded = [*chosen, {"name": "language", "arguments": {"language": "en"}}]
    return _texts(
        facts, "language_mixing", mixes_scripts, OFTEN,
        "of the completions mix another script into the prompt's",
        "reward the language, or start from a supervised cold start",
        {"environment.verifiers": rewarded} if chosen else {},
    )  # fmt: skip


def _texts(
    facts: Facts,
    kind: str,
    holds: Callable[[Row], bool],
    often: float,
    what: str,
    advice: str,
    change: Mapping[str, Any] | None = None,
) -> Finding | None:
    """A kind of text that has become frequent."""
    early, late = (facts.share(rows, holds) for rows in (facts.early_rows, facts.late_rows))
    if late < often or late < early + MORE:
        return None
    rows = [row for row in facts.late_rows if holds(row)]
    return Finding(
        kind, "drift", f"{late:.0%} {what} ({early:.0%} at first)", {"late": late, "early": early},
        facts.span, "likely", advice, change or {}, samples_of(rows),
    )  # fmt: skip


def length_exploited(facts: Facts) -> Finding | None:
    """A model's score follows length, and length grows."""
    length = facts.trend("completions/tokens_mean")
    if length is None or length.z < CLEAR or length.late < LONGER * length.early:
        return None
    for place, name, label in model_verifiers(facts):
        found = _follows(facts, label, lambda row: len(row["completion_ids"]) or len(row["text"]))
        if found is None or found < FOLLOWS:
            continue
        return Finding(
            "length_exploited", "drift",
            f"{label} follows length (correlation {found:.2f}), and length grew from "
            f"{length.early:.0f} to {length.late:.0f} tokens",
            {"correlation": found, "completions/tokens_mean": length.late}, facts.span, "likely",
            "take what length is worth off the score (length_control), stay near the start, or "
            "gate the score by correctness",
            _less_of(facts, place, name), samples_of(facts.late_rows),
        )  # fmt: skip
    return None


def style_exploited(facts: Facts) -> Finding | None:
    """A model's score follows a mark of style, and the mark spreads."""
    for _, _, label in model_verifiers(facts):
        for style, mark in STYLES.items():
            has = partial(_has, mark)
            early, late = (facts.share(rows, has) for rows in (facts.early_rows, facts.late_rows))
            if late < OFTEN or late < early + MORE:
                continue
            found = _follows(facts, label, has)
            if found is None or found < FOLLOWS:
                continue
            rows = [row for row in facts.late_rows if has(row)]
            return Finding(
                "style_exploited", "drift",
                f"{label} follows {style} (correlation {found:.2f}), which {late:.0%} of the "
                f"completions have ({early:.0%} at first)",
                {"correlation": found, "late": late, "early": early}, facts.span, "likely",
                "balance the pairs that the model learned from by this mark, stay near the start, "
                "or gate the score by correctness",
                _less_of(facts, None, ""), samples_of(rows),
            )  # fmt: skip
    return None


def _has(mark: re.Pattern[str], row: Row) -> bool:
    return mark.search(row["text"]) is not None


def model_verifiers(facts: Facts) -> list[tuple[int, str, str]]:
    """(place, name, label) of the verifiers whose score is a model's opinion."""
    every = enumerate(facts.get("environment.verifiers") or [])
    return [
        (place, entry["name"], entry.get("label") or entry["name"])
        for place, entry in every
        if entry.get("name") in SCORED_BY_MODEL
    ]


def _less_of(facts: Facts, place: int | None, name: str) -> dict[str, Any]:
    if place is not None and name == "reward_model":
        return {f"environment.verifiers.{place}.arguments.length_control": True}
    many = len(facts.get("environment.verifiers") or []) > 1
    return {"environment.combine": "product"} if many else more_kl(facts, 0.1)


def _follows(facts: Facts, label: str, of: Callable[[Row], float]) -> float | None:
    """The correlation of a verifier's value with something of the completion, the higher of the
    first and the last steps': what has spread to all of them has no spread any more."""
    found = []
    for rows in (facts.early_rows, facts.late_rows):
        scored = [row for row in rows if (row["rewards"] or {}).get(label) is not None]
        pairs = [(float(of(row)), float(row["rewards"][label])) for row in scored]
        value = _correlation(pairs)
        found += [] if value is None else [value]
    return max(found, default=None)


def _correlation(pairs: list[tuple[float, float]]) -> float | None:
    if len(pairs) < 16:
        return None
    xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
    spread = (variance(xs) * variance(ys)) ** 0.5 * len(pairs) * (len(pairs) - 1)
    middle = mean(xs), mean(ys)
    return sum((x - middle[0]) * (y - middle[1]) for x, y in pairs) / spread if spread else None


RULES = (
    one_answer, strict_gap, literal_tests, format_farmed, hedged, length_exploited, style_exploited,
    heldout_gap, repeats, language_mixing,
)  # fmt: skip
