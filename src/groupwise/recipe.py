"""The recipe: one TOML file, composed from a model that each room owns, checked before any load.

`load_recipe` reads, merges overrides, and refuses what cannot run, each with one message naming the
field, the value and a legal one. TOML has no null: an optional field is switched off with `"none"`,
and a None inside free arguments, where `"none"` may be a text, is written `{ none = true }`.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args

import tomli_w
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_serializer,
    field_validator,
    model_validator,
)

from groupwise.algorithms import Algorithm, algorithm_from_table
from groupwise.distributed.settings import ComputeSettings
from groupwise.environments import EnvironmentSettings
from groupwise.errors import RecipeError
from groupwise.learner import TrainingSettings
from groupwise.policies import ModelSettings
from groupwise.policies.source import stage_models
from groupwise.recipe_checks import check, is_corrected
from groupwise.records import CheckpointSettings, EvaluationSettings, RecordSettings
from groupwise.records.compare import flatten
from groupwise.samplers import SamplingSettings
from groupwise.scorers import TeacherSettings
from groupwise.selection import SelectionSettings
from groupwise.suggestions import converted, differences, expectation, list_text, nearest
from groupwise.templates import TemplateSettings
from groupwise.texts import from_toml, shortened

NONE = "none"
"""What a TOML file and the command line write for None in a field that may be None."""
_NONE_INSIDE = {"none": True}

M = TypeVar("M", bound=BaseModel)

# What `--small` means for a recipe without a [small] table of its own.
SMALL: dict[str, Any] = {
    "training.steps": 2,
    "training.prompts_per_step": 4,
    "sampling.group_size": 4,
    "sampling.max_tokens": 16,
    "evaluation.max_prompts": 8,
    "evaluation.samples": 1,
}


class Recipe(BaseModel):
    """A whole run, resolved: every field has its value."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    seed: int = Field(0, ge=0, description="The run's seed: every stream of noise is keyed by it.")
    model: ModelSettings = Field(description="What is trained.")
    template: TemplateSettings = Field(
        default_factory=TemplateSettings, description="How chats become token ids."
    )
    environment: EnvironmentSettings = Field(description="Prompts, turns and verifier.")
    algorithm: Algorithm = Field(description="A preset, with any part replaced.")
    teacher: TeacherSettings | None = Field(
        default=None, description="Who is learned from, where the algorithm needs a teacher."
    )
    sampling: SamplingSettings = Field(
        default_factory=SamplingSettings, description="How completions are sampled."
    )
    training: TrainingSettings = Field(
        default_factory=TrainingSettings, description="How rollouts become updates."
    )
    selection: SelectionSettings = Field(
        default_factory=SelectionSettings,
        description="Which prompts are sampled, and which rollouts get a gradient.",
    )
    evaluation: EvaluationSettings = Field(
        default_factory=EvaluationSettings, description="What is measured, and when."
    )
    checkpoints: CheckpointSettings = Field(
        default_factory=CheckpointSettings, description="What is kept on disk."
    )
    record: RecordSettings = Field(default_factory=RecordSettings, description="Token details.")
    compute: ComputeSettings = Field(default_factory=ComputeSettings, description="Where it runs.")

    @model_validator(mode="before")
    @classmethod
    def _quantised_is_corrected(cls, tables: Any) -> Any:
        """A sampler that quantises is corrected for by truncation where no correction is named."""
        if not isinstance(tables, Mapping) or not isinstance(tables.get("algorithm"), Mapping):
            return tables
        algorithm, sampling = tables["algorithm"], tables.get("sampling")
        quantise = isinstance(sampling, Mapping) and sampling.get("quantise") is not None
        named = not quantise or "correction" in algorithm
        if named or is_corrected(algorithm_from_table(algorithm)):
            return tables
        return {**tables, "algorithm": {**algorithm, "correction": "truncate"}}

    @field_validator("algorithm", mode="before")
    @classmethod
    def _algorithm(cls, value: Any) -> Algorithm:
        return value if isinstance(value, Algorithm) else algorithm_from_table(value)

    @field_serializer("algorithm")
    def _algorithm_table(self, value: Algorithm) -> dict[str, Any]:
        return value.to_table()

    def to_toml(self) -> str:
        """The resolved recipe as text; loading it gives an equal recipe."""
        return tomli_w.dumps(plain_table(self))


def plain_table(model: BaseModel) -> dict[str, Any]:
    """A model of tables as TOML holds it; `validated` gives an equal model back."""
    table: dict[str, Any] = _written(model.model_dump(), type(model))
    return table


