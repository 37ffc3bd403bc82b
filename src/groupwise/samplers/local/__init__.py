"""The `local` sampler: the learner's own weights, decoded by code made for groups.

A prompt is prefilled once for all of its completions, rows are refilled as they finish, weights are
packed for the machine's matrix kernels, and a row continues over turns without rerunning its
history. `architecture.py` reads a transformers model as a description (`Decoder`),
`families.py` is the table of those that can be read, `decoder.py` runs it, `cache.py` and
`attention.py` hold and attend keys and values, `schedule.py` decides what runs next.
"""

from __future__ import annotations

from groupwise.samplers.local.sampler import LocalSampler

__all__ = ["LocalSampler"]
