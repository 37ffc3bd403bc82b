"""The first screen: what a person asks of a run, answered from its record, with the evidence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from groupwise.doctor import Diagnosis
from groupwise.doctor.facts import Facts

State = Literal["good", "bad", "unknown"]

_ACCURACIES = {
    "eval/heldout_strict": "held out, by the strict verifiers",
    "eval/heldout": "held out",
    "eval/strict": "all prompts, by the strict verifiers; none is held out",
    "eval/accuracy": "all prompts; none is held out",
}
"""The first of them that was measured answers whether accuracy rises."""
FEW, MANY = 0.2, 0.2
"""With fewer groups that have signal, or more cut completions, a person should look."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`metrics` are the curves to look at, `kinds` the doctor's findings that it rests on."""

    question: str
    state: State
    text: str
    metrics: tuple[str, ...] = ()


def answers(facts: Facts, diagnosis: Diagnosis) -> list[Answer]:
    """The questions in their order; of a run without steps what the doctor says, if anything."""
    if not facts.lines:
        return [_doctor(diagnosis)] if diagnosis.findings else []
    named = {finding.kind for finding in (*diagnosis.findings, *diagnosis.waiting)}
    return [
        _rising(facts),
        _informative(facts, named),
        _drifting(facts, named),
        _cut(facts, named),
        _verifier(facts, named),
        _time(facts),
        _doctor(diagnosis),
    ]


def _rising(facts: Facts) -> Answer:
    question = "Is accuracy rising on held-out problems?"
    for name, where in _ACCURACIES.items():
        made = [each for each in facts.evaluations if each.get(name) is not None]
        if len(made) < 2:
            continue
        first, last = made[0], made[-1]
        text = f"{_with_interval(first, name)} to {_with_interval(last, name)} ({where})"
        rose = _bound(last, name, "low", 0.0) > _bound(first, name, "high", 1.0)
        fell = _bound(last, name, "high", 1.0) < _bound(first, name, "low", 0.0)
        shown = tuple(dict.fromkeys((name, name.replace("_strict", ""))))
        return Answer(question, "good" if rose else "bad" if fell else "unknown", text, shown)
    trend = facts.trend("reward")
    if trend is None:
        return Answer(question, "unknown", "no evaluation and no reward yet")
    text = f"not evaluated; the training reward went from {trend.early:.3f} to {trend.late:.3f}"
    return Answer(question, "unknown", text, ("reward",))


def _bound(values: dict[str, Any], name: str, end: str, default: float) -> float:
    found = values.get(f"{name}_{end}")
    return default if found is None else float(found)


def _with_interval(values: dict[str, Any], name: str) -> str:
    low, high = values.get(f"{name}_low"), values.get(f"{name}_high")
    shown = f"{values[name]:.1%}"
    return shown if low is None or high is None else f"{shown} [{low:.1%}, {high:.1%}]"


def _informative(facts: Facts, named: set[str]) -> Answer:
    share = facts.recent("groups/no_signal")
    text = "not recorded" if share is None else f"{1 - share:.0%} of the groups have signal"
    bad = bool(named & {"base_rate_zero", "too_hard", "too_easy", "verifier_constant"})
    bad |= share is not None and 1 - share < FEW
    state: State = "unknown" if share is None else "bad" if bad else "good"
    return Answer("Are groups informative?", state, text, ("groups/no_signal", "reward_std"))


def _drifting(facts: Facts, named: set[str]) -> Answer:
    kl, entropy = facts.recent("kl/token"), facts.recent("entropy")
    parts = [f"KL to the start {kl:.3g} nats a token" if kl is not None else "KL not measured"]
    parts += [f"entropy {entropy:.3g} nats a token"] if entropy is not None else []
    drifts = {"kl_runaway", "divergence", "entropy_collapse", "mismatch_growing", "one_answer"}
    state: State = "bad" if named & drifts else "unknown" if kl is None else "good"
    return Answer("Is it drifting?", state, ", ".join(parts), ("kl/token", "entropy"))


def _cut(facts: Facts, named: set[str]) -> Answer:
    cut, length = facts.recent("completions/truncated"), facts.recent("completions/tokens_mean")
    if cut is None:
        return Answer("Are completions cut?", "unknown", "not recorded")
    size = "" if length is None else f", {length:.0f} tokens on average"
    bad = cut > MANY or bool(named & {"truncation", "never_stops"})
    state: State = "bad" if bad else "good"
    names = ("completions/truncated", "completions/tokens_mean")
    return Answer("Are completions cut?", state, f"{cut:.0%} are{size}", names)


def _verifier(facts: Facts, named: set[str]) -> Answer:
    kinds = {"verifier_failing", "verifier_slow", "verifier_constant", "strict_gap"}
    unscored = sum(facts.series("unscored"))
    count = sum(facts.series("completions/count"))
    text = f"{unscored:.0f} of {count:.0f} completions without a score"
    gaps = [e["eval/strict_gap"] for e in facts.evaluations if e.get("eval/strict_gap") is not None]
    text += f"; {gaps[-1]:+.1%} above the strict verifiers" if gaps else ""
    state: State = "bad" if named & kinds else "good"
    return Answer("Is the verifier healthy?", state, text, tuple(facts.names("verifier/")[:3]))


def _time(facts: Facts) -> Answer:
    parts = {
        name.removeprefix("seconds/"): math.fsum(facts.series(name)) / facts.num_steps
        for name in facts.names("seconds/")
    }
    parts.pop("step", None)  # evaluation and record are outside it
    whole = sum(parts.values())
    if not whole:
        return Answer("Where does the time go?", "unknown", "not recorded")
    largest = sorted(parts.items(), key=lambda each: -each[1])[:3]
    shown = ", ".join(f"{name} {spent / whole:.0%}" for name, spent in largest)
    text = f"{whole:.2f} s a step: {shown}"
    return Answer("Where does the time go?", "unknown", text, ("seconds/step",))


def _doctor(diagnosis: Diagnosis) -> Answer:
    bad = [finding for finding in diagnosis.findings if finding.level != "info"]
    text = "; ".join(f"{each.kind}: {each.message}" for each in bad[:3]) or "nothing is wrong"
    return Answer("What does the doctor say?", "bad" if bad else "good", text)
