"""What a recipe may say of vLLM, and weights that go by vLLM's own transfer."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from groupwise.errors import GroupwiseError, RecipeError
from groupwise.recipe import load_recipe
from groupwise.samplers.servers.sampler import ServerSampler
from groupwise.samplers.servers.settings import VllmSettings
from groupwise.training.preparing import prepare
from model_families import family_policy
from sampler_requests import requests, unending
from vllm_stub import Stub, moved, vllm_stub

URL = "http://127.0.0.1:8000"


def recipe(**sampling: Any) -> dict[str, Any]:
    return {
        "model": {"name": "tiny"},
        "environment": {"name": "arithmetic", "audit": False},
        "algorithm": {"preset": "grpo"},
        "sampling": {"sampler": "vllm", **sampling},
    }


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        ({}, r"sampling.sampler = 'vllm' without a table \[sampling.vllm\]"),
        ({"sampler": "local", "vllm": {"servers": [URL]}}, "sampler = 'local' with a table"),
        ({"vllm": {}}, "give either servers, a list of addresses, or python"),
        ({"vllm": {"servers": [URL], "python": "x"}}, "give either servers"),
        ({"vllm": {"servers": ["127.0.0.1:8000"]}}, "'127.0.0.1:8000' is not an address"),
        ({"vllm": {"servers": ["http://127.0.0.1:99999"]}}, "1:99999' is not an address; give"),
        ({"vllm": {"servers": ["http://127.0.0.1:abc"]}}, "1:abc' is not an address; give"),
        ({"vllm": {"servers": ["http://me@127.0.0.1:1"]}}, "is not an address; give"),
        ({"vllm": {"servers": [URL + "/?key=1"]}}, "is not an address; give"),
        ({"vllm": {"servers": [URL, URL + "/v1"]}}, "one is named twice"),
        ({"vllm": {"servers": [URL], "arguments": ["--x"]}}, "for a server that `python` starts"),
        (
            {"vllm": {"python": "x", "arguments": ["--port=80"]}},
            "the run sets --port itself",
        ),
        (
            {"vllm": {"python": "x", "arguments": ["--served_model_name", "a"]}},
            "the run sets --served-model-name",
        ),
        ({"vllm": {"python": ""}}, r"python = '': expected at least 1 character\(s\)"),
        ({"vllm": 3}, "sampling.vllm = 3: expected a table"),
        (
            {"vllm": {"servers": [URL]}, "cache_gigabytes": 1.0},
            "'vllm' does not read it",
        ),
        ({"sampler": "sglang", "sglang": {"servers": []}}, r"expected at least 1 item\(s\)"),
        ({"vllm": {"servers": [URL], "refresh": "disk"}}, "refresh = 'disk'"),
        ({"vllm": {"servers": [URL]}, "top_p": 0.9}, "does not say which tokens it kept"),
    ],
)
def test_recipes_that_cannot_run_are_refused(sampling: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load_recipe(recipe(**sampling))


def test_an_algorithm_that_needs_entropies_is_refused_before_anything_loads() -> None:
    table = recipe(vllm={"servers": [URL]})
    table["algorithm"] = {"preset": "grpo", "extras": ["entropy_bonus"]}
    with pytest.raises(RecipeError, match="needs the entropy at every token, which servers do not"):
        prepare(load_recipe(table))


@pytest.mark.parametrize(
    ("vllm", "message"),
    [
        ({"servers": [URL], "key_variable": "NO_KEY"}, "key_variable: the variable NO_KEY is not"),
        ({"servers": [URL], "refresh": "lora"}, 'refresh = "lora": the policy has no adapter; add'),
        ({"python": "/no/such"}, r"python = '/no/such' is not a program here; give the interprete"),
    ],
)
def test_what_this_machine_lacks_is_refused_before_anything_loads(
    vllm: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        prepare(load_recipe(recipe(vllm=vllm)))


def test_a_folder_that_cannot_be_made_is_named() -> None:
    settings = VllmSettings(servers=(URL,), folder="/proc/no")
    with pytest.raises(RecipeError, match="folder = '/proc/no' of the sampler's table cannot be"):
        ServerSampler(family_policy("llama"), settings)


def test_the_resolved_recipe_loads_again() -> None:
    made = load_recipe(recipe(vllm={"servers": [URL + "/v1/"]}))
    assert made.sampling.vllm is not None
    assert made.sampling.vllm.servers == (URL,)


def test_a_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = family_policy("llama")
    with pytest.raises(RecipeError, match="key_variable: the variable NO_KEY is not set"):
        ServerSampler(policy, VllmSettings(servers=(URL,), key_variable="NO_KEY"))
    monkeypatch.setenv("SOME_KEY", "s3cret")
    with vllm_stub(policy) as stub:
        sampler = ServerSampler(policy, VllmSettings(servers=(stub.url,), key_variable="SOME_KEY"))
        sampler.close()
        assert stub.keys == {"Bearer s3cret"}


def test_adapters_alone_are_loaded_hot() -> None:
    with pytest.raises(RecipeError, match='refresh = "lora": the policy has no adapter'):
        ServerSampler(family_policy("llama"), VllmSettings(servers=(URL,), refresh="lora"))


def stand_in(monkeypatch: pytest.MonkeyPatch, stub: Stub, policy: Any) -> list[dict[str, Any]]:
    """vLLM's classes of weight transfer, whose engine copies the policy into the stub."""
    made: list[dict[str, Any]] = []

    class Engine:
        def send_weights(self) -> None:
            if "refused" in stub.faults:
                raise RuntimeError("no route")
            assert stub.paused
            stub.policy.model.load_state_dict(policy.model.state_dict())

    class Factory:
        @staticmethod
        def trainer_init(**given: Any) -> Engine:
            made.append(given)
            return Engine()

    weights = ModuleType("vllm.distributed.weight_transfer")
    weights.WeightTransferTrainerFactory = Factory  # type: ignore[attr-defined]
    weights.HTTPVLLMWeightSyncClient = str  # type: ignore[attr-defined]
    weights.ModuleSource = id  # type: ignore[attr-defined]
    engine = ModuleType("vllm.distributed.weight_transfer.nccl_engine")
    engine.NCCLTrainerInitInfo = dict  # type: ignore[attr-defined]
    for name in ("vllm", "vllm.distributed"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, weights.__name__, weights)
    monkeypatch.setitem(sys.modules, engine.__name__, engine)
    return made


