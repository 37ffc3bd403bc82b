"""Reads from a model's configuration the sizes that decide its memory, without loading weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from groupwise.errors import RecipeError


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder's sizes. `kv_width` is the width of the keys (or values) of one token and layer.

    `matrix_parameters` are those of the layers' matrices and the output layer: what a matrix
    product in low precision needs a copy of.

    >>> SMOLLM2_135M.parameters
    134515008
    """

    parameters: int
    layers: int
    hidden: int
    intermediate: int
    vocabulary: int
    kv_width: int
    tied: bool

    @property
    def matrix_parameters(self) -> int:
        """Parameters without the input embedding, where that is not also the output layer."""
        return self.parameters - (0 if self.tied else self.vocabulary * self.hidden)


def shape_from_config(config: Any, parameters: int | None = None) -> ModelShape:
    """The shape of a model from its configuration (a transformers object, or a mapping).

    `parameters` is the exact count where it is known; else the count of a Llama-type decoder of
    these sizes, which is an estimate for any other kind.

    Raises RecipeError naming a size that the configuration lacks.
    """
    if hasattr(config, "get_text_config"):
        config = config.get_text_config(decoder=True)
    hidden = _size(config, "hidden_size", "n_embd", "d_model")
    heads = _size(config, "num_attention_heads", "n_head", "num_heads")
    head_width = _optional(config, "head_dim") or hidden // heads
    kv_heads = _optional(config, "num_key_value_heads", "num_kv_heads") or heads
    layers = _size(config, "num_hidden_layers", "n_layer", "num_layers")
    intermediate = _optional(config, "intermediate_size", "n_inner", "ffn_dim") or 4 * hidden
    vocabulary = _size(config, "vocab_size")
    tied = bool(_get(config, "tie_word_embeddings"))
    if parameters is None:  # gated MLP, no biases, two norms a layer and one at the end
        attention = 2 * hidden * (heads + kv_heads) * head_width
        layer = attention + 3 * hidden * intermediate + 2 * hidden
        parameters = layers * layer + hidden + vocabulary * hidden * (1 if tied else 2)
    return ModelShape(
        parameters=parameters,
        layers=layers,
        hidden=hidden,
        intermediate=intermediate,
        vocabulary=vocabulary,
        kv_width=kv_heads * head_width,
        tied=tied,
    )


def shape_of_size(parameters: float) -> ModelShape:
    """A decoder of so many parameters in the usual proportions, where only its size is known.

    A layer for every 128 of the width, an MLP of 3.5 widths, an eighth of the heads for keys and
    values, 128,000 tokens.

    >>> made = shape_of_size(70e9)
    >>> made.parameters, made.layers, made.hidden
    (70000000000, 69, 8832)
    """
    if not 1e6 <= parameters <= 1e14:
        raise RecipeError(f"--parameters {parameters:g}: give a count from 1e6 to 1e14, as 70e9")
    layers = max(2, round((parameters / (12.75 * 128**2)) ** (1 / 3)))
    hidden = 128 * layers
    return ModelShape(
        parameters=int(parameters),
        layers=layers,
        hidden=hidden,
        intermediate=7 * hidden // 2,
        vocabulary=128_000 if parameters > 1e9 else 32_000,
        kv_width=hidden // 8,
        tied=parameters < 4e9,
    )


def _get(config: Any, name: str) -> Any:
    return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)


def _optional(config: Any, *names: str) -> int | None:
    for name in names:
        value = _get(config, name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _size(config: Any, *names: str) -> int:
    value = _optional(config, *names)
    if value is None:
        raise RecipeError(
            f"the model's configuration has no {' or '.join(names)}: its memory cannot be planned"
        )
    return value


SMOLLM2_135M = shape_from_config(
    {
        "hidden_size": 576,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "num_hidden_layers": 30,
        "intermediate_size": 1536,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
    }
)
"""SmolLM2-135M: known without fetching it."""
