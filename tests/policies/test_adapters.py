"""LoRA: what trains, what it computes, and that the weights under it never change."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from groupwise.errors import GroupwiseError, RecipeError
from groupwise.policies import (
    AdapterSettings,
    Policy,
    base_tensors,
    copy_trained,
    describe_model,
    effective_bias,
    effective_weight,
    has_adapter,
    linear_layers,
    load_policy,
    merged_copy,
    save_pretrained,
    score,
    sequence_logprobs,
    weights_hash,
)
from groupwise.policies.adapter_config import lora_config
from groupwise.policies.adapters import adapter_parameters, attach
from groupwise.policies.load import _with_adapter, checkpoint_activations
from groupwise.policies.source import adapter_folder
from model_families import cases, family_policy

SETTINGS = AdapterSettings(rank=4, alpha=6.0)
PROMPT, COMPLETION = (5, 6, 7), (8, 9, 10, 11)


def adapted(family: str = "llama", **settings: Any) -> Policy:
    """A tiny model of a family with an adapter whose B is not 0."""
    policy = family_policy(family)
    chosen = SETTINGS.model_copy(update=settings)
    attach(policy.model, lora_config(chosen, policy.model, None), seed=3)
    move(policy.model)
    return policy


def move(model: nn.Module, seed: int = 0, size: float = 0.1) -> None:
    """Put every trained parameter elsewhere."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in adapter_parameters(model).values():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * size)


@pytest.fixture(scope="module")
def tiny_adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a trained adapter on `tiny`."""
    policy = load_policy("tiny", device="cpu", adapter={"rank": 4}, seed=1)
    move(policy.model)
    return save_pretrained(policy, tmp_path_factory.mktemp("adapters") / "first")


@pytest.mark.parametrize("family", cases())
def test_every_linear_layer_but_the_head_trains_and_the_rest_is_frozen(family: str) -> None:
    plain = family_policy(family)
    before = weights_hash(plain.model.state_dict())
    linear = linear_layers(plain.model)
    policy = adapted(family)
    assert {p.dtype for p in adapter_parameters(policy.model).values()} == {torch.float32}
    assert linear_layers(policy.model).keys() == linear.keys()
    wrapped = {name for name, module in linear_layers(policy.model).items() if hasattr(module, "r")}
    assert wrapped == linear.keys() - {"lm_head"}
    assert weights_hash(base_tensors(policy.model)) == before
    output = sequence_logprobs(policy, [PROMPT], [COMPLETION])
    output.logprobs.sum().backward()
    for name, parameter in policy.model.named_parameters():
        trained = "lora_" in name
        assert parameter.requires_grad == trained, name
        assert (parameter.grad is not None) == trained, name
    assert weights_hash(base_tensors(policy.model)) == before


@pytest.mark.parametrize("family", cases())
def test_the_effective_weight_is_w_plus_s_b_a(family: str) -> None:
    """Each layer's output is that of a plain layer with its effective weight; so is the model's."""
    policy = adapted(family)
    plain = merged_copy(policy.model)
    assert not has_adapter(plain)
    assert has_adapter(policy.model)
    merged = linear_layers(plain)
    for name, module in linear_layers(policy.model).items():
        weight, bias = effective_weight(module), effective_bias(module)
        assert weight.dtype == torch.float32
        assert torch.allclose(weight, merged[name].weight, atol=1e-6), name  # type: ignore[arg-type]
        rows = weight if type(merged[name]) is nn.Linear else weight.T
        inputs = torch.randn(3, rows.shape[1], generator=torch.Generator().manual_seed(1))
        assert torch.allclose(
            module(inputs), nn.functional.linear(inputs, rows, bias), atol=1e-5
        ), name
    whole = family_policy(family)
    whole.model = plain
    ours = score(policy, PROMPT, COMPLETION)
    assert torch.allclose(ours, score(whole, PROMPT, COMPLETION), atol=2e-5)
    assert not torch.allclose(ours, score(family_policy(family), PROMPT, COMPLETION), atol=1e-3)


def test_the_scale_is_alpha_over_rank() -> None:
    policy = adapted("llama", target_modules=("q_proj",))
    layer: Any = linear_layers(policy.model)["model.layers.0.self_attn.q_proj"]
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    assert a.shape == (4, 32)
    expected = layer.base_layer.weight + 1.5 * b @ a
    assert torch.allclose(effective_weight(layer), expected, atol=1e-7)
    assert linear_layers(policy.model)["model.layers.0.mlp.up_proj"] is not layer
    assert not hasattr(linear_layers(policy.model)["model.layers.0.mlp.up_proj"], "lora_A")


def test_merging_and_copying_leave_the_model_as_it_is() -> None:
    policy = adapted("gpt2")
    before = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    first, second = merged_copy(policy.model), merged_copy(policy.model)
    assert weights_hash(first.state_dict()) == weights_hash(second.state_dict())
    for name, tensor in policy.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_a_copy_shares_the_frozen_weights_and_owns_what_trains() -> None:
    policy = adapted()
    other = copy_trained(policy.model)
    ours, theirs = dict(policy.model.named_parameters()), dict(other.named_parameters())
    assert ours.keys() == theirs.keys()
    for name, parameter in ours.items():
        assert (theirs[name] is parameter) == (not parameter.requires_grad), name
    reference = family_policy()
    reference.model = other
    before = score(reference, PROMPT, COMPLETION)
    assert torch.equal(before, score(policy, PROMPT, COMPLETION))
    move(policy.model, seed=9)
    assert torch.equal(before, score(reference, PROMPT, COMPLETION))
    assert not torch.equal(before, score(policy, PROMPT, COMPLETION))


def test_an_adapter_starts_at_the_model_and_its_noise_is_its_seeds() -> None:
    plain = load_policy("tiny", device="cpu")
    expected = score(plain, PROMPT, COMPLETION)
    made = []
    for seed, drawn in ((0, 1), (0, 5), (1, 1)):
        torch.manual_seed(drawn)
        state = torch.get_rng_state()
        policy = load_policy("tiny", device="cpu", adapter=SETTINGS, seed=seed)
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.equal(score(policy, PROMPT, COMPLETION), expected)
        made.append(weights_hash(dict(adapter_parameters(policy.model))))
    assert made[0] == made[1] != made[2]


def test_what_trains_is_known_before_weights_load() -> None:
    info = describe_model("tiny", adapter=SETTINGS)
    assert info.adapter is not None
    policy = load_policy("tiny", device="cpu", adapter=SETTINGS)
    counted = sum(p.numel() for p in adapter_parameters(policy.model).values())
    assert info.adapter.parameters == counted == 9_728
    assert info.num_parameters == 105_280


@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "qwen3_moe"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_are_those_of_the_plain_pass(family: str, checkpointing: bool) -> None:
    """Rows that share a prompt, against transformers' own logits row by row."""
    policy = adapted(family)
    completions = [(8, 9, 10, 11), (12, 13), (14, 15, 16)]
    for completion in completions:
        ids = torch.tensor([[*PROMPT, *completion]])
        logprobs = policy.model(input_ids=ids).logits[0, len(PROMPT) - 1 : -1].log_softmax(-1)
        logprobs.gather(1, torch.tensor(completion)[:, None]).sum().backward()
    expected = {name: p.grad.clone() for name, p in adapter_parameters(policy.model).items()}
    policy.model.zero_grad()
    if checkpointing:
        checkpoint_activations(policy.model)
    sequence_logprobs(policy, [PROMPT] * 3, completions).logprobs.sum().backward()
    for name, parameter in adapter_parameters(policy.model).items():
        error = (parameter.grad - expected[name]).norm() / expected[name].norm()
        assert error < 1e-4, name


