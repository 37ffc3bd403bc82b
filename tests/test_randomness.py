"""Noise is a function of its key."""

from __future__ import annotations

import numpy as np

from groupwise.randomness import generator, stream_key, uniforms


def test_streams_differ_by_every_part_and_are_stable() -> None:
    """Fault 44: group members, visits, steps, seeds and purposes draw apart; equal keys agree."""
    keys = {
        stream_key(seed, purpose, prompt, visit, index, turn)  # type: ignore[arg-type]
        for seed in (0, 1)
        for purpose in ("training", "evaluation")
        for prompt in ("a", "ab", "1")
        for visit in (0, 1)
        for index in range(8)
        for turn in (0, 1)
    }
    assert len(keys) == 2 * 2 * 3 * 2 * 8 * 2
    assert stream_key(0, "training", "a", 0, 0) == 8911107633831806202


def test_parts_cannot_run_into_each_other() -> None:
    assert stream_key(0, "training", "ab", "c") != stream_key(0, "training", "a", "bc")
    assert stream_key(0, "training", 1) != stream_key(0, "training", "1")


def test_uniforms_are_uniform_and_independent_of_their_neighbours() -> None:
    keys = np.array([stream_key(0, "training", str(i)) for i in range(2000)], dtype=np.uint64)
    table = np.stack([uniforms(keys, np.full(len(keys), t)) for t in range(50)])
    assert table.dtype == np.float32
    assert table.min() >= 0.0
    assert table.max() < 1.0
    counts, _ = np.histogram(table, bins=20, range=(0, 1))
    expected = table.size / 20
    assert ((counts - expected) ** 2 / expected).sum() < 45.0  # chi-square, 19 degrees, p ~ 0.001
    correlation = np.corrcoef(table[:-1].ravel(), table[1:].ravel())[0, 1]
    assert abs(correlation) < 0.01
    alone = uniforms(keys[7:8], np.array([13]))
    assert alone[0] == table[13, 7]


def test_generator_is_keyed() -> None:
    assert generator(0, "order", 1).random() == generator(0, "order", 1).random()
    assert generator(0, "order", 1).random() != generator(0, "order", 2).random()
