"""Settings that look wrong in an otherwise healthy run, and what only looks wrong."""

from __future__ import annotations

from statistics import median

from groupwise.doctor.facts import NARROW, Facts, clip_range, mean
from groupwise.doctor.finding import Finding

FAST_KL = 1.0
STILL_KL = 1e-4
STEPS = 10
MOST = 0.1
MEMORY_OVER, MEMORY_NOISE = 1.15, 150e6
TIME_OVER, TIME_NOISE = 10.0, 1.0
"""A busy machine multiplies times; memory it does not."""


def rate_too_high(facts: Facts) -> Finding | None:
    """One step moves the policy far: KL a token grows by much at once, and stays (its estimate
    jumps for a step or two where a rare token was sampled)."""
    values = facts.series("kl/token")
    jumps = [min(values[at : at + 3]) - values[at - 1] for at in range(1, len(values) - 2)]
    if not jumps or max(jumps) < FAST_KL:
        return None
    rate = float(facts.get("training.learning_rate", 1e-6))
    return Finding(
        "rate_too_high", "tuning",
        f"KL to the start grew by {max(jumps):.2f} nats a token in one step",
        {"largest_step": max(jumps), "training.learning_rate": rate}, facts.span, "likely",
        "a lower learning rate, or warm-up", {"training.learning_rate": float(f"{rate / 5:.2g}")},
    )  # fmt: skip


def rate_too_low(facts: Facts) -> Finding | None:
    """There is signal and a gradient, and nothing moves."""
    values, signal = facts.series("kl/token"), facts.recent("groups/no_signal")
    if len(values) < STEPS or signal is None or signal > 0.8 or max(values) > STILL_KL:
        return None
    rate = float(facts.get("training.learning_rate", 1e-6))
    return Finding(
        "rate_too_low", "tuning",
        f"after {facts.num_steps} steps the KL to the start is {values[-1]:.1e} nats a token: "
        "nothing moved",
        {"kl/token": values[-1], "training.learning_rate": rate}, facts.span, "likely",
        "a higher learning rate, ten times at a time (usual: 1e-6 for models of billions, 1e-5 for "
        "small ones and adapters, 3e-4 for tiny)",
        {"training.learning_rate": float(f"{rate * 10:.2g}")},
    )  # fmt: skip


def gradient_clipped(facts: Facts) -> Finding | None:
    """Nearly every update's gradient is cut to a small part of itself."""
    limit, norms = facts.get("training.max_grad_norm"), facts.series("grad_norm")
    if not isinstance(limit, int | float) or len(norms) < STEPS or mean(norms) < 20 * limit:
        return None
    return Finding(
        "gradient_clipped", "tuning",
        f"the gradient's norm is {mean(norms):.1f} on average, and cut to {limit:g}",
        {"grad_norm": mean(norms), "training.max_grad_norm": limit}, facts.span, "possible",
        "the normaliser gives large losses (a sum over tokens), or rewards are large: read the "
        "algorithm's weights and the reward's scale; or let the norm be what it is",
        {"training.max_grad_norm": float(f"{mean(norms):.2g}")},
    )  # fmt: skip


def clip_too_narrow(facts: Facts) -> Finding | None:
    """A range that is meant for whole sequences, on the ratio of single tokens."""
    sides = zip(facts.series("clip/low"), facts.series("clip/high"), strict=False)
    values = [low + high for low, high in sides]
    width, is_token = clip_range(facts), facts.get("algorithm.ratio.kind") == "token"
    if len(values) < 3 or not is_token or width >= NARROW or mean(values) < MOST:
        return None
    return Finding(
        "clip_too_narrow", "tuning",
        f"{mean(values):.0%} of the tokens are clipped, at a range of {width:g} on the ratio of "
        "single tokens",
        {"clip": mean(values), "range": width}, facts.span, "likely",
        "a range for tokens (0.2), or the ratio of whole sequences that this range is for (gspo)",
        {"algorithm.surrogate.low": 0.2, "algorithm.surrogate.high": 0.2},
    )  # fmt: skip