def _written(value: Any, annotation: Any) -> Any:
    """A dumped value for TOML. A field that is None by default is left out where it is None."""
    if isinstance(value, Mapping):
        table = _table_of(annotation)
        fields = {} if table is None else table.model_fields
        made: dict[str, Any] = {}
        for key, item in value.items():
            info = fields.get(key)
            if info is None or item is not None:
                made[key] = _written(item, None if info is None else info.annotation)
            elif info.is_required() or info.get_default(call_default_factory=True) is not None:
                made[key] = NONE
        return made
    if isinstance(value, list | tuple):
        return [_written(item, _table_of(annotation)) for item in value]
    if annotation is datetime.date:
        return value.isoformat()
    return dict(_NONE_INSIDE) if value is None else value


def _with_nones(value: Any, annotation: Any) -> Any:
    """The inverse of `_written`: both spellings of None become None, where each is legal."""
    is_free = annotation is None
    if (is_free and value == _NONE_INSIDE) or (value == NONE and NoneType in get_args(annotation)):
        return None
    if isinstance(value, Mapping):
        table = _table_of(annotation)
        fields = {} if table is None else table.model_fields
        return {
            key: _with_nones(item, fields[key].annotation if key in fields else None)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_with_nones(item, _table_of(annotation)) for item in value]
    return value


def load_recipe(
    source: str | Path | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    small: bool = False,
) -> Recipe:
    """Read a recipe file (or a table), apply dotted overrides, check it.

    `overrides` maps `"training.steps"` to a value, or to its TOML text. `small` shrinks the run
    first, by the recipe's own `[small]` table where it has one. Raises RecipeError.
    """
    table = read_table(source)
    if "stages" in table or "kind" in table:
        raise RecipeError(
            "this is a pipeline ([[stages]]) or one of its stages, and the command takes a recipe "
            "of one RL run; name a run folder or recipe of an rl stage, as RUN/stages/NAME"
            + ("" if isinstance(source, Mapping) else stage_models(Path(source).parent))
        )
    own_small = table.pop("small", None)
    if small:
        for dotted, value in flatten(own_small if own_small is not None else SMALL).items():
            set_field(table, dotted, value)
    for dotted, value in (overrides or {}).items():
        set_field(table, dotted, parse_value(value))
    return checked_recipe(table)


def checked_recipe(table: Mapping[str, Any]) -> Recipe:
    """The recipe of resolved tables, every check made. Raises RecipeError."""
    for required, hint in _REQUIRED.items():
        if required not in table:
            raise RecipeError(f"the recipe has no [{required}] table; for example: {hint}")
    recipe = validated(table, Recipe)
    check(recipe)
    check_record(recipe)
    return recipe


def check_record(model: BaseModel) -> None:
    """Refuse tables whose record would load as others. Raises RecipeError naming the field."""
    try:
        again = validated(from_toml(tomli_w.dumps(plain_table(model))), type(model))
    except (TypeError, ValueError) as error:  # what pydantic and tomli_w raise
        raise RecipeError(f"the recipe cannot be written as TOML: {error}") from error
    if again != model:
        field, now, then = next(differences(plain_table(model), plain_table(again)))
        raise RecipeError(
            f"{field} = {shortened(repr(now), 300)} would be recorded as "
            f"{shortened(repr(then), 300)}; give values that TOML can hold, and no nan"
        )


