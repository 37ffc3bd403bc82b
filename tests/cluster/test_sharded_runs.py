"""Runs on several processes: equal to one process, resumed, and their checkpoints at any size."""

from __future__ import annotations

import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import Tensor

import groupwise as gw
from groupwise.checkpoints import (
    load_checkpoint,
    newest_complete,
    restore_training_state,
    save_checkpoint,
    training_state,
)
from groupwise.distributed import ALONE, Ranks, shard, whole
from groupwise.distributed.shards import load_shards, shard_names
from groupwise.learner import TrainingSettings, make_optimizer
from groupwise.policies import load_policy
from groupwise.recipe import load_recipe
from rank_helpers import on_ranks
from vllm_stub import vllm_stub

pytestmark = pytest.mark.cluster

RECIPE: dict[str, Any] = {
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic", "level": "table"},
    "algorithm": {"preset": "grpo", "kl_coef": 0.01},
    "sampling": {"group_size": 4, "max_tokens": 4},
    # 7 prompts and 3 held-out ones, which no number of processes divides
    "training": {
        "steps": 4,
        "prompts_per_step": 7,
        "learning_rate": 1e-3,
        "micro_batch_tokens": 64,
    },
    "evaluation": {"every": 2, "samples": 2, "max_prompts": 3},
    "checkpoints": {"every": 2, "keep": 4},
    "record": {"token_details_every": 1},
}
TIMED = ("seconds", "memory", "tokens_per_second")
DIVIDED = ("forward/micro_batches", "forward/tokens")


def train(folder: Path, processes: int, **changes: Any) -> gw.Run:
    overrides = {"compute.processes": processes, "compute.deadline_seconds": 120.0, **changes}
    return gw.train(RECIPE, overrides, output=folder, resume=folder.exists())


def trained(folder: Path) -> Tensor:
    """All weights of the newest checkpoint."""
    policy = gw.load_policy("tiny")
    path = newest_complete(folder / "checkpoints")
    assert path is not None
    restore_training_state(
        policy.model, make_optimizer(policy.model.parameters(), TrainingSettings()),
        load_checkpoint(path),
    )  # fmt: skip
    return torch.cat([p.detach().flatten() for p in policy.model.parameters()])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    parent = tmp_path_factory.mktemp("runs")
    for size in (1, 2):
        train(parent / str(size), size)
    return {size: parent / str(size) for size in (1, 2)}


def test_two_processes_sample_learn_and_measure_what_one_does(runs: dict[int, Path]) -> None:
    one, two = (gw.open_run(runs[size]) for size in (1, 2))
    keys = ("prompt_id", "group_index", "completion_ids", "reward", "advantage", "kind")
    first = [
        [{k: row[k] for k in keys} for row in run.rollouts().to_pylist()] for run in (one, two)
    ]
    assert len(first[0]) == 4 * 7 * 4
    assert first[0] == first[1]
    details = [run.rollouts().to_pylist()[0] for run in (one, two)]
    for name in ("learner_logprobs", "loss_weights", "entropies"):
        assert details[0][name] == pytest.approx(details[1][name], rel=1e-4, abs=1e-7)
    for lines in zip(one.metrics().to_pylist(), two.metrics().to_pylist(), strict=True):
        for name, value in lines[0].items():
            if value is None or isinstance(value, str):
                assert lines[1][name] == value
            elif not name.startswith(TIMED) and name not in DIVIDED:
                assert lines[1][name] == pytest.approx(value, rel=1e-3, abs=1e-5), name
    weights = [trained(runs[size]) for size in (1, 2)]
    start = torch.cat([p.detach().flatten() for p in gw.load_policy("tiny").model.parameters()])
    moved = float((weights[0] - start).norm())
    assert moved > 0.1
    assert float((weights[1] - weights[0]).norm()) < 1e-2 * moved  # Adam divides by small moments
    assert sorted(path.name for path in runs[2].iterdir()) == sorted(
        path.name for path in runs[1].iterdir()
    )


def test_a_run_resumed_on_as_many_processes_equals_the_unbroken_one(
    runs: dict[int, Path], tmp_path: Path
) -> None:
    train(tmp_path / "run", 2, **{"training.steps": 2})
    train(tmp_path / "run", 2)
    assert torch.equal(trained(tmp_path / "run"), trained(runs[2]))
    lines = [gw.open_run(each).metrics().to_pylist() for each in (tmp_path / "run", runs[2])]
    for one, other in zip(*lines, strict=True):
        assert {k: v for k, v in one.items() if not k.startswith(TIMED)} == {
            k: v for k, v in other.items() if not k.startswith(TIMED)
        }


