"""Keys and values of a batch being decoded: room for the whole batch is made once.

The cache that transformers makes by itself copies everything at every token. Left out: which rows
are in it (transformers_sampler.py).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer


class BufferLayer(DynamicLayer):  # type: ignore[misc]
    """One layer's keys and values [R, heads, capacity, D], of which the first ones are filled.

    A layer with a sliding window is kept whole too; the attention mask leaves out what is too old.
    """

    def __init__(self, capacity: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.capacity = capacity
        self.dtype = dtype
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        super().lazy_initialization(key_states, value_states)
        self._key_room = self._room(key_states)
        self._value_room = self._room(value_states)

    def _room(self, states: Tensor) -> Tensor:
        rows, heads, _, width = states.shape
        return torch.empty(
            (rows, heads, self.capacity, width), dtype=self.dtype, device=states.device
        )

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[-2]
        self._key_room[:, :, self.length : end] = key_states
        self._value_room[:, :, self.length : end] = value_states
        self.length = end
        self._show()
        return self.keys, self.values

    def _show(self) -> None:
        self.keys = self._key_room[:, :, : self.length]
        self.values = self._value_room[:, :, : self.length]

    def batch_select_indices(self, indices: Tensor) -> None:
        """Rows `indices`, in their order; a row may be taken more than once."""
        self._key_room = self._taken(self._key_room, indices)
        self._value_room = self._taken(self._value_room, indices)
        self._show()

    def _taken(self, room: Tensor, indices: Tensor) -> Tensor:
        taken = room.new_empty((len(indices), *room.shape[1:]))
        taken[:, :, : self.length] = room[:, :, : self.length].index_select(0, indices)
        return taken


def make_cache(config: Any, capacity: int, dtype: torch.dtype) -> DynamicCache:
    """A cache with room for `capacity` tokens a row; `config` is the text decoder's.

    A model with layers that are not attention (a recurrent state) keeps transformers' own cache.
    """
    cache = DynamicCache(config=config)
    if all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in cache.layers):
        cache.layers = [BufferLayer(capacity, dtype) for _ in cache.layers]
    return cache
