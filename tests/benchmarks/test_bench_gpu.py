"""gpu.py without a GPU: its arguments, its refusals, and its checks on the tiny model."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import pytest
import torch
from benchmarks.exactness import Check, gradient_error, left_padded, plain_logprobs, prompts_of
from benchmarks.workload import FULL, SMALL, Workload

from benchmarks import exactness, gpu
from groupwise.policies import Policy, load_policy, score


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy("tiny", dtype="float32", device="cpu")


def test_the_sizes_asked_for_replace_the_benchmarks_own() -> None:
    assert gpu.workload_of(gpu.arguments([])) == dataclasses.replace(FULL)
    assert gpu.workload_of(gpu.arguments(["--small"])) == SMALL
    chosen = gpu.workload_of(
        gpu.arguments(["--prompts", "3", "--group-size", "5", "--tokens", "7", "--model", "x"])
    )
    assert (chosen.model, chosen.rollout_rows, chosen.rollout_tokens) == ("x", 15, 7)


def test_a_size_of_zero_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        gpu.arguments(["--group-size", "0"])
    assert ended.value.code == 2
    assert "--group-size 0: give 1 or more" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_cuda_it_says_so_and_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--small"]) == 2
    assert "there is no CUDA device here" in capsys.readouterr().err


def test_the_checks_pass_on_the_tiny_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--device", "cpu", "--small"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [check["passed"] for check in report["checks"]] == [True] * 4
    assert report["vllm"].startswith("skipped: vLLM is not installed here; give --vllm")
    assert "tokens_per_second" not in report


@pytest.mark.parametrize(("spoilt", "code"), [(False, 0), (True, 1)])
def test_vllm_is_checked_before_and_after_new_weights(
    spoilt: bool,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By a stand-in for the server: one that takes new weights, and one that keeps the old ones."""
    make = gpu.make_sampler
    asked: list[Any] = []

    def stand_in(name: str, policy: Policy, servers: Any) -> Any:
        asked.append((name, servers.python, servers.arguments))
        kept = dataclasses.replace(policy, model=copy.deepcopy(policy.model)) if spoilt else policy
        sampler = make("transformers", kept)
        if spoilt:
            monkeypatch.setattr(sampler, "load", lambda *_: None)
        return sampler

    monkeypatch.setattr(gpu, "correctness", lambda *_: [])
    monkeypatch.setattr(gpu, "make_sampler", stand_in)
    assert gpu.main(["--device", "cpu", "--small", "--vllm", "other/python"]) == code
    report = json.loads(capsys.readouterr().out)
    assert report["vllm"] == "checked"
    assert [check["passed"] for check in report["checks"]] == [True, not spoilt]
    assert asked == [("vllm", "other/python", ("--max-model-len", "64", "--enforce-eager"))]


def test_a_failed_check_exits_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "correctness", lambda *_: [Check("greedy", 1.0, 0.0)])
    assert gpu.main(["--device", "cpu", "--small"]) == 1
    assert json.loads(capsys.readouterr().out)["checks"][0]["passed"] is False


def test_prompts_have_different_lengths(policy: Policy) -> None:
    work = dataclasses.replace(SMALL, rollout_prompts=4)
    lengths = [len(ids) for ids in prompts_of(policy, work)]
    assert lengths == [8, 7, 6, 8]


def test_left_padding() -> None:
    ids, mask = left_padded([(5, 6, 7), (8,)], pad_id=0)
    assert ids.tolist() == [[5, 6, 7], [0, 0, 8]]
    assert mask.tolist() == [[1, 1, 1], [0, 0, 1]]


def test_the_plain_pass_is_the_score(policy: Policy) -> None:
    with torch.no_grad():
        plain = plain_logprobs(policy, (1, 20, 21), (22, 23, 2))
    torch.testing.assert_close(plain, score(policy, (1, 20, 21), (22, 23, 2)), atol=2e-5, rtol=0)


def test_a_wrong_gradient_is_seen(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, completions = [(1, 20), (1, 21)], [(22, 2), (23, 24)]
    assert gradient_error(policy, rows, completions) < 1e-5
    right = exactness.sequence_logprobs

    def wrong(policy: Any, rows: Any, completions: Any) -> Any:
        made = right(policy, rows, completions)
        return dataclasses.replace(made, logprobs=made.logprobs * 1.01)

    monkeypatch.setattr(exactness, "sequence_logprobs", wrong)
    assert gradient_error(policy, rows, completions) == pytest.approx(0.01, rel=1e-3)


def test_the_benchmark_has_at_least_64_rows() -> None:
    assert FULL.rollout_rows == 64
    assert isinstance(FULL, Workload)
