"""The sampler `vllm` against a real server on this machine's CPU: `make test-vllm`.

The servers are started by the tests and end with them. Skipped where VLLM_PYTHON does not name an
interpreter that has vLLM.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import groupwise as gw
from groupwise.errors import GroupwiseError
from groupwise.policies import Policy, load_policy, score
from groupwise.policies.tiny import TinyRecipe, _cold_start, build_model
from groupwise.samplers import make_sampler
from groupwise.samplers.servers.sampler import ServerSampler
from groupwise.samplers.servers.settings import VllmSettings
from groupwise.types import Completion, Prompt, Request
from vllm_stub import moved

PYTHON = os.environ.get("VLLM_PYTHON", "")
pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="VLLM_PYTHON names no interpreter that has vLLM"),
    pytest.mark.timeout(900),
]
FLAGS = ("--enforce-eager", "--max-model-len", "512")


def tiny_for_vllm() -> str:
    """The tiny model with two wide heads: vLLM's kernels for CPUs have none of width 16."""
    return str(build_model(TinyRecipe(heads=2, kv_heads=1), _cold_start))


def settings(*flags: str, **more: Any) -> VllmSettings:
    return VllmSettings(python=PYTHON, arguments=(*FLAGS, *flags), **more)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(tiny_for_vllm(), device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def sampler(policy: Policy) -> Iterator[ServerSampler]:
    made = ServerSampler(policy, settings(), batch_rows=32)
    yield made
    made.close()


def asked(policy: Policy, count: int = 8, **more: Any) -> list[Request]:
    template = policy.template
    found = []
    for place in range(count):
        text = f"{place % 5}+{place % 4}="
        ids = template.encode_prompt(Prompt(text, messages=({"role": "user", "content": text},)))
        found.append(Request(ids, **{"key": 1000 + place, "max_tokens": 12, **more}))
    return found


def gap(policy: Policy, requests: list[Request], completions: list[Completion]) -> float:
    """The largest distance of a log-probability from the learner's, in nats."""
    worst = 0.0
    for request, completion in zip(requests, completions, strict=True):
        if not completion.num_tokens:
            continue
        divisor = 1.0 if request.greedy else request.temperature
        own = score(policy, request.prompt_ids, completion.token_ids, divisor)
        worst = max(worst, float((own - torch.tensor(completion.sampler_logprobs)).abs().max()))
    return worst


def test_greedy_ids_are_the_other_samplers(policy: Policy, sampler: ServerSampler) -> None:
    requests = asked(policy, greedy=True)
    completions = sampler.sample(requests)
    expected = make_sampler("local", policy).sample(requests)
    assert [c.token_ids for c in completions] == [c.token_ids for c in expected]
    assert [c.finish_reason for c in completions] == [c.finish_reason for c in expected]
    assert [c.text for c in completions] == [c.text for c in expected]
    assert gap(policy, requests, completions) < 5e-4


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.5])
def test_logprobs_are_the_learners_and_seeds_repeat(
    temperature: float, policy: Policy, sampler: ServerSampler
) -> None:
    requests = asked(policy, 24, temperature=temperature)
    completions = sampler.sample(requests)
    assert gap(policy, requests, completions) < 5e-4
    again = [c.token_ids for c in sampler.sample(requests[::-1])][::-1]
    assert again == [c.token_ids for c in completions]
    other = asked(policy, 24, temperature=temperature, key=7)
    assert [c.token_ids for c in sampler.sample(other)] != again


def test_stop_ids_stop_strings_top_k_and_limits(policy: Policy, sampler: ServerSampler) -> None:
    stops = policy.template.stop_ids
    completions = sampler.sample(asked(policy, 16))
    assert {c.finish_reason for c in completions} == {"stop"}
    assert all(c.token_ids[-1] in stops and not stops & {*c.token_ids[:-1]} for c in completions)
    (free,) = sampler.sample(asked(policy, 1, greedy=True))
    (cut,) = sampler.sample(asked(policy, 1, greedy=True, stop_strings=(free.text[0],)))
    assert (cut.text, cut.token_ids) == (free.text[0], free.token_ids[:1])
    (top,) = sampler.sample(asked(policy, 1, top_k=3, max_tokens=1))
    (expected,) = make_sampler("local", policy).sample(asked(policy, 1, top_k=3, max_tokens=1))
    assert top.top_ids == expected.top_ids
    assert top.finish_reason == "length"


