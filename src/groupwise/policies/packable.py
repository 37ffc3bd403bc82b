"""Finds out whether a model can run packed rows, by one pass over a few tokens."""

from __future__ import annotations

import logging
import weakref
from typing import Any

import torch
from torch import nn

from groupwise.policies.attention import (
    PackingError,
    Pass,
    implementation,
    run,
    running,
)
from groupwise.policies.packing import pack
from groupwise.policies.policy import evaluating

logger = logging.getLogger("groupwise")

_REASONS: weakref.WeakKeyDictionary[nn.Module, str | None] = weakref.WeakKeyDictionary()
_PROBE_PROMPTS = ((0, 1, 2), (0, 1, 2), (3, 4))
_PROBE_COMPLETIONS = ((5, 6, 7, 8), (9,), (10, 11, 12))


def packable(decoder: nn.Module) -> bool:
    """Whether a packed pass reproduces the decoder's hidden states; tested once per decoder.

    If not, the reason is logged and the model trains on padded rows.
    """
    if decoder not in _REASONS:
        reason = _REASONS[decoder] = _why_not(decoder)
        if reason is not None:
            logger.info("%s trains on padded rows: %s", type(decoder).__name__, reason)
    return _REASONS[decoder] is None


# What a model without position ids, or with another attention interface, raises.
_FOREIGN = (PackingError, TypeError, ValueError, LookupError, AttributeError, RuntimeError)


def _why_not(decoder: nn.Module) -> str | None:
    try:
        return _difference(decoder)
    except _FOREIGN as error:
        return f"a packed pass is not possible ({type(error).__name__}: {str(error)[:100]})"


@torch.no_grad()
def _difference(decoder: Any) -> str | None:
    """Compares a packed pass with one row at a time; None where they agree."""
    device = next(decoder.parameters()).device
    vocabulary = int(decoder.get_input_embeddings().weight.shape[0])
    prompts, completions = (
        [[(7919 * (each + 1)) % vocabulary for each in ids] for ids in rows]
        for rows in (_PROBE_PROMPTS, _PROBE_COMPLETIONS)
    )
    layout = pack(prompts, completions, device)
    current = Pass(layout)
    with evaluating(decoder):
        with running(decoder, current):
            packed_states = run(decoder, layout)
        with implementation(decoder, "eager"):
            expected = torch.cat(
                [
                    decoder(
                        input_ids=torch.tensor([[*prompt, *completion]], device=device),
                        use_cache=False,
                    ).last_hidden_state[0, len(prompt) - 1 : -1]
                    for prompt, completion in zip(prompts, completions)
                ]
            )
    wanted = _expected_windows(decoder.config)
    if wanted is None or current.windows != wanted:
        return "its layers use an unsupported kind of attention"
    error = float((packed_states - expected).abs().max())
    if error > 1e-3 * float(expected.abs().max()) + 1e-6:
        return "a packed pass gives different hidden states"
    return None


def _expected_windows(config: Any) -> dict[int, int | None] | None:
    """The sliding window of every layer by its configuration; None for another kind of attention.

    A model that masks by a window and does not tell its attention so would be wrong only on rows
    longer than the probe's. Masks follow `layer_types` if set, even against
    `use_sliding_window`, which some attention modules read instead.
    """
    layers = int(config.num_hidden_layers)
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if not kinds:
        slides = window is not None and getattr(config, "use_sliding_window", True)
        kinds = ["sliding_attention" if slides else "full_attention"] * layers
    if not set(kinds) <= {"full_attention", "sliding_attention"}:
        return None
    return {
        layer: window if kind == "sliding_attention" else None for layer, kind in enumerate(kinds)
    }
