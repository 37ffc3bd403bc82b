"""Who is in a run, what is refused, and who is named when one does not come."""

from __future__ import annotations

import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import groupwise as gw
from groupwise.distributed import ALONE, ComputeSettings, Ranks, joined, world_size
from groupwise.distributed.launch import _Others
from groupwise.errors import GroupwiseError, NonFiniteError, RecipeError
from groupwise.policies import choose_device

RECIPE: dict[str, Any] = {
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic", "level": "table"},
    "algorithm": {"preset": "grpo"},
    "training": {"steps": 1},
    "compute": {"processes": 2},
}


def of(store: Path, rank: int, deadline: float = 0.2) -> Ranks:
    return Ranks(rank, 2, deadline, store=dist.FileStore(str(store), 2))


def test_one_process_exchanges_with_itself() -> None:
    assert ALONE.leads
    assert ALONE.gather("a") == ["a"]
    assert ALONE.first(lambda: 3) == 3
    assert ALONE.share([1, 2, 3], lambda part, real: (part, real)) == [
        (1, True), (2, True), (3, True),
    ]  # fmt: skip


def test_the_number_of_processes_is_the_recipes_or_torchruns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert world_size() == 1
    assert world_size(3) == 3
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert world_size(3) == 4


def test_a_rank_that_does_not_come_is_named(tmp_path: Path) -> None:
    with pytest.raises(GroupwiseError, match=r"rank 1 of 2 did not come within .* = 0\.2"):
        of(tmp_path / "store", 0).await_all("1.0", lambda: None)


@pytest.mark.parametrize(
    ("rank", "message"),
    [
        ("0", r"^rank 0 of 2 did not meet the others at .*: .*EADDRINUSE"),
        ("1", r"^rank 1 of 2 did not meet the others at .* \(compute\.deadline_seconds = 1\): "),
        ("2", r"^WORLD_SIZE = 2 in the environment and RANK = 2: .* 0 to 1; start one, or unset"),
    ],
    ids=["a port in use", "no peer", "no rank"],
)
def test_what_a_launcher_does_not_bring_together_is_named(
    rank: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        if rank == "0":
            taken.listen()
        variables = {
            "WORLD_SIZE": "2", "RANK": rank, "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(taken.getsockname()[1]),
        }  # fmt: skip
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with (
            pytest.raises(GroupwiseError, match=message),
            joined(ComputeSettings(deadline_seconds=1), "cpu", ""),
        ):
            raise AssertionError("it was joined")


def test_another_version_is_refused(tmp_path: Path) -> None:
    first, second = of(tmp_path / "store", 0), of(tmp_path / "store", 1)
    assert second.store is not None
    second.store.set("here/1", "torch 2.9")
    with pytest.raises(
        GroupwiseError, match=r"rank 1 runs torch 2\.9, and rank 0 runs torch 2\.13"
    ):
        first.await_all("torch 2.13", lambda: None)


def test_a_broken_exchange_names_the_rank_that_failed_or_is_silent(tmp_path: Path) -> None:
    first, second = of(tmp_path / "store", 0), of(tmp_path / "store", 1)
    with pytest.raises(NonFiniteError), second.named():
        raise NonFiniteError("step 3: the loss is not finite")
    with (
        pytest.raises(GroupwiseError, match=r"^rank 1 failed: NonFiniteError: step 3: the loss"),
        first.named(),
    ):
        raise RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": {"preset": "ppo"}}, r"algorithm 'ppo' on 2 processes .* a critic is not"),
        ({"sampling": {"routing_replay": True}}, r"sampling\.routing_replay on 2 processes"),
        (
            {"model": {"name": "tiny", "device": "cuda:0"}},
            r"model\.device = 'cuda:0' on 2 processes",
        ),
        (
            {"sampling": {"sampler": "vllm", "vllm": {"servers": ["http://a"], "sleep": True}}},
            r"sampling\.vllm\.sleep on 2 processes .* would sleep while another process samples",
        ),
        (
            {"sampling": {"sampler": "vllm", "vllm": {"servers": ["http://a"], "refresh": "nccl"}}},
            r'sampling\.vllm\.refresh = "nccl" on 2 processes',
        ),
        ({"compute": {"processes": 0}}, r"compute\.processes = 0"),
    ],
)
def test_what_several_processes_cannot_do_is_refused_before_they_start(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match=message):
        gw.train(RECIPE | changes, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_each_process_names_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert choose_device("auto") == torch.device("cuda")
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert choose_device("auto") == torch.device("cuda", 3)


def test_more_processes_than_gpus_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(
        RecipeError, match=r"compute\.processes = 2: .* this machine has 1; give at"
    ):
        gw.train(RECIPE, output=tmp_path / "run")


def test_a_pipeline_under_torchrun_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    recipe = {"model": {"name": "tiny"}, "stages": [{"kind": "rl"}]}
    with pytest.raises(RecipeError, match=r"a pipeline does not run under torchrun"):
        gw.train(recipe, output=tmp_path / "run")


def test_more_processes_than_a_machine_has_room_for_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("subprocess.Popen", None)
    with pytest.raises(RecipeError, match=r"compute.processes = 9: .* 2 cores.* at most 8"):
        gw.train(RECIPE, {"compute.processes": 9, "model.device": "cpu"})


def test_processes_end_where_a_later_one_cannot_be_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    others = _Others(tmp_path, 3, "", threads=1)
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def popen(command: Any, **options: Any) -> Any:
        if started:
            raise BlockingIOError("no more processes")
        started.append(real(["sleep", "60"], start_new_session=options["start_new_session"]))
        return started[0]

    monkeypatch.setattr("subprocess.Popen", popen)
    with pytest.raises(BlockingIOError), others:
        raise AssertionError("it was entered")
    assert started[0].returncode == -signal.SIGKILL
