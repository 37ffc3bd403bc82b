"""A run on a Ray cluster: connect, check the nodes, place the roles, watch the learner.

The learner's processes are actors in one placement group with the samplers and verifiers, which
they own. The first error ends all of them. A lost one (dead, or silent) is an event, and all start
again from the last checkpoint, at most `compute.restarts` times.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from groupwise.cluster.learner import LearnerRank
from groupwise.cluster.pool import Later, Lost, Pool, Task
from groupwise.cluster.roles import placed
from groupwise.distributed import ComputeSettings
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.recipe import Recipe, find_recipe, load_recipe
from groupwise.records import Run, open_run
from groupwise.training.callbacks import Callback
from groupwise.training.output import clear, holds_run, run_folder
from groupwise.training.preparing import prepare
from groupwise.training.process import Interrupted, Interruption


def train(
    recipe: str | Path | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    output: str | Path | None = None,
    resume: bool = False,
    *,
    overwrite: bool = False,
    small: bool = False,
    replay_schedule: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """`groupwise.train` for a recipe with `compute.cluster`, of one run.

    The run's folder must be on storage that this machine and the learner's nodes share. Callbacks
    see the start, the lines of steps and the end.

    Raises RecipeError (bad input), GroupwiseError (a cluster that cannot be reached or has not what
    is asked for, a run that failed).
    """
    source = recipe if isinstance(recipe, Mapping) else find_recipe(str(recipe))
    resolved = load_recipe(source, overrides, small=small)
    settings = resolved.compute
    if replay_schedule is not None:
        raise RecipeError(
            "--replay-schedule follows a run that sampled ahead of learning, and those are not "
            "placed on a cluster; leave compute.cluster out"
        )
    if settings.samplers and resolved.sampling.servers is not None:
        raise RecipeError(
            f'compute.samplers = {settings.samplers} with sampling.sampler = "'
            f'{resolved.sampling.sampler}": the learner '
            "speaks to those servers itself; give 0"
        )
    ray = _ray()
    prepared = prepare(resolved)
    if settings.verifiers and not prepared.environment.verifier.judges_singly:
        raise RecipeError(
            f"compute.verifiers = {settings.verifiers}: verifier "
            f"{prepared.environment.verifier.name!r} reads a whole batch of completions at once, "
            "so it stays with the learner; give 0"
        )
    folder, resuming = run_folder(source, output, resume=resume, overwrite=overwrite)
    folder = folder.absolute()
    for callback in callbacks:
        callback.on_start(prepared, folder)
    prepared.environment.close()
    with (
        _connected(ray, settings),
        Interruption() as interruption,  # after Ray, which handles SIGTERM by leaving at once
        _group(ray, resolved) as group,
    ):
        _same_versions(ray, settings)
        learner = _Learner(resolved, folder, group, callbacks, interruption)
        if not resuming and holds_run(folder):  # to be overwritten
            clear(folder)
        learner.run(resuming)
    if not holds_run(folder):
        raise GroupwiseError(
            f"the run ended, but {folder} is not visible here: name an --output on storage that "
            "all nodes share"
        )
    run = open_run(folder)
    for callback in callbacks:
        callback.on_end(run.summary, folder)
    return run


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise RecipeError(
            "compute.cluster needs Ray: install groupwise[cluster] on every node, or leave the "
            "field out"
        ) from error
    return ray


@contextmanager
def _connected(ray: Any, settings: ComputeSettings) -> Iterator[None]:
    """Connects to the cluster at the address; `auto` is the one at hand, or a local one."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    address = settings.cluster
    if address != "auto":
        host, _, port = str(address).rpartition(":")
        try:
            socket.create_connection(
                (host, int(port)), min(10.0, settings.deadline_seconds)
            ).close()
        except OSError as error:
            raise GroupwiseError(
                f"compute.cluster = {address!r}: no cluster answers there ({error}); start one "
                'with `ray start --head`, or give "auto"'
            ) from error
        options["_node_ip_address"] = host if host.startswith("127.") else None
    try:
        try:
            ray.init(address=address, **options)
        except ConnectionError:
            if address != "auto":
                raise
            cpus = max(os.cpu_count() or 1, sum(_roles(settings)))
            options["_node_ip_address"] = "127.0.0.2"  # Ray turns 127.0.0.1 into an outside one
            ray.init(num_cpus=cpus, include_dashboard=False, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        said = str(error).strip().splitlines()[0]
        raise GroupwiseError(f"compute.cluster = {address!r}: {said}") from error
    try:
        yield
    finally:
        ray.shutdown()


def _roles(settings: ComputeSettings) -> tuple[int, int, int]:
    return settings.processes, settings.samplers, settings.verifiers


@contextmanager
def _group(ray: Any, recipe: Recipe) -> Iterator[Any]:
    """A placement group with a bundle for every worker. GroupwiseError where the cluster has not
    that much within the deadline."""
    settings = recipe.compute
    learners, samplers, verifiers = _roles(settings)
    on_gpu = recipe.model.device.startswith("cuda") or (
        recipe.model.device == "auto" and ray.cluster_resources().get("GPU", 0) > 0
    )
    policy = {"CPU": 1.0, "GPU": 1.0} if on_gpu else {"CPU": 1.0}
    bundles = [policy] * (learners + samplers) + [{"CPU": 1.0}] * verifiers
    group = ray.util.placement_group(bundles, strategy="SPREAD")
    try:
        if not group.wait(settings.deadline_seconds):
            total = ray.cluster_resources()
            has = ", ".join(f"{total.get(each, 0):g} {each}s" for each in policy)
            raise GroupwiseError(
                f"compute: {learners} learner, {samplers} sampler and {verifiers} verifier "
                f"processes were not placed within compute.deadline_seconds = "
                f"{settings.deadline_seconds:g}; each takes a CPU{' and a GPU' if on_gpu else ''}, "
                f"and the cluster has {has} in all. Lower compute.samplers or add nodes"
            )
        yield group
    finally:
        ray.util.remove_placement_group(group)


def _same_versions(ray: Any, settings: ComputeSettings) -> None:
    """GroupwiseError naming a node without the package, or with another version than here."""

    def versions() -> dict[str, str]:  # pickled by value: the node may not have the package
        from importlib import metadata

        found = {}
        for name in ("groupwise", "torch"):
            try:
                found[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                found[name] = "nothing"
        return found

    own = versions()
    asked = {}
    for node in ray.nodes():
        if node["Alive"] and node["Resources"].get("CPU"):
            strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
                node["NodeID"], soft=False
            )
            call = ray.remote(versions).options(num_cpus=0, scheduling_strategy=strategy)
            asked[node["NodeManagerAddress"]] = call.remote()
    for address, reference in asked.items():
        try:
            found = ray.get(reference, timeout=settings.deadline_seconds)
        except ray.exceptions.RayError as error:
            raise GroupwiseError(f"node {address} does not answer: {error}") from error
        for name, version in own.items():
            if found[name] != version:
                raise GroupwiseError(
                    f"node {address} has {name} {found[name]}, and this machine {version}: "
                    "install the same on every node"
                )


class _Learner:
    """Starts the learner's processes, and starts them again where one is lost."""

    def __init__(
        self, recipe: Recipe, folder: Path, group: Any, callbacks: Sequence[Callback],
        interruption: Interruption,
    ) -> None:  # fmt: skip
        self.recipe, self.folder, self.group, self.callbacks = recipe, folder, group, callbacks
        self.interruption, self.reported = interruption, 0
        self.stopping: list[Any] = []

    def run(self, resume: bool) -> None:
        """Until it is done. Raises what the learner raised, and GroupwiseError after a loss where
        no restart is left."""
        losses, before = list[dict[str, Any]](), self._recorded()
        for left in reversed(range(self.recipe.compute.restarts + 1)):
            try:
                self._attempt(resume, losses[self._recorded() - before :])
                return
            except Lost as lost:
                rank, node, why = lost.args
                said = f"learner process {rank} on {node} was lost: {why}"
                if not left:
                    raise GroupwiseError(
                        f"{said}; compute.restarts = {self.recipe.compute.restarts} are used up"
                    ) from lost
                losses.append({"kind": "learner_lost", "rank": rank, "node": node, "why": why})
                resume = holds_run(self.folder)
                for callback in self.callbacks:
                    callback.on_warning(f"{said}; starting again from the last checkpoint")

    def _recorded(self) -> int:
        """Losses in the record; one that came before its process could write is not there yet."""
        there = holds_run(self.folder)
        return len(Run(self.folder).events("learner_lost")) if there else 0

    def _attempt(self, resume: bool, events: Sequence[Mapping[str, Any]]) -> None:
        """One start of all processes. `events` go into the record with those of this start."""
        import ray

        settings, text = self.recipe.compute, self.recipe.to_toml()
        joined, self.stopping = list(events), []
        pool = Pool(
            "learner",
            settings.processes,
            lambda rank: placed(LearnerRank, self.group, rank).remote(text, os.getcwd()),
            settings,
            lambda kind, **fields: joined.append({"kind": kind, **fields}),
            replaces=False,
        )
        actors = [worker.actor for worker in pool.workers]
        try:
            pool.join()
            host, port = ray.get(actors[0].address.remote(), timeout=settings.deadline_seconds)
            shared = {
                "WORLD_SIZE": str(len(actors)), "LOCAL_RANK": "0", "MASTER_ADDR": host,
                "MASTER_PORT": str(port),
            }  # fmt: skip

            def task(rank: int) -> Task:
                own = {**shared, "RANK": str(rank)}
                return Task(
                    lambda actor: actor.run.remote(
                        own, str(self.folder), resume, self.group, joined, actors[0]
                    ),
                    _ended,
                )

            pool.run([task(rank) for rank in range(len(actors))], lambda: self._look(actors))
        finally:
            pool.close()
        self._look(actors)

    def _stops(self) -> bool:
        """Whether a process has noted the signal, or may still: one that is starting does not."""
        import ray

        for reference in self.stopping:
            if not ray.wait([reference], timeout=0)[0]:
                return True
            with suppress(ray.exceptions.RayError):  # the pool finds what is lost
                if ray.get(reference):
                    return True
        return False

    def _look(self, actors: Sequence[Any]) -> None:
        """Pass on a signal to the learner, and the record's new lines of steps to the callbacks."""
        number = self.interruption.number
        if number is not None and not self._stops():
            self.stopping = [actor.stop.remote(number) for actor in actors]
        if self.callbacks and (self.folder / "metrics.jsonl").is_file():
            lines = Run(self.folder).metric_lines()
            for line in lines[self.reported :]:
                for callback in self.callbacks:
                    callback.on_step(line)
            self.reported = max(self.reported, len(lines))


def _ended(interrupted: tuple[int, str] | None) -> Later:
    if interrupted is not None:
        raise Interrupted(*interrupted)
    return tuple