def test_a_run_goes_on_at_another_number_of_processes(
    runs: dict[int, Path], tmp_path: Path
) -> None:
    for size, steps in ((2, 2), (1, 3), (4, 4)):
        train(tmp_path / "run", size, **{"training.steps": steps})
    found, wanted = trained(tmp_path / "run"), trained(runs[1])
    assert float((found - wanted).norm()) < 1e-3 * float(wanted.norm())


def state_at(ranks: Ranks, path: Path, folder: Path | None = None) -> dict[str, Tensor]:
    """The whole weights and moments of a checkpoint, loaded by these ranks; written again into
    `folder` by them."""
    policy = load_policy("tiny")
    if ranks.size > 1:
        shard(policy, ranks)
    optimizer = make_optimizer(policy.model.parameters(), TrainingSettings())
    checkpoint = load_checkpoint(path)
    restore_training_state(policy.model, optimizer, checkpoint)
    model_state, optimizer_state = training_state(policy.model, optimizer)
    if folder is not None:
        save_checkpoint(
            folder,
            checkpoint.step,
            model_state=model_state,
            optimizer_state=optimizer_state,
            extra_tensors=checkpoint.extra_tensors,
            state=checkpoint.state,
            ranks=ranks,
        )
    found = {name: whole(tensor) for name, tensor in model_state.items()}
    for name, moments in optimizer_state["state"].items():
        found |= {f"{name} {key}": whole(tensor) for key, tensor in moments.items()}
    return found


def test_a_checkpoint_loads_exactly_at_any_number_of_processes(
    runs: dict[int, Path], tmp_path: Path
) -> None:
    path = runs[2] / "checkpoints" / "step_000004"
    wanted = state_at(ALONE, path, tmp_path / "one")
    assert any(name.endswith("exp_avg_sq") and bool(t.any()) for name, t in wanted.items())
    on_four = on_ranks(4, "cluster.test_sharded_runs:state_at", tmp_path / "one" / path.name,
                       tmp_path / "four")  # fmt: skip
    again = state_at(ALONE, tmp_path / "four" / path.name)
    for found in (*on_four, again):
        assert found.keys() == wanted.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())


def test_a_damaged_share_is_found(runs: dict[int, Path], tmp_path: Path) -> None:
    copy = tmp_path / "step_000002"
    shutil.copytree(runs[2] / "checkpoints" / "step_000002", copy)
    share = copy / "__1_0.distcp"
    share.write_bytes(share.read_bytes()[:-1] + b"x")
    with pytest.raises(gw.GroupwiseError, match=r"__1_0\.distcp does not match its hash"):
        load_checkpoint(copy)
    (copy / ".metadata").unlink()
    with pytest.raises(gw.GroupwiseError, match=r"\.metadata cannot be read"):
        load_checkpoint(copy)


def test_an_index_that_would_run_code_is_refused(runs: dict[int, Path], tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path / 'ran'}",)

    copy = tmp_path / "step_000002"
    shutil.copytree(runs[2] / "checkpoints" / "step_000002", copy)
    (copy / ".metadata").write_bytes(pickle.dumps(Evil()))
    for read in (shard_names, lambda path: load_shards(path, {"model.x": torch.zeros(1)})):
        with pytest.raises(gw.GroupwiseError, match=r"\.metadata names posix\.system"):
            read(copy)
    assert not (tmp_path / "ran").exists()


def test_the_model_is_exported_by_one_process(runs: dict[int, Path], tmp_path: Path) -> None:
    from groupwise.policies import save_pretrained
    from groupwise.training.trained import trained_policy

    folder = save_pretrained(trained_policy(runs[2]), tmp_path / "model")
    exported = torch.cat(
        [p.detach().flatten() for p in load_policy(str(folder)).model.parameters()]
    )
    assert torch.equal(exported, trained(runs[2]))


@pytest.mark.parametrize(
    ("changes", "tolerance"),
    [
        ({"model.adapter": {"rank": 4}, "model.gradient_checkpointing": True}, 1e-4),
        # its products round by what is multiplied together: micro-batches show in one process too
        ({"model.dtype": "bfloat16", "training.minibatches": 2, "training.passes": 2}, 0.05),
    ],
    ids=["lora with recomputation", "bfloat16 and several updates"],
)
def test_adapters_recomputation_and_bfloat16_are_those_of_one_process(
    changes: dict[str, Any], tolerance: float, tmp_path: Path
) -> None:
    lines = []
    for size in (1, 2):
        run = train(tmp_path / str(size), size, **{"training.steps": 2, **changes})
        lines.append(run.metrics().to_pylist()[0])
    for name in ("reward", "tokens/trained", "updates"):
        assert lines[1][name] == lines[0][name]
    for name in ("grad_norm", "entropy"):
        assert lines[1][name] == pytest.approx(lines[0][name], rel=tolerance), name


