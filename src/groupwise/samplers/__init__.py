"""Prompts to completions. One contract (`Sampler`), one sampling rule, several engines.

`make_sampler` builds one by name; `sample` is the one-call form. torch loads on first use of a
name, not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupwise.lazy import lazy_names

if TYPE_CHECKING:
    from groupwise.samplers.contract import Sampler as Sampler
    from groupwise.samplers.local.sampler import LocalSampler as LocalSampler
    from groupwise.samplers.make import make_sampler as make_sampler
    from groupwise.samplers.make import sample as sample
    from groupwise.samplers.make import sampler_of as sampler_of
    from groupwise.samplers.scripted import ScriptedSampler as ScriptedSampler
    from groupwise.samplers.settings import SamplingSettings as SamplingSettings
    from groupwise.samplers.transformers_sampler import TransformersSampler as TransformersSampler

__getattr__, __all__ = lazy_names(__name__, __file__)