# --- folders --------------------------------------------------------------------------------------


def test_an_exported_adapter_goes_on_training_here(tiny_adapter: Path) -> None:
    policy = load_policy(str(tiny_adapter), device="cpu")
    first = load_policy("tiny", device="cpu", adapter={"rank": 4}, seed=1)
    move(first.model)
    assert torch.equal(score(policy, PROMPT, COMPLETION), score(first, PROMPT, COMPLETION))
    assert all(p.requires_grad == ("lora_" in n) for n, p in policy.model.named_parameters())
    assert sorted(file.name for file in tiny_adapter.iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "chat_template.jinja",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert policy.template.hash == first.template.hash


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
def test_peft_loads_an_exported_adapter_and_this_loads_pefts(
    tiny_adapter: Path, tmp_path: Path
) -> None:
    from peft import PeftConfig, PeftModel

    base = PeftConfig.from_pretrained(tiny_adapter).base_model_name_or_path
    wrapped = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), tiny_adapter)
    ours = load_policy(str(tiny_adapter), device="cpu")
    ids = torch.tensor([[*PROMPT, *COMPLETION]])
    with torch.no_grad():
        expected = wrapped(input_ids=ids).logits
        assert torch.equal(ours.model(input_ids=ids).logits, expected)
    wrapped.save_pretrained(tmp_path / "peft")
    again = load_policy(str(tmp_path / "peft"), device="cpu")
    with torch.no_grad():
        assert torch.equal(again.model(input_ids=ids).logits, expected)


def test_a_second_adapter_starts_from_the_first_one_merged(tiny_adapter: Path) -> None:
    first = load_policy(str(tiny_adapter), device="cpu")
    second = load_policy(str(tiny_adapter), device="cpu", adapter=SETTINGS)
    expected = score(first, PROMPT, COMPLETION)
    assert torch.allclose(score(second, PROMPT, COMPLETION), expected, atol=1e-5)
    before, merged = linear_layers(first.model), base_tensors(second.model)
    for name, module in before.items():
        if name != "lm_head":
            assert torch.allclose(merged[f"{name}.weight"], effective_weight(module), atol=1e-6)
    again = load_policy(str(tiny_adapter), device="cpu", adapter=SETTINGS)
    assert weights_hash(base_tensors(again.model)) == weights_hash(merged)


