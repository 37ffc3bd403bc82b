"""Where the policy went: collapse, growth without gain, hacking, run-away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from groupwise.doctor.facts import (
    CLEAR,
    FELL,
    Facts,
    Row,
    Trend,
    fell_at_once,
    is_right,
    mean,
    samples_of,
    trend_of,
    variance,
)
from groupwise.doctor.finding import Finding
from groupwise.doctor.texts import copies_tests, final_answer, hedges, mixes_scripts, repetition

FLAT = 0.02
"""A gain in accuracy below it is none."""
COLLAPSED, FROM_BEFORE = 0.1, 0.25
LONGER = 1.3
ONE_ANSWER, SPREAD = 0.5, 0.35
GAP = 0.15
GROWN_GAP, LARGE_GAP = 5.0, 0.01
CLIPPED, NARROW = 0.1, 0.05
KL_TOKEN = 0.5
OFTEN, MORE = 0.2, 0.1
REPEATED = 0.5
FORMAT_GAIN = 0.2


def _accuracy(facts: Facts) -> Trend | None:
    """Of evaluations where there are three or more, else of the training completions; without
    verdicts of the reward."""
    for name in ("eval/heldout", "eval/accuracy"):
        values = [e[name] for e in facts.evaluations if e.get(name) is not None]
        if len(values) >= 3:
            return trend_of(values)
    return trend_of(facts.accuracy) or facts.trend("reward")


def _gained(facts: Facts) -> float:
    """The larger gain: over thirds, or since the first steps (a fast run is done in a third)."""
    found = [trend.change for trend in (_accuracy(facts), facts.started) if trend is not None]
    return max(found, default=0.0)


def entropy_collapse(facts: Facts) -> Finding | None:
    """Entropy near zero while much is still wrong."""
    trend = facts.trend("entropy")
    if trend is None or not facts.accuracy or trend.z > -CLEAR:
        return None
    accuracy = mean(facts.accuracy[-5:])
    if trend.late > COLLAPSED or trend.late > FROM_BEFORE * trend.early or accuracy > 0.8:
        return None
    return Finding(
        "entropy_collapse", "drift",
        f"entropy fell from {trend.early:.3g} to {trend.late:.3g} nats a token, with "
        f"{accuracy:.0%} of completions right",
        {"entropy": trend.late, "early": trend.early, "accuracy": accuracy}, facts.span, "likely",
        "let rare tokens rise (clip-higher), add a KL term or an entropy bonus, lower the "
        "learning rate",
        {"algorithm.kl_coef": 0.04, "training.learning_rate": _slower(facts)},
    )  # fmt: skip


def length_growth(facts: Facts) -> Finding | None:
    """Longer completions, no more right ones; the cause by whether entropy fell with it."""
    length, entropy = facts.trend("completions/tokens_mean"), facts.trend("entropy")
    if length is None or length.early <= 0 or length.z < CLEAR or _gained(facts) > FLAT:
        return None
    if length.late < LONGER * length.early:
        return None
    collapse = entropy is not None and entropy.z < -CLEAR and entropy.late < 0.5 * entropy.early
    cause = "entropy fell with it: a collapse" if collapse else "entropy did not fall: the divisor"
    return Finding(
        "length_growth", "drift",
        f"completions grew from {length.early:.0f} to {length.late:.0f} tokens without gain; "
        f"{cause}",
        {"completions/tokens_mean": length.late, "early": length.early, "collapse": collapse},
        facts.span, "likely",
        "clip-higher, KL or an entropy target" if collapse else
        "divide by a constant or by the update's tokens instead of each completion's length",
        {"algorithm.kl_coef": 0.04} if collapse else {"algorithm.preset": "dr_grpo"},
        samples_of(sorted(facts.late_rows, key=lambda row: -len(row["completion_ids"]))),
    )  # fmt: skip


def format_farmed(facts: Facts) -> Finding | None:
    """One part of the reward rises, what is right does not."""
    if _gained(facts) > FLAT:
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
            f"{_gained(facts):+.2f}",
            {name: trend.late, "early": trend.early, "accuracy_gain": _gained(facts)},
            facts.span, "likely",
            "give the easy part only where the answer is right (a gate), or less weight",
            {"environment.combine": "product"}, samples_of(facts.late_rows),
        )  # fmt: skip
    return None


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
        {"algorithm.kl_coef": 0.04}, samples_of(facts.late_rows),
    )  # fmt: skip


def strict_gap(facts: Facts) -> Finding | None:
    """The reward calls right what the strict verifiers call wrong."""
    gaps = [e["eval/strict_gap"] for e in facts.evaluations if e.get("eval/strict_gap") is not None]
    alarm = float(facts.get("evaluation.strict_gap_alarm", 0.1))
    if not gaps or gaps[-1] < alarm:
        return None
    return Finding(
        "strict_gap", "drift",
        f"the reward's accuracy is {gaps[-1]:.2f} above the strict verifiers' ({gaps[0]:.2f} at "
        "first)",
        {"eval/strict_gap": gaps[-1], "first": gaps[0]}, facts.span, "sure",
        "the reward is being gamed: train on the strict verifiers, or close the hole that the "
        "samples show",
        {}, samples_of([row for row in facts.late_rows if is_right(row)]),
    )  # fmt: skip


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
        {"algorithm.kl_coef": 0.04}, samples_of(rows),
    )  # fmt: skip


def literal_tests(facts: Facts) -> Finding | None:
    return _texts(
        facts, "literal_tests", copies_tests, 0.1,
        "of the programs answer the tests' inputs literally",
        "hide the tests that are scored (held-out cases), and draw new ones",
    )  # fmt: skip


def repeats(facts: Facts) -> Finding | None:
    return _texts(
        facts, "repetition", lambda row: repetition(row) > REPEATED and not is_right(row), OFTEN,
        "of the completions repeat themselves",
        "clip-higher or a KL term against a collapse; a repetition penalty in the reward",
        {"algorithm.kl_coef": 0.04},
    )  # fmt: skip


def language_mixing(facts: Facts) -> Finding | None:
    return _texts(
        facts, "language_mixing", mixes_scripts, OFTEN,
        "of the completions mix another script into the prompt's",
        "reward the language (the verifier `language` or `english`), or start from a supervised "
        "cold start",
    )  # fmt: skip


def hedged(facts: Facts) -> Finding | None:
    return _texts(
        facts, "hedged_answers", lambda row: hedges(row["text"]), OFTEN,
        "of the completions give several answers",
        "a verifier that takes one whole answer (math, number with tag = 'answer')",
    )  # fmt: skip


def _texts(
    facts: Facts,
    kind: str,
    holds: Callable[[Row], bool],
    often: float,
    what: str,
    advice: str,
    change: dict[str, object] | None = None,
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


def mismatch_growing(facts: Facts) -> Finding | None:
    trend = facts.trend("sampler_gap/mean")
    if trend is None or trend.late < LARGE_GAP or trend.z < CLEAR:
        return None
    if trend.late < GROWN_GAP * max(trend.early, 1e-4) and trend.late < 10 * LARGE_GAP:
        return None
    return Finding(
        "mismatch_growing", "drift",
        f"sampler and learner disagree by {trend.late:.3g} nats a token ({trend.early:.3g} at "
        "first)",
        {"sampler_gap/mean": trend.late, "early": trend.early}, facts.span, "sure",
        "correct by truncated importance weights, and look for stale or quantised weights in the "
        "sampler",
        {"algorithm.correction": "tis"},
    )  # fmt: skip


def clip_saturation(facts: Facts) -> Finding | None:
    sides = zip(facts.series("clip/low"), facts.series("clip/high"), strict=False)
    values = [low + high for low, high in sides]
    clipped = max(map(mean, (values[:5], values[-5:])), default=0.0) if len(values) >= 3 else 0.0
    bounds = [facts.get(f"algorithm.surrogate.{side}") for side in ("low", "high")]
    if clipped < CLIPPED or min((b for b in bounds if b), default=1.0) < NARROW:
        return None  # a range as narrow as GSPO's clips much by design
    passes, minibatches = facts.get("training.passes", 1), facts.get("training.minibatches", 1)
    stale = facts.recent("staleness") or 0.0
    return Finding(
        "clip_saturation", "drift",
        f"{clipped:.0%} of the tokens are clipped ({passes} passes of {minibatches} updates, data "
        f"{stale:.1f} steps old)",
        {"clip": clipped, "staleness": stale}, facts.span, "sure",
        "fewer updates on the same rollouts, or a lower learning rate",
        {"training.passes": 1, "training.learning_rate": _slower(facts)},
    )  # fmt: skip


def kl_runaway(facts: Facts) -> Finding | None:
    """KL to the start is large, and nothing was gained for it."""
    trend, token = facts.trend("kl"), facts.recent("kl/token")
    if trend is None or token is None or facts.num_steps < 6:
        return None
    if token < KL_TOKEN or _gained(facts) > 0.1:
        return None
    return Finding(
        "kl_runaway", "drift",
        f"KL to the start is {token:.2f} nats a token ({trend.late:.1f} a completion) without gain",
        {"kl": trend.late, "kl/token": token}, facts.span, "sure",
        "a larger KL coefficient, a lower learning rate",
        {"algorithm.kl_coef": 0.1, "training.learning_rate": _slower(facts)},
    )  # fmt: skip


def divergence(facts: Facts) -> Finding | None:
    """A good start, then a fall."""
    judged = max(facts.accuracy, default=0.0) > 0
    values = facts.accuracy if judged else facts.series("reward")
    width = max(2, len(values) // 6)
    if len(values) < 9:
        return None
    windows = [values[at : at + width] for at in range(len(values) - width + 1)]
    peak = max(windows, key=mean)
    last = windows[-1]
    error = (variance(peak) + variance(last)) ** 0.5
    start, top, at_once = facts.started, mean(peak), fell_at_once(facts)
    fell = top - mean(last) >= max(FELL, CLEAR * error) and top >= mean(windows[0])
    if not fell and not at_once:
        return None
    if at_once and start is not None:
        top = max(top, start.early)
    updates = int(facts.get("training.passes", 1)) * int(facts.get("training.minibatches", 1))
    return Finding(
        "divergence", "drift",
        f"{'accuracy' if judged else 'the reward'} fell from {top:.2f} to {mean(last):.2f}, "
        f"with {updates} updates a step",
        {"peak": top, "last": mean(last), "updates": updates}, facts.span, "sure",
        "one pass over fresh rollouts, a smaller clip, a lower learning rate",
        {"training.passes": 1, "training.learning_rate": _slower(facts)},
    )  # fmt: skip


def _slower(facts: Facts) -> float:
    return float(f"{float(facts.get('training.learning_rate', 1e-6)) / 3:.2g}")


def length_exploited(facts: Facts) -> Finding | None:
    """A model's reward follows length, and accuracy does not follow it."""
    for entry in facts.get("environment.verifiers") or []:
        if entry.get("name") not in ("reward_model", "judge", "rubric"):
            continue
        name = entry.get("label") or entry["name"]
        pairs = [
            (float(len(row["completion_ids"]) or len(row["text"])), float(row["rewards"][name]))
            for row in facts.late_rows
            if (row["rewards"] or {}).get(name) is not None
        ]
        found = _correlation(pairs)
        length = facts.trend("completions/tokens_mean")
        if found is None or found < 0.5 or length is None or length.z < CLEAR:
            continue
        if length.late < 1.15 * length.early:
            continue
        return Finding(
            "length_exploited", "drift",
            f"{name} follows length (correlation {found:.2f}), and length grew from "
            f"{length.early:.0f} to {length.late:.0f} tokens",
            {"correlation": found, "completions/tokens_mean": length.late}, facts.span, "likely",
            "take what length is worth off the score (length_control), or gate it by correctness",
            {}, samples_of(facts.late_rows),
        )  # fmt: skip
    return None


def _correlation(pairs: list[tuple[float, float]]) -> float | None:
    if len(pairs) < 16:
        return None
    xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
    spread = (variance(xs) * variance(ys)) ** 0.5 * len(pairs) * (len(pairs) - 1)
    middle = mean(xs), mean(ys)
    return sum((x - middle[0]) * (y - middle[1]) for x, y in pairs) / spread if spread else None


RULES = (
    mismatch_growing, clip_saturation, divergence, one_answer, strict_gap, literal_tests,
    format_farmed, hedged, length_exploited, heldout_gap, entropy_collapse, length_growth, repeats,
    language_mixing, kl_runaway,
)  # fmt: skip
"""What destroys a policy comes before what a destroyed policy looks like."""
