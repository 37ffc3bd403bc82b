"""Adds LoRA adapters to a model, reads, merges and saves them. A layer computes with W + s B A.

peft's layers replace linear layers in place; the model keeps its class and all other names. W and
all other weights are frozen and shared; A and B are float32 and train.
"""

from __future__ import annotations

import copy
import hashlib
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from groupwise.errors import GroupwiseError, RecipeError
from groupwise.policies.heads import causal_lm
from groupwise.randomness import stream_key

ADAPTER_WEIGHTS = "adapter_model.safetensors"
_NAME = "default"  # peft's own name for a model's only adapter
_PREFIX = "base_model.model."  # what peft's files put before the names in the model
_OWN = ".lora_"


# --- into a model ---------------------------------------------------------------------------------


def attach(
    model: nn.Module, config: Any, *, seed: int = 0, where: str = "model.adapter", draw: bool = True
) -> None:
    """Put a new adapter into `model`, in place, and freeze everything else.

    A is drawn from a stream keyed by the seed; `draw` False leaves A and B on
    the meta device. Raises RecipeError where peft refuses.
    """
    from peft import inject_adapter_in_model

    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            # Each one is an error here or does not apply: names are checked above.
            warnings.simplefilter("ignore")
            torch.manual_seed(stream_key(seed, "init", "adapter") % 2**63)
            inject_adapter_in_model(copy.deepcopy(config), model, _NAME, low_cpu_mem_usage=not draw)
    except (ValueError, TypeError, RuntimeError) as error:
        raise RecipeError(f"{where} does not fit the model: {error}") from error
    _freeze(model)


def load_weights(model: nn.Module, folder: Path) -> None:
    """Read an adapter's weights into the one that is in `model`. Raises RecipeError where names or
    shapes differ: an ignored name would silently leave that layer untrained."""
    from peft import set_peft_model_state_dict
    from peft.utils.save_and_load import load_peft_weights
    from safetensors import SafetensorError

    if not (folder / ADAPTER_WEIGHTS).is_file():  # peft would read the older format, a pickle
        raise RecipeError(f"the adapter in {str(folder)!r} cannot be loaded: no {ADAPTER_WEIGHTS}")
    try:
        found = load_peft_weights(str(folder), device="cpu")
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise RecipeError(f"the adapter in {str(folder)!r} cannot be loaded ({error})") from error
    tensors = {name.removeprefix(_PREFIX): tensor for name, tensor in found.items()}
    wanted = adapter_tensors(model)
    for names, what in ((wanted.keys() - tensors, "lacks"), (tensors.keys() - wanted, "also has")):
        if names:
            raise RecipeError(
                f"the adapter in {str(folder)!r} does not fit its configuration: it {what} "
                f"{len(names)} tensors, the first is {min(names)}"
            )
    for name, tensor in tensors.items():
        if tensor.shape != wanted[name].shape:
            raise RecipeError(
                f"the adapter in {str(folder)!r} does not fit its base: {name} has the shape "
                f"{tuple(tensor.shape)}, the model makes it {tuple(wanted[name].shape)}"
            )
    set_peft_model_state_dict(model, tensors, _NAME)
    _freeze(model)


