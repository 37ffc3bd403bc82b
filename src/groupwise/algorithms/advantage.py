"""The way from rewards to advantages through the slots, and nothing of any method.

transform -> (KL in the sequence reward) -> baseline -> scale -> (KL in the token reward) -> spread
-> batch whitening -> what a teacher adds. With a critic, GAE over the token rewards replaces
baseline to spread.

Statistics are in float64 (float32 on a device without it); the result has the rewards' dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from groupwise.algorithms.groups import (
    Groups,
    make_groups,
    refuse_infinite,
    rows_of,
    uniform_rows,
)
from groupwise.algorithms.legality import refuse_ddof
from groupwise.algorithms.signals import AdvantageInputs, Signal, StepInputs, pad_steps
from groupwise.algorithms.state import AlgorithmState
from groupwise.errors import RecipeError

if TYPE_CHECKING:
    from groupwise.algorithms.algorithm import Algorithm


def prepare(
    algorithm: Algorithm,
    rewards: Any,
    group_ids: Any,
    *,
    components: Any = None,
    step_rewards: Any = None,
    step_ends: Any = None,
    mask: Any = None,
    greedy_rewards: Any = None,
    prompt_ids: Sequence[str] | None = None,
    state: AlgorithmState | None = None,
    **per_token: Any,
) -> AdvantageInputs:
    """Rows, groups and one dtype out of what the caller gave; every shape is checked here."""
    given = torch.as_tensor(rewards)
    work = torch.float32 if given.device.type == "mps" else torch.float64
    flat, ids = rows_of(given.to(work), group_ids)
    groups = make_groups(ids)
    num = len(flat)
    if num and algorithm.needs.min_group_size >= 2 and groups.layout.shape[1] < 2:
        raise RecipeError(
            f"algorithm {algorithm.name!r} compares the completions of a prompt: group size 1 "
            "gives it nothing to compare with; use sampling.group_size >= 2"
        )
    if num:
        refuse_ddof(algorithm, groups.layout.shape[1])
    scored = ~flat.isnan()
    clean = torch.where(scored, flat, 0)
    keep_mask = None if mask is None else _mask_of(mask, num, flat.device)

    inputs = AdvantageInputs(
        rewards=clean,
        scored=scored,
        in_batch=_in_batch(algorithm, flat, scored, groups),
        groups=groups,
        ddof=algorithm.scale.ddof,
        eps=algorithm.scale.eps,
        components=_components_of(components, given, num, flat),
        mask=keep_mask,
        greedy_rewards=_greedy_of(greedy_rewards, groups, flat),
        prompt_ids=group_names(prompt_ids, groups),
        state=state,
    )
    tokens = {
        name: _tokens_of(name, value, keep_mask, num, flat)
        for name, value in per_token.items()
        if value is not None
    }
    inputs = replace(inputs, **tokens)  # type: ignore[arg-type]
    if step_rewards is None:
        return inputs
    return replace(inputs, steps=pad_steps(step_rewards, step_ends, clean))


def run(
    algorithm: Algorithm, rewards: Tensor, group_ids: Any, **given: Unpack[StepInputs]
) -> tuple[Tensor, Tensor | None]:
    """(advantages [B] or [B, T], the critic's returns [B, T] or None) in the rewards' dtype."""
    advantages, returns = _run(algorithm, prepare(algorithm, rewards, group_ids, **given))
    dtype = rewards.dtype if rewards.is_floating_point() else torch.get_default_dtype()
    return advantages.to(dtype), None if returns is None else returns.to(dtype)


def _run(algorithm: Algorithm, inputs: AdvantageInputs) -> tuple[Tensor, Tensor | None]:
    signal = algorithm.transform(inputs)
    kl = algorithm.kl
    if kl.in_reward and kl.placement == "sequence_reward":
        penalty = _token_penalty(algorithm, inputs)
        if signal.values.dim() != 1:
            raise ValueError("kl in the sequence reward needs one number a row from the transform")
        shifted = torch.where(signal.present, signal.values - penalty.sum(1), 0)
        signal = replace(signal, values=shifted)
    returns: Tensor | None = None
    if algorithm.baseline.critic:
        token_rewards = _token_rewards(algorithm, signal, signal.values, inputs)
        out = algorithm.baseline.estimate(token_rewards, inputs)
        advantages, returns = out.advantages, out.returns
    else:
        centred = algorithm.baseline(signal, inputs)
        values = torch.where(signal.present, algorithm.scale(centred, signal, inputs), 0)
        if kl.in_reward and kl.placement == "token_reward":
            signal = _token_rewards(algorithm, signal, values, inputs)
            values = signal.values
        advantages = algorithm.spread(values, signal, inputs)
    present = _present(advantages, inputs)
    advantages = algorithm.scale.finish(advantages, present, inputs)
    for extra in algorithm.extras:
        added = extra.token_advantages(inputs)
        if added is not None:
            advantages = added + (advantages.unsqueeze(1) if advantages.dim() == 1 else advantages)
            present = _present(advantages, inputs)
    return torch.where(present, advantages, 0), returns


def _present(advantages: Tensor, inputs: AdvantageInputs) -> Tensor:
    """Where an advantage is defined: scored rows, and trainable tokens where per token."""
    if advantages.dim() == 1:
        return inputs.scored
    rows = inputs.scored.unsqueeze(1).expand(advantages.shape)
    return rows if inputs.mask is None else rows & inputs.mask


def _token_penalty(algorithm: Algorithm, inputs: AdvantageInputs) -> Float[Tensor, "B T"]:
    part = f"kl in the {algorithm.kl.placement.replace('_', ' ')}"
    mask = inputs.need("mask", part)
    old = inputs.need("old_logprobs", part)
    ref = inputs.need("ref_logprobs", part)
    return torch.where(mask, algorithm.kl.token_penalty(old, ref), 0)


def _token_rewards(
    algorithm: Algorithm, signal: Signal, per_row: Tensor, inputs: AdvantageInputs
) -> Signal:
    """Token rewards: the row's number at its last trainable token, minus the KL at every token."""
    mask = inputs.need("mask", "token rewards")
    if per_row.dim() != 1:
        raise ValueError("token rewards take one number a row, not step or token values")
    columns = torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)
    last = torch.where(mask, columns, -1).amax(1, keepdim=True) if mask.shape[1] else columns
    values = torch.where(mask & (columns == last), per_row.unsqueeze(1), 0)
    if algorithm.kl.in_reward and algorithm.kl.placement == "token_reward":
        values = values - _token_penalty(algorithm, inputs)
    present = mask & inputs.scored.unsqueeze(1)
    return Signal(torch.where(present, values, 0), present, ends=columns)


