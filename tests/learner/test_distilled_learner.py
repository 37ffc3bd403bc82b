"""A teacher in the learner: the naive form, micro-batches, padding, mixtures, no gradient."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from groupwise.algorithms import Algorithm, preset
from groupwise.algorithms.distillation import Distillation
from groupwise.batches import align, make_batch, split_groups, split_rows
from groupwise.learner import Learner, TrainingSettings
from groupwise.policies import Policy, Teaching, sequence_logprobs
from groupwise.policies.heads import head_of
from groupwise.policies.logprobs import completion_states
from groupwise.policies.teaching import Side, token_divergences
from groupwise.types import Group
from helpers import VOCABULARY, make_groups, make_policy

FORMS: list[dict[str, Any]] = [
    {"form": "sampled", "discount": 0.5},
    {"form": "reverse_kl"},
    {"form": "forward_kl"},
    {"form": "jsd", "beta": 0.3},
    {"form": "jsd", "top_k": 5},
]


def algorithm_of(fields: dict[str, Any], **others: Any) -> Algorithm:
    return preset("on_policy_distillation", extras=[{"kind": "distillation", **fields}], **others)


def teaching_of(groups: list[Group], teachers: list[Policy], **changes: Any) -> Teaching:
    """Teachers in turn, and every fifth row without one; two ids more in front of the prompt."""
    rows = align(groups)
    which = [None if row % 5 == 4 else row % len(teachers) for row in range(rows.num_rows)]
    made = Teaching(teachers, which, [(7, 9, *ids) for ids in rows.prompt_ids], 0.8)
    return replace(made, **changes)


def moved(
    fields: dict[str, Any], budget: int, extra: int = 0, order: Callable[[list[Any]], Any] = list
) -> tuple[Tensor, dict[str, Any]]:
    """Every weight after two passes of plain SGD, and the metrics."""
    groups = make_groups()
    teaching = teaching_of(groups, [make_policy(s, torch.float64) for s in (5, 6)])
    learner = Learner(
        make_policy(dtype=torch.float64),
        algorithm_of(fields),
        TrainingSettings(
            learning_rate=1.0,
            optimizer="sgd",
            max_grad_norm=None,
            passes=2,
            micro_batch_tokens=budget,
        ),
        temperature=1.3,
        divide=lambda rows, index, tokens: order(split_rows(rows, index, tokens)),
    )
    rows = align(groups)
    if extra:
        width = rows.mask.shape[1]
        pad = torch.full((rows.num_rows, extra), 7.0)
        rows = replace(
            rows,
            mask=torch.cat([rows.mask, pad.bool() & False], 1),
            sampler_logprobs=torch.cat([rows.sampler_logprobs, pad], 1),
            entropies=None,
        )
        assert rows.mask.shape[1] == width + extra
    passes = [split_groups(rows.group_ids, 1, seed=0, step=0, pass_index=n) for n in range(2)]
    fixed = learner.evidence(rows, passes[0], teaching)
    batch = make_batch(
        groups,
        rows,
        learner.algorithm,
        max_tokens=8,
        old_logprobs=fixed.old_logprobs,
        teacher_logprobs=fixed.teacher_logprobs,
        taught=teaching.taught,
    )
    metrics = learner.learn(batch, passes, step=0, teaching=teaching)
    weights = torch.cat([p.detach().flatten() for p in learner.policy.model.parameters()])
    return weights, {**batch.metrics, **metrics}


@pytest.mark.parametrize("fields", FORMS, ids=str)
def test_micro_batches_order_and_padding_change_nothing(fields: dict[str, Any]) -> None:
    whole, metrics = moved(fields, 10**6)
    start = torch.cat(
        [p.detach().flatten() for p in make_policy(dtype=torch.float64).model.parameters()]
    )
    assert (whole - start).abs().max() > 1e-4
    for budget in (25, 60):
        torch.testing.assert_close(moved(fields, budget)[0], whole, atol=1e-9, rtol=0)
    flipped = moved(fields, 25, order=lambda parts: [part.flip(0) for part in reversed(parts)])[0]
    torch.testing.assert_close(flipped, whole, atol=1e-9, rtol=0)
    torch.testing.assert_close(moved(fields, 10**6, extra=3)[0], whole, atol=1e-9, rtol=0)
    assert metrics["teacher/untaught"] == 3
    assert metrics["teacher/kl" if fields["form"] == "sampled" else "teacher/divergence"] > 0


@pytest.mark.parametrize("fields", FORMS[1:], ids=str)
def test_chunks_equal_the_naive_form_and_teach_nothing_to_the_teacher(
    fields: dict[str, Any],
) -> None:
    """Value and gradient against logits [B, T, V] of both models, at two temperatures."""
    student, teacher = make_policy(0, torch.float64), make_policy(3, torch.float64)
    divergence = Distillation(**fields).divergence
    prompts, completions = [(4, 5, 6), (7,)], [(8, 9, 10), (11, 12)]
    total: Tensor = torch.tensor(0.0)
    for prompt, completion in zip(prompts, completions, strict=True):
        ids = torch.tensor([[*prompt, *completion]])
        logits = [policy.model(ids).logits[0] for policy in (student, teacher)]
        at = slice(len(prompt) - 1, len(prompt) - 1 + len(completion))
        found = divergence(
            (logits[0][at] / 1.5).log_softmax(-1), (logits[1][at] / 0.5).log_softmax(-1).detach()
        )
        total = total + found.sum()
    names = [name for name, _ in student.model.named_parameters()]
    want = torch.autograd.grad(total, list(student.model.parameters()))
    for chunk in (1, 2, 100):
        sides = []
        for policy, hot in ((student, 1.5), (teacher, 0.5)):
            head = head_of(policy.model)
            states = completion_states(policy, policy.model, head, prompts, completions)
            sides.append(Side(states, head, hot))
        out = token_divergences(*sides, divergence, chunk_tokens=chunk)
        assert out.sum().item() == pytest.approx(total.item(), abs=1e-10)
        teacher.model.zero_grad()
        student.model.zero_grad()
        out.sum().backward()
        for name, parameter, expected in zip(names, student.model.parameters(), want, strict=True):
            assert parameter.grad is not None, name
            torch.testing.assert_close(parameter.grad, expected, atol=1e-9, rtol=0, msg=name)
        assert all(p.grad is None for p in teacher.model.parameters())


def test_no_tensor_over_all_positions_and_the_vocabulary_exists() -> None:
    """8,192 positions of 1,000 ids would be 33 MB; a chunk of 64 is 0.26 MB. Every tensor that
    autograd keeps and every output is far below the whole."""
    torch.manual_seed(0)
    linear, other = nn.Linear(8, 1000, bias=False), nn.Linear(8, 1000, bias=False)
    head = head_of(make_policy().model)
    hidden = torch.randn(8192, 8, requires_grad=True)
    largest = 0

    class Sizes(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for each in out if isinstance(out, tuple | list) else (out,):
                if isinstance(each, Tensor):
                    largest = max(largest, each.numel())
            return out

    with Sizes():
        out = token_divergences(
            Side(hidden, replace(head, linear=linear), 1.0),
            Side(torch.randn(8192, 8), replace(head, linear=other), 1.0),
            Distillation(form="jsd").divergence,
            chunk_tokens=64,
        )
        out.sum().backward()
    assert largest <= 8192 * 8  # the hidden states; logits of a chunk are 64,000
    assert hidden.grad is not None
    assert hidden.grad.abs().sum() > 0


def test_a_teacher_with_more_context_scores_the_same_ids() -> None:
    """The teacher's own forward pass over its context and the completion; NaN without a teacher."""
    groups = make_groups()
    rows, teacher = align(groups), make_policy(5)
    teaching = teaching_of(groups, [teacher])
    found = teaching.logprobs(rows, torch.arange(rows.num_rows))
    for row in (0, 3, 7):
        ids = (7, 9, *rows.prompt_ids[row], *rows.completion_ids[row])
        logprobs = (teacher.model(torch.tensor([ids])).logits[0] / 0.8).log_softmax(-1)
        count = len(rows.completion_ids[row])
        want = [logprobs[len(ids) - count + t - 1, ids[len(ids) - count + t]] for t in range(count)]
        torch.testing.assert_close(
            found[row, :count], torch.stack(want).detach(), atol=1e-5, rtol=0
        )
    assert found[4].isnan().all()


