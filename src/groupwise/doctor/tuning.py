"""Settings that look wrong in an otherwise healthy run, and what only looks wrong."""

from __future__ import annotations

from groupwise.doctor.facts import Facts, mean
from groupwise.doctor.finding import Finding

FAST_KL = 1.0
STILL_KL = 1e-4
STEPS = 10


def rate_too_high(facts: Facts) -> Finding | None:
    """One step moves the policy far: KL a token grows by much at once, and stays (its estimate
    jumps for a step where a rare token was sampled)."""
    values = facts.series("kl/token")
    jumps = [min(b, c) - a for a, b, c in zip(values, values[1:], values[2:], strict=False)]
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
        "algorithm's weights and the reward's scale",
    )  # fmt: skip


def evaluation_overlap(facts: Facts) -> Finding | None:
    warned = [
        e["message"] for e in facts.events if e["kind"] == "warning" and "overlap" in e["message"]
    ]
    if not warned:
        return None
    return Finding(
        "evaluation_overlap", "info", warned[0], {}, facts.span, "sure",
        "held-out figures may be memorised: keep these prompts out of one of the two",
    )  # fmt: skip


def loss_zero(facts: Facts) -> Finding | None:
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
    rate_too_high, rate_too_low, gradient_clipped, evaluation_overlap, loss_zero, cannot_tell,
)  # fmt: skip
