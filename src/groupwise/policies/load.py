"""Loads a `Policy` by name: a built-in model, a folder, or a hub id, through transformers.

`describe_model` collects everything that is known before weights load. Code that comes with a model
runs only if asked for. A folder with an adapter names its base model.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from groupwise.errors import RecipeError
from groupwise.policies.adapter_config import (
    AdapterInfo,
    count_adapter,
    lora_config,
    read_config,
)
from groupwise.policies.adapters import attach, has_adapter, load_weights, merged_copy
from groupwise.policies.heads import text_config
from groupwise.policies.policy import Policy
from groupwise.policies.quiet import quiet_transformers
from groupwise.policies.routing import router_modules
from groupwise.policies.settings import AdapterSettings, DType
from groupwise.policies.source import (
    adapter_folder,
    base_of,
    cannot_load,
    first_line,
    source_of,
)
from groupwise.templates import Template
from groupwise.verifiers.core.names import validated

logger = logging.getLogger("groupwise")

# Under this many parameters a forward pass is overhead, and bfloat16 only adds casts.
_SMALL = 10_000_000


@dataclass(frozen=True)
class ModelInfo:
    """What is known of a model without its weights.

    `source` is the folder or hub id that transformers loads; `config` its configuration object.
    `num_parameters` are those of the model without an adapter; `num_routers` choose among experts.
    """

    name: str
    source: str
    config: Any
    template: Template
    max_length: int
    num_parameters: int
    adapter: AdapterInfo | None = None
    num_routers: int = 0


def describe_model(
    name: str,
    *,
    trust_remote_code: bool = False,
    adapter: AdapterSettings | None = None,
    classifier: bool = False,
) -> ModelInfo:
    """Everything about a model except its weights; built-in models are built or fetched first.

    With `classifier` it may be a reward model as well. Raises RecipeError: no such folder, an
    unreachable hub, no tokenizer, not a causal language model, an adapter that does not fit;
    GroupwiseError where a built-in model cannot be fetched.
    """
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig, AutoModelForCausalLM

    found = adapter_folder(name)
    source = source_of(name) if found is None else base_of(found)
    with quiet_transformers():
        try:
            config = AutoConfig.from_pretrained(source, trust_remote_code=trust_remote_code)
        except (OSError, ValueError) as error:
            raise RecipeError(cannot_load(name, source, error)) from error
        except StrictDataclassError as error:
            reason = str(error).strip().splitlines()[-1].strip()
            raise RecipeError(
                f"model.name = {name!r}: cannot be loaded (config.json: {reason})"
            ) from error
        if is_classifier(config) and not classifier:
            raise RecipeError(
                f"model.name = {name!r} is a reward model ({', '.join(config.architectures)}), and "
                "a language model is needed: name one, such as what it was trained from"
            )
        own_text = found is not None and (found / "tokenizer.json").is_file()
        template = Template.from_folder(found if own_text and found else _text_folder(source))
        _give_response_parser(name, template)
        try:
            with torch.device("meta"):
                skeleton = AutoModelForCausalLM.from_config(
                    config, trust_remote_code=trust_remote_code
                )
        except (ValueError, OSError) as error:
            raise RecipeError(
                f"model.name = {name!r}: not a causal language model that transformers knows "
                f"({first_line(error)})"
            ) from error
    parameters = sum(parameter.numel() for parameter in skeleton.parameters())
    rows = int(text_config(skeleton).vocab_size)
    if template.vocab_size > rows:
        raise RecipeError(
            f"model.name = {name!r}: its tokenizer has {template.vocab_size} tokens and its "
            f"embedding {rows} rows; give a model with the tokenizer it was made for"
        )
    longest = _max_length(skeleton)
    made = _describe_adapter(skeleton, source, found, adapter)
    routers = len(router_modules(skeleton))
    return ModelInfo(name, source, config, template, longest, parameters, made, routers)


def _describe_adapter(
    skeleton: Any, source: str, found: Path | None, adapter: AdapterSettings | None
) -> AdapterInfo | None:
    """The adapter that trains: the requested one, else the one in the folder."""
    if adapter is not None:
        config = lora_config(adapter, skeleton, source if found is None else None)
        return AdapterInfo(config, None, found, count_adapter(skeleton, config, None))
    if found is not None:
        config = read_config(found)
        config.base_model_name_or_path = source
        return AdapterInfo(config, found, None, count_adapter(skeleton, config, found))
    return None


def is_classifier(config: Any) -> bool:
    """Whether a model's config is that of a classifier, as reward models are."""
    return any("Classification" in kind for kind in getattr(config, "architectures", None) or ())


