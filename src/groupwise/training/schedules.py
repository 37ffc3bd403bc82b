"""The schedule of an asynchronous run, read to repeat the run (`--replay-schedule`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from groupwise.errors import RecipeError
from groupwise.recipe import Recipe
from groupwise.records import SCHEDULE, open_run
from groupwise.records.reader import read_objects
from groupwise.training.ahead import Schedule
from groupwise.training.output import REPLAY, same_run


def read_schedule(folder: Path, recipe: Recipe) -> Schedule:
    """The schedule of the asynchronous run in `folder`, to be repeated by the same recipe.

    Raises RecipeError where there is none, the recipe is another one or has more steps, or a line
    is not what such a run writes.
    """
    given, path, steps = (
        f"replay_schedule = {str(folder)!r}",
        folder / SCHEDULE,
        recipe.training.steps,
    )
    if not folder.is_dir():
        raise RecipeError(f"{given}: there is no such folder; name the folder of a run")
    if not path.is_file() or not recipe.compute.max_staleness:
        raise RecipeError(
            f"{given} with compute.max_staleness = {recipe.compute.max_staleness}: only an "
            f"asynchronous run has a schedule; name the folder of one ({SCHEDULE} is in it), and "
            "give the recipe that it was made with"
        )
    if recipe.sampling.servers is not None:
        raise RecipeError(
            f"{given}: what a server decodes together cannot be repeated; a run with "
            'sampling.sampler = "local" or "transformers" can be'
        )
    open_run(folder)
    same_run(folder, recipe, REPLAY)
    lines = read_objects(path, "step", int, torn="ignore")
    taken = set[int]()
    for number, line in enumerate(lines, start=1):
        problem = _problem(number - 1, line, taken)
        if problem is not None:
            raise RecipeError(
                f"{given}: {path}, line {number}: {problem}; restore the file as the run wrote it"
            )
        taken.update(line["groups"])
    if len(lines) < steps:
        raise RecipeError(
            f"{given} has the schedule of {len(lines)} steps, and training.steps = {steps}; give "
            f"at most {len(lines)}"
        )
    return lines


def _problem(step: int, line: dict[str, Any], taken: set[int]) -> str | None:
    """What is wrong with the line of `step`, where the steps before took the groups `taken`."""
    if line["step"] != step:
        return f"step = {line['step']}, where {step} follows"
    for name in ("groups", "held"):
        values = line.get(name)
        whole = isinstance(values, list) and all(type(each) is int and each >= 0 for each in values)
        if not whole or (name == "held" and not values):
            return f"{name} = {values!r:.60} is not a list of whole numbers, 0 or more"
    groups = line["groups"]
    twice = [each for place, each in enumerate(groups) if each in taken or each in groups[:place]]
    return f"groups = {groups!r:.60} takes group {twice[0]} a second time" if twice else None
