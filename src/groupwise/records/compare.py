"""Where two runs differ: in recipe, environment, and at which step first.

Two runs are equal when recipes, rollouts, evaluations and metrics are, except for what a clock
measures and for the times of events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.errors import RecipeError
from groupwise.records.metrics import is_measured
from groupwise.records.reader import Run, check_single, open_run
from groupwise.texts import shortened

if TYPE_CHECKING:
    import pyarrow as pa

_ROW_KEY = ("prompt_id", "visit", "group_index", "kind")
_CAUSES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("prompts", _ROW_KEY),
    ("prompt ids", ("prompt_ids",)),
    ("sampled ids", ("completion_ids", "mask", "finish_reason")),
    ("sampler log-probabilities", ("sampler_logprobs",)),
    ("rewards", ("reward", "rewards", "outcome")),
    ("advantages", ("advantage", "token_advantages")),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One differing value: what it is called, and its two values (None where one is absent)."""

    name: str
    a: Any
    b: Any

    def __str__(self) -> str:
        return f"{self.name}: {shortened(repr(self.a), 120)} -> {shortened(repr(self.b), 120)}"


@dataclass(frozen=True, slots=True)
class Diff:
    """How two runs compare.

    `recipe` and `environment` list dotted keys that differ. `first_step` is the first step whose
    rollouts or metrics differ (None where no common step does) and `causes` what differs in it, in
    the order of cause and effect: prompts, sampled ids, log-probabilities, rewards, advantages,
    then metrics. `parted` has the first step at which each of these differs, for those that do.
    `steps_a` and `steps_b` count the recorded steps. `first_version` is the first version that both
    evaluated whose evaluations differ, and `evaluation_causes` what differs in it.
    """

    recipe: tuple[Difference, ...]
    environment: tuple[Difference, ...]
    first_step: int | None
    causes: tuple[Difference, ...]
    parted: Mapping[str, int]
    steps_a: int
    steps_b: int
    first_version: int | None
    evaluation_causes: tuple[Difference, ...]

    @property
    def equal(self) -> bool:
        """Same recipe and number of steps; no step or evaluation differs; the environment may."""
        same = self.first_step is None and self.first_version is None
        return same and not self.recipe and self.steps_a == self.steps_b

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; `first_difference` is None where no common step differs."""
        causes = [asdict(cause) for cause in self.causes]
        first = None if self.first_step is None else {"step": self.first_step, "causes": causes}
        return asdict(self) | {"equal": self.equal, "first_difference": first}

    def lines(self) -> list[str]:
        """The comparison as text, one fact a line."""
        lines = [f"recipe: {difference}" for difference in self.recipe]
        lines += sorted(map(_labelled, self.environment))
        first = self.first_step
        if first is None:
            lines.append(f"no difference in the {min(self.steps_a, self.steps_b)} common steps")
        else:
            lines.append(f"first difference at step {first}")
            lines += [f"  {difference}" for difference in self.causes]
            later = [f"{name} {step}" for name, step in self.parted.items() if step > first]
            lines += [f"later: {', '.join(later)}"] if later else []
        if self.first_version is not None:
            lines.append(f"first evaluation that differs: version {self.first_version}")
            lines += [f"  {difference}" for difference in self.evaluation_causes]
        if self.steps_a != self.steps_b:
            lines.append(f"steps: {self.steps_a} -> {self.steps_b}")
        return lines


def diff(run_a: Run | str | Path, run_b: Run | str | Path) -> Diff:
    """Compare two runs (or run folders) down to the first step that differs.

    Raises RecipeError where a folder holds no run, or a pipeline (name one of its stages), and
    where a file is damaged, by its name.
    """
    a = run_a if isinstance(run_a, Run) else open_run(run_a)
    b = run_b if isinstance(run_b, Run) else open_run(run_b)
    check_single(a, "compare")
    check_single(b, "compare")
    lines_a = {line["step"]: line for line in a.metric_lines()}
    lines_b = {line["step"]: line for line in b.metric_lines()}
    causes: tuple[Difference, ...] = ()
    parted: dict[str, int] = {}
    for step in sorted(lines_a.keys() & lines_b.keys()):
        metrics = _differences(lines_a[step], lines_b[step])
        rollouts = _rollout_causes(a, b, step)
        not_measured = [each for each in metrics if not is_measured(each.name)]
        causes = causes or (*rollouts, *not_measured)
        for each in rollouts:
            parted.setdefault(each.name.partition(" (")[0], step)
        if not_measured:
            parted.setdefault("metrics", step)
        if len(parted) > len(_CAUSES):
            break
    first_version, evaluation_causes = _first_evaluation(a, b)
    return Diff(
        recipe=_differences(_recipe(a), _recipe(b)),
        environment=_differences(_about(a), _about(b)),
        first_step=min(parted.values(), default=None),
        causes=causes,
        parted=parted,
        steps_a=len(lines_a),
        steps_b=len(lines_b),
        first_version=first_version,
        evaluation_causes=evaluation_causes,
    )


def _recipe(run: Run) -> dict[str, Any]:
    """The recipe's fields, those that the newest resume changed with their values since then."""
    fields = flatten(run.recipe)
    for event in run.events("resumed")[-1:]:
        try:
            fields |= {name: now for name, (_, now) in event.get("changed", {}).items()}
        except (AttributeError, TypeError, ValueError) as error:
            what = f"{event['changed']!r:.60}; expected field names, each with two values"
            raise RecipeError(f"{run.folder}: a resumed event: changed = {what}") from error
    return fields


