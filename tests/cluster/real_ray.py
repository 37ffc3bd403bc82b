"""Runs on a real Ray cluster of two nodes on this machine: unbroken, and with every kind of loss.

    make test-cluster        # needs groupwise[cluster]; not collected by pytest by itself

The result of a run that lost workers, a node or its learner is that of the unbroken one: ids,
log-probabilities, rewards and metrics. Nodes are 127.0.0.2 (the head, without workers) and up.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from ray.cluster_utils import Cluster

import groupwise
from groupwise import cluster as groupwise_cluster
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.proving.equality import compare_runs
from groupwise.records import Run, open_run
from groupwise.training.process import Interrupted, Interruption

STEPS = 6
SETTINGS = {
    "training.steps": STEPS,
    "training.prompts_per_step": 16,
    "evaluation.every": 0,
    "evaluation.samples": 2,
    "checkpoints.every": 1,
    "environment.audit": False,
    "compute.samplers": 2,
    "compute.verifiers": 1,
    "compute.silence_seconds": 15.0,
    "compute.deadline_seconds": 300.0,
}
WORKERS = (("sampler", 0), ("sampler", 1), ("verifier", 0))
Events = list[dict[str, Any]]
Fault = tuple[int, Callable[[Events], None]]
"""After so many steps, what happens."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    settings = {
        "health_check_period_ms": 1000, "health_check_timeout_ms": 3000,
        "health_check_failure_threshold": 3,
        "memory_monitor_refresh_ms": 0,  # other work's memory is no loss of ours
    }  # fmt: skip
    os.environ |= {f"RAY_{name}": str(value) for name, value in settings.items()}
    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "node_ip_address": "127.0.0.2"}
    )
    for last in (3, 4):
        made.add_node(num_cpus=4, node_ip_address=f"127.0.0.{last}")
    yield made
    made.shutdown()


def train(
    nodes: Cluster, folder: Path, faults: Sequence[Fault] = (), resume: bool = False, **more: Any
) -> Run:
    """The recipe on those nodes, while `faults` happen."""
    errors: list[Exception] = []
    ended = threading.Event()

    def harm() -> None:
        try:
            for step, act in faults:
                while not ended.is_set() and len(steps_of(folder)) < step:
                    time.sleep(0.05)
                act(open_run(folder).events())
        except Exception as error:  # noqa: BLE001 (raised by the main thread)
            errors.append(error)

    thread = threading.Thread(target=harm, daemon=True)
    thread.start()
    try:
        run = groupwise_cluster.train(
            "tiny_arithmetic.toml",
            {**SETTINGS, "compute.cluster": nodes.address, **more},
            output=folder,
            resume=resume,
        )
    finally:
        ended.set()
        thread.join(timeout=10)
    assert not errors, errors
    return run


def steps_of(folder: Path) -> list[str]:
    path = folder / "metrics.jsonl"
    return path.read_text("utf-8").splitlines() if path.is_file() else []


def worker(events: Events, role: str, number: int = 0) -> tuple[str, int]:
    """Address and process of the newest worker of that role and number."""
    joined = [each for each in events if each["kind"] == "worker_joined"]
    place = [e for e in joined if (e["role"], e["worker"]) == (role, number)][-1]["node"]
    found = re.fullmatch(r"(\S+) \(process (\d+)\)", place)
    assert found is not None, place
    return found[1], int(found[2])


def send(number: signal.Signals, role: str, place: int = 0) -> Callable[[Events], None]:
    return lambda events: os.kill(worker(events, role, place)[1], number)


def kinds(run: Run, kind: str) -> list[tuple[str, int]]:
    return [(event["role"], event["worker"]) for event in run.events(kind)]