def test_a_merged_export_is_a_plain_model(tiny_adapter: Path, tmp_path: Path) -> None:
    policy = load_policy(str(tiny_adapter), device="cpu")
    frozen = weights_hash(base_tensors(policy.model))
    target = save_pretrained(policy, tmp_path / "merged", merge=True)
    assert weights_hash(base_tensors(policy.model)) == frozen
    assert not (target / "adapter_config.json").exists()
    plain = load_policy(str(target), device="cpu")
    assert not has_adapter(plain.model)
    assert plain.num_parameters == 105_280
    expected = score(policy, PROMPT, COMPLETION)
    assert torch.allclose(score(plain, PROMPT, COMPLETION), expected, atol=1e-5)
    with pytest.raises(RecipeError, match="this policy has no adapter"):
        save_pretrained(plain, tmp_path / "other", merge=True)


def test_an_adapter_over_a_merged_one_is_exported_merged(
    tiny_adapter: Path, tmp_path: Path
) -> None:
    policy = load_policy(str(tiny_adapter), device="cpu", adapter=SETTINGS)
    with pytest.raises(GroupwiseError, match="no folder holds; export the merged model"):
        save_pretrained(policy, tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()
    save_pretrained(policy, tmp_path / "merged", merge=True)


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"target_modules": ["q_prj"]},
            r"^model.adapter.target_modules: the model has no linear layer 'q_prj'; nearest: q_",
        ),
        ({"target_modules": ["embed_tokens"]}, "no linear layer 'embed_tokens'"),
        ({"target_modules": ["lm_head"]}, "names 'lm_head', but .* are one tensor"),
        ({"modules_to_save": ["norm"]}, "^unknown argument of adapter 'modules_to_save'"),
        (
            {"target_modules": "q_proj"},
            '^adapter: target_modules = .q_proj.: give "all-linear" or a list of layer names',
        ),
        ({"rank": 0}, "^adapter: rank = 0: must be at least 1"),
        ({"ranks": 8}, "^unknown argument of adapter 'ranks'; did you mean 'rank'"),
    ],
)
def test_settings_that_do_not_fit(
    settings: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", None)  # weights must not load
    with pytest.raises(RecipeError, match=message):
        load_policy("tiny", device="cpu", adapter=settings)


def edit(folder: Path, **changes: Any) -> None:
    file = folder / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base_model_name_or_path": None}, "does not name its base model"),
        ({"base_model_name_or_path": "/nowhere/model"}, "the base model '/nowhere/model' of the"),
        ({"use_dora": True}, "has use_dora; plain LoRA on linear layers is supported"),
        ({"bias": "all"}, "has bias"),
        ({"init_lora_weights": "pissa"}, "has init_lora_weights"),
        ({"peft_type": "IA3"}, "has the type IA3"),
        ({"target_modules": ["nothing"]}, "does not fit the model: Target modules"),
        ({"r": 5}, "does not fit its base: .* has the shape .*4.* the model makes it .*5"),
        ({"target_modules": ["q_proj"]}, "it also has 24 tensors, the first is model.layers.0"),
    ],
)
def test_folders_that_do_not_fit(
    changes: dict[str, Any], message: str, tiny_adapter: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_adapter, tmp_path / "adapter")
    edit(folder, **changes)
    with pytest.raises(RecipeError, match=message):
        load_policy(str(folder), device="cpu")


def test_weights_that_are_cut_off_or_an_adapter_of_an_adapter(
    tiny_adapter: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_adapter, tmp_path / "adapter")
    weights = folder / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(RecipeError, match="cannot be loaded"):
        load_policy(str(folder), device="cpu")
    edit(folder, base_model_name_or_path=str(tiny_adapter))
    with pytest.raises(RecipeError, match=r"is based on another adapter"):
        load_policy(str(folder), device="cpu")
    (folder / "adapter_config.json").write_text("{")
    with pytest.raises(RecipeError, match="cannot be read"):
        load_policy(str(folder), device="cpu")


def test_a_built_in_base_is_found_where_its_cache_has_moved(
    tiny_adapter: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_adapter, tmp_path / "adapter")
    base = json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"]
    edit(folder, base_model_name_or_path=f"/elsewhere/{Path(base).name}")
    ours, first = (load_policy(str(each), device="cpu") for each in (folder, tiny_adapter))
    assert torch.equal(score(ours, PROMPT, COMPLETION), score(first, PROMPT, COMPLETION))


@pytest.mark.parametrize("name", [None, 3, ""])
def test_a_name_that_is_no_text(name: Any) -> None:
    with pytest.raises(RecipeError, match=r"^model.name = .*: give a text: a built-in model"):
        adapter_folder(name)


def test_an_adapter_that_transformers_put_in_by_itself_is_refused() -> None:
    with pytest.raises(RecipeError, match="this hub id holds both an adapter and a model"):
        _with_adapter(adapted().model, None, 0)
