"""Computes log-probabilities and entropies from hidden states, a chunk of positions at a time.

The head, the log-softmax and everything after are float32 at least; the backward pass computes the
logits of a chunk again, so that no tensor over all positions and the vocabulary exists. The
distribution is over the ids that have a token, and where sampling kept a part of them, over those.
Shapes: N positions, n of a chunk, D hidden, V vocabulary, M ids asked for at a position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from groupwise.policies.heads import Head, LogitRule

# Bytes of one chunk's float32 logits: enough for full matrix products, small beside weights.
CHUNK_BYTES = 64 * 2**20
# The logit of an id that was not kept: its probability is exactly 0, and 0 times it is 0.
NOT_KEPT = -1e30


@dataclass(frozen=True)
class Supports:
    """The ids that were kept at N positions, ragged; a position without any kept them all.

    `position` and `ids` [S] name the kept ids, positions ascending; `bounds` has N + 1 entries:
    those of position i are `bounds[i]` to `bounds[i + 1]`. `whole` [N] is True where all were kept.
    """

    position: Int[Tensor, " S"]
    ids: Int[Tensor, " S"]
    bounds: Sequence[int]
    whole: Tensor

    @staticmethod
    def of(kept: Sequence[Sequence[int] | None], device: torch.device) -> Supports:
        """From one list of ids a position; None or none for a position that kept every id."""
        counts = [len(ids or ()) for ids in kept]
        bounds = [0]
        for count in counts:
            bounds.append(bounds[-1] + count)
        lengths = torch.tensor(counts, dtype=torch.int64)
        ids = torch.tensor([each for some in kept for each in some or ()], dtype=torch.int64)
        position = torch.repeat_interleave(torch.arange(len(counts)), lengths)
        return Supports(position.to(device), ids.to(device), bounds, (lengths == 0).to(device))

    def keep_(self, logits: Tensor, start: int) -> Tensor:
        """Logits [n, V] of the positions from `start` on, sunk at ids that were not kept; in place,
        and a new tensor where the logits are part of a graph."""
        part = slice(self.bounds[start], self.bounds[start + logits.shape[0]])
        place = (self.position[part] - start, self.ids[part])
        kept = logits[place]
        sunk = ~self.whole[start : start + logits.shape[0], None]
        if logits.requires_grad:
            return logits.masked_fill(sunk, NOT_KEPT).index_put(place, kept)
        return logits.masked_fill_(sunk, NOT_KEPT).index_put_(place, kept)


def token_logprobs(
    hidden: Float[Tensor, "N D"],
    head: Head,
    targets: Int[Tensor, "N M"],
    *,
    temperature: float = 1.0,
    supports: Supports | None = None,
    absent: Int[Tensor, " A"] | None = None,
    entropies: bool = True,
    products: torch.dtype = torch.float32,
    chunk_tokens: int | None = None,
) -> tuple[Float[Tensor, "N M"], Float[Tensor, " N"] | None]:
    """log softmax(logits / T) at `targets`, and the entropies, from hidden states in chunks.

    Everything from the head's matrix product on is float32 whatever the policy's dtype, or float64
    where the weights are: bfloat16 logits near 20 are 0.125 apart. `products` bfloat16 takes the
    two products of the backward pass that give gradients in it, as in the policy's other layers.
    `absent` are ids that no token has (`Policy.absent_ids`). One of them, and an id that is not in
    its position's support, has a log-probability of -1e30, without gradient.
    """
    linear = head.linear
    if isinstance(linear, nn.Linear) and type(linear) is nn.Linear:
        chunk = chunk_tokens or max(16, CHUNK_BYTES // (4 * linear.out_features))
        settings = _Settings(head.rule, temperature, chunk, supports, absent, entropies, products)
        apply: Any = _ChunkedHead.apply
        return cast(
            tuple[Tensor, Tensor | None],
            apply(hidden, linear.weight, linear.bias, targets, settings),
        )
    chunk = chunk_tokens or 256
    settings = _Settings(head.rule, temperature, chunk, supports, absent, entropies, products)
    parts = [
        checkpoint(_plain_head, h, t, linear, settings, number * chunk, use_reentrant=False)
        for number, (h, t) in enumerate(
            zip(torch.split(hidden, chunk), torch.split(targets, chunk))
        )
    ]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


@dataclass(frozen=True)
class _Settings:
    rule: LogitRule
    temperature: float
    chunk: int
    supports: Supports | None
    absent: Tensor | None
    entropies: bool
    products: torch.dtype

    @property
    def sinks(self) -> bool:
        """Whether some ids have no probability."""
        return self.supports is not None or self.absent is not None

    def sink_(self, logits: Tensor, start: int) -> Tensor:
        """As `Supports.keep_`, and sunk at ids that no token has."""
        if self.supports is not None:
            logits = self.supports.keep_(logits, start)
        if self.absent is None:
            return logits
        if logits.requires_grad:
            return logits.index_fill(1, self.absent, NOT_KEPT)
        return logits.index_fill_(1, self.absent, NOT_KEPT)


def _plain_head(
    hidden: Tensor, targets: Tensor, linear: nn.Module, settings: _Settings, start: int
) -> tuple[Tensor, Tensor]:
    """The same with autograd, for a head that is not a plain linear layer."""
    raw = linear(hidden.to(next(linear.parameters()).dtype))
    raw = raw if raw.dtype == torch.float64 else raw.float()
    logits = settings.rule.apply_(raw * 1.0) / settings.temperature
    logits = settings.sink_(logits, start)
    logprobs = logits.log_softmax(-1)
    chosen = logprobs.gather(1, targets)
    chosen = torch.where(chosen < 0.5 * NOT_KEPT, chosen.detach(), chosen)
    return chosen, -(logprobs.exp() * logprobs).sum(-1)


class _ChunkedHead(torch.autograd.Function):
    """Head, log-softmax, gather and entropy over chunks of rows; the backward pass recomputes.

    With z = logits / T, p = softmax(z), H = -sum p log p:
    d logprob_m / dz_j = [j = target_m] - p_j, and d H / dz_j = -p_j (log p_j + H).
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        settings: _Settings,
    ) -> tuple[Tensor, Tensor | None]:
        exact = torch.float64 if weight.dtype == torch.float64 else torch.float32
        hidden_m, weight_m = hidden.to(exact), weight.to(exact)
        chosen = torch.empty(targets.shape, dtype=exact, device=hidden.device)
        entropy = chosen.new_empty(hidden.shape[0]) if settings.entropies else None
        for start in range(0, hidden.shape[0], settings.chunk):
            part = slice(start, start + settings.chunk)
            z, _ = _logits(hidden_m[part], weight_m, bias, settings, start)
            logprobs = torch.log_softmax(z, -1)
            chosen[part] = logprobs.gather(1, targets[part])
            if entropy is not None:
                entropy[part] = -torch.linalg.vecdot(torch.exp(logprobs, out=z), logprobs)
        ctx.save_for_backward(hidden, weight, bias, targets, entropy)
        ctx.settings, ctx.exact = settings, exact
        ctx.set_materialize_grads(False)
        return chosen, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_chosen: Tensor | None, grad_entropy: Tensor | None) -> Any:
        hidden, weight, bias, targets, entropy = ctx.saved_tensors
        settings: _Settings = ctx.settings
        hidden_m, weight_m = hidden.to(ctx.exact), weight.to(ctx.exact)
        low = ctx.exact if ctx.exact == torch.float64 else settings.products
        hidden_p, weight_p = hidden_m.to(low), weight_m.to(low)
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        grad_hidden = torch.empty_like(hidden_m) if wants_hidden else None
        grad_weight = torch.zeros_like(weight_m) if wants_weight else None
        grad_bias = torch.zeros_like(bias, dtype=ctx.exact) if wants_bias else None
        for start in range(0, hidden.shape[0], settings.chunk):
            part = slice(start, start + settings.chunk)
            z, raw = _logits(hidden_m[part], weight_m, bias, settings, start)
            at_targets = None
            if grad_chosen is not None:
                at_targets = grad_chosen[part] / settings.temperature
                if settings.sinks:
                    at_targets.masked_fill_(z.gather(1, targets[part]) == NOT_KEPT, 0.0)
            grad = _grad_logits(
                z,
                targets[part],
                at_targets,
                None if grad_entropy is None else grad_entropy[part, None] / settings.temperature,
                None if entropy is None else entropy[part, None],
            )
            if raw is not None:
                settings.rule.backward_(grad, raw)
            grad_p = grad.to(low)
            if grad_hidden is not None:
                grad_hidden[part] = grad_p @ weight_p
            if grad_weight is not None:
                grad_weight.add_(grad_p.T @ hidden_p[part])
            if grad_bias is not None:
                grad_bias.add_(grad.sum(0))
        return (
            None if grad_hidden is None else grad_hidden.to(hidden.dtype),
            None if grad_weight is None else grad_weight.to(weight.dtype),
            None if grad_bias is None else grad_bias.to(bias.dtype),
            None,
            None,
        )


