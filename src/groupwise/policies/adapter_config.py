"""Turns adapter settings, or an adapter's folder, into peft's configuration before weights load.

Every layer name is checked against the model's structure.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torch import nn

from groupwise.errors import RecipeError
from groupwise.policies.adapters import adapter_parameters, attach, linear_layers
from groupwise.policies.heads import causal_lm, text_config
from groupwise.policies.settings import AdapterSettings
from groupwise.policies.source import ADAPTER_CONFIG
from groupwise.texts import from_json

_VARIANTS = (
    "modules_to_save",
    "use_dora",
    "lora_bias",
    "target_parameters",
    "trainable_token_indices",
    "layer_replication",
)


@dataclass(frozen=True)
class AdapterInfo:
    """An adapter before weights load.

    `config` is peft's; `folder` holds its weights, None = drawn anew; `merged` is the folder of
    another adapter that becomes part of the frozen weights first; `parameters` counts what trains.
    """

    config: Any
    folder: Path | None
    merged: Path | None
    parameters: int


def lora_config(settings: AdapterSettings, model: nn.Module, base: str | None) -> Any:
    """peft's configuration for `settings` on `model`, whose weights may be on the meta device.

    `base` is where the frozen weights can be loaded from, or None.
    Raises RecipeError for a name that the model does not have, with the nearest ones.
    """
    from peft import LoraConfig
    from transformers.pytorch_utils import Conv1D

    linear = linear_layers(model)
    head = _head_name(model)
    if settings.target_modules == "all-linear":
        wanted = [name for name in linear if name != head]
        targets = _shortest(wanted, [name for name, _ in model.named_modules()])
    else:
        targets = list(settings.target_modules)
        _check_names(targets, linear)
        wanted = [name for name in linear if _matches(name, targets)]
    if head in wanted and getattr(text_config(model), "tie_word_embeddings", False):
        raise RecipeError(
            f"model.adapter.target_modules names {head!r}, but this model's output layer and "
            "embedding are one tensor; leave it out"
        )
    return LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=targets,
        fan_in_fan_out=any(isinstance(linear[name], Conv1D) for name in wanted),
        base_model_name_or_path=base,
        task_type="CAUSAL_LM",
    )


def read_config(folder: Path) -> Any:
    """Reads the configuration in an adapter's folder. Raises RecipeError unless it is plain LoRA:
    merge, sampler and export would drop anything else."""
    from peft import LoraConfig

    file = folder / ADAPTER_CONFIG
    try:
        kind = from_json(file.read_text(encoding="utf-8")).get("peft_type")
        config = LoraConfig.from_pretrained(str(folder)) if kind == "LORA" else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise RecipeError(f"{file} cannot be read ({type(error).__name__}: {error})") from error
    beyond = [f"the type {kind}"] if config is None else _beyond_lora(config)
    if config is None or beyond:
        raise RecipeError(
            f"the adapter in {str(folder)!r} has {', '.join(beyond)}; plain LoRA on linear layers "
            "is supported"
        )
    config.inference_mode, config.init_lora_weights = False, True
    return config


def _beyond_lora(config: Any) -> list[str]:
    """Fields that make it another computation than W + s B A over the base's own W."""
    variants = {f.name for f in fields(config) if f.metadata.get("is_lora_variant")}
    found = [name for name in sorted(variants | set(_VARIANTS)) if getattr(config, name, None)]
    changes_base = config.init_lora_weights not in (True, False, "gaussian", "orthogonal", "eva")
    found += ["init_lora_weights"] if changes_base else []
    return found + (["bias"] if config.bias != "none" else [])


def count_adapter(model: nn.Module, config: Any, folder: Path | None) -> int:
    """Counts what trains with this adapter, by adding it to `model` (on the meta device).

    Raises RecipeError where the adapter does not fit the model.
    """
    where = "model.adapter" if folder is None else f"the adapter in {str(folder)!r}"
    attach(model, config, where=where, draw=False)
    return sum(parameter.numel() for parameter in adapter_parameters(model).values())


def _check_names(names: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in names:
        if any(_matches(each, [name]) for each in known):
            continue
        ends = sorted({each.rsplit(".", 1)[-1] for each in known if each})
        near = difflib.get_close_matches(name.rsplit(".", 1)[-1], ends, n=3, cutoff=0.4)
        raise RecipeError(
            f"model.adapter.target_modules: the model has no linear layer {name!r}; "
            + (f"nearest: {', '.join(near)}" if near else f"there are {', '.join(ends[:12])}")
        )


def _matches(name: str, ends: Iterable[str]) -> bool:
    return any(name == end or name.endswith(f".{end}") for end in ends)


def _shortest(wanted: list[str], every: list[str]) -> list[str]:
    """Last parts of names where these mean no other module, else the whole names."""
    ends = sorted({name.rsplit(".", 1)[-1] for name in wanted})
    return ends if {name for name in every if _matches(name, ends)} == set(wanted) else wanted


def _head_name(model: nn.Module) -> str | None:
    head = causal_lm(model).get_output_embeddings()
    return next((name for name, module in model.named_modules() if module is head), None)