def load_policy(
    name: str,
    *,
    dtype: DType = "auto",
    device: str = "auto",
    trust_remote_code: bool = False,
    gradient_checkpointing: bool = False,
    adapter: AdapterSettings | Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Policy:
    """A policy by name: `tiny`, `smollm2-135m`, a model folder, an adapter's folder, or a hub id.

    Parameters are float32 whatever `dtype` says (they are the master weights); `dtype` is that of
    the matrix products. Dropout is off until someone calls `train()`.

    `adapter` puts a new LoRA adapter over the model, drawn by `seed`; the adapter alone trains. A
    folder that peft wrote is loaded with its base, and its adapter continues training; if `adapter`
    is also given, the folder's adapter is merged into the base first.

    Raises RecipeError and GroupwiseError as `describe_model` does.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    settings = _adapter_settings(adapter)
    check_base(name, settings, device)
    info = describe_model(name, trust_remote_code=trust_remote_code, adapter=settings)
    chosen_device = choose_device(device)
    chosen_dtype = choose_dtype(dtype, chosen_device, info.num_parameters)
    with quiet_transformers():
        try:
            model, found = AutoModelForCausalLM.from_pretrained(
                info.source,
                dtype=torch.float32,
                use_safetensors=True,  # the older format is a pickle
                trust_remote_code=trust_remote_code,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                **_in_4_bits(settings, chosen_device, chosen_dtype),
            )
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise RecipeError(cannot_load(name, info.source, error)) from error
    _check_weights(name, found)
    model = _with_adapter(model, info.adapter, seed)
    model.to(chosen_device)
    model.eval()
    if gradient_checkpointing:
        checkpoint_activations(model)
    policy = Policy(
        name=name,
        model=model,
        template=info.template,
        device=chosen_device,
        dtype=chosen_dtype,
        max_length=info.max_length,
    )
    if policy.absent_ids is not None:
        logger.info(
            "%s: %d ids of its vocabulary have no token in its tokenizer; they are never sampled",
            name,
            len(policy.absent_ids),
        )
    return policy


def check_base(name: str, adapter: AdapterSettings | None, device: str) -> None:
    """Whether a base in 4 bits can be had here. Raises RecipeError."""
    if adapter is None or adapter.base == "whole":
        return
    missing = [each for each in ("bitsandbytes", "accelerate") if find_spec(each) is None]
    problem, chosen = None, choose_device(device).type
    if chosen != "cuda":
        problem = (
            f"4 bits are for CUDA alone, and model.device = {device!r} means {chosen} here; "
            "train on a GPU"
        )
    elif missing:
        problem = f"{' and '.join(missing)} cannot be imported; install groupwise[qlora]"
    elif adapter_folder(name) is not None:
        problem = f"model.name = {name!r} is an adapter, and would be merged first; name its base"
    if problem is not None:
        raise RecipeError(f'model.adapter.base = "nf4": {problem}, or set base = "whole"')


def _in_4_bits(
    adapter: AdapterSettings | None, device: torch.device, dtype: torch.dtype
) -> dict[str, Any]:
    """What transformers needs to load linear layers in 4 bits, onto the device at once."""
    if adapter is None or adapter.base == "whole":
        return {}
    from transformers import BitsAndBytesConfig

    config = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )
    return {"quantization_config": config, "device_map": {"": device}}


def _adapter_settings(
    adapter: AdapterSettings | Mapping[str, Any] | None,
) -> AdapterSettings | None:
    if adapter is None or isinstance(adapter, AdapterSettings):
        return adapter
    return validated(AdapterSettings, adapter, "adapter")


def _with_adapter(model: Any, adapter: AdapterInfo | None, seed: int) -> Any:
    if has_adapter(model):  # transformers follows an adapter_config.json that a hub id holds
        raise RecipeError(
            "model.name: this hub id holds both an adapter and a model; download it and give the "
            "folder to continue training its adapter"
        )
    if adapter is None:
        return model
    if adapter.merged is not None:
        attach(model, read_config(adapter.merged))
        load_weights(model, adapter.merged)
        model = merged_copy(model)
    attach(model, adapter.config, seed=seed)
    if adapter.folder is not None:
        load_weights(model, adapter.folder)
    return model


def _check_weights(name: str, found: Mapping[str, Any]) -> None:
    """Refuses mismatched or missing weights, which transformers would initialise at random."""
    for key, shape, wanted in sorted(found["mismatched_keys"]):
        raise RecipeError(
            f"model.name = {name!r}: cannot be loaded ({key} has the shape {tuple(shape)} and "
            f"config.json makes it {tuple(wanted)}); give the config.json saved with the weights"
        )
    missing = sorted(found["missing_keys"])
    if missing:
        raise RecipeError(
            f"model.name = {name!r}: cannot be loaded ({len(missing)} weights are missing, the "
            f"first is {missing[0]}); give the config.json saved with the weights"
        )


def checkpoint_activations(model: Any) -> None:
    """Recompute every decoder layer in the backward pass. Raises RecipeError where it cannot.

    transformers checkpoints a layer in training mode only, so a dropout that a layer applies by
    itself would come back with it: its rate is set to 0.
    """
    enable = getattr(model, "activation_checkpointing_enable", None)
    try:
        (enable or model.gradient_checkpointing_enable)({"use_reentrant": False})
    except ValueError as error:
        raise RecipeError(
            f"model.gradient_checkpointing = true: {first_line(error)} Give false"
        ) from error
    for module in model.modules():
        if getattr(module, "gradient_checkpointing", False):
            for name, value in vars(module).items():
                if "dropout" in name and isinstance(value, float):
                    setattr(module, name, 0.0)


def choose_device(device: str) -> torch.device:
    """`auto`: cuda, else mps, else cpu. Raises RecipeError for a device that is not there."""
    if device == "auto":
        if torch.cuda.is_available():
            return _own_gpu()
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = _own_gpu() if device == "cuda" else torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise RecipeError(
            f"model.device = {device!r}: not available here ({first_line(error).split('. ')[0]}); "
            "give 'auto' or 'cpu'"
        ) from error
    return chosen


def _own_gpu() -> torch.device:
    """By its number in one of several processes: their threads would take the first GPU."""
    several = "LOCAL_RANK" in os.environ
    return torch.device("cuda", torch.cuda.current_device()) if several else torch.device("cuda")


def choose_dtype(dtype: DType, device: torch.device, num_parameters: int) -> torch.dtype:
    """`auto`: bfloat16 where the device is fast in it and the model large enough, else float32."""
    if dtype != "auto":
        return torch.bfloat16 if dtype == "bfloat16" else torch.float32
    if num_parameters < _SMALL:
        return torch.float32
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    if device.type == "cpu" and _cpu_is_fast_in_bfloat16():
        return torch.bfloat16
    return torch.float32


def _cpu_is_fast_in_bfloat16() -> bool:
    """True for the x86 instruction sets that multiply bfloat16 in hardware."""
    for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"):
        check = getattr(torch.cpu, name, None)
        if callable(check) and check():
            return True
    return False


def _give_response_parser(name: str, template: Template) -> None:
    """transformers' parser of the model's own response template, where its folder has one."""
    if template.response_template is None:
        return
    from transformers.utils.chat_parsing import parse_response
    from transformers.utils.chat_parsing.response_templates import load_response_template

    try:
        spec = load_response_template(template.response_template)
    except (ValueError, TypeError, KeyError) as error:
        raise RecipeError(
            f"model.name = {name!r}: response_template in tokenizer_config.json: {error}"
        ) from error
    # The parser reads what the generation prompt has opened, as an opening <think>.
    prefix = (
        ""
        if template.chat_template is None
        else template.render([{"role": "user", "content": "x"}])
    )

    def parse(text: str, tools: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        return parse_response(text, spec, prefix=prefix, tools=list(tools))  # type: ignore[no-any-return]

    template.response_parser = parse


def _text_folder(source: str) -> Path:
    """The folder with a model's tokenizer and chat template: its own, or the hub's snapshot."""
    if Path(source).is_dir():
        return Path(source)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(source, allow_patterns=["*.json", "*.jinja"]))


def _max_length(model: Any) -> int:
    """Positions that a row may have, so that its values are its own.

    Behind the original length, `longrope` rotates every row of a batch by frequencies that follow
    from the batch's longest one: a row's values would depend on its neighbours.
    """
    config = text_config(model)
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
    stated = [getattr(config, name, None) for name in names]
    lengths = [next((n for n in stated if isinstance(n, int) and n > 0), 1 << 20)]
    ropes = getattr(config, "rope_parameters", None) or {}
    for each in (ropes, *(each for each in ropes.values() if isinstance(each, Mapping))):
        if each.get("rope_type") == "longrope":
            name = "original_max_position_embeddings"
            lengths.append(each.get(name) or getattr(config, name, 0) or lengths[0])
    return min(lengths)
