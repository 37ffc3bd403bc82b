"""Prompts to completions. One contract (`Sampler`), one sampling rule, several engines.

`make_sampler` builds one by name; `sample` is the one-call form. torch loads on first use of a
name, not here. Left out: environments and verifiers (rollouts.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupwise.samplers.contract import Sampler
    from groupwise.samplers.local.sampler import LocalSampler
    from groupwise.samplers.make import make_sampler, sample
    from groupwise.samplers.scripted import ScriptedSampler
    from groupwise.samplers.settings import SamplingSettings
    from groupwise.samplers.transformers_sampler import TransformersSampler

_HOMES = {
    "Sampler": "contract",
    "SamplingSettings": "settings",
    "make_sampler": "make",
    "sample": "make",
    "LocalSampler": "local.sampler",
    "ScriptedSampler": "scripted",
    "TransformersSampler": "transformers_sampler",
}

__all__ = [
    "Sampler",
    "SamplingSettings",
    "make_sampler",
    "sample",
    "LocalSampler",
    "ScriptedSampler",
    "TransformersSampler",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'groupwise.samplers' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"groupwise.samplers.{_HOMES[name]}"), name)