def _logits(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, settings: _Settings, start: int
) -> tuple[Tensor, Tensor | None]:
    """Tempered logits of a chunk over the kept ids, and for the backward pass the model's own
    logits if its rule changes them, else None."""
    raw = hidden @ weight.T
    if bias is not None:
        raw.add_(bias.to(raw.dtype))
    raw = settings.rule.apply_(raw)
    bent = None if settings.rule == LogitRule() else raw
    z = raw if settings.temperature == 1.0 else raw.div(settings.temperature)
    if settings.sinks:
        z = settings.sink_(z.clone() if z is bent else z, start)
    return z, bent


def _grad_logits(
    z: Tensor,
    targets: Tensor,
    grad_chosen: Tensor | None,
    grad_entropy: Tensor | None,
    entropy: Tensor | None,
) -> Tensor:
    """The gradient at z of the chosen log-probabilities and entropies of one chunk."""
    if grad_entropy is None or entropy is None:
        grad = torch.softmax(z, -1)
        if grad_chosen is None:
            return grad.zero_()
        grad.mul_(-grad_chosen.sum(-1, keepdim=True))
    else:
        log_p = torch.log_softmax(z, -1)
        p = log_p.exp()
        grad = log_p.add_(entropy).mul_(-grad_entropy)
        if grad_chosen is not None:
            grad.sub_(grad_chosen.sum(-1, keepdim=True))
        grad.mul_(p)
    return grad if grad_chosen is None else grad.scatter_add_(1, targets, grad_chosen)
