"""The Slurm and KubeRay examples: syntax, a dry run with stand-ins, the fields that are used."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field

from groupwise.cli.overrides import parse_overrides
from groupwise.recipe import find_recipe, load_recipe

EXAMPLES = Path(__file__).parents[2] / "examples" / "cluster"
SCRIPTS = sorted(EXAMPLES.glob("*.sbatch"))


def trained(line: str) -> dict[str, Any]:
    """The `[compute]` table that a `groupwise train` command line means; every option is known."""
    words = shlex.split(line)
    words = words[words.index("groupwise") :]
    assert words[:2] == ["groupwise", "train"]
    own = {"--output": 1, "--resume": 0}
    rest: list[str] = []
    place = 3
    while place < len(words):
        if words[place] in own:
            place += 1 + own[words[place]]
        else:
            rest += words[place : place + 2]
            place += 2
    # more than one process is checked by the field's own range
    overrides = {k: v for k, v in parse_overrides(rest).items() if k != "compute.processes"}
    return load_recipe(find_recipe("tiny_arithmetic.toml"), overrides).compute.model_dump()


def dry_run(script: Path, folder: Path) -> list[str]:
    """What a script would start, with stand-ins for Slurm, Ray and groupwise on its path."""
    tools = folder / "tools"
    (folder / "env" / "bin").mkdir(parents=True)
    (folder / "env" / "bin" / "activate").touch()
    tools.mkdir()
    stand_ins = {
        "scontrol": "echo node1; echo node2",
        "srun": 'case "$*" in *--ip-address*) echo 10.0.0.1 fe80::1 ;; *) echo "$*" ;; esac',
    }
    for name, body in stand_ins.items():
        (tools / name).write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        (tools / name).chmod(0o700)
    done = subprocess.run(
        ["bash", script, "recipe.toml", "/shared/runs/a"],
        env={
            "PATH": f"{tools}:{os.environ['PATH']}", "GROUPWISE_ENV": str(folder / "env"),
            "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_CPUS_PER_TASK": "32",
            "SLURM_SUBMIT_DIR": str(folder),
        },
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_the_scripts_parse_and_ask_slurm_for_what_they_use(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True, timeout=30)
    text = script.read_text("utf-8")
    assert "set -euo pipefail" in text
    asked = [line.split()[1] for line in text.splitlines() if line.startswith("#SBATCH")]
    assert {"--gpus-per-node=8", "--ntasks-per-node=1"} <= set(asked)
    assert any(each.endswith("TERM@120") for each in asked)  # time for a checkpoint


def test_two_nodes_start_a_head_a_worker_and_the_run(tmp_path: Path) -> None:
    head, train, worker = sorted(
        dry_run(EXAMPLES / "two_nodes.sbatch", tmp_path),
        key=lambda line: (not line.endswith("dashboard=false"), "ray start" in line),
    )
    assert "--nodelist=node1 --overlap ray start --block --num-cpus=32 --head" in head
    assert "--node-ip-address=10.0.0.1 --port=6379" in head
    assert worker.endswith("--nodelist=node2 --overlap ray start --block --num-cpus=32 "
                           "--address=10.0.0.1:6379")  # fmt: skip
    found = trained(train)
    assert found["cluster"] == "10.0.0.1:6379"
    assert (found["samplers"], found["verifiers"]) == (8, 16)
    assert "--compute.processes 8" in train


def test_one_node_needs_no_ray(tmp_path: Path) -> None:
    (train,) = dry_run(EXAMPLES / "one_node.sbatch", tmp_path)
    assert trained(train)["cluster"] is None
    assert "--compute.processes 8" in train


def test_the_documented_srun_of_two_nodes_starts_this_run(tmp_path: Path) -> None:
    text = (EXAMPLES.parents[1] / "docs" / "scale.md").read_text("utf-8")
    (command,) = re.findall(r"^srun .*?--resume'$", text, re.MULTILINE | re.DOTALL)
    script = tmp_path / "run.sh"
    script.write_text(f"set -euo pipefail\n{command}\n", encoding="utf-8")
    lines = sorted(dry_run(script, tmp_path), key=lambda line: not line.startswith("bash"))
    started = " ".join(lines)
    assert started.startswith("bash -c torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d")
    assert trained(started.replace("\\", " "))["processes"] == 1
    assert started.endswith("-m groupwise train recipe.toml --output /shared/runs/a --resume")


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Resources(Model):
    requests: dict[str, str]
    limits: dict[str, str]


class Mount(Model):
    name: str
    mountPath: str  # noqa: N815 (Kubernetes' name)


class Container(Model):
    name: str
    image: str
    resources: Resources
    volumeMounts: list[Mount]  # noqa: N815


class Volume(Model):
    name: str
    persistentVolumeClaim: dict[Literal["claimName"], str] | None = None  # noqa: N815
    emptyDir: dict[Literal["medium", "sizeLimit"], str] | None = None  # noqa: N815


class PodSpec(Model):
    containers: list[Container]
    volumes: list[Volume]


class Pod(Model):
    spec: PodSpec


class Head(Model):
    rayStartParams: dict[str, str]  # noqa: N815
    template: Pod


class Workers(Head):
    groupName: str  # noqa: N815
    replicas: int
    minReplicas: int  # noqa: N815
    maxReplicas: int  # noqa: N815


class ClusterSpec(Model):
    rayVersion: str  # noqa: N815
    headGroupSpec: Head  # noqa: N815
    workerGroupSpecs: list[Workers]  # noqa: N815


class JobSpec(Model):
    entrypoint: str
    submissionMode: Literal["K8sJobMode", "HTTPMode"]  # noqa: N815
    backoffLimit: int = Field(ge=0)  # noqa: N815
    shutdownAfterJobFinishes: bool  # noqa: N815
    ttlSecondsAfterFinished: int  # noqa: N815
    rayClusterSpec: ClusterSpec  # noqa: N815


class RayJob(Model):
    apiVersion: Literal["ray.io/v1"]  # noqa: N815
    kind: Literal["RayJob"]
    metadata: dict[Literal["name"], str]
    spec: JobSpec


def test_the_kuberay_job_has_the_fields_of_ray_io_v1_and_holds_what_it_places() -> None:
    """Every name is one of KubeRay's `RayJob`, and bundles fit the workers that are asked for."""
    job = RayJob.model_validate(yaml.safe_load((EXAMPLES / "kuberay.yaml").read_text("utf-8")))
    spec = job.spec.rayClusterSpec
    pods = [spec.headGroupSpec.template, *(each.template for each in spec.workerGroupSpecs)]
    for pod in pods:
        volumes = {each.name for each in pod.spec.volumes}
        (container,) = pod.spec.containers
        assert {mount.name for mount in container.volumeMounts} == volumes
        assert container.resources.requests == container.resources.limits
    (workers,) = spec.workerGroupSpecs
    limits = workers.template.spec.containers[0].resources.limits
    gpus = workers.replicas * int(limits["nvidia.com/gpu"])
    cpus = workers.replicas * int(limits["cpu"])
    found = trained(job.spec.entrypoint)
    processes = int(job.spec.entrypoint.split("--compute.processes ")[1].split()[0])
    assert processes + found["samplers"] == gpus
    assert processes + found["samplers"] + found["verifiers"] <= cpus
    assert found["cluster"] == "auto"