@pytest.fixture(scope="module")
def unbroken(nodes: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = train(nodes, tmp_path_factory.mktemp("runs") / "unbroken")
    assert run.summary["status"] == "finished"
    assert len(run.metrics()) == STEPS
    assert run.events("worker_lost") == []
    assert sorted(kinds(run, "worker_joined")) == [("learner", 0), *WORKERS]
    return run


def assert_equal(run: Run, other: Run) -> None:
    assert run.summary["status"] == "finished"
    assert compare_runs(other.folder, run.folder).first is None


def test_the_first_steps_ids_are_those_of_one_process(unbroken: Run, tmp_path: Path) -> None:
    changes = {k: v for k, v in SETTINGS.items() if not k.startswith("compute.")}
    alone = groupwise.train(
        "tiny_arithmetic.toml", {**changes, "training.steps": 1}, output=tmp_path / "alone"
    )
    columns = ["prompt_id", "visit", "group_index", "completion_ids", "reward"]
    assert alone.rollouts(0, columns).to_pylist() == unbroken.rollouts(0, columns).to_pylist()


def test_killed_and_frozen_workers_are_replaced_and_change_nothing(
    nodes: Cluster, unbroken: Run, tmp_path: Path
) -> None:
    """Both samplers are frozen, so the run goes on only where a frozen one is replaced."""
    run = train(
        nodes,
        tmp_path / "run",
        [
            (1, send(signal.SIGSTOP, "sampler", 0)),
            (1, send(signal.SIGSTOP, "sampler", 1)),
            (3, send(signal.SIGKILL, "sampler", 1)),
            (4, send(signal.SIGKILL, "verifier", 0)),
        ],
    )
    assert_equal(run, unbroken)
    lost = kinds(run, "worker_lost")
    assert sorted(lost[:2]) == [("sampler", 0), ("sampler", 1)]
    assert lost[-1] == ("verifier", 0)
    assert len(lost) >= 3
    frozen = run.events("worker_lost")[:2]
    assert all("answered nothing for 15 s" in each["why"] for each in frozen)
    assert [each["reissued"] for each in frozen] == [1, 1]
    joined = kinds(run, "worker_joined")
    assert max(joined.count(("sampler", 0)), joined.count(("sampler", 1))) >= 2
    assert joined.count(("verifier", 0)) == 2


def test_a_killed_learner_starts_again_from_its_checkpoint(
    nodes: Cluster, unbroken: Run, tmp_path: Path
) -> None:
    run = train(nodes, tmp_path / "run", [(3, send(signal.SIGKILL, "learner"))])
    assert_equal(run, unbroken)
    (lost,) = run.events("learner_lost")
    assert lost["rank"] == 0
    assert next(event["step"] for event in run.events("resumed")) >= 2


def test_two_learner_processes_start_again_together(nodes: Cluster, tmp_path: Path) -> None:
    """Each has a sampler of its own; the second one is killed, then frozen."""
    two = {"compute.processes": 2, "compute.verifiers": 0}
    unbroken = train(nodes, tmp_path / "unbroken", **two)
    assert sorted(kinds(unbroken, "worker_joined")) == [
        ("learner", 0), ("learner", 1), ("sampler", 0), ("sampler", 1),
    ]  # fmt: skip
    faults = [
        (2, send(signal.SIGKILL, "learner", 1)),
        (4, send(signal.SIGSTOP, "learner", 1)),
    ]
    run = train(nodes, tmp_path / "run", faults, **two)
    assert_equal(run, unbroken)
    lost = run.events("learner_lost")
    assert [each["rank"] for each in lost] == [1, 1]
    assert "answered nothing for 15 s" in lost[1]["why"]


def test_a_signal_stops_the_run_with_a_checkpoint_and_it_resumes_equal(
    nodes: Cluster, unbroken: Run, tmp_path: Path
) -> None:
    with pytest.raises(Interrupted, match="resume it with --resume"):
        train(nodes, tmp_path / "run", [(2, lambda _: os.kill(os.getpid(), signal.SIGTERM))])
    assert open_run(tmp_path / "run").summary["status"] == "interrupted"
    assert_equal(train(nodes, tmp_path / "run", resume=True), unbroken)


def test_a_signal_while_processes_start_is_not_lost(nodes: Cluster, tmp_path: Path) -> None:
    def signal_early() -> None:
        while Interruption.active is None:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=signal_early, daemon=True)
    thread.start()
    with pytest.raises(Interrupted, match=f"interrupted before step 1 of {STEPS} steps"):
        train(nodes, tmp_path / "run")
    thread.join()