def _in_batch(
    algorithm: Algorithm, rewards: Tensor, scored: Tensor, groups: Groups
) -> Bool[Tensor, " B"]:
    """Rows of batch-wide statistics: scored, and not of a group that is dropped as uniform."""
    if any(each.drops_uniform for each in algorithm.filters):
        return scored & ~uniform_rows(rewards, groups)
    return scored


def _mask_of(mask: Any, num: int, device: torch.device) -> Bool[Tensor, "B T"]:
    out = torch.as_tensor(mask, device=device).bool()
    if out.dim() != 2 or out.shape[0] != num:
        raise ValueError(f"mask must be [B, T] with B = {num}, got the shape {tuple(out.shape)}")
    return out


def _tokens_of(name: str, value: Any, mask: Tensor | None, num: int, like: Tensor) -> Tensor:
    """A [B, T] input in the working dtype, 0 off the mask."""
    out = torch.as_tensor(value, device=like.device).detach().to(like.dtype)
    if out.dim() != 2 or out.shape[0] != num or (mask is not None and out.shape != mask.shape):
        want = tuple(mask.shape) if mask is not None else f"({num}, T)"
        raise ValueError(f"{name} must be [B, T] of the shape {want}, got {tuple(out.shape)}")
    return out if mask is None else torch.where(mask, out, 0)


def _components_of(components: Any, given: Tensor, num: int, like: Tensor) -> Tensor | None:
    """[P, G, R] or [B, R] components as [B, R]; NaN stays."""
    if components is None:
        return None
    out = torch.as_tensor(components, device=like.device).to(like.dtype)
    if out.shape[:-1] != given.shape:
        raise ValueError(
            f"components must be [..., R] over rewards {tuple(given.shape)}, "
            f"got the shape {tuple(out.shape)}"
        )
    refuse_infinite("components", out)
    return out.reshape(num, out.shape[-1])


def _greedy_of(greedy: Any, groups: Groups, like: Tensor) -> Tensor | None:
    """Greedy rewards, one a prompt (ascending group id) or one a row, as one a row; NaN stays."""
    if greedy is None:
        return None
    out = torch.as_tensor(greedy, device=like.device).to(like.dtype)
    refuse_infinite("greedy_rewards", out)
    if out.shape == like.shape and len(like) != groups.num_groups:
        return out
    if out.shape != (groups.num_groups,):
        raise ValueError(
            f"greedy_rewards must be one a prompt ({groups.num_groups}) or one a row "
            f"({len(like)}), got the shape {tuple(out.shape)}"
        )
    return out[groups.index]


def group_names(prompt_ids: Sequence[str] | None, groups: Groups) -> tuple[str, ...] | None:
    """Prompt ids, one a group (in ascending group id) or one a row, as one a group."""
    if prompt_ids is None:
        return None
    names = tuple(str(name) for name in prompt_ids)
    num_rows = len(groups.index)
    if len(names) == num_rows:
        return tuple(names[int(rows[0])] for rows in groups.layout)
    if len(names) != groups.num_groups:
        raise ValueError(
            f"prompt_ids must be one a prompt ({groups.num_groups}) or one a row ({num_rows}), "
            f"got {len(names)}"
        )
    return names
