"""Names to policies: built-in ones, folders, hubs that are not there; devices, dtypes; export."""

from __future__ import annotations

import json
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from groupwise.errors import GroupwiseError, RecipeError
from groupwise.policies import (
    ModelSettings,
    describe_model,
    get_model,
    load_policy,
    models,
    save_pretrained,
    score,
    sequence_logprobs,
)
from groupwise.policies.cache import cached_folder
from groupwise.policies.catalogue import builder_of
from groupwise.policies.load import _text_folder, choose_device, choose_dtype
from groupwise.types import Prompt
from model_families import family_policy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_pretrained(family_policy("llama"), tmp_path / "model")


def test_a_folder_is_loaded_with_float32_parameters(folder: Path) -> None:
    policy = load_policy(str(folder), device="cpu")
    assert {p.dtype for p in policy.model.parameters()} == {torch.float32}
    assert policy.dtype == torch.float32
    assert policy.max_length == 128
    assert not policy.model.training
    assert policy.template.stop_ids == {2}
    torch.testing.assert_close(
        score(policy, [5, 6], [7, 8]), score(family_policy("llama"), [5, 6], [7, 8])
    )


def test_bfloat16_keeps_float32_masters(folder: Path) -> None:
    policy = load_policy(str(folder), dtype="bfloat16", device="cpu")
    assert policy.dtype == torch.bfloat16
    assert {p.dtype for p in policy.model.parameters()} == {torch.float32}


