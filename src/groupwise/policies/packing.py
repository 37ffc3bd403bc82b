"""Packs a micro-batch into one row: every distinct prompt once, then its completions, no padding.

Each prompt is a segment of its tokens, followed by one segment per completion without its last
token, which predicts nothing that is scored. Positions continue from the prompt, so a token has the
same position as in a separate row. Only attention needs the layout: `Layout.blocks` lists which
tokens attend as one batch, and padding exists only there.
Shapes: N tokens, M completion tokens of all rows, R segments of a block, C query and K key slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Bool, Int
from torch import Tensor

# Query slots of one block. Longer segments are cut, so that at most a tile's keys are masked.
_TILE = 256
# A block's padded scores over those of its segments alone, and the scores that may always be waste.
_WASTE = 1.2
_SMALL = 1 << 15


@dataclass(frozen=True, slots=True)
class Span:
    """One segment of the packed row: where it starts, how long it is, and its prompt's span.

    `prompt_start` and `prompt_length` are 0 for a prompt itself.
    """

    start: int
    length: int
    prompt_start: int = 0
    prompt_length: int = 0

    @property
    def scores(self) -> int:
        """Entries of the attention matrix, the masked upper half included."""
        return self.length * (self.prompt_length + self.length)


@dataclass(frozen=True)
class Block:
    """Segments of like shape that attend as one batch.

    `queries` [R, C] and `keys` [R, K] are places in the packed row; slots without a token repeat
    one of their segment. Prompts stand right-aligned in front of the segment's own keys, so query
    slot c is `offset + c - k` positions behind key slot k in every segment. `first` [R] is the
    first real key slot, None where it is 0 everywhere. Padded key slots behind a segment's end are
    seen by padded queries alone, by causality; every query sees its own slot, so that no softmax is
    over nothing.
    """

    queries: Int[Tensor, "R C"]
    keys: Int[Tensor, "R K"]
    offset: int
    first: Int[Tensor, " R"] | None

    def visible(self, window: int | None) -> Bool[Tensor, "R C K"]:
        """True where a query sees a key; R is 1 where all segments agree. `window` as in the model:
        a query sees itself and the `window - 1` positions before it."""
        device = self.queries.device
        slots = torch.arange(self.keys.shape[1], device=device)
        back = self.offset + torch.arange(self.queries.shape[1], device=device)[:, None] - slots
        seen = back >= 0
        if window is not None:
            seen &= back < window
        if self.first is None:
            return seen[None]
        return seen & (slots >= self.first[:, None])[:, None, :]


@dataclass(frozen=True)
class Layout:
    """A micro-batch as one row.

    `input_ids` and `position_ids` [1, N]; `predictors` [M] are the places whose hidden states
    predict the completion tokens, row by row; `order` [N] is each token's slot among the query
    slots of all blocks, in turn. `sources` are (row, start, stop), in the packed row's order: these
    tokens of that row's prompt and completion stand there.
    """

    input_ids: Int[Tensor, "1 N"]
    position_ids: Int[Tensor, "1 N"]
    predictors: Int[Tensor, " M"]
    blocks: tuple[Block, ...]
    order: Int[Tensor, " N"]
    sources: tuple[tuple[int, int, int], ...] = ()
    biases: dict[tuple[int, int | None, torch.dtype], Tensor] = field(default_factory=dict)

    @cached_property
    def num_tokens(self) -> int:
        return int(self.input_ids.shape[1])

    @cached_property
    def num_slots(self) -> int:
        """Query slots of all blocks, padding included."""
        return sum(block.queries.numel() for block in self.blocks)

    def bias(self, number: int, window: int | None, dtype: torch.dtype) -> Tensor:
        """[R or 1, C, K]: 0 where block `number` sees, -inf where it does not; made once a pass."""
        key = (number, window, dtype)
        if key not in self.biases:
            seen = self.blocks[number].visible(window)
            empty = torch.zeros((), dtype=dtype, device=seen.device)
            self.biases[key] = empty.new_full(seen.shape, float("-inf")).masked_fill_(seen, 0.0)
        return self.biases[key]


def packed_tokens(
    prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]
) -> int:
    """Tokens of the packed row: distinct prompts once, completions without their last token.

    >>> packed_tokens([(1, 2, 3), (1, 2, 3), (4,)], [(5, 6), (7,), ()])
    5
    """
    prompts = {tuple(ids) for ids in prompt_ids}
    return sum(map(len, prompts)) + sum(max(len(ids) - 1, 0) for ids in completion_ids)


def pack(
    prompt_ids: Sequence[Sequence[int]],
    completion_ids: Sequence[Sequence[int]],
    device: torch.device,
) -> Layout:
    """The layout of some rows, in any order; a prompt that several rows share is there once."""
    members: dict[tuple[int, ...], list[int]] = {}
    for row, prompt in enumerate(prompt_ids):
        members.setdefault(tuple(prompt), []).append(row)
    ids: list[int] = []
    positions: list[int] = []
    prompts: list[Span] = []
    completions: list[Span] = []
    sources: list[tuple[int, int, int]] = []
    predictors: list[list[int]] = [[] for _ in prompt_ids]
    for prompt, rows in members.items():
        above = Span(len(ids), len(prompt))
        prompts.append(above)
        sources.append((rows[0], 0, len(prompt)))
        ids.extend(prompt)
        positions.extend(range(len(prompt)))
        for row in rows:
            own = list(completion_ids[row])[:-1]
            span = Span(len(ids), len(own), above.start, above.length)
            if completion_ids[row]:
                last = above.start + above.length - 1
                predictors[row] = [last, *range(span.start, span.start + span.length)]
            if own:
                completions.append(span)
            sources.append((row, len(prompt), len(prompt) + len(own)))
            ids.extend(own)
            positions.extend(range(above.length, above.length + len(own)))
    blocks = [block for spans in (prompts, completions) for block in _blocks(spans)]
    return Layout(
        input_ids=torch.tensor([ids], dtype=torch.int64, device=device),
        position_ids=torch.tensor([positions], dtype=torch.int64, device=device),
        predictors=torch.tensor(
            [place for row in predictors for place in row], dtype=torch.int64, device=device
        ),
        blocks=tuple(_to(block, device) for block, _ in blocks),
        order=_order(blocks, len(ids)).to(device),
        sources=tuple(sources),
    )


def _blocks(spans: Sequence[Span]) -> list[tuple[Block, Tensor]]:
    """Blocks of segments of like length, longest first, cut into tiles; True [R, C] in their real
    query slots."""
    found = []
    for alike in _alike(spans):
        longest = alike[0].length
        for start in range(0, longest, _TILE):
            stop = min(start + _TILE, longest)
            found.append(_block([span for span in alike if span.length > start], start, stop))
    return found


def _alike(spans: Sequence[Span]) -> list[list[Span]]:
    """Spans in lists whose padded scores stay near those of the spans alone."""
    parts: list[list[Span]] = []
    real = prompt = 0
    for span in sorted(spans, key=lambda span: (-span.length, -span.prompt_length, span.start)):
        if parts:
            longest = parts[-1][0].length
            wider = max(prompt, span.prompt_length)
            padded = (len(parts[-1]) + 1) * longest * (wider + longest)
            if padded <= _WASTE * (real + span.scores) + _SMALL:
                parts[-1].append(span)
                real, prompt = real + span.scores, wider
                continue
        parts.append([span])
        real, prompt = span.scores, span.prompt_length
    return parts


def _block(spans: Sequence[Span], start: int, stop: int) -> tuple[Block, Bool[Tensor, "R C"]]:
    """The block of the spans' own tokens `start` to `stop`, which see all before them."""
    own = torch.tensor([span.start for span in spans])
    length = torch.tensor([span.length for span in spans])
    above = torch.tensor([span.prompt_start for span in spans])
    prompt = torch.tensor([span.prompt_length for span in spans])
    width = int(prompt.max())
    first = width - prompt
    slots = torch.arange(start, stop)
    real = slots < length[:, None]
    queries = own[:, None] + torch.minimum(slots, length[:, None] - 1)
    own_keys = own[:, None] + torch.minimum(torch.arange(stop), length[:, None] - 1)
    prompt_slots = torch.arange(width) - first[:, None]
    # Slots in front of a short prompt are masked; they repeat a token of the segment.
    prompt_keys = torch.where(prompt_slots >= 0, above[:, None] + prompt_slots, own[:, None])
    block = Block(
        queries=queries,
        keys=torch.cat([prompt_keys, own_keys], dim=1),
        offset=width + start,
        first=first if bool(first.any()) else None,
    )
    return block, real


def _order(blocks: Sequence[tuple[Block, Tensor]], tokens: int) -> Int[Tensor, " N"]:
    order = torch.empty(tokens, dtype=torch.int64)
    before = 0
    for block, real in blocks:
        slots = torch.arange(before, before + real.numel()).reshape(real.shape)
        order[block.queries[real]] = slots[real]
        before += real.numel()
    return order


def _to(block: Block, device: torch.device) -> Block:
    first = None if block.first is None else block.first.to(device)
    return Block(block.queries.to(device), block.keys.to(device), block.offset, first)
