"""A pipeline's recipe: `[[stages]]` in place of `[training]`, resolved stage by stage.

The other top-level tables are defaults that each stage's own tables override. The recorded recipe
has no defaults: every stage holds all of its fields, and loading it gives an equal pipeline.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import tomli_w

from groupwise.errors import RecipeError
from groupwise.recipe import (
    field_table,
    model_fields_table,
    parse_value,
    plain_table,
    read_table,
    set_field,
    validated,
)
from groupwise.records.compare import flatten
from groupwise.stages.evaluation import Evaluate
from groupwise.stages.kinds import KINDS
from groupwise.stages.stage import Stage
from groupwise.suggestions import unknown

BASE = "base"
"""The name that stands for the top-level [model] in `from`."""
_DEFAULTS = (
    "seed", "model", "template", "environment", "algorithm", "sampling", "selection",
    "evaluation", "checkpoints", "teacher", "compute",
)  # fmt: skip
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_REPLACES = {
    "training.steps": ("training.epochs",),
    "training.epochs": ("training.steps",),
    "keep": ("at_least", "best"),
}
"""Fields of a stage that lose their meaning where an option or `--small` sets another one."""


@dataclass(frozen=True, slots=True)
class Node:
    """One stage in its place. `start` is the stage that it starts from, `base`, or None where its
    own [model] names a model."""

    name: str
    start: str | None
    stage: Stage

    @property
    def reads(self) -> set[str]:
        """The other stages that it reads, besides the one that it starts from."""
        return {*self.stage.reads(), *(use.stage for use in self.stage.model_uses())} - {BASE}

    def table(self) -> dict[str, Any]:
        """The stage as it is recorded, with all of its fields."""
        table = plain_table(self.stage)
        if self.start is not None:
            del table["model"]["name"]
        place = {} if self.start is None else {"from": self.start}
        return {"name": self.name, "kind": self.stage.kind, **place, **table}


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A whole pipeline, resolved. `nodes` are in the order of the file, `order` in that of the run;
    `model` is the top-level one. `guard` is measured after every stage; None without one."""

    model: str
    nodes: tuple[Node, ...]
    order: tuple[Node, ...]
    guard: Evaluate | None

    @property
    def trained_alone(self) -> list[str]:
        """A sentence that names the stages which train in one process, where others have more."""
        given = {node.name: getattr(node.stage, "compute", None) for node in self.order}
        most = max((each.processes for each in given.values() if each is not None), default=1)
        alone = [
            repr(node.name)
            for node in self.order
            if given[node.name] is None and hasattr(node.stage, "training")
        ]
        if most == 1 or not alone:
            return []
        return [f"compute.processes = {most} is for rl stages; in one process: {', '.join(alone)}"]

    def to_toml(self) -> str:
        table: dict[str, Any] = {"model": {"name": self.model}}
        if self.guard is not None:
            table["guard"] = plain_table(self.guard)
            del table["guard"]["model"]["name"]
        return tomli_w.dumps({**table, "stages": [node.table() for node in self.nodes]})


def stage_fields() -> list[tuple[str, str, str, str]]:
    """Fields of every kind as `field_table` has them, named `stages.<kind>.<field>`; without those
    that a recipe of one run has too, word for word."""
    ordinary = set(field_table())
    rows = [
        ("stages.kind", "str", "required", f"The kind of the stage: {', '.join(KINDS)}."),
        ("stages.name", "str", "the kind", "The stage's name, and its folder's."),
        (
            "stages.from",
            "str",
            "the stage before",
            f"The stage whose policy it starts from; {BASE!r} is the top-level [model]. By default "
            "the last one before it that leaves a policy.",
        ),
    ]
    for kind in (each for first in KINDS.values() for each in first.variants()):
        own = (row for row in model_fields_table(kind, "") if row not in ordinary)
        found = [(f"stages.{kind.kind}.{row[0]}", *row[1:]) for row in own]
        rows += [row for row in found if row[0] not in {known for known, *_ in rows}]
    return rows


def is_pipeline(source: str | Path | Mapping[str, Any]) -> bool:
    """Whether a recipe is a pipeline. Raises RecipeError for a file that is not TOML."""
    return "stages" in read_table(source)


