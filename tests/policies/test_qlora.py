"""A frozen base in 4 bits: what is refused, and what is made of bitsandbytes' weights.

A stub stands for bitsandbytes: 8-bit integers with one scale a layer.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import groupwise as gw
from groupwise.errors import RecipeError
from groupwise.policies import AdapterSettings, load_policy, save_pretrained
from groupwise.policies.adapters import effective_weight, in_4_bits, merged_copy
from groupwise.policies.load import _in_4_bits
from groupwise.samplers.weights import SamplingWeights

ADAPTER = {"rank": 2, "base": "nf4"}
RECIPE: dict[str, Any] = {
    "model": {"name": "tiny", "adapter": ADAPTER},
    "environment": {"name": "arithmetic", "level": "table"},
    "algorithm": {"preset": "grpo"},
    "training": {"steps": 1},
}


def on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.policies.load.choose_device", lambda _: torch.device("cuda"))


def test_the_cpu_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r'adapter\.base = "nf4": 4 bits are for CUDA alone'):
        gw.train(RECIPE, {"model.device": "cpu"}, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(
        RecipeError, match=r"'cpu' means cpu here; train on a GPU, or set base = .whole.$"
    ):
        load_policy("tiny", device="cpu", adapter=ADAPTER)


def test_without_bitsandbytes_or_over_an_adapter_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_pretrained(load_policy("tiny", adapter={"rank": 2}), tmp_path / "adapter")
    on_cuda(monkeypatch)
    monkeypatch.setattr("groupwise.policies.load.find_spec", lambda _: None)
    with pytest.raises(RecipeError, match="bitsandbytes and accelerate cannot be imported"):
        load_policy("tiny", adapter=ADAPTER)
    found = importlib.machinery.ModuleSpec("found", None)
    monkeypatch.setattr("groupwise.policies.load.find_spec", lambda _: found)
    with pytest.raises(RecipeError, match="is an adapter, and would be merged first; name"):
        load_policy(str(folder), adapter=ADAPTER)


def test_several_processes_and_vllm_do_not_take_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RecipeError, match=r"adapter\.base on 2 processes .* are not sharded"):
        gw.train(RECIPE, {"compute.processes": 2}, output=tmp_path / "run")
    monkeypatch.setattr("groupwise.training.preparing.check_base", lambda *_: None)
    with pytest.raises(RecipeError, match=r"base = 'nf4' with sampling\.sampler = 'vllm'"):
        gw.train(
            RECIPE,
            {"sampling.sampler": "vllm", "sampling.vllm": {"servers": ["http://127.0.0.1:1"]}},
            output=tmp_path / "run",
        )


def test_transformers_is_asked_for_nf4_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "0.46.0")
    device = torch.device("cuda", 1)
    assert _in_4_bits(AdapterSettings(), device, torch.bfloat16) == {}
    made = _in_4_bits(AdapterSettings(base="nf4"), device, torch.bfloat16)
    assert made["device_map"] == {"": device}
    config = made["quantization_config"]
    assert (config.load_in_4bit, config.bnb_4bit_quant_type) == (True, "nf4")
    assert config.bnb_4bit_compute_dtype == torch.bfloat16


def test_merge_and_samplers_take_what_4_bits_stand_for(monkeypatch: pytest.MonkeyPatch) -> None:
    functional: Any = ModuleType("bitsandbytes.functional")

    def dequantize_4bit(weight: Tensor, scale: float) -> Tensor:
        return weight.float() * scale

    functional.dequantize_4bit = dequantize_4bit
    monkeypatch.setitem(sys.modules, "bitsandbytes", ModuleType("bitsandbytes"))
    monkeypatch.setitem(sys.modules, "bitsandbytes.functional", functional)
    targets = {"rank": 2, "target_modules": ("q_proj",)}
    held, whole = (
        load_policy("tiny", device="cpu", dtype="bfloat16", adapter=targets) for _ in range(2)
    )
    places = [
        name
        for name, module in whole.model.named_modules()
        if isinstance(module, nn.Linear) and "lora_" not in name and "lm_head" not in name
    ]
    with torch.no_grad():
        for name, other in zip(*(each.model.named_parameters() for each in (held, whole))):
            if "lora_B" in name[0]:
                other[1].copy_(name[1].normal_(std=0.1))
        for place in places:
            one, two = (each.model.get_submodule(place) for each in (held, whole))
            scale = float(two.weight.abs().max()) / 127
            stored = nn.Parameter((two.weight / scale).round().to(torch.int8), requires_grad=False)
            stored.quant_state = scale  # type: ignore[attr-defined]
            one.weight = stored
            one.forward = partial(nn.functional.linear, weight=stored.float() * scale)
            two.weight.copy_(stored.float() * scale)
    layer = "model.layers.0.self_attn.q_proj"
    one, two = (each.model.get_submodule(layer) for each in (held, whole))
    assert torch.equal(effective_weight(one), effective_weight(two))
    merged, wanted = merged_copy(held.model), merged_copy(whole.model)
    assert not any(in_4_bits(module) for module in merged.modules())
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(merged(input_ids=ids).logits, wanted(input_ids=ids).logits)
    assert in_4_bits(held.model.get_submodule(places[0]))  # it was left as it was
    shadow = SamplingWeights(held).model.get_submodule(places[0])
    assert shadow.weight is held.model.get_submodule(places[0]).weight