def test_weights_between_gpus_go_by_vllms_own_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = unending(family_policy("llama"))
    with vllm_stub(policy) as stub:
        made = stand_in(monkeypatch, stub, policy)
        settings = VllmSettings(servers=(stub.url,), refresh="nccl")
        sampler = ServerSampler(policy, settings)
        try:
            for version in (1, 2):
                sampler.load(moved(policy), version)
            assert sampler.sample(requests(1, max_tokens=3))[0].version == 2
            stub.faults = {"refused"}
            with pytest.raises(GroupwiseError, match="weight transfer: RuntimeError"):
                sampler.load(moved(policy), 3)
            assert not stub.paused
        finally:
            sampler.close()
    (first,) = made
    assert {"master_address": "127.0.0.1", "world_size": 3, "rank": 0}.items() <= (
        first["init_info"].items()
    )
    assert first["client"] == stub.url


def test_without_vllm_the_transfer_is_refused() -> None:
    policy = family_policy("llama")
    with vllm_stub(policy) as stub:
        sampler = ServerSampler(policy, VllmSettings(servers=(stub.url,), refresh="nccl"))
        try:
            with pytest.raises(RecipeError, match=r"needs vLLM 0\.28 or newer in this environment"):
                sampler.load(policy, 0)
        finally:
            sampler.close()