def listening(ranks: Ranks) -> list[str]:
    ranks.gather(0)
    found = psutil.Process().net_connections("inet")
    return [each.laddr.ip for each in found if each.status == psutil.CONN_LISTEN]


def test_processes_of_one_machine_listen_on_loopback_alone() -> None:
    for addresses in on_ranks(2, "cluster.test_sharded_runs:listening"):
        assert set(addresses) <= {"127.0.0.1", "::1"}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("raises", r"^rank 1: verifier 'raises' raised on row 0.*KeyError: 'no such answer'"),
        ("is_killed", r"^rank 1 was killed \(signal 9\)"),
        ("freezes", r"^rank 1 does not answer"),
    ],
)
def test_a_rank_that_fails_ends_all_and_is_named(
    function: str, message: str, tmp_path: Path
) -> None:
    verifiers = [{"name": f"failing_rewards:{function}"}]
    started = time.monotonic()
    with pytest.raises(gw.GroupwiseError, match=message):
        train(
            tmp_path / "run",
            2,
            **{"environment.verifiers": verifiers, "compute.deadline_seconds": 20.0},
        )
    assert time.monotonic() - started < 120.0  # imports and a step on a busy machine; 20 in waiting
    run = gw.open_run(tmp_path / "run")
    assert run.summary["status"] == "failed"
    assert "rank 1" in next(iter(run.events("failed")))["error"]
    children = psutil.Process().children(recursive=True)
    assert [each for each in children if "groupwise" in " ".join(each.cmdline())] == []


@pytest.mark.parametrize(
    ("number", "when"),
    [(signal.SIGTERM, "start"), (signal.SIGKILL, "start"), (signal.SIGKILL, "steps")],
)
def test_all_processes_and_their_folder_go_with_the_first(
    number: signal.Signals, when: str, tmp_path: Path
) -> None:
    """Within seconds, though they wait up to 600 s for each other."""
    verifiers = [{"name": "failing_rewards:takes_long"}]
    changes = {"environment.verifiers": verifiers, "training.steps": 500}
    recipe = load_recipe(RECIPE, {**changes, "compute.processes": 2})
    (tmp_path / "slow.toml").write_text(recipe.to_toml())
    (tmp_path / "temporary").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "groupwise", "train", "slow.toml", "--output", "run"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path),
            "TMPDIR": str(tmp_path / "temporary"),
        },
        stderr=subprocess.DEVNULL,
    )
    try:
        others = await_others(
            process, tmp_path / "run" / "metrics.jsonl" if when == "steps" else None
        )
        process.send_signal(number)
        assert process.wait(timeout=60) == (143 if number == signal.SIGTERM else -number)
        _, alive = psutil.wait_procs(others, timeout=60)
        assert alive == []
    finally:
        process.kill()
    assert list((tmp_path / "temporary").glob("groupwise-*")) == []


def await_others(process: subprocess.Popen[bytes], file: Path | None) -> list[psutil.Process]:
    """The processes that a run has started, once that file is there."""
    for _ in range(1200):
        found = psutil.Process(process.pid).children(recursive=True)
        others = [each for each in found if "groupwise" in " ".join(each.cmdline())]
        if others and (file is None or file.exists()):
            return others
        time.sleep(0.1)
    raise AssertionError("it did not start")


def saves_too_much(ranks: Ranks, folder: Path) -> str:
    """What a checkpoint raises whose share does not fit on the disk of rank 1."""
    policy = load_policy("tiny")
    shard(policy, ranks)
    model_state = {name: each.detach() for name, each in policy.model.named_parameters()}
    if ranks.rank == 1:  # a limit of files' sizes in place of a disk: the write fails as well
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
    with pytest.raises(gw.GroupwiseError) as caught:
        save_checkpoint(folder, 1, model_state=model_state, state={}, ranks=ranks)
    if ranks.rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    return str(caught.value)


def test_a_disk_that_is_full_for_one_process_is_named_by_all(tmp_path: Path) -> None:
    for said in on_ranks(2, "cluster.test_sharded_runs:saves_too_much", tmp_path / "checkpoints"):
        assert said.startswith("the checkpoint after step 1 could not be written to")
        assert "rank 1: " in said
        assert "rank 0: " not in said
        assert "Traceback" not in said
        assert said.endswith("; older checkpoints are intact")
    assert list((tmp_path / "checkpoints").iterdir()) == []


def raises_alone(ranks: Ranks) -> None:
    if ranks.rank == 1:
        raise ValueError("boom")
    ranks.gather(0)


def has_other_data(ranks: Ranks) -> str:
    with pytest.raises(gw.GroupwiseError) as caught:
        ranks.same("data with the hash", "abc"[ranks.rank])
    return str(caught.value)


