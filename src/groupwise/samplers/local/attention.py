"""Attention over prompts, own parts and new tokens: one class for each stage of a row's life.

`Prefill`: new prompts, each to itself. `Extend`: a turn's new context, to everything before it.
`Decode`: one token for every row; the queries of a whole group meet their prompt in one product,
each row meets its own part, and one softmax goes over both (the same as merging two softmaxes by
their log-sum-exp, without its extra passes; nothing masked is multiplied but padding).
Scores are soft-capped and masked by position; softmax is float32.
Shapes: n rows, g groups, S rows of the largest group, Hq and Hk heads, r = Hq / Hk, W head width,
P prompt positions, T own positions. Queries are scaled already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from groupwise.samplers.local.cache import Cache
from groupwise.samplers.local.decoder import AttentionLayer


def dense_attention(
    layer: AttentionLayer,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    query_positions: Tensor,
    key_positions: Tensor,
) -> Tensor:
    """[a, Hq, W] queries over [b, Hk, W] keys and values of one sequence, causal by position."""
    ratio = queries.shape[1] // keys.shape[1]
    grouped = queries.view(queries.shape[0], keys.shape[1], ratio, -1).permute(1, 2, 0, 3)
    keys, values = keys.transpose(0, 1)[:, None], values.transpose(0, 1)[:, None]
    scores = _capped(torch.matmul(grouped, keys.transpose(-1, -2)), layer.softcap)
    distance = query_positions[:, None] - key_positions[None]
    hidden = distance < 0
    if layer.window is not None:
        hidden = hidden | (distance >= layer.window)
    weights = _softmax(scores.masked_fill(hidden, -torch.inf))
    made = torch.matmul(weights, values)
    return made.permute(2, 0, 1, 3).reshape(queries.shape)


def _capped(scores: Tensor, softcap: float | None) -> Tensor:
    return scores if softcap is None else torch.tanh(scores / softcap) * softcap


def _softmax(scores: Tensor) -> Tensor:
    exact = scores.dtype if scores.dtype == torch.float64 else torch.float32
    return torch.softmax(scores, dim=-1, dtype=exact).to(scores.dtype)


class Prefill:
    """New prompts side by side; `slots` are their groups' places in the cache."""

    def __init__(self, cache: Cache, lengths: Sequence[int], slots: Sequence[int]) -> None:
        self.cache = cache
        self.lengths = list(lengths)
        self.slots = list(slots)

    def __call__(
        self, number: int, layer: AttentionLayer, queries: Tensor, keys: Tensor, values: Tensor
    ) -> Tensor:
        made = []
        parts = zip(*(torch.split(states, self.lengths) for states in (queries, keys, values)))
        for slot, length, (q, k, v) in zip(self.slots, self.lengths, parts):
            self.cache.prompts[number][0, slot, :, :length] = k.transpose(0, 1)
            self.cache.prompts[number][1, slot, :, :length] = v.transpose(0, 1)
            made.append(_whole_prompt(layer, q, k, v))
        return torch.cat(made)


def _whole_prompt(layer: AttentionLayer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    length = q.shape[0]
    if layer.softcap is not None or (layer.window is not None and layer.window < length):
        positions = torch.arange(length, device=q.device)
        return dense_attention(layer, q, k, v, positions, positions)
    made = functional.scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        k.transpose(0, 1)[None],
        v.transpose(0, 1)[None],
        is_causal=True,
        scale=1.0,
        enable_gqa=True,
    )
    return made[0].transpose(0, 1)


@dataclass(frozen=True)
class Extension:
    """New context of one row: `length` tokens behind `own` positions of its own part."""

    row: int
    slot: int
    prompt: int
    own: int
    length: int