def read_table(source: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's tables as they are written, a copy. Raises RecipeError for a file without them."""
    if isinstance(source, Mapping):
        return {key: _copy(value) for key, value in source.items()}
    path = Path(source)
    if not path.is_file():
        raise RecipeError(_no_such_recipe(path))
    try:
        return from_toml(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RecipeError(f"{path} is not a TOML file: {error}") from error


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


RENAMED = {"code_functions": "code_rl"}
"""Recipes by their former names."""


def find_recipe(name: str) -> Path:
    """A recipe by path, or by the name of one that ships with the package."""
    path = Path(name)
    if path.is_file():
        return path
    stem = RENAMED.get(path.name.removesuffix(".toml"), path.name.removesuffix(".toml"))
    for shipped in _shipped("broken" if path.parent.name == "broken" else ""):
        if stem == shipped.stem:
            return shipped
    raise RecipeError(_no_such_recipe(path))


def _shipped(inside: str = "") -> list[Path]:
    """The recipes of the package, or those of a folder in it (`broken`, which are not listed)."""
    here = Path(__file__).parent
    folders = [here / "_recipes" / inside, here.parents[1] / "recipes" / inside]
    return sorted(path for folder in folders if folder.is_dir() for path in folder.glob("*.toml"))


def _no_such_recipe(path: Path) -> str:
    names = ", ".join(sorted({shipped.name for shipped in _shipped()}))
    return f"no recipe at {str(path)!r}; give a TOML file, or one that ships: {names}"


def parse_value(value: Any) -> Any:
    """A command-line value read as TOML where it is TOML, else as text."""
    if not isinstance(value, str):
        return value
    try:
        return from_toml(f"value = {value}")["value"]
    except ValueError:
        return value


def set_field(table: dict[str, Any], dotted: str, value: Any) -> None:
    """Set one dotted field, list indices included. Raises RecipeError where it cannot be there."""
    *parents, last = dotted.split(".")
    node: Any = table
    for depth, part in enumerate(parents):
        if isinstance(node, list):
            node = node[_index(node, part, dotted)]
            continue
        node = node.setdefault(part, {})
        if not isinstance(node, dict | list):
            where = ".".join(parents[: depth + 1])
            raise RecipeError(f"{dotted}: {where!r} is a value ({node!r}) without fields")
    if isinstance(node, list):
        node[_index(node, last, dotted)] = value
    else:
        node[last] = value


def _index(node: Sequence[Any], part: str, dotted: str) -> int:
    if not part.isdecimal() or int(part) >= len(node):
        raise RecipeError(f"{dotted}: {part!r} is not an index of a list of {len(node)}")
    return int(part)


_REQUIRED = {
    "model": 'name = "tiny"',
    "environment": 'name = "arithmetic"',
    "algorithm": 'preset = "grpo"',
}


def validated(table: Mapping[str, Any], model: type[M]) -> M:
    """The model of some tables. Raises RecipeError: one line for each field that is wrong."""
    try:
        given = _with_nones(table, model)
        made = model.model_validate(given)
    except ValidationError as error:
        # without its wrong entries a list is also too short, which is not what is wrong with it
        inner = [item for item in error.errors() if item["type"] != "too_short"] or error.errors()
        raise RecipeError("\n".join(_explain(item, model) for item in inner)) from error
    wrong = list(converted(given, made))
    if wrong:
        raise RecipeError("\n".join(wrong))
    return made


def _explain(item: Mapping[str, Any], model: type[BaseModel]) -> str:
    # pydantic adds which alternative of a union it tried, as `literal['auto']`
    parts = [str(part) for part in item["loc"]]
    location = [part for part in parts if "[" not in part and "constrained-" not in part]
    if item["type"] == "extra_forbidden":
        *tables, key = location if location[-1:] == parts[-1:] else [*location, parts[-1]]
        names = _names_at(tables, model)
        hint = f"known: {', '.join(names)}"
        if near := nearest(key, names):
            hint = f"did you mean {'.'.join([*tables, near])!r}?"
        return f"unknown key {'.'.join([*tables, key])!r}; {hint}"
    field = ".".join(location) or "a name"
    if item["type"] == "missing":
        return f"{field} is missing"
    if item["type"] in ("tuple_type", "list_type"):
        return f"{field} = {item['input']!r}: expected a list; write {list_text(item['input'])}"
    if item["type"] == "value_error":
        message = str(item["ctx"]["error"])
        return message if not location or location[-1] in message else f"{field}: {message}"
    table = _table_at(location[:-1], model)
    info = None if table is None or not location else table.model_fields.get(location[-1])
    message = expectation(item, info)
    if info is not None and NoneType in get_args(info.annotation):
        message += f'; "{NONE}" switches it off'
    return f"{field} = {item['input']!r}: {message}"


def _names_at(location: Sequence[str], model: type[BaseModel]) -> list[str]:
    table = _table_at(location, model)
    if table is None:
        return []
    return [*table.model_fields, "small"] if table is Recipe else list(table.model_fields)


def _table_at(location: Sequence[str], model: type[BaseModel]) -> type[BaseModel] | None:
    """The table at a dotted place, list indices included; None where there is none."""
    table: type[BaseModel] | None = model
    for part in location:
        if table is None or part.isdecimal():
            continue
        info = table.model_fields.get(part)
        table = None if info is None else _table_of(info.annotation)
    return table


def field_table() -> list[tuple[str, str, str, str]]:
    """Every field of a recipe as (name, type, default, description), for the docs."""
    return model_fields_table(Recipe, "")


def _table_of(annotation: Any) -> type[BaseModel] | None:
    """The table in an annotation: the field's own, an optional one, or that of a list's entries."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_table_of, get_args(annotation))), None)


def model_fields_table(model: type[BaseModel], prefix: str) -> list[tuple[str, str, str, str]]:
    """`field_table` for one model, its names behind `prefix`."""
    rows: list[tuple[str, str, str, str]] = []
    for name, info in model.model_fields.items():
        inner = info.annotation
        table = _table_of(inner)
        if table is not None:
            rows.extend(model_fields_table(table, f"{prefix}{name}."))
            continue
        kind = getattr(inner, "__name__", str(inner)).replace("typing.", "")
        if "Literal" in str(inner) or "|" in str(inner):
            kind = str(inner).replace("typing.", "")
        default = (
            "required" if info.is_required() else repr(info.get_default(call_default_factory=True))
        )
        rows.append((prefix + name, kind, default, info.description or ""))
    return rows