def load_pipeline(
    source: str | Path | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    small: bool = False,
) -> Pipeline:
    """Read a pipeline, apply dotted overrides (`stages.0.training.steps`, or by the stage's name:
    `stages.sft.training.steps`), and check its fields and its order.

    `small` shrinks it first, by its own [small] table, else by what each kind says. Raises
    RecipeError.
    """
    table = read_table(source)
    names = _names(table)
    if small:
        made = small_settings(table)
        _set_all(table, {_numbered(dotted, names): value for dotted, value in made.items()})
    table.pop("small", None)
    given = {_numbered(dotted, names): parse_value(v) for dotted, v in (overrides or {}).items()}
    _set_all(table, given)
    _check_top(table)
    names = _names(table)
    nodes = tuple(_node(place, names, table) for place in range(len(names)))
    if "compute" in table and not any(hasattr(node.stage, "compute") for node in nodes):
        raise RecipeError(
            "[compute] is read by stages of the kind rl, and the pipeline has none: its stages "
            "train in one process; leave the table out"
        )
    guard = None
    if "guard" in table or "environment" in table:
        with named("guard"):
            guard = validated(_inherited(table, table.get("guard", {}), Evaluate), Evaluate)
            for use in guard.model_uses():
                raise RecipeError(
                    f"verifier {use.verifier!r} reads the model of stage {use.stage!r}, and the "
                    "guard set is measured before the first stage; give that verifier to the "
                    "stages that need it, or [guard.environment] verifiers of its own"
                )
    return Pipeline(table["model"]["name"], nodes, _ordered(nodes), guard)


@contextmanager
def named(where: str) -> Iterator[None]:
    """What is refused inside is refused with its place before it."""
    try:
        yield
    except RecipeError as error:
        raise RecipeError(f"{where}: {error}") from error


def _names(table: Mapping[str, Any]) -> list[str]:
    """The stages' names, each with a kind that there is. Raises RecipeError."""
    stages = table["stages"]
    if not isinstance(stages, list):
        raise RecipeError(f"stages = {stages!r:.60}: expected [[stages]] tables with a kind each")
    for place, entry in enumerate(stages):
        if not isinstance(entry, dict):
            raise RecipeError(
                f"stages.{place} = {entry!r:.60}: expected a table; write each stage as [[stages]] "
                'with its fields below, as kind = "rl"'
            )
    if not stages:
        raise RecipeError('stages = []: a pipeline has at least one [[stages]]; kind = "rl"')
    names: list[str] = []
    for place, entry in enumerate(stages):
        kind, where = entry.get("kind"), f"stages.{place}"
        if not isinstance(kind, str):
            wrong = "is missing" if kind is None else f"= {kind!r}: expected a text"
            raise RecipeError(f"{where}.kind {wrong}; give one of {', '.join(KINDS)}")
        if kind not in KINDS:
            raise RecipeError(unknown(f"{where}.kind = {kind!r}", kind, KINDS))
        name = entry.get("name", kind)
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name == BASE:
            raise RecipeError(
                f"{where}.name = {str(name)[:70]!r}: give a letter, then letters, digits, _ and -, "
                f'64 at most, as "cold_start"; {BASE!r} stands for the top-level [model]'
            )
        same = [other for other in names if other.lower() == name.lower()]
        if same:
            case = "" if same[0] == name else f" but for its case ({same[0]!r}), so the same folder"
            raise RecipeError(
                f"{where}.name = {name!r}: stages.{names.index(same[0])} has the same name{case}; "
                "give each its own"
            )
        names.append(name)
    return names


def _class_of(entry: Mapping[str, Any]) -> type[Stage]:
    """The class of a stage, by its kind and its mode."""
    return KINDS[entry["kind"]].variant(entry)