def test_what_a_run_raises_ends_it_at_once(nodes: Cluster, tmp_path: Path) -> None:
    with pytest.raises(GroupwiseError, match="refuses"):
        train(
            nodes,
            tmp_path / "run",
            **{
                "environment.verifiers": [{"name": "tests.cluster.real_ray:refuses"}],
                "compute.verifiers": 0,
            },
        )
    assert open_run(tmp_path / "run").summary["status"] == "failed"


def refuses(prompts: Any, completions: list[str], **_: Any) -> list[float]:
    """Fails in the cluster's processes, and passes the checks before them."""
    if "RAY_RAYLET_PID" in os.environ:
        raise ValueError("refuses")
    return [0.0 for _ in completions]


def test_what_cannot_be_placed_is_named_within_the_deadline(nodes: Cluster, tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(GroupwiseError, match=r"1 learner, 99 sampler and 1 verifier processes were not placed within compute.deadline_seconds = 3"):  # fmt: skip  # noqa: E501
        train(nodes, tmp_path / "run", **{"compute.samplers": 99, "compute.deadline_seconds": 3.0})
    assert time.monotonic() - begun < 60


def test_a_node_with_another_version_is_named(
    nodes: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "9.9" if name == "torch" else real(name))
    with pytest.raises(
        GroupwiseError, match=r"node 127\.0\.0\.\d has torch .*, and this machine 9\.9"
    ):
        train(nodes, tmp_path / "run")


def test_no_cluster_at_the_address_is_named(tmp_path: Path) -> None:
    with pytest.raises(GroupwiseError, match=r"compute\.cluster = '127\.0\.0\.9:1': no cluster"):
        groupwise_cluster.train(
            "tiny_arithmetic.toml", {"compute.cluster": "127.0.0.9:1"}, output=tmp_path / "run"
        )


def test_a_verifier_of_whole_batches_stays_with_the_learner(tmp_path: Path) -> None:
    changes = {
        "compute.cluster": "auto", "compute.verifiers": 1,
        "environment.verifiers": [{"name": "tests.cluster.real_ray:refuses"}],
    }  # fmt: skip
    with pytest.raises(RecipeError, match=r"compute\.verifiers = 1: verifier '.*refuses' reads"):
        groupwise_cluster.train("tiny_arithmetic.toml", changes, output=tmp_path / "run")
    assert not ray.is_initialized()


def test_a_killed_and_a_frozen_node_change_nothing(
    nodes: Cluster, unbroken: Run, tmp_path: Path
) -> None:
    def other_node(events: Events) -> Any:
        """A node that holds workers and not the learner."""
        learner = worker(events, "learner")[0]
        held = {worker(events, role, n)[0] for role, n in WORKERS} - {learner}
        return next(each for each in nodes.worker_nodes if each.node_ip_address in held)

    def kill(events: Events) -> None:
        nodes.remove_node(other_node(events), allow_graceful=False)

    def freeze(events: Events) -> None:
        raylet = psutil.Process(other_node(events).all_processes["raylet"][0].process.pid)
        for process in [*raylet.children(recursive=True), raylet]:
            process.suspend()

    nodes.add_node(num_cpus=4, node_ip_address="127.0.0.5")
    run = train(nodes, tmp_path / "run", [(2, kill), (4, freeze)])
    assert_equal(run, unbroken)
    assert len(run.events("worker_lost")) >= 2