def test_what_is_known_before_weights_load(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    info = describe_model(str(folder))
    assert info.num_parameters == family_policy("llama").num_parameters
    assert info.max_length == 128
    assert info.template.encode_prompt(Prompt("p", text="12")) == (4, 5)
    with pytest.raises(RecipeError, match="cannot be loaded"):
        load_policy(str(folder))


@pytest.mark.parametrize(
    ("kind", "longest"), [("default", 128), ("dynamic", 128), ("longrope", 32), ("own field", 32)]
)
def test_rows_stay_within_the_length_that_rotary_positions_keep(
    tmp_path: Path, kind: str, longest: int
) -> None:
    """Behind it `longrope` turns every row by the longest one of its batch."""
    own = kind in ("longrope", "own field")
    folder = save_pretrained(family_policy("phi3" if own else "llama"), tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    rope: dict[str, Any] = {"rope_theta": 10000.0, "rope_type": "longrope" if own else kind}
    if kind == "dynamic":
        rope["factor"] = 2.0
    if own:
        rope |= {"short_factor": [1.0] * 4, "long_factor": [8.0] * 4}
    config["original_max_position_embeddings"] = 32
    if kind == "longrope":
        rope["original_max_position_embeddings"] = 32
    config["rope_parameters"] = rope
    (folder / "config.json").write_text(json.dumps(config))
    policy = load_policy(str(folder), device="cpu")
    assert policy.max_length == longest
    short, long = [5, 6, 7], list(range(3, 3 + longest - 8))
    alone = sequence_logprobs(policy, [[4]], [short]).logprobs[0]
    beside = sequence_logprobs(policy, [[4], [9]], [short, [5] * len(long)]).logprobs[0, :3]
    torch.testing.assert_close(beside, alone, atol=1e-5, rtol=0)


def test_the_dtype_that_is_chosen() -> None:
    cpu = torch.device("cpu")
    assert choose_dtype("auto", cpu, 1000) == torch.float32
    assert choose_dtype("bfloat16", cpu, 1000) == torch.bfloat16
    assert choose_dtype("float32", cpu, 10**9) == torch.float32
    assert choose_dtype("auto", torch.device("mps"), 10**9) == torch.float32


def test_a_device_that_is_not_there() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    for device in ("cuda:7", "nonsense"):
        with pytest.raises(RecipeError, match=f"model.device = '{device}': not available"):
            choose_device(device)


def test_names_that_lead_nowhere(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(RecipeError, match=r"did you mean 'smollm2-135m'\?"):
        load_policy("smollm-135m")
    with pytest.raises(RecipeError, match=r"the hub failed to load it.*built in: tiny"):
        load_policy("someone/else")
    with pytest.raises(RecipeError, match=r"'\./nothing': no such folder"):
        load_policy("./nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecipeError, match=r"has no config.json"):
        load_policy(str(tmp_path / "empty"))
    (folder / "config.json").write_text(json.dumps({"model_type": "no-such-type"}))
    with pytest.raises(RecipeError, match="cannot be loaded"):
        load_policy(str(folder))


def test_weights_that_do_not_fit_their_config(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    for other, message in (
        (
            {"hidden_size": 2 * config["hidden_size"]},
            r"\S+.weight has the shape \(40, 32\) .*makes it \(40, 64",
        ),
        ({"num_hidden_layers": 9}, r"\d+ weights are missing, the first is model.layers"),
        ({"hidden_size": 7}, "config.json: .*hidden size.*7.*not a multiple"),
    ):
        (folder / "config.json").write_text(json.dumps({**config, **other}))
        with pytest.raises(RecipeError, match=rf"^model.name = '.*': cannot be loaded \({message}"):
            load_policy(str(folder))


def test_weights_that_are_cut_off(folder: Path) -> None:
    weights = folder / "model.safetensors"
    for end in (-100, 3):
        weights.write_bytes(weights.read_bytes()[:end])
        with pytest.raises(RecipeError, match=r"^model.name = '.*': cannot be loaded \(.+\)$"):
            load_policy(str(folder))


def test_a_folder_without_a_tokenizer(folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(RecipeError, match=r"has no tokenizer \(tokenizer.json\)"):
        load_policy(str(folder))


def test_a_chat_without_a_chat_template_is_refused_when_it_is_needed(folder: Path) -> None:
    policy = load_policy(str(folder))
    with pytest.raises(RecipeError, match="chat template: the model has none"):
        policy.template.encode_prompt(Prompt("p", messages=({"role": "user", "content": "1"},)))


def test_the_text_of_a_hub_id_is_read_from_its_snapshot(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    cached = tmp_path / "models--some--model"
    snapshot = cached / "snapshots" / ("a" * 40)
    shutil.copytree(folder, snapshot)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("a" * 40)
    assert _text_folder("some/model") == snapshot
    assert _text_folder(str(folder)) == folder


def test_a_tokenizer_larger_than_the_embedding(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 39}))
    with pytest.raises(RecipeError, match="tokenizer has 40 tokens and its embedding 39 rows"):
        describe_model(str(folder))


def test_not_a_causal_language_model(folder: Path) -> None:
    config = {"model_type": "vit", "architectures": ["ViTModel"]}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(RecipeError, match="not a causal language model"):
        load_policy(str(folder))


def test_code_that_comes_with_a_model_does_not_run(folder: Path) -> None:
    marker = folder / "ran"
    (folder / "configuration_evil.py").write_text(
        f"open({str(marker)!r}, 'w').close()\n"
        "from transformers import PretrainedConfig\n"
        "class EvilConfig(PretrainedConfig):\n    model_type = 'evil'\n"
    )
    (folder / "config.json").write_text(
        json.dumps(
            {"model_type": "evil", "auto_map": {"AutoConfig": "configuration_evil.EvilConfig"}}
        )
    )
    with pytest.raises(RecipeError, match="cannot be loaded"):
        load_policy(str(folder))
    assert not marker.exists()


def test_checkpointing_can_be_asked_for(folder: Path) -> None:
    policy = load_policy(str(folder), gradient_checkpointing=True, device="cpu")
    assert all(layer.gradient_checkpointing for layer in policy.model.model.layers)
    sequence_logprobs(policy, [[5, 6]], [[7, 8]]).logprobs.sum().backward()
    assert not policy.model.training


def test_an_export_loads_with_auto_classes(tmp_path: Path) -> None:
    policy = load_policy("tiny", device="cpu")
    target = save_pretrained(policy, tmp_path / "export")
    model = AutoModelForCausalLM.from_pretrained(target)
    tokenizer = AutoTokenizer.from_pretrained(target)
    ours = dict(policy.model.state_dict())
    assert all(torch.equal(tensor, ours[name]) for name, tensor in model.state_dict().items())
    chat = [{"role": "user", "content": "3+4="}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
    assert tuple(ids) == policy.template.encode_prompt(Prompt("p", messages=tuple(chat)))
    assert model.generation_config.eos_token_id == sorted(policy.template.stop_ids)
    again = load_policy(str(target), device="cpu")
    assert again.template.hash == policy.template.hash


def test_the_catalogue() -> None:
    assert [entry.name for entry in models()] == ["tiny", "tiny-reasoner", "smollm2-135m"]
    tiny = get_model("tiny")
    assert tiny is not None
    assert tiny.num_parameters == load_policy("tiny", device="cpu").num_parameters
    assert tiny.cached
    assert get_model("other") is None


def test_a_function_that_builds_a_model_is_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("own_models")
    monkeypatch.setitem(sys.modules, "own_models", module)
    module.mine = lambda: get_model("tiny").get()  # type: ignore[attr-defined,union-attr]
    policy = load_policy("own_models:mine", device="cpu")
    assert (policy.name, policy.num_parameters) == ("own_models:mine", 105_280)
    for name in ("own_models:other", "no_such_module:mine", "own_models:__name__"):
        with pytest.raises(RecipeError, match="give module:function"):
            load_policy(name)


def test_moved_names_are_deprecated(caplog: pytest.LogCaptureFixture) -> None:
    from groupwise.examples.tiny_models import tiny_code, tiny_tools

    assert builder_of("tiny-code") is tiny_code
    assert builder_of("tiny-tools") is tiny_tools
    assert "write 'groupwise.examples.tiny_models:tiny_code'" in caplog.text
    assert builder_of("own/model") is builder_of("tiny") is None


def test_settings_have_defaults_and_refuse_unknown_keys() -> None:
    assert ModelSettings().name == "tiny"
    with pytest.raises(ValueError, match="Extra inputs"):
        ModelSettings.model_validate({"nam": "tiny"})


def test_a_cached_folder_appears_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path))

    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise GroupwiseError("stopped")

    with pytest.raises(GroupwiseError, match="stopped"):
        cached_folder("m", fail)
    assert list((tmp_path / "models").iterdir()) == []
    built = cached_folder("m", lambda folder: (folder / "whole").write_text("x") and None)
    assert [file.name for file in built.iterdir()] == ["whole"]
    assert cached_folder("m", fail) == built
    shutil.rmtree(tmp_path)
    tmp_path.write_text("a file where the cache should be")
    with pytest.raises(GroupwiseError, match=r"cannot be written.*GROUPWISE_CACHE"):
        cached_folder("m", fail)
