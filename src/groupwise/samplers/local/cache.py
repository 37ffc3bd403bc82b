"""Keys and values of the rows in flight: prompts once a group, everything later once a row.

Two buffers for all layers, made once a call. A prompt's part is shared by its group; a row's own
part grows with it. Rows in flight are always the first ones: where one leaves, the last takes its
place. Left out: who is in flight (schedule.py) and how it is attended (attention.py).
Shapes: L layers, R rows, G groups, Hk key heads, P prompt positions, T own positions, W head width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from groupwise.samplers.local.architecture import Decoder

# Own positions that a buffer starts with and grows by: short completions do not pay for long ones.
_FIRST = 64


def bytes_per_token(decoder: Decoder) -> int:
    """Keys and values of one token in all layers."""
    size = torch.empty((), dtype=decoder.dtype).element_size()
    return 2 * len(decoder.layers) * decoder.kv_heads * decoder.head_dim * size


class Cache:
    """`prompts` [L, 2, G, Hk, P, W] and `own` [L, 2, R, Hk, T, W], T growing up to `max_own`.

    Unwritten places are 0, so that what is masked adds exactly nothing.
    """

    def __init__(
        self, decoder: Decoder, *, rows: int, groups: int, longest_prompt: int, device: torch.device
    ) -> None:
        def made(count: int, length: int) -> Tensor:
            return torch.zeros(
                (len(decoder.layers), 2, count, decoder.kv_heads, length, decoder.head_dim),
                dtype=decoder.dtype,
                device=device,
            )

        self.prompts = made(groups, longest_prompt)
        self.own = made(rows, _FIRST)

    @property
    def num_bytes(self) -> int:
        """Bytes that both buffers take now."""
        return self.prompts.nbytes + self.own.nbytes

    def make_room(self, length: int) -> None:
        """Own parts may be `length` long from now on."""
        room = self.own.shape[-2]
        if length <= room:
            return
        while room < length:
            room *= 2
        grown = self.own.new_zeros((*self.own.shape[:-2], room, self.own.shape[-1]))
        grown[..., : self.own.shape[-2], :] = self.own
        self.own = grown

    def move_row(self, source: int, target: int, length: int) -> None:
        """The first `length` own positions of row `source` go to row `target`."""
        self.own[:, :, target, :, :length] = self.own[:, :, source, :, :length]

    def swap_rows(self, one: int, other: int, length: int) -> None:
        """Two rows change places, the first `length` own positions of both."""
        pair = [one, other]
        self.own[:, :, pair[::-1], :, :length] = self.own[:, :, pair, :, :length]

    def move_prompt(self, source: int, target: int, length: int) -> None:
        """The prompt of group `source` goes to group `target`."""
        self.prompts[:, :, target, :, :length] = self.prompts[:, :, source, :, :length]
