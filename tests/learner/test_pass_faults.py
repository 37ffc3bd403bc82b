"""Memory that runs out in a pass, and numbers that are not finite: retried, skipped, or refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_learner import batch_of, gradient, make_learner

from groupwise.algorithms import preset
from groupwise.errors import GroupwiseError, NonFiniteError
from groupwise.learner import Learner, PassFaults, TokenDetails, TrainingSettings, clipped_norm
from groupwise.learner import learner as module
from helpers import make_groups

FULL = "[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory: 12"


class Memory:
    """A pass of more than `rows` rows does not fit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rows: int, error: BaseException) -> None:
        self.rows, self.error, self.failures = rows, error, 0
        self.whole = module.sequence_logprobs
        monkeypatch.setattr(module, "sequence_logprobs", self)

    def __call__(self, policy: Any, prompts: Any, completions: Any, **others: Any) -> Any:
        if len(completions) > self.rows:
            self.failures += 1
            raise self.error
        return self.whole(policy, prompts, completions, **others)


class FailsOnce:
    """Memory runs out in the pass of that number, and never again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        self.left, self.whole = number, module.sequence_logprobs
        monkeypatch.setattr(module, "sequence_logprobs", self)

    def __call__(self, *arguments: Any, **others: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise MemoryError
        return self.whole(*arguments, **others)


@pytest.mark.parametrize(
    "error", [RuntimeError(FULL), MemoryError(), torch.OutOfMemoryError("CUDA out of memory")]
)
def test_micro_batches_are_halved_until_they_fit_and_the_gradient_is_exact(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    groups = make_groups()
    whole = gradient(make_learner(preset("grpo", kl_coef=0.0)), groups)
    assert float(whole.norm()) > 1e-3
    memory = Memory(monkeypatch, 3, error)
    learner = make_learner(preset("grpo", kl_coef=0.0), micro_batch_tokens=10_000)
    assert float((gradient(learner, groups) - whole).abs().max()) < 1e-9
    assert memory.failures > 1, "halved more than once"
    notes = learner.faults.take_notes()
    assert len(notes) == memory.failures
    assert {about for about, _ in notes} == {"memory"}
    assert "step 0, update 0: memory ran out in a pass" in notes[0][1]
    left = learner.faults.micro_batch_tokens
    assert notes[-1][1].count(f"at most {left} tokens") == 1
    assert learner.state_dict()["micro_batch_tokens"] == left < 10_000


def test_what_a_failed_pass_added_is_not_in_the_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory runs out in the last of several micro-batches, whose gradients are there by then."""
    groups = make_groups()
    budget = 24
    details, weights = [], []
    for hindered in (False, True):
        learner = make_learner(preset("grpo", kl_coef=0.0), micro_batch_tokens=budget)
        batch, passes = batch_of(learner, groups)
        parts = learner.divide(batch.rows, passes[0][0], budget)
        assert len(parts) > 2
        if hindered:
            FailsOnce(monkeypatch, len(parts))
        details.append(TokenDetails(batch.rows))
        learner.learn(batch, passes, step=0, details=details[-1])
        assert (learner.faults.micro_batch_tokens < budget) == hindered
        parameters = learner.policy.model.parameters()
        weights.append(torch.cat([each.detach().flatten() for each in parameters]))
    assert float((weights[0] - weights[1]).abs().max()) < 1e-9
    for name in ("logprobs", "loss_weights"):
        a, b = (getattr(each, name).nan_to_num() for each in details)  # padding differs
        assert torch.allclose(a, b, atol=1e-6), name


def test_the_fixed_log_probabilities_survive_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = make_groups()
    plain = make_learner(preset("grpo"), passes=2)
    expected, _ = batch_of(plain, groups)
    Memory(monkeypatch, 2, MemoryError())
    learner = make_learner(preset("grpo"), passes=2)
    found, _ = batch_of(learner, groups)
    assert found.old_logprobs is not None
    assert expected.old_logprobs is not None
    assert torch.allclose(found.old_logprobs, expected.old_logprobs, atol=1e-6)
    assert found.ref_logprobs is not None
    assert "before update 0" in learner.faults.notes[0][1]


def test_a_row_that_does_not_fit_is_refused_with_nothing_updated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner = make_learner(preset("grpo", kl_coef=0.0))
    batch, passes = batch_of(learner, make_groups())
    before = [p.detach().clone() for p in learner.policy.model.parameters()]
    Memory(monkeypatch, 0, RuntimeError(FULL))
    with pytest.raises(GroupwiseError, match=r"step 4, update 0: memory ran out .* a single row"):
        learner.learn(batch, passes, step=4)
    for old, new in zip(before, learner.policy.model.parameters(), strict=True):
        assert torch.equal(old, new)
        assert new.grad is None
    assert learner.update == 0


