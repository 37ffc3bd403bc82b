"""Runs with a planted fault and healthy ones, as changes to one small recipe: what doctor.py makes.

Every run trains the built-in `tiny` policy: 20 to 30 steps of 8 prompts, groups of 8 unless the
fault is the group. A fault is made by what makes it in earnest (a verifier that raises, a learning
rate, a limit), never by writing a record.
"""

from __future__ import annotations

import copy
import json
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from planted_models import FOREIGN, likes_length, likes_marks, scorer

import groupwise as gw

BASE: dict[str, Any] = {
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic", "level": "table"},
    "algorithm": {"preset": "grpo"},
    "sampling": {"group_size": 8, "max_tokens": 4},
    "training": {
        "prompts_per_step": 8, "steps": 24, "learning_rate": 3e-4, "measure_kl": True,
    },
    "evaluation": {"every": 0, "samples": 1, "max_prompts": 2},
    "checkpoints": {"every": 0},
}  # fmt: skip


def verifier(name: str, **more: Any) -> dict[str, Any]:
    return {"environment.verifiers": [{"name": name, **more}], "environment.audit": False}


def scored_by(likes: Callable[[list[str]], float]) -> Callable[[], dict[str, Any]]:
    """The verifier of a reward model that learned it, which is built when it is asked for."""
    return lambda: verifier("reward_model", arguments={"model": str(scorer(likes))})


TARGET = {"environment": {"name": "target_token", "kind": "share"}, "sampling.max_tokens": 8}
HARD = {"environment.num_operations": [2, 2], "environment.num_heldout": 40}
HABITS = {"model": {"name": "planted_models:habits"}}
NUMBER = {"name": "number"}
FAST = {"training.learning_rate": 3e-3, "algorithm.kl_coef": 0.0}

FAULTS: dict[str, dict[str, Any]] = {
    "run_failed": verifier("planted:breaks"),
    "nonfinite_updates": verifier("planted:huge")
    | {"algorithm.preset": "dr_grpo", "training.skip_nonfinite": 100},
    "verifier_failing": verifier("planted:raises", on_error="skip"),
    "verifier_slow": verifier("planted:sleeps") | {"training.steps": 8},
    "verifier_constant": verifier("planted:one") | {"sampling.temperature": 1.5},
    "never_stops": TARGET | {"sampling.max_tokens": 1},
    "template_mark": HABITS | verifier("groupwise.verifiers.audit.holed:answer_anywhere"),
    "hedged_answers": HABITS | verifier("groupwise.verifiers.audit.holed:answer_anywhere")
    | {"training.learning_rate": 1e-3},
    "language_mixing": HABITS | verifier("planted:foreign") | {"training.learning_rate": 1e-3},
    "base_rate_zero": {"environment.verifiers": [{"name": "tagged"}]},
    "too_hard": HARD | {"sampling.group_size": 4, "training.learning_rate": 1e-5},
    "too_easy": {"sampling.temperature": 0.15, "training.learning_rate": 1e-5},
    "truncation": HABITS | {"sampling.max_tokens": 2, "training.learning_rate": 1e-5},
    "one_answer": verifier("planted:large") | FAST | {"training.steps": 30},
    "strict_gap": verifier("planted:same_parity")
    | {"environment.strict_verifiers": [NUMBER], "evaluation.max_prompts": 30,
       "evaluation.samples": 4},
    "format_farmed": {
        "environment.verifiers": [NUMBER | {"weight": 0.1}, {
            "name": "regex", "label": "form", "arguments": {"pattern": r"^\d\d+$"}}],
        "training.learning_rate": 1e-3, "environment.audit": False},
    "heldout_gap": {"environment.num_train": 4, "environment.num_heldout": 40,
                    "training.learning_rate": 1e-3, "algorithm.kl_coef": 0.0,
                    "evaluation.max_prompts": None, "evaluation.samples": 8,
                    "evaluation.splits": ["heldout"]},
    "entropy_collapse": {
        "environment.verifiers": [NUMBER, {"name": "planted:nine"}], "environment.audit": False,
        **FAST, "training.learning_rate": 1e-3, "training.steps": 30},
    "length_growth": HABITS | {
        "environment.verifiers": [NUMBER, {"name": "planted:length"}],
        "environment.audit": False, "sampling.max_tokens": 16, "training.learning_rate": 3e-3,
        "algorithm.kl_coef": 0.0, "training.steps": 30},
    "repetition": verifier("planted:repeated") | TARGET | {
        "sampling.max_tokens": 12, "training.learning_rate": 1e-3},
    "clip_saturation": {"training.passes": 8, **FAST},
    "kl_runaway": verifier("planted:noise") | {**FAST, "training.learning_rate": 2e-3},
    "divergence": {"training.passes": 4, "training.learning_rate": 3e-3, "training.steps": 30,
                   "algorithm.kl_coef": 0.0},
    "group_too_small": HARD | {"sampling.group_size": 2, "training.prompts_per_step": 16,
                               "training.learning_rate": 1e-5},
    "rate_too_high": {"training.learning_rate": 2e-2},
    "rate_too_low": {"training.learning_rate": 1e-8},
    "gradient_clipped": {"training.max_grad_norm": 0.05},
    "literal_tests": {
        "model": {"name": "planted_models:copier"},
        "environment": {"name": "dataset", "path": "planted_models:questions"},
        "sampling.max_tokens": 8, "training.learning_rate": 1e-3} | verifier("planted:passes"),
    "length_exploited": HABITS | {
        "": scored_by(likes_length), "sampling.max_tokens": 16, "training.learning_rate": 1e-3,
        "training.steps": 30},
    "style_exploited": HABITS | {
        "": scored_by(likes_marks), "sampling.max_tokens": 8, "training.learning_rate": 1e-3},
    "mismatch_growing": {"training.learning_rate": 1e-3},
    "stale_data": {
        "algorithm.correction": "truncate", "selection.replay": {
            "at_most": 0.2, "per_step": 16, "uses": 50, "max_staleness": 50, "capacity": 64}},
    "strays_from_plan": verifier("planted:hoards"),
    "clip_too_narrow": {"training.minibatches": 4,
                        "algorithm.surrogate": {"kind": "clip", "low": 1e-4, "high": 1e-4}},
}  # fmt: skip
"""By the finding that should name it. The key "" gives the changes that have to be built first."""