def test_data_or_a_recipe_that_differs_is_named_by_all() -> None:
    said = "rank 1 has data with the hash b, and rank 0 has a: all processes of a run need the same"
    assert on_ranks(2, "cluster.test_sharded_runs:has_other_data") == [said, said]


def test_an_error_of_one_process_between_exchanges_is_named_by_the_others() -> None:
    with pytest.raises(AssertionError, match="GroupwiseError: rank 1 failed: ValueError: boom"):
        on_ranks(2, "cluster.test_sharded_runs:raises_alone")


def test_an_exchange_that_breaks_off_is_no_misfit(
    runs: dict[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = runs[2] / "checkpoints" / "step_000002"
    name = min(name for name in shard_names(path) if name.startswith("model."))
    with pytest.raises(gw.GroupwiseError, match=r"does not fit: rank 0: .*[Ss]ize") as caught:
        load_shards(path, {name: torch.zeros(1)})
    assert "Traceback" not in str(caught.value)

    def breaks(*_: Any, **__: Any) -> None:
        raise RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer")

    monkeypatch.setattr("torch.distributed.checkpoint.load", breaks)
    with pytest.raises(RuntimeError, match="Connection closed"):
        load_shards(path, {name: torch.zeros(1)})


def test_a_signal_to_one_process_stops_all_with_a_checkpoint(tmp_path: Path) -> None:
    text = load_recipe(
        RECIPE,
        {
            "environment.verifiers": [{"name": "failing_rewards:takes_long"}],
            "training.steps": 500,
            "compute.processes": 2,
        },
    ).to_toml()
    (tmp_path / "slow.toml").write_text(text)
    folder = tmp_path / "run"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "groupwise",
            "train",
            str(tmp_path / "slow.toml"),
            "--output",
            folder,
        ],
        env=env,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for _ in range(1200):
            lines = folder / "metrics.jsonl"
            if lines.is_file() and lines.read_text().count("\n") > 1:
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 143, said
    run = gw.open_run(folder)
    path = newest_complete(folder / "checkpoints")
    assert path is not None
    assert path.name == f"step_{run.summary['steps']:06d}"
    assert run.summary["status"] == "interrupted"


def test_an_rl_stage_of_a_pipeline_starts_its_own_processes(tmp_path: Path) -> None:
    stage = {key: value for key, value in RECIPE.items() if key != "model"}
    stage |= {"kind": "rl", "training": RECIPE["training"] | {"steps": 1}}
    run = gw.train(
        {"model": RECIPE["model"], "compute": {"processes": 2}, "stages": [stage]},
        output=tmp_path / "run",
    )
    assert run.summary["stages"][0]["status"] == "finished"
    (started,) = gw.open_run(tmp_path / "run" / "stages" / "rl").events("started")
    assert started["processes"] == 2
    assert load_policy(str(tmp_path / "run" / "stages" / "rl" / "model")).num_parameters > 0


def test_torchrun_starts_the_processes_of_one_run(runs: dict[int, Path], tmp_path: Path) -> None:
    recipe = load_recipe(RECIPE, {"compute.deadline_seconds": 120.0})
    (tmp_path / "recipe.toml").write_text(recipe.to_toml())
    said = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
            "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1",
            "-m", "groupwise", "train", tmp_path / "recipe.toml", "--output", tmp_path / "run",
            "--quiet",
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)},
        capture_output=True,
        text=True,
        timeout=240,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert said.stdout.count("the run's record is in") == 1
    assert torch.equal(trained(tmp_path / "run"), trained(runs[2]))


def test_servers_are_shared_by_the_processes(tmp_path: Path) -> None:
    """One process gives them the weights, and all sample where it found them right."""
    first = {}
    for size in (1, 2):
        with ExitStack() as stack:
            policy = gw.load_policy("tiny", device="cpu")
            good, bad = (stack.enter_context(vllm_stub(policy)) for _ in range(2))
            bad.faults.add("refused")
            table = {"servers": [good.url, bad.url]}
            changes = {"sampling.sampler": "vllm", "sampling.vllm": table, "training.steps": 2}
            run = train(tmp_path / str(size), size, **changes)
            assert good.calls.count("/update_weight_version") == 3  # once for every version
            assert bad.calls.count("/update_weight_version") == 0
            assert good.bodies
            assert not bad.bodies
        rows = run.rollouts().to_pylist()
        first[size] = [(row["prompt_id"], row["completion_ids"]) for row in rows[:28]]
        assert run.metrics().to_pandas()["sampler_gap/max"].max() < 1e-4
        lost = [event for event in run.events() if event.get("about") == "sampler_server"]
        assert len(lost) == 1
    assert first[1] == first[2]
