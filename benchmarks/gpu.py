"""The CUDA path on a machine that has one: correctness first, then tokens a second.

    .venv/bin/python -m benchmarks.gpu                       # a CUDA GPU; under ten minutes
    .venv/bin/python -m benchmarks.gpu --device cpu --small  # the checks alone, anywhere
    .venv/bin/python -m benchmarks.gpu --vllm PYTHON         # an interpreter that has vLLM

Checks, in float32: greedy ids equal transformers' `generate`; what the sampler says a token's
log-probability was equals a plain forward pass; the gradient through the packed, chunked pass
equals that of the plain one; a vLLM server says what the plain pass says, as it starts and after it
took other weights. Then, on a GPU, rollouts of fixed length in bfloat16 beside `generate` and,
where it is installed here, vLLM. What is skipped says why. Prints JSON. Exit status 0, 1 where a
check fails, 2 without a CUDA device. Left out: several GPUs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch

from benchmarks.exactness import (
    Check,
    Ids,
    correctness,
    left_padded,
    prompts_of,
    requests_of,
    sampler_error,
)
from benchmarks.machine import versions
from benchmarks.workload import FULL, SMALL, Workload
from groupwise.policies import Policy, load_policy
from groupwise.samplers import make_sampler
from groupwise.samplers.contract import TOLERANCE
from groupwise.samplers.servers.settings import VllmSettings

_VLLM_SECONDS = 240.0
"""For a server to start: with what else is done here, the whole stays under ten minutes."""


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.gpu", description=__doc__)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1, or cpu (checks only)")
    parser.add_argument("--model", help="a name, a folder or a hub id; default by --small")
    parser.add_argument("--small", action="store_true", help="the tiny model, few tokens")
    parser.add_argument("--prompts", type=int, help="prompts of a rollout")
    parser.add_argument("--group-size", type=int, help="completions of a prompt")
    parser.add_argument("--tokens", type=int, help="new tokens of a completion")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--vllm", metavar="PYTHON", help="interpreter with vLLM; default: this one")
    parser.add_argument("--no-vllm", action="store_true", help="leave vLLM out where it is there")
    chosen = parser.parse_args(given)
    for name in ("prompts", "group_size", "tokens", "repeats"):
        value = getattr(chosen, name)
        if value is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} {value}: give 1 or more")
    return chosen


def workload_of(chosen: argparse.Namespace) -> Workload:
    """The sizes asked for; the rest from the benchmark's own."""
    base = SMALL if chosen.small else FULL
    return Workload(
        model=chosen.model or base.model,
        group_size=chosen.group_size or base.group_size,
        rollout_prompts=chosen.prompts or base.rollout_prompts,
        rollout_tokens=chosen.tokens or base.rollout_tokens,
        step_prompts=base.step_prompts,
        step_tokens=base.step_tokens,
        warmup_tokens=base.warmup_tokens,
    )


def why_not(device: str) -> str | None:
    """None where the device can be used, else what to do about it."""
    if device == "cpu":
        return None
    if torch.cuda.is_available():
        return None
    return (
        f"--device {device}: there is no CUDA device here, so nothing was run; "
        "`--device cpu --small` runs the correctness checks on this machine"
    )


