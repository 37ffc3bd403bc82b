"""`verify_resume`: a run that is killed again and again must equal the run that never stopped."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from groupwise.errors import GroupwiseError, RecipeError
from groupwise.instants import INSTANTS
from groupwise.proving.child import Ended, Job, run_child, start_server
from groupwise.proving.equality import Comparison, compare_runs
from groupwise.recipe import find_recipe, load_recipe
from groupwise.records import SCHEDULE, open_run
from groupwise.stages import is_pipeline, load_pipeline
from groupwise.texts import counted

SECOND_EPOCH, INSIDE, RANDOM = "second epoch", "inside a stage", "random"


@dataclass(frozen=True)
class Kill:
    """Where a child dies: `delay` seconds after the instant `key`, counted as `kind`."""

    key: str
    kind: str
    delay: float = 0.0


@dataclass(frozen=True)
class ResumeCheck:
    """The certificate.

    `instants` counts the kills by kind of instant, `not_reached` are kinds that the recipe's run
    does not come to. `first_difference` names what differs first, or why a killed run could not be
    resumed. `bits_compared` counts the bits of all files, `bits_differing` those of tensors.
    """

    equal: bool
    kills: int
    instants: dict[str, int]
    first_difference: str | None
    not_reached: tuple[str, ...]
    broken_runs: int
    files: int
    bits_compared: int
    bits_differing: int
    seconds: float
    recipe: str
    environment: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: the fields, of `environment` the recipe's hash, versions and hardware."""
        about = self.environment
        kept = ("recipe_hash", "versions", "platform", "processor", "cpus", "code")
        return {**self.__dict__, "environment": {key: about[key] for key in kept if key in about}}

    def text(self) -> str:
        """The certificate as lines for a person."""
        about = self.environment
        versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
        covered = ", ".join(f"{name} {count}" for name, count in self.instants.items())
        return "\n".join(
            [
                f"exact resume of {self.recipe}: {'equal' if self.equal else 'NOT EQUAL'}",
                f"recipe hash      {about['recipe_hash']}",
                f"versions         {versions}",
                f"hardware         {about['processor']}, {about['cpus']} CPUs, {about['platform']}",
                f"killed           {counted(self.kills, 'time')} (SIGKILL) in "
                f"{counted(self.broken_runs, 'run')}, resumed each time",
                f"instants         {covered or 'none'}",
                f"not reached      {', '.join(self.not_reached) or 'none'}",
                f"compared         {self.files} files, {self.bits_compared} bits",
                f"bits that differ {self.bits_differing}",
                f"first difference {self.first_difference or 'none'}",
                f"took             {self.seconds:.0f} s",
            ]
        )


def verify_resume(
    recipe: str | Path | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    small: bool = False,
    kills: int = 6,
    seed: int = 0,
    progress: Callable[[str], None] = lambda message: None,
) -> ResumeCheck:
    """Run a recipe unbroken; run it again, killed at every kind of named instant and at `kills`
    random ones; and compare the two.

    One run is killed many times. Where the recipe saves no checkpoint inside the run,
    `checkpoints.every` is set to a third of its steps, for the resumed runs to have one. Raises
    RecipeError for a bad recipe, GroupwiseError where the unbroken run fails.
    """
    if kills < 0:
        raise RecipeError(f"kills = {kills}: give 0 or more random instants, as 6")
    started = time.perf_counter()
    given = recipe if isinstance(recipe, Mapping) else find_recipe(str(recipe)).absolute()
    settings = _with_checkpoints(given, dict(overrides or {}), small)
    with tempfile.TemporaryDirectory(prefix="groupwise-resume-") as folder:
        job = Job(given, settings, small, Path(folder))
        progress("the unbroken run")
        start_server()
        whole = run_child(job, {}, fresh=True)
        if whole.error is not None:
            kind = RecipeError if whole.exit_code == RecipeError.exit_code else GroupwiseError
            raise kind(whole.error)
        unbroken = job.folder / "unbroken"
        job.run.rename(unbroken)
        left = plan_kills(whole, kills, seed)
        made = _Broken(job, unbroken, whole, left, progress)
        made.run()
        about = open_run(unbroken).environment
    reached = {key.split(" | ")[1] for _, key in whole.trace}
    name = "recipe" if isinstance(given, Mapping) else given.stem
    return ResumeCheck(
        equal=made.first is None,
        kills=made.done.total(),
        instants=dict(made.done),
        first_difference=made.first,
        not_reached=tuple(each for each in INSTANTS if each not in reached),
        broken_runs=made.runs,
        files=made.compared.files,
        bits_compared=made.compared.bits,
        bits_differing=made.compared.bits_differing,
        seconds=time.perf_counter() - started,
        recipe=name,
        environment=about,
    )