class Extend:
    """The context of later turns, each row's to its prompt and everything it said."""

    def __init__(self, cache: Cache, rows: Sequence[Extension]) -> None:
        self.cache = cache
        self.rows = list(rows)

    def __call__(
        self, number: int, layer: AttentionLayer, queries: Tensor, keys: Tensor, values: Tensor
    ) -> Tensor:
        made = []
        lengths = [each.length for each in self.rows]
        parts = zip(*(torch.split(states, lengths) for states in (queries, keys, values)))
        for each, (q, k, v) in zip(self.rows, parts):
            end = each.own + each.length
            own, prompts = self.cache.own[number], self.cache.prompts[number]
            own[0, each.row, :, each.own : end] = k.transpose(0, 1)
            own[1, each.row, :, each.own : end] = v.transpose(0, 1)
            whole = [
                torch.cat([prompts[i, each.slot, :, : each.prompt], own[i, each.row, :, :end]], 1)
                for i in (0, 1)
            ]
            positions = torch.arange(each.prompt + end, device=q.device)
            made.append(
                dense_attention(
                    layer,
                    q,
                    whole[0].transpose(0, 1),
                    whole[1].transpose(0, 1),
                    positions[-each.length :],
                    positions,
                )
            )
        return torch.cat(made)


@dataclass(frozen=True)
class Layout:
    """Which rows are in flight and how they stand to their groups; made when that changes.

    `rows` [n]: where each writes its keys and values. `prompts` [n]: the lengths of their prompts.
    `members` [g, S]: each group's rows, filled up with row 0; `place` [n]: where a row is among
    them. Both are None where rows stand group by group in groups of one size, in order.
    """

    rows: Tensor
    prompts: Tensor
    num_groups: int
    largest: int
    longest_prompt: int
    members: Tensor | None
    place: Tensor | None


@dataclass(frozen=True)
class Frame:
    """Sizes that a layout is filled up to, so that its tensors keep their shapes. Rows that are not
    there write to row `spare`, which is never read."""

    rows: int
    groups: int
    largest: int
    longest_prompt: int
    spare: int


def lay_out(
    slots: Sequence[int],
    prompts: Sequence[int],
    device: torch.device,
    frame: Frame | None = None,
) -> Layout:
    """The layout of rows with these groups and prompt lengths; groups are numbered from 0."""
    count = len(slots)
    groups = max(slots) + 1 if frame is None else frame.groups
    rows_of: list[list[int]] = [[] for _ in range(groups)]
    for row, slot in enumerate(slots):
        rows_of[slot].append(row)
    largest = max(len(rows) for rows in rows_of) if frame is None else frame.largest
    in_order = [row for rows in rows_of for row in rows] == list(range(count))
    even = frame is None and in_order and all(len(rows) == largest for rows in rows_of)
    members = [rows + [0] * (largest - len(rows)) for rows in rows_of]
    place = [0] * count
    for slot, rows in enumerate(rows_of):
        for index, row in enumerate(rows):
            place[row] = slot * largest + index
    missing = 0 if frame is None else frame.rows - count
    spare = 0 if frame is None else frame.spare

    def tensor(values: object) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    return Layout(
        rows=tensor([*range(count), *[spare] * missing]),
        prompts=tensor([*prompts, *[1] * missing]),
        num_groups=groups,
        largest=largest,
        longest_prompt=max(prompts) if frame is None else frame.longest_prompt,
        members=None if even else tensor(members),
        place=None if even else tensor([*place, *[0] * missing]),
    )


def _worth(used: int, room: int) -> int:
    return room if used > 0.75 * room else used