def test_new_weights_are_sampled_from_and_bad_ones_leave_the_server_alive(
    policy: Policy, sampler: ServerSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = asked(policy, 8, temperature=0.7)
    sampler.load(moved(policy, size=0.02), 1)
    assert gap(policy, requests, sampler.sample(requests)) < 5e-4
    write = sampler._handover.write

    def copied(folder: Path) -> Path:
        return Path(shutil.copytree(folder, f"{folder}-b"))

    def cut(given: Policy) -> Path:
        folder = write(given)
        file = folder / "model.safetensors"
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        return folder

    monkeypatch.setattr(sampler._handover, "write", cut)
    with pytest.raises(GroupwiseError, match="collective_rpc replied 500"):
        sampler.load(moved(policy, size=0.02), 2)
    old = sampler._handover.good
    assert old is not None
    monkeypatch.setattr(sampler._handover, "write", lambda given: copied(old))
    with pytest.raises(GroupwiseError, match="it holds other weights"):
        sampler.load(policy, 2)
    monkeypatch.undo()
    sampler.load(policy, 2)
    assert gap(policy, requests, sampler.sample(requests)) < 5e-4


def test_a_deadline_gives_what_there_is(policy: Policy, sampler: ServerSampler) -> None:
    template, stops = policy.template, policy.template.stop_ids
    template.stop_ids = frozenset()
    try:
        for seconds in (0.3, 0.6, 1.2, 2.4, 4.8):  # until the machine is fast enough for a token
            requests = asked(policy, 32, max_tokens=400, deadline=seconds)
            completions = sampler.sample(requests)
            if any(completion.num_tokens for completion in completions):
                break
    finally:
        template.stop_ids = stops
    assert "deadline" in {c.finish_reason for c in completions}
    assert 0 < min(c.num_tokens for c in completions if c.num_tokens) < 400
    assert gap(policy, requests, completions) < 5e-4


def test_a_server_that_reports_raw_logprobs_is_refused(policy: Policy) -> None:
    flags = (*FLAGS, "--logprobs-mode", "raw_logprobs")
    given = settings().model_copy(update={"arguments": flags})  # as a recipe it is refused
    raw = ServerSampler(policy, given, batch_rows=32)
    try:
        with pytest.raises(GroupwiseError, match="start it with --logprobs-mode processed_logpr"):
            raw.load(policy, 0)
    finally:
        raw.close()
    assert raw.process is not None
    assert raw.process.ended


def test_an_adapter_is_loaded_hot() -> None:
    from groupwise.policies import AdapterSettings

    adapter = AdapterSettings(rank=8)
    policy = load_policy(tiny_for_vllm(), device="cpu", dtype="float32", adapter=adapter)
    lora = ServerSampler(policy, settings(refresh="lora"), batch_rows=32)
    try:
        for version in (0, 1):
            lora.load(policy, version)
            requests = asked(policy, 8, temperature=0.7)
            assert gap(policy, requests, lora.sample(requests)) < 5e-4
            with torch.no_grad():
                for name, parameter in policy.model.named_parameters():
                    if ".lora_B" in name:
                        parameter.normal_(std=0.05)
    finally:
        lora.close()


RECIPE: dict[str, Any] = {
    "model": {"name": "real_vllm:tiny_for_vllm", "dtype": "float32"},
    "environment": {"name": "arithmetic", "level": "table", "audit": False},
    "algorithm": {"preset": "grpo"},
    "sampling": {
        "sampler": "vllm",
        "max_tokens": 4,
        "vllm": {"python": PYTHON or "none", "arguments": FLAGS},
    },
    "training": {"prompts_per_step": 16, "steps": 12, "learning_rate": 1e-3},
    "evaluation": {"every": 12, "samples": 4},
    "checkpoints": {"every": 6, "keep": 2},
}


def test_the_arithmetic_recipe_trains_and_resumes(tmp_path: Path) -> None:
    gw.train(RECIPE, {"training.steps": 6}, tmp_path / "run")
    run = gw.train(RECIPE, output=tmp_path / "run", resume=True)
    assert run.summary["status"] == "finished"
    assert run.summary["eval/accuracy_last"] > run.summary["eval/accuracy_first"] + 0.05
    table = run.metrics().to_pandas()
    assert len(table) == 12
    assert table["sampler_gap/mean"].max() < 1e-4
    assert table["sampler_gap/max"].max() < 5e-4
    versions = run.rollouts().to_pandas()[["step", "version"]]
    assert (versions["step"] == versions["version"]).all()