INFORMATION: dict[str, dict[str, Any]] = {
    "solved": {"environment.num_train": 8, "training.learning_rate": 2e-3, "training.steps": 30},
    "loss_zero": {"algorithm.kl_coef": 0.0},
    "cannot_tell": {"training.learning_rate": 1e-6, "evaluation.samples": 4},
    "evaluation_overlap": {
        "model": {"name": "planted_models:copier"},
        "environment": {
            "name": "dataset", "path": "planted_models:questions",
            "heldout_path": "planted_models:asked_again", "on_overlap": "allow"},
        "sampling.max_tokens": 8, "training.steps": 4} | verifier("planted:passes"),
}  # fmt: skip
"""What is said of healthy runs too, by name."""

HEALTHY: dict[str, dict[str, Any]] = {
    **{
        f"{name} on sums": {"algorithm.preset": name}
        for name in ("grpo", "rloo", "dr_grpo", "dapo", "gspo", "cispo", "reinforce_pp")
    },
    "grpo, two updates": {"training.minibatches": 2},
    "gspo, two updates": {"training.minibatches": 2, "algorithm.preset": "gspo"},
    "grpo, ten times slower": {"training.learning_rate": 3e-5},
    "dr_grpo, groups of 16": {"algorithm.preset": "dr_grpo", "sampling.group_size": 16,
                              "training.prompts_per_step": 4},
    "dr_grpo, evaluated": {
        "algorithm.preset": "dr_grpo", "evaluation.every": 8, "evaluation.samples": 4,
        "evaluation.max_prompts": None,
    },
    "grpo on a target": TARGET,
    "rloo on a target": TARGET | {"algorithm.preset": "rloo"},
}  # fmt: skip


