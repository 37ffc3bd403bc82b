"""Stores keys and values of the running rows: a prompt once per group, the rest once per row.

A prompt's part is shared by its group; a row's own part grows with it. Rows in flight are always
the first ones: where one leaves, the last takes its place.
Shapes: R rows, G groups, Hk key heads, P prompt positions, T own positions, W head width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from groupwise.samplers.local.decoder import Decoder

# Own positions that a buffer starts with and grows by at least: short completions do not pay for
# long ones, and whole buffers are attended (kernels copy what is only a part of one).
_STEP = 32


def bytes_per_token(decoder: Decoder) -> int:
    """Keys and values of one token in all layers."""
    size = torch.empty((), dtype=decoder.dtype).element_size()
    return 2 * len(decoder.layers) * decoder.kv_heads * decoder.head_dim * size


class Cache:
    """A pair of buffers a layer: `prompts[l]` [2, G, Hk, P, W] and `own[l]` [2, R, Hk, T, W], keys
    first. T grows with the longest own part.

    Unwritten places are 0, so that what is masked adds exactly nothing. With `spare` there is one
    more row, number `rows`, that no request uses.
    """

    def __init__(
        self,
        decoder: Decoder,
        *,
        rows: int,
        groups: int,
        longest_prompt: int,
        device: torch.device,
        spare: bool = False,
    ) -> None:
        def made(count: int, length: int) -> list[Tensor]:
            shape = (2, count, decoder.kv_heads, length, decoder.head_dim)
            return [torch.zeros(shape, dtype=decoder.dtype, device=device) for _ in decoder.layers]

        self.rows = rows
        self.groups = groups
        self.prompts = made(groups, longest_prompt)
        self.own = made(rows + spare, _STEP)

    @property
    def num_bytes(self) -> int:
        """Bytes that all buffers take now."""
        return sum(buffer.nbytes for buffer in (*self.prompts, *self.own))

    def make_room(self, length: int) -> None:
        """Own parts may be `length` long from now on; layer by layer, so little is held twice."""
        room = self.own[0].shape[-2]
        if length <= room:
            return
        room = max(length, room + _STEP, room * 5 // 4)
        room += -room % _STEP
        for layer, buffer in enumerate(self.own):
            grown = buffer.new_zeros((*buffer.shape[:-2], room, buffer.shape[-1]))
            grown[..., : buffer.shape[-2], :] = buffer
            self.own[layer] = grown

    def move_row(self, source: int, target: int, length: int) -> None:
        """The first `length` own positions of row `source` go to row `target`."""
        for own in self.own:
            own[:, target, :, :length] = own[:, source, :, :length]

    def swap_rows(self, one: int, other: int, length: int) -> None:
        """Two rows change places, the first `length` own positions of both."""
        pair = [one, other]
        for own in self.own:
            own[:, pair[::-1], :, :length] = own[:, pair, :, :length]

    def move_prompt(self, source: int, target: int, length: int) -> None:
        """The prompt of group `source` goes to group `target`."""
        for prompts in self.prompts:
            prompts[:, target, :, :length] = prompts[:, source, :, :length]
