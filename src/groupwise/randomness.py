"""Noise as a function of a key, never of a state that is carried along.

A stream is named by (run seed, purpose, anything that identifies it: prompt id, visit, index in the
group, turn). Position t of a stream is one mixing of (key, t), so a resumed, re-batched or
distributed run draws the same noise and two visits never draw the same. numpy only, no torch.
"""

from __future__ import annotations

import hashlib
import random
from typing import Literal

import numpy as np

Purpose = Literal["training", "evaluation", "probe", "order", "data", "init"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)


def stream_key(seed: int, purpose: Purpose, *parts: str | int) -> int:
    """A 64-bit key for one stream. Parts are length-prefixed, so no two lists of parts collide.

    >>> stream_key(0, "training", "p", 0, 1) == stream_key(0, "training", "p", 0, 1)
    True
    >>> stream_key(0, "training", "p", 0, 1) == stream_key(0, "evaluation", "p", 0, 1)
    False
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in (seed, purpose, *parts):
        raw = f"{type(part).__name__}:{part}".encode()
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return int.from_bytes(digest.digest(), "little")


def uniforms(keys: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """One float32 in [0, 1) for each pair of a key (uint64 [N]) and a position (int64 [N]).

    SplitMix64 (Steele, Lea and Flood 2014) of key + (position + 1) * golden, then its finaliser
    once more so that neighbouring keys do not share low-order structure; the top 24 bits.
    """
    with np.errstate(over="ignore"):
        z = keys.astype(np.uint64) + (positions.astype(np.uint64) + np.uint64(1)) * _GOLDEN
        for _ in range(2):
            z = (z ^ (z >> np.uint64(30))) * _MIX1
            z = (z ^ (z >> np.uint64(27))) * _MIX2
            z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(40)).astype(np.float64) * 2.0**-24).astype(np.float32)


def generator(seed: int, purpose: Purpose, *parts: str | int) -> random.Random:
    """A `random.Random` for one stream: shuffles, data generators."""
    return random.Random(stream_key(seed, purpose, *parts))