def recipe_of(name: str, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A recipe and its overrides."""
    changes = dict((FAULTS | INFORMATION | HEALTHY)[name])
    changes |= changes.pop("", dict)()
    base = BASE | {k: v for k, v in changes.items() if "." not in k}
    return base, {"seed": seed, **{k: v for k, v in changes.items() if "." in k}}


@contextmanager
def stale_sampler() -> Iterator[None]:
    """Inside it, samplers keep the weights that they started with."""
    from groupwise.training import session

    made = session.sampler_of

    class Stale:
        def __init__(self, settings: Any, policy: Any) -> None:
            self.sampler = made(settings, copy.deepcopy(policy))

        def load(self, policy: Any, version: int) -> None:
            self.sampler.version = version

        def __getattr__(self, name: str) -> Any:
            return getattr(self.sampler, name)

    session.sampler_of = Stale
    try:
        yield
    finally:
        session.sampler_of = made


@contextmanager
def forgotten_peak() -> Iterator[None]:
    """Forgets the process's largest resident size, which other runs in it left, and what it
    hoards."""
    Path("/proc/self/clear_refs").write_text("5", "ascii")
    yield
    hoard.clear()


INSIDE: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "mismatch_growing": stale_sampler, "strays_from_plan": forgotten_peak,
}  # fmt: skip
"""What a run is made inside of, for a fault that no recipe can have."""


# --- verifiers that are at fault -----------------------------------------------------------------


def _texts(completions: Sequence[Any]) -> list[str]:
    return [each if isinstance(each, str) else each[0]["content"] for each in completions]


def _numbers(completions: Sequence[Any]) -> list[int | None]:
    return [int(text) if text.isdecimal() else None for text in _texts(completions)]


def _right(completions: Sequence[Any], answer: Sequence[Any]) -> list[bool]:
    pairs = zip(_texts(completions), answer, strict=True)
    return [text.strip() == str(gold) for text, gold in pairs]


calls = 0


def breaks(completions: Sequence[Any], answer: Sequence[Any], **_: Any) -> list[float]:
    """Raises in its tenth batch: the run fails."""
    global calls
    calls += 1
    if calls % 10 == 0:
        raise RuntimeError("the service is not there any more")
    return [float(right) for right in _right(completions, answer)]


def raises(completions: Sequence[Any], answer: Sequence[Any], **_: Any) -> list[float | None]:
    """Cannot judge what is written with a 3."""
    found = zip(_texts(completions), _right(completions, answer), strict=True)
    return [None if "3" in text else float(right) for text, right in found]


def sleeps(completions: Sequence[Any], answer: Sequence[Any], **_: Any) -> list[float]:
    time.sleep(1.3)
    return [float(right) for right in _right(completions, answer)]


def huge(completions: Sequence[Any], answer: Sequence[Any], **_: Any) -> list[float]:
    """Near the largest number of float32: the gradient is not finite."""
    return [3e38 * right for right in _right(completions, answer)]


hoard: list[bytes] = []


def hoards(completions: Sequence[Any], answer: Sequence[Any], **_: Any) -> list[float]:
    """Keeps 30 MB of every batch."""
    hoard.append(bytes(bytearray(b"x" * 30_000_000)))
    return [float(right) for right in _right(completions, answer)]


def one(completions: Sequence[Any], **_: Any) -> list[float]:
    return [1.0 for _ in completions]


def large(completions: Sequence[Any], **_: Any) -> list[float]:
    """Any number from 6 on is right: a constant answer satisfies it."""
    return [float(n is not None and n >= 6) for n in _numbers(completions)]


def same_parity(completions: Sequence[Any], answer: Sequence[Any], **_: Any) -> list[float]:
    """Right where it is even as the answer is, or odd as it is."""
    pairs = zip(_numbers(completions), answer, strict=True)
    return [float(n is not None and (n - int(gold)) % 2 == 0) for n, gold in pairs]


def noise(prompts: Sequence[Any], completions: Sequence[Any], **_: Any) -> list[float]:
    """0 or 1 by a coin, keyed by what is judged and how often it was judged before."""
    global calls
    calls += 1
    keys = [
        repr((calls, at, pair)) for at, pair in enumerate(zip(prompts, completions, strict=True))
    ]
    return [float(zlib.crc32(key.encode()) % 2) for key in keys]


def nine(completions: Sequence[Any], **_: Any) -> list[float]:
    return [float("9" in text) for text in _texts(completions)]


@cache
def _passes(program: str, tests: str) -> bool:
    cases = [((given,), wanted) for given, wanted in json.loads(tests)]
    return gw.run_code(program, tests=cases, entry="solve", kind="calls").outcome == "passed"


def passes(completions: Sequence[Any], tests: Sequence[Any], **_: Any) -> list[float]:
    """Whether a program passes the tests that its prompt's row shows."""
    pairs = zip(_texts(completions), tests, strict=True)
    return [float(_passes(text, json.dumps(cases))) for text, cases in pairs]


def length(completion_ids: Sequence[Sequence[int]], **_: Any) -> list[float]:
    return [min(1.0, (len(ids) - 1) / 4) for ids in completion_ids]


def repeated(completions: Sequence[Any], **_: Any) -> list[float]:
    """The share of characters that are as the one before."""
    return [sum(one == two for one, two in pairwise(text)) / 11 for text in _texts(completions)]


def foreign(completions: Sequence[Any], **_: Any) -> list[float]:
    return [float(FOREIGN in text) for text in _texts(completions)]