def _freeze(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        own = _OWN in name
        parameter.requires_grad_(own)
        if own and not parameter.is_meta:
            parameter.data = parameter.data.float()


# --- out of a model -------------------------------------------------------------------------------


def has_adapter(model: nn.Module) -> bool:
    """Whether an adapter is in the model."""
    return bool(getattr(causal_lm(model), "peft_config", None))


def adapter_config(model: nn.Module) -> Any:
    """peft's configuration of the adapter in the model."""
    return causal_lm(model).peft_config[_NAME]


def adapter_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """What trains, by its name in the model."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def adapter_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The adapter by peft's names, without what its files put before them."""
    from peft import get_peft_model_state_dict

    found = get_peft_model_state_dict(causal_lm(model), save_embedding_layers=False)
    return dict(found)


def base_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The frozen weights under the model's own names, as they are without an adapter."""
    return {
        name.replace(".base_layer", ""): tensor
        for name, tensor in causal_lm(model).state_dict().items()
        if _OWN not in name
    }


def weights_hash(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, types, shapes and bytes, as hex; the order of the names does not count."""

    def digest(item: tuple[str, Tensor]) -> bytes:
        name, tensor = item
        flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        made = hashlib.sha256(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        made.update(flat.numpy().data)
        return made.digest()

    with ThreadPoolExecutor(8) as pool:  # hashing lets other threads run
        parts = list(pool.map(digest, sorted(tensors.items())))
    return hashlib.sha256(b"".join(parts)).hexdigest()


def base_identity(model: nn.Module) -> dict[str, str | None]:
    """Identifies the frozen weights, which checkpoints do not store: `name` and `hash`."""
    name = adapter_config(model).base_model_name_or_path
    return {"name": name, "hash": weights_hash(base_tensors(model))}


def linear_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Every linear layer (nn.Linear, Conv1D, or peft's LoRA around one) by its name in the plain
    model; with `effective_weight` and `effective_bias` a sampler needs no more."""
    from transformers.pytorch_utils import Conv1D

    return {
        name.replace(".base_layer", ""): module
        for name, module in causal_lm(model).named_modules()
        if (isinstance(module, nn.Linear | Conv1D) and not _inside_lora(name)) or _is_lora(module)
    }


def effective_weight(module: nn.Module) -> Tensor:
    """The weight that a linear layer computes with, float32, no gradient.

    W + s B A for peft's LoRA around it (A [r, in], B [out, r], s = alpha / r). Laid out as the
    plain layer's: [out, in], Conv1D [in, out]. Without an adapter it is the weight itself.
    """
    with torch.no_grad():
        return _effective(module, torch.float32)


def effective_bias(module: nn.Module) -> Tensor | None:
    """The bias that goes with `effective_weight`, or None. LoRA does not change it."""
    bias = getattr(getattr(module, "base_layer", module), "bias", None)
    return None if bias is None else bias.detach().float()


def _effective(module: Any, dtype: torch.dtype) -> Tensor:
    weight = _stored(getattr(module, "base_layer", module)).to(dtype)
    if not _is_lora(module) or module.disable_adapters or module.merged:
        return weight
    for name in module.active_adapters:
        if name in module.lora_A:
            a, b = (getattr(module, each)[name].weight.to(dtype) for each in ("lora_A", "lora_B"))
            left, right = (a.T, b.T) if module.fan_in_fan_out else (b, a)
            weight = torch.addmm(weight, left, right, alpha=module.scaling[name])
    return weight


def in_4_bits(module: nn.Module) -> bool:
    """Whether bitsandbytes holds this layer's weight."""
    return hasattr(getattr(module, "weight", None), "quant_state")


def _stored(layer: Any) -> Tensor:
    """The layer's own weight, as it computes with it."""
    weight: Tensor = layer.weight.detach()
    if in_4_bits(layer):
        from bitsandbytes.functional import dequantize_4bit

        weight = dequantize_4bit(layer.weight.data, layer.weight.quant_state)
    return weight


def _is_lora(module: nn.Module) -> bool:
    return hasattr(module, "base_layer") and hasattr(module, "lora_A")


def _inside_lora(name: str) -> bool:
    return _OWN in name or name.endswith(".base_layer")


# --- copies and files -----------------------------------------------------------------------------


def copy_trained(model: nn.Module) -> nn.Module:
    """A second model with its own copy of what trains; what is frozen is the same tensors."""
    shared: dict[int, Any] = {id(p): p for p in model.parameters() if not p.requires_grad}
    return copy.deepcopy(model, shared)


def merged_copy(model: nn.Module) -> nn.Module:
    """The plain model with W + s B A (in float64, then rounded to float32) in W's place.

    `model` is left as it is, bit for bit; what the adapter does not touch is the same tensors,
    or what 4 bits stand for as float32.
    """
    lm = causal_lm(model)
    plain: nn.Module = copy.deepcopy(lm, {id(p): p for p in lm.parameters()})
    for name, module in list(plain.named_modules()):
        if not _is_lora(module) and (_inside_lora(name) or not in_4_bits(module)):
            continue
        owner, _, last = name.rpartition(".")
        inner: Any = getattr(module, "base_layer", module)
        with torch.no_grad():
            weight = nn.Parameter(_effective(module, torch.float64).float())
            if in_4_bits(inner):
                with torch.device("meta"):
                    made = nn.Linear(inner.in_features, inner.out_features, bias=False)
                inner, made.bias = made, inner.bias
            inner.weight = weight
        setattr(plain.get_submodule(owner), last, inner)
    vars(plain).pop("peft_config", None)
    if getattr(plain, "is_quantized", False):
        forget_quantisation(plain)
    return plain


def forget_quantisation(model: Any) -> None:
    """Make a model whose weights were dequantised an ordinary one that can be saved."""
    for name in ("hf_quantizer", "quantization_method"):
        if hasattr(model, name):
            setattr(model, name, None)
    model.is_quantized = model.is_loaded_in_4bit = False
    if hasattr(model.config, "quantization_config"):
        model.config = copy.deepcopy(model.config)
        del model.config.quantization_config


def save_adapter(model: nn.Module, folder: Path) -> None:
    """Write the adapter in peft's format. Raises GroupwiseError where no folder holds its base."""
    from safetensors.torch import save_file

    config = copy.deepcopy(adapter_config(model))
    if config.base_model_name_or_path is None:
        raise GroupwiseError(
            "this adapter's base is a model with another adapter merged into it, which no folder "
            "holds; export the merged model (--merge)"
        )
    config.inference_mode = True
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        _PREFIX + name: tensor.detach().cpu().contiguous()
        for name, tensor in adapter_tensors(model).items()
    }
    save_file(tensors, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    config.save_pretrained(str(folder))