def test_a_student_that_equals_its_teacher_stays_where_it_is() -> None:
    groups, student = make_groups(), make_policy(0, torch.float64)
    twin = copy.copy(student)
    twin.model = copy.deepcopy(student.model)
    rows = align(groups)
    teaching = Teaching([twin], [0] * rows.num_rows, rows.prompt_ids, 1.0)
    for fields in FORMS:
        compare = None
        part = Distillation(**fields)
        if part.form != "sampled":
            compare = teaching.divergence(
                rows, torch.arange(rows.num_rows), part.divergence, student, 1.0
            )
        out = sequence_logprobs(student, rows.prompt_ids, rows.completion_ids, compare=compare)
        if out.divergences is None:
            same = teaching.logprobs(rows, torch.arange(rows.num_rows))
            torch.testing.assert_close(same, out.logprobs.detach().float(), atol=1e-6, rtol=0)
            continue
        grads = torch.autograd.grad(out.divergences.sum(), list(student.model.parameters()))
        assert out.divergences.abs().max() < 1e-12
        assert max(float(g.abs().max()) for g in grads) < 1e-10


def test_padded_output_layers_of_different_sizes() -> None:
    """A teacher whose output layer has rows for no token: they have no share in anything."""
    policy, teacher = make_policy(0), make_policy(1)
    wide = nn.Linear(32, VOCABULARY + 8, bias=False)
    with torch.no_grad():
        wide.weight[:VOCABULARY] = teacher.model.lm_head.weight  # type: ignore[union-attr]
        wide.weight[VOCABULARY:] = 100.0
    head, own = head_of(teacher.model), head_of(policy.model)
    hidden = torch.randn(5, 32)
    side = Side(torch.randn(5, 32), own, 1.0)
    divergence = Distillation(form="reverse_kl").divergence
    plain = token_divergences(side, Side(hidden, head, 1.0), divergence)
    padded = token_divergences(side, Side(hidden, replace(head, linear=wide), 1.0), divergence)
    torch.testing.assert_close(padded, plain)