def strays_from_plan(facts: Facts) -> Finding | None:
    """More memory or time than the plan that the run wrote down before it loaded anything."""
    planned, peaks = facts.planned, facts.series("memory/peak_bytes")
    if planned is None or len(peaks) < 2:
        return None
    used = max(peaks) - planned["resident"] if max(peaks) > planned["peak"] else 0
    phases = zip(*(facts.series(f"seconds/{name}") for name in ("rollout", "learn")), strict=False)
    seconds = median([sum(each) for each in phases] or [0.0])
    is_large = used > MEMORY_OVER * planned["memory"] + MEMORY_NOISE
    if not is_large and seconds < TIME_OVER * planned["step_seconds"] + TIME_NOISE:
        return None
    what = f"{used / 1e9:.2f} GB of memory where {planned['memory'] / 1e9:.2f} were planned"
    tokens = int(facts.get("training.micro_batch_tokens", 2048))
    slow = f"{seconds:.3g} s a step where {planned['step_seconds']:.3g} were planned at most"
    return Finding(
        "strays_from_plan", "tuning", f"the run takes {what if is_large else slow}",
        {"memory": used, "planned_memory": planned["memory"], "seconds": seconds,
         "planned_seconds": planned["step_seconds"]},
        facts.span, "likely" if is_large else "possible",
        "smaller micro-batches; look for what else the process holds (a verifier, a tool)"
        if is_large else "see whether other work shares the machine, and where the time goes",
        {"training.micro_batch_tokens": max(256, tokens // 2)} if is_large else {},
    )  # fmt: skip


def evaluation_overlap(facts: Facts) -> Finding | None:
    """Prompts that are trained on are evaluated as held out."""
    data = facts.run.environment.get("environment") or {}
    both = int(data.get("overlap") or 0)
    if not both or "dropped_overlap" in data:
        return None
    held = (data.get("splits") or {}).get("heldout")
    return Finding(
        "evaluation_overlap", "info",
        f"{both} of {held} held-out prompts are also in the training data",
        {"overlap": both, "heldout": held}, facts.span, "sure",
        "held-out figures may be memorised: keep these prompts out of one of the two",
        {"environment.on_overlap": "drop"},
    )  # fmt: skip


def loss_zero(facts: Facts) -> Finding | None:
    """The loss prints 0 and the gradient is not: nothing is wrong."""
    losses, norms = facts.series("loss"), facts.series("grad_norm")
    if len(losses) < 3 or not norms or mean(norms) <= 0 or mean(map(abs, losses)) > 1e-3:
        return None
    return Finding(
        "loss_zero", "info",
        f"the loss prints {mean(losses):.1e} and the gradient's norm is {mean(norms):.3g}: at "
        "ratio 1 centred advantages cancel",
        {"loss": mean(losses), "grad_norm": mean(norms)}, facts.span, "sure",
        "nothing: read reward and grad_norm",
    )  # fmt: skip


def cannot_tell(facts: Facts) -> Finding | None:
    """The intervals of the first and the last evaluation overlap, and one seed is one draw."""
    held = [e for e in facts.evaluations if e.get("eval/accuracy_low") is not None]
    if len(held) < 2:
        return None
    first, last = held[0], held[-1]
    apart = last["eval/accuracy_low"] > first["eval/accuracy_high"]
    if apart or last["eval/accuracy_high"] < first["eval/accuracy_low"]:
        return None
    return Finding(
        "cannot_tell", "info",
        f"accuracy {first['eval/accuracy']:.0%} before and {last['eval/accuracy']:.0%} after: the "
        "95 % intervals overlap, and it is one seed",
        {"first": first["eval/accuracy"], "last": last["eval/accuracy"]}, facts.span, "sure",
        "more evaluation samples or prompts, and at least three seeds before a conclusion",
        {"evaluation.samples": 4 * int(facts.get("evaluation.samples", 4))},
    )  # fmt: skip


RULES = (
    rate_too_high, rate_too_low, gradient_clipped, clip_too_narrow, strays_from_plan,
    evaluation_overlap, loss_zero, cannot_tell,
)  # fmt: skip