def rate(work: Callable[[int], int], repeats: int) -> float:
    """Median tokens a second of `work(number) -> tokens`, after one warm-up."""
    work(0)
    found = []
    for number in range(1, repeats + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        tokens = work(number)
        torch.cuda.synchronize()
        found.append(tokens / (time.perf_counter() - start))
    return statistics.median(found)


def speed(workload: Workload, device: str, repeats: int, vllm: bool) -> dict[str, Any]:
    """Tokens a second of each engine on the same prompts at fixed length, in bfloat16."""
    policy = load_policy(workload.model, dtype="bfloat16", device=device)
    prompts = prompts_of(policy, workload)
    policy.template.stop_ids = frozenset()
    sampler = make_sampler("auto", policy)

    def ours(number: int) -> int:
        requests = requests_of(prompts, workload, greedy=False, number=number)
        return sum(each.num_tokens for each in sampler.sample(requests))

    torch.cuda.reset_peak_memory_stats()
    found: dict[str, Any] = {
        "sampler": type(sampler).__name__,
        "groupwise": rate(ours, repeats),
        "groupwise_peak_bytes": torch.cuda.max_memory_allocated(),
    }
    sampler.close()
    model = policy.model.to(torch.bfloat16)
    model.generation_config.eos_token_id = None
    found["generate"] = rate(lambda number: _generate(model, policy, prompts, workload), repeats)
    del model, policy, sampler
    torch.cuda.empty_cache()
    if vllm:
        found["vllm"], found["vllm_note"] = _vllm(workload, prompts, repeats)
    for peer in ("generate", "vllm"):
        if found.get(peer):
            found[f"groupwise_vs_{peer}"] = found["groupwise"] / found[peer]
    return found


def vllm_checks(policy: Policy, workload: Workload, python: str) -> list[Check]:
    """The sampler `vllm` on a server of its own against the plain pass, before and after a refresh.

    The policy's weights are changed. Raises GroupwiseError where the server fails.
    """
    prompts = prompts_of(policy, workload)
    rows = [ids for ids in prompts for _ in range(workload.group_size)]
    length = max(map(len, prompts)) + workload.rollout_tokens
    flags = ("--max-model-len", str(max(length, 64)), "--enforce-eager")
    if policy.device.type == "cuda":
        flags += ("--gpu-memory-utilization", "0.3")
    settings = VllmSettings(python=python, arguments=flags, start_seconds=_VLLM_SECONDS)
    sampler = make_sampler("vllm", policy, servers=settings)
    checks = []
    try:
        for number, when in enumerate(("as it started", "after new weights")):
            if number:
                with torch.no_grad():
                    for parameter in policy.model.parameters():
                        parameter.mul_(1.01)
            sampler.load(policy, number)
            sampled = sampler.sample(requests_of(prompts, workload, greedy=False, number=number))
            error = sampler_error(policy, rows, sampled)
            name = f"vLLM's log-probabilities {when}"
            checks.append(Check(name, error, TOLERANCE[torch.float32]))
    finally:
        sampler.close()
    return checks


def _generate(model: Any, policy: Policy, prompts: Sequence[Ids], workload: Workload) -> int:
    ids, mask = left_padded(prompts, policy.template.pad_id)
    with torch.inference_mode():
        output = model.generate(
            input_ids=ids.to(policy.device),
            attention_mask=mask.to(policy.device),
            do_sample=True,
            top_k=0,
            max_new_tokens=workload.rollout_tokens,
            num_return_sequences=workload.group_size,
            pad_token_id=policy.template.pad_id,
        )
    return int(output[:, ids.shape[1] :].numel())


def _vllm(
    workload: Workload, prompts: Sequence[Ids], repeats: int
) -> tuple[float | None, str | None]:
    """vLLM's rate, or None and why not. Loading new weights after an update is not in it."""
    try:
        from vllm import LLM, SamplingParams, TokensPrompt
    except ImportError as error:
        return None, f"not installed ({error})"
    from groupwise.policies import describe_model

    engine = LLM(
        model=describe_model(workload.model).source,
        dtype="bfloat16",
        gpu_memory_utilization=0.5,
        skip_tokenizer_init=True,
    )
    settings = SamplingParams(
        n=workload.group_size,
        temperature=1.0,
        max_tokens=workload.rollout_tokens,
        ignore_eos=True,
        detokenize=False,
    )
    inputs = [TokensPrompt(prompt_token_ids=list(ids)) for ids in prompts]

    def work(_: int) -> int:
        outputs = engine.generate(inputs, settings, use_tqdm=False)
        return sum(len(each.token_ids) for output in outputs for each in output.outputs)

    return rate(work, repeats), None


def _why_no_vllm(chosen: argparse.Namespace) -> str | None:
    """None where vLLM is checked, else why it is skipped."""
    if chosen.no_vllm:
        return "skipped: --no-vllm"
    if chosen.vllm is None and importlib.util.find_spec("vllm") is None:
        return "skipped: vLLM is not installed here; give --vllm the interpreter of its environment"
    return None


def main(given: Sequence[str] | None = None) -> int:
    chosen = arguments(given)
    problem = why_not(chosen.device)
    if problem is not None:
        print(problem, file=sys.stderr)
        return 2
    workload = workload_of(chosen)
    policy = load_policy(workload.model, dtype="float32", device=chosen.device)
    checks, skipped = correctness(policy, workload), _why_no_vllm(chosen)
    if skipped is None:
        checks += vllm_checks(policy, workload, chosen.vllm or sys.executable)
    on_gpu = policy.device.type == "cuda"
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(policy.device) if on_gpu else "cpu",
        "versions": versions(),
        "workload": workload.to_table(),
        "vllm": skipped or "checked",
        "checks": [{**asdict(check), "passed": check.passed} for check in checks],
    }
    passed = all(check.passed for check in checks)
    if on_gpu and passed:
        del policy
        report["tokens_per_second"] = speed(
            workload, chosen.device, chosen.repeats, vllm=not chosen.no_vllm
        )
    print(json.dumps(report, indent=1))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
