"""How fast this machine is, measured in a fraction of a second: what a plan's time is made from."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

_REPEATS = 5


@dataclass(frozen=True, slots=True)
class Speed:
    """Operations a second of a matrix product, bytes a second from memory, seconds of a small call
    (an addition of 64 numbers)."""

    flops: float
    bandwidth: float
    call: float


def measure_speed(device: torch.device, dtype: torch.dtype) -> Speed:
    """The best of five of each, on the threads that torch uses now, in at most 0.5 GB."""
    size = 384 if device.type == "cpu" else 4096
    a = torch.ones(size, size, device=device, dtype=dtype)
    large = torch.ones(2**23 if device.type == "cpu" else 2**26, device=device)
    small = torch.ones(64, device=device)
    product = _best(lambda: a @ a, device)
    summed = _best(lambda: large.sum(), device)
    call = _best(lambda: [small + 1.0 for _ in range(100)], device) / 100
    return Speed(2 * size**3 / product, large.numel() * 4 / summed, call)


def _best(what: Callable[[], object], device: torch.device) -> float:
    seconds = []
    with torch.inference_mode():
        for _ in range(_REPEATS):
            _wait(device)
            begun = time.perf_counter()
            what()
            _wait(device)
            seconds.append(time.perf_counter() - begun)
    return min(seconds)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