def _with_checkpoints(recipe: Any, overrides: dict[str, Any], small: bool) -> dict[str, Any]:
    """The overrides, and a checkpoint inside the run where the recipe saves none."""
    is_set = any(name.endswith("checkpoints.every") for name in overrides)
    if is_pipeline(recipe):
        load_pipeline(recipe, overrides, small=small)
        return overrides if is_set else {"checkpoints.every": 1, **overrides}
    made = load_recipe(recipe, overrides, small=small)
    if is_set or 0 < made.checkpoints.every < made.training.steps:
        return overrides
    return {"checkpoints.every": max(1, made.training.steps // 3), **overrides}


def plan_kills(whole: Ended, count: int, seed: int) -> list[Kill]:
    """One kill for every kind of instant that the unbroken run came to, one inside every stage, one
    in the second epoch, and `count` at random times of the run."""
    chance = random.Random(seed)
    by_kind: dict[str, list[str]] = {}
    for _, key in whole.trace:
        place, name, _ = key.split(" | ")
        by_kind.setdefault(name, []).append(key)
        stage = place.partition(",")[0]
        if stage.startswith("stage ") and name != "between stages":
            by_kind.setdefault(stage, []).append(key)
        if "epoch" in by_kind:
            by_kind.setdefault(SECOND_EPOCH, []).append(key)
    by_kind.pop("start", None)
    chosen = [
        Kill(chance.choice(keys), INSIDE if kind.startswith("stage ") else kind)
        for kind, keys in by_kind.items()
    ]
    end = whole.trace[-1][0]
    for _ in range(count):
        moment = chance.uniform(0.0, end)
        when, key = max(each for each in whole.trace if each[0] <= max(moment, whole.trace[0][0]))
        chosen.append(Kill(key, RANDOM, moment - when))
    return chosen


class _Broken:
    """The killed runs. Each is killed at what is left of the kills, in the order it comes to them,
    and resumed, until it finishes; then the two folders are compared."""

    def __init__(
        self,
        job: Job,
        unbroken: Path,
        whole: Ended,
        left: Sequence[Kill],
        progress: Callable[[str], None],
    ) -> None:
        self.job = job
        self.unbroken = unbroken
        self.seconds = 60.0 + 20 * whole.seconds
        self.left = list(left)
        # The first instant of every kind.
        self.first_of = {key.split(" | ")[1]: key for _, key in reversed(whole.trace)}
        self.progress = progress
        self.done: Counter[str] = Counter()
        self.compared = Comparison()
        self.first: str | None = None
        self.runs = 0

    def run(self) -> None:
        """Until every kill is done, a run reaches none of those left, or something differs."""
        before = -1
        while self.first is None and self.left and before != self.done.total():
            before = self.done.total()
            self.runs += 1
            shutil.rmtree(self.job.run, ignore_errors=True)
            if self._to_the_end():
                self.compared = compare_runs(self._unbroken(), self.job.run)
                self.first = self.compared.first
            if (self.job.run / SCHEDULE).exists():  # no two runs count a step's instants alike
                keys = [self.first_of[kill.key.split(" | ")[1]] for kill in self.left]
                self.left = [replace(kill, key=key) for kill, key in zip(self.left, keys)]

    def _unbroken(self) -> Path:
        """The run that never stopped; a new one by the killed run's schedule where it has one, as
        two asynchronous runs differ. Raises GroupwiseError where it fails."""
        if not (self.job.run / SCHEDULE).exists():
            return self.unbroken
        self.progress("an unbroken run by the killed run's schedule")
        folder = self.job.folder / "replay"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        ended = run_child(replace(self.job, folder=folder, schedule=self.job.run), {}, fresh=True)
        if ended.error is not None:
            raise GroupwiseError(f"the schedule could not be replayed: {ended.error}")
        return folder / "run"

    def _to_the_end(self) -> bool:
        """Kill and resume one run until it finishes. False where it could not be resumed."""
        last = "the start"
        while True:
            deaths = {kill.key: kill.delay for kill in reversed(self.left)}
            ended = run_child(self.job, deaths, seconds=self.seconds)
            if ended.error is not None:
                self.first = f"killed at {last}, the run could not be resumed: {ended.error}"
                return False
            if ended.killed is None:
                return True
            kill = next(each for each in self.left if each.key == ended.killed)
            self.left.remove(kill)
            self.done[kill.kind] += 1
            last = ended.killed
            self.progress(f"killed at {kill.kind} ({last}); {counted(len(self.left), 'kill')} left")