def test_another_runtime_error_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner(preset("grpo", kl_coef=0.0))
    batch, passes = batch_of(learner, make_groups())
    Memory(monkeypatch, 0, RuntimeError("sizes do not match"))
    with pytest.raises(RuntimeError, match="sizes do not match"):
        learner.learn(batch, passes, step=0)
    assert learner.faults.micro_batch_tokens == learner.settings.micro_batch_tokens


# --- not finite -----------------------------------------------------------------------------------


def poisoned(learner: Learner, bad: float) -> Any:
    """One parameter's gradient has a bad number, until the handle is removed."""
    weight = next(learner.policy.model.parameters())
    return weight.register_hook(lambda grad: torch.full_like(grad, bad))


def state(learner: Learner) -> list[torch.Tensor]:
    moments = learner.optimizer.state_dict()["state"]
    return [
        *(p.detach().clone() for p in learner.policy.model.parameters()),
        *(value.clone() for each in moments.values() for value in each.values()),
    ]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_skipped_update_leaves_weights_and_optimiser_as_they_are(bad: float) -> None:
    learner = make_learner(
        preset("grpo", kl_coef=0.0), torch.float32, optimizer="adamw", skip_nonfinite=2
    )
    batch, passes = batch_of(learner, make_groups())
    learner.learn(batch, passes, step=0)
    before = state(learner)
    handle = poisoned(learner, bad)
    details = TokenDetails(batch.rows)
    metrics = learner.learn(batch, passes, step=1, details=details)
    assert (metrics["updates"], metrics["updates/skipped"], metrics["updates/nonfinite"]) == (
        0,
        1,
        1,
    )
    assert metrics["loss"] is None
    assert metrics["grad_norm"] is None
    assert learner.update == 1
    assert all(torch.equal(a, b) for a, b in zip(before, state(learner), strict=True))
    assert bool(details.loss_weights.isnan().all())
    ((about, note),) = learner.faults.take_notes()
    assert about == "nonfinite"
    assert note.startswith("step 1, update 1: the gradient of ")
    assert "(1 in a row; training.skip_nonfinite = 2)" in note
    handle.remove()
    assert learner.learn(batch, passes, step=2)["updates"] == 1
    assert learner.faults.in_a_row == 0
    assert not all(torch.equal(a, b) for a, b in zip(before, state(learner), strict=True))


def test_a_loss_that_is_not_finite_is_skipped_as_well() -> None:
    learner = make_learner(preset("grpo", kl_coef=0.0), skip_nonfinite=1)
    batch, passes = batch_of(learner, make_groups())
    batch.advantages[0] = torch.inf
    metrics = learner.learn(batch, passes, step=0)
    assert metrics["updates/nonfinite"] == 1
    assert "the loss is not finite" in learner.faults.take_notes()[0][1]
    assert all(p.grad is None for p in learner.policy.model.parameters())


def test_too_many_in_a_row_stop_the_run_and_the_count_is_in_the_state() -> None:
    learner = make_learner(preset("grpo", kl_coef=0.0), skip_nonfinite=2)
    batch, passes = batch_of(learner, make_groups())
    poisoned(learner, float("nan"))
    for step in (0, 1):
        assert learner.learn(batch, passes, step=step)["updates/nonfinite"] == 1
    again = PassFaults(TrainingSettings(skip_nonfinite=2))
    again.load_state_dict(learner.state_dict())
    assert again.in_a_row == 2
    with pytest.raises(NonFiniteError, match=r"step 2.* The 2 updates before it were skipped"):
        learner.learn(batch, passes, step=2)
    assert learner.update == 0


def test_a_state_of_an_older_version_has_neither() -> None:
    faults = PassFaults(TrainingSettings(micro_batch_tokens=77))
    faults.load_state_dict({"update": 3})
    assert faults.state_dict() == {"micro_batch_tokens": 77, "in_a_row": 0}


def test_squares_that_overflow_are_said() -> None:
    """Every entry is finite, and the norm is not."""
    weight = torch.nn.Parameter(torch.zeros(4))
    weight.grad = torch.full((4,), 1e30)
    with pytest.raises(NonFiniteError, match=r"step 3: the sum of the gradient's squares is not"):
        clipped_norm([("weight", weight)], 1.0, "step 3")
