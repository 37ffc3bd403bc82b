"""The sampling rule: one uniform per token, inverse CDF in token-id order, float32.

Every sampler uses it, so the same key and logits give the same token in all of them.
Shapes: R rows, V vocabulary, K most likely tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# Tokens a block of the two-level CDF holds. Fixed: it decides how sums round.
BLOCK = 256


@dataclass(frozen=True)
class Draws:
    """One token for each of R rows. `logprobs` are of the distribution drawn from, `best` is the
    largest logit.

    `entropies` [R] in nats and `top_ids`, `top_logprobs` [R, K] are there when asked for,
    `supports` (the kept ids) where the distribution was truncated. `finite` is False for a row
    whose logits hold a NaN, a +inf, or nothing above -inf.
    """

    ids: Int[Tensor, " R"]
    logprobs: Float[Tensor, " R"]
    finite: Bool[Tensor, " R"]
    best: Float[Tensor, " R"]
    entropies: Float[Tensor, " R"] | None = None
    top_ids: Int[Tensor, "R K"] | None = None
    top_logprobs: Float[Tensor, "R K"] | None = None
    supports: list[tuple[int, ...]] | None = None


@dataclass(frozen=True)
class Truncation:
    """What is kept of each row's distribution: the `top_k` [R] most likely ids (0: all), then the
    fewest of them with mass `top_p` [R], then those with at least `min_p` [R] of the best one's.

    Ties are kept in id order.
    """

    top_k: Int[Tensor, " R"]
    top_p: Float[Tensor, " R"]
    min_p: Float[Tensor, " R"]

    def kept(self, scaled: Float[Tensor, "R V"]) -> Bool[Tensor, "R V"]:
        """True for the ids that stay, from logits divided by the temperature."""
        ordered, ids = scaled.sort(dim=-1, descending=True, stable=True)
        rank = torch.arange(scaled.shape[-1], device=scaled.device)
        within = (self.top_k[:, None] == 0) | (rank < self.top_k[:, None])
        within &= ordered > -torch.inf  # an id that no token has is in no support
        mass = torch.softmax(ordered.masked_fill(~within, -torch.inf), dim=-1)
        within &= (mass.cumsum(-1) - mass < self.top_p[:, None]) | (self.top_p[:, None] == 1.0)
        within &= mass >= self.min_p[:, None] * mass[:, :1]
        return torch.zeros_like(within).scatter_(1, ids, within)


def draw(
    logits: Float[Tensor, "R V"],
    uniforms: Float[Tensor, " R"],
    *,
    temperatures: Float[Tensor, " R"],
    greedy: Bool[Tensor, " R"],
    entropies: bool = False,
    top_k: int = 0,
    truncation: Truncation | None = None,
) -> Draws:
    """The next token of every row.

    p = softmax(logits / T) in float32; with C the cumulative sum of p in id order (over blocks of
    256 ids, then inside the block), the token is the first id with p > 0 and C > u * total. A
    greedy row takes the first most likely id; its log-probability is at temperature 1. A row
    depends on nothing but itself. With `truncation` p is 0 for ids that are not kept, and
    `supports` lists those that are; a greedy row keeps all.
    """
    rows, vocabulary = logits.shape
    divisor = torch.where(greedy, 1.0, temperatures)
    scaled = logits.float()
    if not bool((divisor == 1.0).all()):
        scaled = scaled / divisor[:, None]
    supports = None
    if truncation is not None:
        kept = truncation.kept(scaled) | greedy[:, None]
        scaled = scaled.masked_fill(~kept, -torch.inf)
        supports = _supports(kept)
    best = scaled.amax(dim=-1)
    weights = torch.sub(scaled, best[:, None]).exp_()
    padding = -vocabulary % BLOCK
    padded = torch.nn.functional.pad(weights, (0, padding)) if padding else weights
    blocks = padded.view(rows, -1, BLOCK)
    block_sums = blocks.sum(-1)
    block_ends = block_sums.cumsum(-1)
    total = block_ends[:, -1]
    drawn = _inverse_cdf(blocks, block_sums, block_ends, uniforms * total)
    ids = torch.where(greedy, scaled.argmax(dim=-1), drawn) if bool(greedy.any()) else drawn
    log_total = total.log()
    logprobs = scaled.gather(1, ids[:, None])[:, 0] - best - log_total
    entropy = None
    if entropies:
        # H = log Z - sum p z with z = logits - best; 0 * -inf is taken as 0.
        moment = (weights * torch.sub(scaled, best[:, None]).nan_to_num_(neginf=0.0)).sum(-1)
        entropy = log_total - moment / total
    top_ids = top_logprobs = None
    if top_k:
        top, top_ids = scaled.topk(min(top_k, vocabulary), dim=-1)
        top_logprobs = top - (best + log_total)[:, None]
    finite = torch.isfinite(total)
    return Draws(ids, logprobs, finite, best * divisor, entropy, top_ids, top_logprobs, supports)


def _supports(kept: Bool[Tensor, "R V"]) -> list[tuple[int, ...]]:
    """Each row's kept ids, ascending."""
    places = torch.split(kept.nonzero()[:, 1], kept.sum(-1).tolist())
    return [tuple(ids.tolist()) for ids in places]


def _inverse_cdf(
    blocks: Float[Tensor, "R C b"],
    block_sums: Float[Tensor, "R C"],
    block_ends: Float[Tensor, "R C"],
    target: Float[Tensor, " R"],
) -> Int[Tensor, " R"]:
    """The first id whose cumulative weight exceeds `target`.

    Where rounding leaves none (target within a rounding of the total), the last id with weight.
    """
    target = target[:, None]
    last_block = (block_sums > 0).long().cumsum(-1).argmax(-1, keepdim=True)
    block = (block_ends <= target).sum(-1, keepdim=True).minimum(last_block)
    before = (block_ends.gather(1, (block - 1).clamp(min=0))).where(block > 0, 0.0)
    inside = blocks.gather(1, block[:, :, None].expand(-1, -1, blocks.shape[-1]))[:, 0]
    ends = before + inside.cumsum(-1)
    last = (inside > 0).long().cumsum(-1).argmax(-1, keepdim=True)
    offset = (ends <= target).sum(-1, keepdim=True).minimum(last)
    return (block * blocks.shape[-1] + offset)[:, 0]
