"""Runs a decoding step on tensors of fixed shape and address, so that a CUDA graph can replay it.

On a GPU a step of small kernels is bound by their launches; a graph replays all of them in one
call, but only on the tensors it was captured with. Rows are padded to a few sizes and layouts to
the largest of the call; a graph is captured again when a buffer grows. Without a GPU the same step
runs without a graph, which is how its shapes are tested.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from groupwise.samplers.local.attention import Decode, Frame, Layout
from groupwise.samplers.local.cache import Cache
from groupwise.samplers.local.decoder import Decoder

_FEWEST = 8
_WARM_UPS = 2


def frame_rows(running: int, most: int) -> int:
    """The number of rows that a step of `running` rows is filled up to, at most `most`."""
    rows = _FEWEST
    while rows < running:
        rows *= 2
    return min(rows, most)


@dataclass
class _Captured:
    """A step's inputs, its graph (None without a GPU), and where its results are."""

    layout: Layout
    ids: Tensor
    own: Tensor
    graph: torch.cuda.CUDAGraph | None = None
    states: Tensor | None = None
    experts: Tensor | None = None


class StaticSteps:
    """Steps by their shapes. `groups`, `largest` and `longest_prompt` are the most of the call."""

    def __init__(
        self, decoder: Decoder, cache: Cache, *, largest: int, longest_prompt: int
    ) -> None:
        self.decoder = decoder
        self.cache = cache
        self.largest = largest
        self.longest_prompt = longest_prompt
        self.steps: dict[tuple[int, int, int], _Captured] = {}

    def frame(self, running: int) -> Frame:
        """What the layout of `running` rows is filled up to."""
        return Frame(
            rows=frame_rows(running, self.cache.rows),
            groups=self.cache.groups,
            largest=self.largest,
            longest_prompt=self.longest_prompt,
            spare=self.cache.rows,
        )

    def states(self, layout: Layout, ids: Tensor, own: Tensor) -> Tensor:
        """Hidden states [n, D] of the n rows of `ids` and `own`, which may be fewer than framed."""
        # What a graph reads and that is made anew when it grows: own parts, rotary tables.
        grown = (self.cache.own[0].shape[-2], self.decoder.reserved)
        key = (layout.rows.shape[0], *grown)
        step = self.steps.get(key)
        if step is None:
            self.steps = {each: kept for each, kept in self.steps.items() if each[1:] == grown}
            step = self.steps[key] = self._made(layout)
        _copy_layout(step.layout, layout)
        step.ids[: ids.shape[0]] = ids
        step.own.zero_()
        step.own[: own.shape[0]] = own
        if step.graph is not None:
            step.graph.replay()
        else:
            step.states = self._run(step)
        self.decoder.experts = step.experts
        assert step.states is not None
        return step.states[: ids.shape[0]]

    def _made(self, layout: Layout) -> _Captured:
        rows = layout.rows
        step = _Captured(_cloned(layout), torch.zeros_like(rows), torch.zeros_like(rows))
        if rows.device.type == "cuda":
            self._capture(step)
        return step

    def _run(self, step: _Captured) -> Tensor:
        attend = Decode(self.cache, step.layout, step.own)
        states = self.decoder.run(step.ids, step.layout.prompts + step.own, attend)
        step.experts = self.decoder.experts
        return states

    def _capture(self, step: _Captured) -> None:
        """Every row writes to the spare one meanwhile, so nothing of the cache is touched."""
        wanted = step.layout.rows.clone()
        step.layout.rows.fill_(self.cache.rows)
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                self._run(step)
        torch.cuda.current_stream().wait_stream(stream)
        step.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(step.graph):
            step.states = self._run(step)
        step.layout.rows.copy_(wanted)


def _cloned(layout: Layout) -> Layout:
    assert layout.members is not None
    assert layout.place is not None
    return Layout(
        rows=layout.rows.clone(),
        prompts=layout.prompts.clone(),
        num_groups=layout.num_groups,
        largest=layout.largest,
        longest_prompt=layout.longest_prompt,
        members=layout.members.clone(),
        place=layout.place.clone(),
    )


def _copy_layout(target: Layout, source: Layout) -> None:
    for name in ("rows", "prompts", "members", "place"):
        getattr(target, name).copy_(getattr(source, name))
