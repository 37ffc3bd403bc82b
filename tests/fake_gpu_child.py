"""What test_fake_gpu.py runs in a process of its own: the same work here and on the fake device.

Prints one JSON object: for every case its largest error, or what it raised.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

import fake_gpu

DEVICE = fake_gpu.register()

import groupwise as gw  # noqa: E402
import preset_learner as presets  # noqa: E402 (`inference_mode` is replaced by now)
from groupwise.algorithms import PRESETS, preset  # noqa: E402
from groupwise.policies import Policy, sequence_logprobs  # noqa: E402
from groupwise.policies.load import checkpoint_activations  # noqa: E402
from groupwise.samplers import LocalSampler, make_sampler  # noqa: E402
from groupwise.samplers.local.static import StaticSteps  # noqa: E402
from groupwise.training import planned  # noqa: E402
from groupwise.types import Completion, Request  # noqa: E402
from helpers import make_rich_groups  # noqa: E402
from model_families import family_policy  # noqa: E402
from sampler_requests import requests, unending  # noqa: E402

STATIC = property(lambda _: True, lambda _, __: None)
CUTS: list[dict[str, Any]] = [{}, {"entropies": True, "top_k": 3}, {"keep_top_p": 0.8}]


def there(policy: Policy) -> Policy:
    """The policy with its weights on the device."""
    return replace(policy, model=copy.deepcopy(policy.model).to(DEVICE), device=DEVICE)


def asked(family: str) -> list[Request]:
    is_mixture = family == "qwen3_moe"
    return [
        replace(each, experts=is_mixture, **CUTS[number % 3])
        for number, each in enumerate(requests(9, 6))
    ]


def sampling(family: str, name: str) -> float:
    """Ids, experts and supports are equal; the largest difference of a log-probability."""
    policy = unending(family_policy(family))
    expected = make_sampler("local", policy, batch_rows=5).sample(asked(family))
    with ExitStack() as stack:
        stack.enter_context(fake_gpu.FakeGpu())
        chosen = "transformers" if name == "transformers" else "local"
        sampler: Any = make_sampler(chosen, there(policy), batch_rows=5)
        assert type(sampler).__name__.lower().startswith(chosen)
        sampler.static = name == "static"
        found: list[Completion] = sampler.sample(asked(family))
    gaps = [0.0]
    for ours, theirs in zip(found, expected, strict=True):
        for field in ("token_ids", "supports", "experts", "top_ids"):
            assert getattr(ours, field) == getattr(theirs, field), field
        gaps += [abs(a - b) for a, b in zip(ours.sampler_logprobs, theirs.sampler_logprobs)]
    return max(gaps)


def scoring(family: str) -> float:
    """The packed pass with its gradient, checkpointed: the larger relative error of the two."""
    cpu = unending(family_policy(family))
    made = make_sampler("local", cpu).sample(asked(family))
    prompts = [each.prompt_ids for each in asked(family)]
    values: list[torch.Tensor] = []
    with fake_gpu.FakeGpu():
        for policy in (cpu, there(cpu)):
            checkpoint_activations(policy.model)
            output = sequence_logprobs(
                policy, prompts, [each.token_ids for each in made], entropies=True,
                supports=[each.supports or [None] * each.num_tokens for each in made],
                experts=[e.experts or () for e in made] if family == "qwen3_moe" else None,
            )  # fmt: skip
            (output.logprobs.sum() + output.entropies.sum()).backward()  # type: ignore[union-attr]
            grads = [
                p.grad.cpu().flatten() for p in policy.model.parameters() if p.grad is not None
            ]
            values += [output.logprobs.detach().cpu().flatten(), torch.cat(grads)]
    pairs = zip(values[:2], values[2:], strict=True)
    return max(float((a - b).norm() / a.norm()) for a, b in pairs)


def learning(name: str) -> float:
    """Two passes of a preset through the whole learner, in float64: relative error of weights."""
    algorithm = preset(name, **({"transform": {"k": 2}} if name == "pass_at_k" else {}))
    size, top_k = algorithm.needs.group_size or 4, algorithm.needs.top_k
    groups = make_rich_groups(2, size, top_k=top_k)
    make = presets.make_policy
    expected = presets.moved(presets.make_learner(algorithm, 60), groups)
    presets.make_policy = lambda *given, **named: there(make(*given, **named))
    try:
        with fake_gpu.FakeGpu():
            found = presets.moved(presets.make_learner(algorithm, 60), groups).cpu()
    finally:
        presets.make_policy = make
    return float((found - expected).norm() / expected.norm())


def captured(family: str) -> float:
    """Static steps by `_capture`, with a graph that runs the step again into the same memory. What
    is captured reads no value: `no_reads` raises where it does."""
    run, make = StaticSteps._run, StaticSteps._made

    class Stream:
        def wait_stream(self, other: Stream) -> None:
            pass

    def guarded(self: StaticSteps, step: Any) -> torch.Tensor:
        with fake_gpu.no_reads():
            return run(self, step)

    def made(self: StaticSteps, layout: Any) -> Any:
        step = make(self, layout)
        self._capture(step)
        states: Any = step.states
        step.graph = SimpleNamespace(replay=lambda: states.copy_(guarded(self, step)))  # type: ignore[assignment]
        return step

    context = lambda *_: nullcontext()  # noqa: E731
    stubs = {"Stream": Stream, "current_stream": Stream, "stream": context, "graph": context}
    with ExitStack() as stack:
        stack.enter_context(mock.patch.multiple(torch.cuda, CUDAGraph=object, **stubs))
        stack.enter_context(mock.patch.multiple(StaticSteps, _run=guarded, _made=made))
        return sampling(family, "static")


def half() -> float:
    """Sampled in bfloat16, with a float32 head: near the float32 policy on the CPU, and not it."""
    policy = unending(family_policy("llama"))
    with fake_gpu.FakeGpu():
        sampler: Any = make_sampler("local", replace(there(policy), dtype=torch.bfloat16))
        sampler.static = True
        assert sampler.decoder.layers[0].attention.qkv.weight.dtype == torch.bfloat16
        assert (sampler.head.half, sampler.head.weight.dtype) == (False, torch.float32)
        made = sampler.sample(requests(9, 6))
    prompts = [each.prompt_ids for each in requests(9, 6)]
    with torch.no_grad():
        exact = sequence_logprobs(policy, prompts, [each.token_ids for each in made]).logprobs
    gap = float((exact - torch.tensor([each.sampler_logprobs for each in made])).abs().mean())
    assert 1e-5 < gap < 0.05, gap
    return 0.0


def whole_run() -> float:
    """A run with evaluations and a checkpoint: the same ids; the largest difference of a loss or a
    gradient norm."""
    recipe: dict[str, Any] = {
        "environment": {"name": "arithmetic", "level": "table", "audit": False},
        "algorithm": {"preset": "grpo"},
        "sampling": {"group_size": 4, "max_tokens": 4},
        "training": {"prompts_per_step": 8, "steps": 2, "passes": 2, "learning_rate": 1e-3},
        "evaluation": {"every": 1, "samples": 1, "max_prompts": 8},
    }
    speed = planned.measure_speed

    def on_cpu(_: torch.device, dtype: torch.dtype) -> Any:
        return speed(torch.device("cpu"), dtype)

    with TemporaryDirectory() as folder, mock.patch.object(planned, "measure_speed", on_cpu):
        runs = [gw.train(recipe, {"model.device": "cpu"}, output=f"{folder}/cpu")]
        with fake_gpu.FakeGpu(), mock.patch.object(LocalSampler, "static", STATIC, create=True):
            runs += [gw.train(recipe, {"model.device": fake_gpu.NAME}, output=f"{folder}/gpu")]
        ids = [run.rollouts().column("completion_ids").to_pylist() for run in runs]
        assert ids[0] == ids[1]
        lines = [run.metrics().to_pylist() for run in runs]
    return max(
        abs(a[name] - b[name])
        for a, b in zip(*lines, strict=True)
        for name in ("loss", "grad_norm")
    )


def refusals() -> float:
    """The device refuses what it is there to refuse: 0 where each of four mistakes raises."""
    with fake_gpu.FakeGpu():
        x = torch.ones(3, device=DEVICE)
        mistakes: Sequence[tuple[str, Callable[[], Any]]] = [
            ("two devices", lambda: x + torch.ones(3)),
            ("only CPUs have", lambda: torch.ops.mkldnn._linear_pointwise(
                x[None], x[None], None, "none", [], "")),
            ("a value is read", lambda: _within(lambda: x.sum().item())),
            ("a value is read", lambda: _within(lambda: x.to("cpu"))),
        ]  # fmt: skip
        missed = 0.0
        for words, mistake in mistakes:
            try:
                mistake()
                missed += 1
            except RuntimeError as error:
                missed += words not in str(error)
        return missed


def _within(read: Callable[[], Any]) -> None:
    with fake_gpu.no_reads():
        read()


def main(groups: Sequence[str]) -> None:
    families = ("llama", "gemma2", "qwen3_moe")
    engines = ("local", "static", "transformers")
    cases: dict[str, Callable[[], float]] = {"refusals": refusals}
    if "samplers" in groups:
        cases |= {f"{f} {e}": lambda f=f, e=e: sampling(f, e) for f in families for e in engines}
        cases |= {f"{f} captured": lambda f=f: captured(f) for f in families}
        cases |= {"bfloat16": half}
    if "passes" in groups:
        cases |= {f"{f} pass": lambda f=f: scoring(f) for f in families}
    if "run" in groups:
        cases |= {"run": whole_run}
    if "presets" in groups:
        cases |= {name: lambda name=name: learning(name) for name in PRESETS}
    found: dict[str, Any] = {}
    for name, case in cases.items():
        try:
            found[name] = case()
        except Exception as error:  # noqa: BLE001 (reported, case by case)
            found[name] = f"{type(error).__name__}: {str(error)[:300]}"
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