def small_settings(source: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """What `--small` sets, by dotted field: the recipe's own [small] table, else what each kind
    says."""
    table = read_table(source)
    if "small" in table:
        return flatten(table["small"])
    found = {}
    if "environment" in table or "guard" in table:
        found = {f"guard.{key}": value for key, value in Evaluate.small.items()}
    for place, entry in enumerate(table["stages"]):
        with named(f"stages.{place}"):
            small = _class_of(entry).small
        found |= {f"stages.{place}.{key}": value for key, value in small.items()}
    return found


def _numbered(dotted: str, names: Sequence[str]) -> str:
    """A dotted field with the stage's place for its name."""
    first, _, rest = dotted.partition(".")
    name, _, field = rest.partition(".")
    if first != "stages" or name.isdecimal():
        return dotted
    if name not in names:
        raise RecipeError(unknown(f"{dotted}: the stage {name!r}", name, names))
    return f"stages.{names.index(name)}.{field}"


def _set_all(table: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Set dotted fields; those of the same stages that they replace are left out."""
    for dotted in values:
        first, _, rest = dotted.partition(".")
        place, _, field = rest.partition(".")
        for other in _REPLACES.get(field, ()) if first == "stages" else ():
            *parents, last = other.split(".")
            inner: Any = dict(enumerate(table["stages"])).get(int(place), {})
            for name in parents:
                inner = inner.get(name, {})
            inner.pop(last, None)
    for dotted, value in values.items():
        set_field(table, dotted, value)


def _check_top(table: Mapping[str, Any]) -> None:
    if "training" in table:
        raise RecipeError(
            "a pipeline has no [training] of its own; put it into each stage, as "
            "[stages.training] below its [[stages]]"
        )
    legal = (*_DEFAULTS, "guard", "stages", "small")
    for key in table:
        if key not in legal:
            raise RecipeError(unknown(f"the key {key!r}", key, legal))
    model = table.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("name"), str):
        raise RecipeError('the pipeline has no [model] table with a name, as name = "tiny"')


def _node(place: int, names: Sequence[str], table: Mapping[str, Any]) -> Node:
    entry, name = dict(table["stages"][place]), names[place]
    with named(f"stage {name!r}"):
        kind = _class_of(entry)
        start, own = entry.pop("from", None), entry.get("model")
        own_name = own.get("name") if isinstance(own, Mapping) else None
        if start is not None and own_name is not None:
            raise RecipeError(
                f"from = {start!r} and model.name = {own_name!r} are two models to start from; "
                "give one of the two"
            )
        if start is None and own_name is None:
            before = zip(names[:place], table["stages"], strict=False)
            start = ([BASE] + [each for each, own in before if _class_of(own).leaves_policy])[-1]
        others = [BASE, *(each for each in names if each != name)]
        if start is not None and start not in (*others, name):
            if not isinstance(start, str):
                raise RecipeError(f"from = {start!r}: expected a text; one of {', '.join(others)}")
            raise RecipeError(unknown(f"from = {start!r}", start, others))
        for key in ("kind", "name"):
            entry.pop(key, None)
        stage = validated(_inherited(table, entry, kind), kind)
        node = Node(name, start, stage)
        data = {each.stage for each in getattr(stage, "data", ())} - {None}
        for other in sorted(node.reads | data):
            legal = others[1:] if other in data else others  # the base has no rows
            if other not in (*legal, name):
                raise RecipeError(unknown(f"the stage {other!r}", other, legal))
    return node


def _inherited(top: Mapping[str, Any], own: Mapping[str, Any], kind: type[Stage]) -> dict[str, Any]:
    """A stage's own tables over those top-level ones that its kind has."""
    return merged(
        {key: top[key] for key in _DEFAULTS if key in top and key in kind.model_fields}, own
    )


def merged(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A stage's tables over the top-level ones, field by field.

    An environment of another name or an algorithm of another preset takes none of the defaults'
    arguments.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}})
    {'a': {'b': 1, 'c': 3}}
    """
    found = dict(defaults)
    for key, value in own.items():
        default = defaults.get(key)
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            chosen = {"environment": "name", "algorithm": "preset"}.get(key)
            other = chosen in value and value[chosen] != default.get(chosen)
            found[key] = dict(value) if other else merged(default, value)
        else:
            found[key] = value
    return found


def _ordered(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The order of the run: that of the file, a stage behind those that it reads.

    Raises RecipeError naming stages that wait for each other.
    """
    needs = {
        node.name: {*node.reads, *([node.start] if node.start not in (None, BASE) else [])}
        for node in nodes
    }
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        circle = " -> ".join(reversed(error.args[1]))
        raise RecipeError(f"the stages read each other in a circle: {circle}") from error
    order: list[Node] = []
    while len(order) < len(nodes):
        done = {node.name for node in order}
        ready = (node for node in nodes if node.name not in done and needs[node.name] <= done)
        order.append(next(ready))
    return tuple(order)