class Decode:
    """One new token for every row in flight; `own` [n] is the length of its own part before it."""

    def __init__(self, cache: Cache, layout: Layout, own: Tensor) -> None:
        self.cache = cache
        self.layout = layout
        self.own = own
        # Kernels copy what is only a part of a buffer: all of it is cheaper, unless most is empty.
        self.num_own = cache.own[0].shape[-2]
        self.num_prompt = _worth(layout.longest_prompt, cache.prompts[0].shape[-2])
        self.masks: dict[int | None, Tensor] = {}

    def __call__(
        self, number: int, layer: AttentionLayer, queries: Tensor, keys: Tensor, values: Tensor
    ) -> Tensor:
        own = self.cache.own[number]
        own[0, self.layout.rows, :, self.own] = keys
        own[1, self.layout.rows, :, self.own] = values
        n, heads, width = queries.shape
        kv_heads = keys.shape[1]
        ratio = heads // kv_heads
        prompt, later = self.num_prompt, self.num_own
        queries = queries.view(n, kv_heads, ratio, width)
        k_own, v_own = self._own_part(own, n, kv_heads, width)
        k_prompt, v_prompt = self._prompt_part(number, kv_heads, width)
        scores = queries.new_empty((n, kv_heads, ratio, prompt + later))
        scores[..., :prompt] = self._by_row(
            torch.bmm(self._by_group(queries), k_prompt.transpose(1, 2)), kv_heads, ratio
        )
        scores[..., prompt:] = torch.bmm(
            queries.reshape(n * kv_heads, ratio, width), k_own.transpose(1, 2)
        ).view(n, kv_heads, ratio, later)
        weights = _softmax(_capped(scores, layer.softcap).add_(self._mask(layer.window)))
        made = torch.bmm(weights.view(n * kv_heads, ratio, -1)[..., prompt:], v_own)
        shared = torch.bmm(self._by_group(weights[..., :prompt]), v_prompt)
        return made.view(n, kv_heads, ratio, width) + self._by_row(shared, kv_heads, ratio)

    def _own_part(self, own: Tensor, n: int, heads: int, width: int) -> tuple[Tensor, Tensor]:
        parts = (own[i, :n].view(n * heads, self.num_own, width) for i in (0, 1))
        return next(parts), next(parts)

    def _prompt_part(self, number: int, heads: int, width: int) -> tuple[Tensor, Tensor]:
        count, length = self.layout.num_groups, self.num_prompt
        prompts = self.cache.prompts[number]
        parts = (prompts[i, :count].view(count * heads, -1, width)[:, :length] for i in (0, 1))
        return next(parts), next(parts)

    def _by_group(self, x: Tensor) -> Tensor:
        """[n, Hk, r, X] of rows to [g Hk, S r, X] of groups."""
        layout = self.layout
        if layout.members is not None:
            x = x[layout.members.flatten()]
        _, kv_heads, ratio, last = x.shape
        x = x.view(layout.num_groups, layout.largest, kv_heads, ratio, last).transpose(1, 2)
        return x.reshape(layout.num_groups * kv_heads, layout.largest * ratio, last)

    def _by_row(self, x: Tensor, kv_heads: int, ratio: int) -> Tensor:
        """[g Hk, S r, X] of groups to [n, Hk, r, X] of rows."""
        layout = self.layout
        x = x.view(layout.num_groups, kv_heads, layout.largest, ratio, -1).transpose(1, 2)
        x = x.reshape(layout.num_groups * layout.largest, kv_heads, ratio, -1)
        return x if layout.place is None else x[layout.place]

    def _mask(self, window: int | None) -> Tensor:
        """[n, 1, 1, P + T], 0 where a row may look and -inf where not; made once a step."""
        found = self.masks.get(window)
        if found is None:
            found = self.masks[window] = self._made_mask(window)
        return found

    def _made_mask(self, window: int | None) -> Tensor:
        layout, device = self.layout, self.own.device
        prompt = torch.arange(self.num_prompt, device=device)
        later = torch.arange(self.num_own, device=device)
        lengths, own = layout.prompts[:, None], self.own[:, None]
        seen = torch.cat([prompt < lengths, later <= own], dim=1)
        if window is not None:
            positions = torch.cat([prompt.expand(len(own), -1), lengths + later], dim=1)
            seen &= positions > lengths + own - window
        mask = torch.zeros(seen.shape, dtype=self.cache.own[0].dtype, device=device)
        return mask.masked_fill_(~seen, -torch.inf)[:, None, None]