def _first_evaluation(a: Run, b: Run) -> tuple[int | None, tuple[Difference, ...]]:
    """The first version that both evaluated with another result, and what differs."""
    values_a, values_b = (
        {row["version"]: row for row in run.evaluations().to_pylist()} for run in (a, b)
    )
    for version in sorted(values_a.keys() & values_b.keys()):
        rows = table_causes(a.evaluation_rollouts(version), b.evaluation_rollouts(version))
        values = _differences(values_a[version], values_b[version])
        causes = (*rows, *(each for each in values if not is_measured(each.name)))
        if causes:
            return version, causes
    return None, ()


def _about(run: Run) -> dict[str, Any]:
    """The environment by dotted key, without the id, which no two runs share, and without what the
    recipe says already; of the verifier's audit its hash alone."""
    return {
        key: value
        for key, value in flatten(run.environment).items()
        if key not in ("run_id", "recipe_hash")
        and not key.startswith("algorithm.")
        and (not key.startswith("audit.") or key.endswith(".hash"))
    }


_PARTS = {
    "code": "code",
    "versions": "versions",
    "environment": "data",
    "template_hash": "data",
    "audit": "verifier",
}
"""What a key of the environment is of, by its first part; the machine and settings by default."""


def _labelled(difference: Difference) -> str:
    part = _PARTS.get(difference.name.partition(".")[0], "machine")
    return f"{part}: {difference}"


def _rollout_causes(a: Run, b: Run, step: int) -> tuple[Difference, ...]:
    return table_causes(a.rollouts(step), b.rollouts(step))


def table_causes(table_a: pa.Table, table_b: pa.Table) -> tuple[Difference, ...]:
    """What differs between two tables of rollouts, in the order of cause and effect."""
    if table_a.equals(table_b):
        return ()
    if table_a.num_rows != table_b.num_rows:
        return (Difference("rollouts", table_a.num_rows, table_b.num_rows),)
    found = (_first_row_difference(name, columns, table_a, table_b) for name, columns in _CAUSES)
    return tuple(difference for difference in found if difference is not None)


def _first_row_difference(
    name: str, columns: tuple[str, ...], table_a: pa.Table, table_b: pa.Table
) -> Difference | None:
    for column in columns:
        if column not in table_a.column_names or column not in table_b.column_names:
            continue
        if table_a.column(column).equals(table_b.column(column)):
            continue
        values_a, values_b = table_a.column(column).to_pylist(), table_b.column(column).to_pylist()
        rows = [i for i, (x, y) in enumerate(zip(values_a, values_b)) if x != y]
        if not rows:  # the same values in another type (a struct with its fields in another order)
            continue
        where = ", ".join(f"{key} {table_a.column(key)[rows[0]].as_py()}" for key in _ROW_KEY[:3])
        return Difference(
            f"{name} ({column}) in {len(rows)} of {len(values_a)} rows, first {where}",
            values_a[rows[0]],
            values_b[rows[0]],
        )
    return None


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Difference, ...]:
    return tuple(
        Difference(name, a.get(name), b.get(name))
        for name in dict.fromkeys([*a, *b])
        if a.get(name) != b.get(name)
    )


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables to dotted fields: `{"training": {"steps": 2}}` to `{"training.steps": 2}`."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat
