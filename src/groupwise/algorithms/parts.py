"""What every part has in common: one validator for Python and recipes, traits, needs, a formula.

A part is a small frozen dataclass that is called with its slot's arguments. Its fields carry their
own limits, it says itself with what it cannot be combined, and its docstring is its documentation.
A class with a `kind` is found under that name in recipes as soon as it is defined. A plain function
with the same arguments is wrapped into a `Function`.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, dataclass_transform

import torch
from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass
from torch import Tensor

from groupwise.algorithms.contracts import EntropyNeed, Needs, Scope, TeacherNeed, UpdateInputs
from groupwise.errors import RecipeError
from groupwise.imports import import_object
from groupwise.suggestions import unknown
from groupwise.texts import shortened

if TYPE_CHECKING:
    from groupwise.algorithms.algorithm import Algorithm

Number = Annotated[float, Field(allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Bound = Annotated[float, Field(ge=0)]
"""0 or more; +inf, which means no bound, only in Python: a table holds finite numbers."""
Count = Annotated[int, Field(ge=0)]

GONE = {"entropy_reward": 'use extras = ["entropy_bonus"], or a function of ShaperInputs'}
"""Kinds of an earlier version, and what to use instead."""

P = TypeVar("P")
PARTS: dict[str, dict[str, type[Part]]] = {}
"""slot -> kind -> part."""


@dataclass_transform(frozen_default=True, field_specifiers=(Field,))
def part(cls: type[P]) -> type[P]:
    """Makes a class a frozen dataclass whose fields are validated wherever it is built."""
    made: Any = pydantic_dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid"))(cls)
    return made  # type: ignore[no-any-return]


class _PartType(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except ValidationError as error:
            raise RecipeError(_refusal(cls, error)) from None


class Part(metaclass=_PartType):
    """Base of the parts. What a slot's neighbours ask of a part are traits with a default here, so
    that no part has to know another one's class."""

    slot: ClassVar[str] = ""
    kind: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other names that the field uses for it, found by `groupwise algorithms show`."""
    text: ClassVar[str] = ""
    """The formula with fields in braces; `formula()` is for what depends on more than values.
    `{flag:yes|no}` is one of two texts; `{field:, at most #}` is there where the field is set."""
    hint: ClassVar[str] = ""
    """Added to the refusal of an unknown field, where a common name means something else."""
    unique: ClassVar[bool] = False
    """In a list slot: at most one of them."""

    # Traits, by slot.
    active: ClassVar[bool] = True  # any slot: False = this part does nothing ("none")
    standardised: ClassVar[bool] = False  # transform: its values are advantages already
    ignores_reward: ClassVar[bool] = False  # transform: nothing is learned from the rewards
    critic: ClassVar[bool] = False  # baseline: `estimate` makes advantages from values
    final: ClassVar[bool] = False  # baseline: scales too
    divides: ClassVar[bool] = True  # scale: `__call__` divides
    ddof: int = 0  # scale: of the standard deviation, also for transforms without one
    eps: float = 0.0  # scale: likewise
    scope: Scope = "row"  # transform: what one of its values belongs to; spread: what it takes
    per_row: ClassVar[bool] = False  # ratio: all tokens of a row share one
    reads_ratio: ClassVar[bool] = False  # surrogate: no gradient without a ratio
    shares_term: ClassVar[bool] = False  # surrogate: all tokens of a row share one term
    clips: ClassVar[bool] = False  # surrogate: at bounds
    detached: ClassVar[bool] = False  # surrogate: a weight without gradient times lp
    wide: ClassVar[bool] = False  # surrogate: caps or gates a growing ratio, which keeps pushing
    by_length: ClassVar[bool] = False  # weight: a row's total grows with its length
    selects_rows: ClassVar[bool] = False  # filter: keeps rows by their reward
    drops_uniform: ClassVar[bool] = False  # filter: groups of equal rewards leave the batch
    trains_critic: ClassVar[bool] = False  # extra

    @property
    def needs(self) -> Needs:
        return Needs()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__dict__.get("kind"):
            PARTS.setdefault(cls.slot, {})[cls.kind] = cls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{type(self).__name__} is only a base")

    @classmethod
    def table_kind(cls) -> str:
        """`kind` in a table, or "module:Class" for a class that is not of this package."""
        if cls.__module__.startswith("groupwise.") or "<" in cls.__qualname__:
            return cls.kind
        return f"{cls.__module__}:{cls.__qualname__}"

    def formula(self) -> str:
        """One line of plain mathematics, with this part's own numbers in it."""
        shown = {name: _Shown(value) for name, value in vars(self).items()}
        return self.text.format(**shown) or self.kind or self.table_kind()

    def refusal(self, algorithm: Algorithm) -> str | None:
        """Why the part cannot work in this algorithm, with a legal value; None where it can."""
        return None

    def warning(self, algorithm: Algorithm) -> str | None:
        """What about the part in this algorithm is legal and looks like a mistake."""
        return None

    def group_ddof(self, inherited: int) -> tuple[str, int] | None:
        """(field, ddof) of a standard deviation over a group; `inherited` is the scale's."""
        return None

    def estimate(self, token_rewards: Any, inputs: Any) -> Any:
        """A critic's advantages and returns [B, T] of token rewards."""
        raise TypeError(f"{self.kind} is not a critic")

    def equal_prompts(self, weight: Tensor, mask: Tensor, group_rows: Tensor) -> Tensor:
        """A weight's [B, T] where groups differ in size and every prompt is to count the same.

        A row of prompt p gets B/(P·B_p) times its weight, B_p = the prompt's trainable rows
        (`group_rows` [B]), P = prompts with any: 1/(B·n_i) becomes 1/(P·B_p·n_i). Where all groups
        have one size nothing changes.
        """
        trained = mask.any(1)
        share = torch.where(trained, 1.0 / group_rows.clamp(min=1).to(weight.dtype), 0.0)
        return weight * (share * trained.sum() / share.sum().clamp(min=1)).unsqueeze(1)

    def finish(self, advantages: Tensor, present: Tensor, inputs: Any) -> Tensor:
        """A scale's last word on the spread-out advantages."""
        return advantages

    def mark(self, update: UpdateInputs) -> Tensor | None:
        """Tokens [B, T] that a surrogate chooses from the whole update, put into the plan."""
        return None

    def to_table(self) -> dict[str, Any]:
        """`kind` and every field that is not None. RecipeError for an infinite bound."""
        refuse_infinite_fields(self)
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        named = {"kind": self.table_kind()} if self.table_kind() else {}
        return named | {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in fields.items()
            if value is not None
        }


@part
class Function(Part):
    """A plain function in a slot, called with the slot's arguments."""

    function: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def formula(self) -> str:
        return f"{self.function.__module__}:{getattr(self.function, '__qualname__', self.function)}"

    def to_table(self) -> dict[str, Any]:
        name = getattr(self.function, "__qualname__", None)
        if name is None or "<" in name:
            raise RecipeError(
                f"{self.function!r} has no importable name, so it cannot go into a table"
            )
        return {"function": f"{self.function.__module__}:{name}"}


def as_part(slot: str, value: Any, current: Part | None = None, functions: bool = True) -> Part:
    """A slot's part from a part, a function, a kind or "module:function" by name, or a table.

    A table without `kind` changes fields of `current`. Raises RecipeError naming the field, the
    value and a legal one.
    """
    field = f"algorithm.{slot}"
    if isinstance(value, str):
        value = {"kind": value}
    if isinstance(value, Mapping):
        made = _from_table(field, slot, dict(value), current)
        refuse_infinite_fields(made)
    else:
        made = _from_object(f"{field} = {_shown(value)}", slot, value)
    if made.slot not in (slot, "") or (made.slot == "" and not functions):
        other = f"belongs to algorithm.{made.slot}" if made.slot else "is a function"
        raise RecipeError(f"{field}: {made.formula()!r} {other}; {_kinds(slot)}")
    return made


def _from_table(field: str, slot: str, fields: dict[str, Any], current: Part | None) -> Part:
    if set(fields) == {"function"}:
        fields = {"kind": str(fields["function"])}
    kind = fields.pop("kind", None)
    kinds = PARTS.get(slot, {})
    if kind is None:
        if current is None or isinstance(current, Function):
            raise RecipeError(f"{field}: a table needs `kind`; {_kinds(slot)}")
        known = {f.name: getattr(current, f.name) for f in dataclasses.fields(current)}  # type: ignore[arg-type]
        return type(current)(**{**known, **fields})
    if isinstance(kind, str) and ":" in kind:
        found = import_object(kind, f"{field} =")
        return _from_object(f"{field} = {kind!r}", slot, found, fields)
    if not isinstance(kind, str) or kind not in kinds:
        if str(kind) in GONE:
            raise RecipeError(f"{field}.kind = {kind!r} is gone: {GONE[str(kind)]}")
        legal = [*kinds, "module:name"]
        raise RecipeError(unknown(f"{field}.kind = {kind!r}", str(kind), legal))
    return kinds[kind](**fields)


def _from_object(
    place: str, slot: str, found: Any, fields: Mapping[str, Any] | None = None
) -> Part:
    """A part from a part, a class of parts with its fields, or a function without any.

    Raises RecipeError, which `place` ("algorithm.surrogate = ...") starts.
    """
    if inspect.isclass(found):
        if not issubclass(found, Part):
            raise RecipeError(f"{place} is a class, but not a part; derive it from Part")
        if "__pydantic_fields__" not in vars(found):
            raise RecipeError(f"{place} is a class of parts without the decorator @part; add it")
        made: Part = found(**(fields or {}))
        return made
    if fields:
        raise RecipeError(f"{place} is not a class, so it takes no {', '.join(fields)}; remove it")
    if isinstance(found, Part):
        return found
    if not callable(found):
        raise RecipeError(
            f"{place} is neither a part, a function, a name nor a table with `kind`; {_kinds(slot)}"
        )
    example = next(iter(PARTS[slot].values()), None)
    if example is not None:
        wanted = [*inspect.signature(example.__call__).parameters][1:]
        try:
            inspect.signature(found).bind(*wanted)
        except TypeError:
            raise RecipeError(
                f"{place} must be a function of ({', '.join(wanted)}), not of "
                f"{inspect.signature(found)}"
            ) from None
        except ValueError:  # unknown for some functions written in C
            pass
    return Function(found)


def _shown(value: Any) -> str:
    """A value in a message: never the contents of an object such as a tensor."""
    if isinstance(value, int | float):
        return repr(value)
    if value is None or isinstance(value, str | list | tuple | dict):
        return shortened(repr(value), 100)
    return f"a {type(value).__name__}"


def _kinds(slot: str) -> str:
    return f"its kinds are {', '.join(PARTS.get(slot, {}))}"


def refuse_infinite_fields(made: Part) -> None:
    """RecipeError naming a field that holds an infinity."""
    for f in dataclasses.fields(made):  # type: ignore[arg-type]
        value = getattr(made, f.name)
        if isinstance(value, float) and math.isinf(value):
            raise RecipeError(_told(type(made), (f.name,), value, ""))


def _refusal(cls: type[Any], error: ValidationError) -> str:
    """The first of the validator's complaints: field, value, a legal one."""
    first = error.errors()[0]
    own = first.get("ctx", {}).get("error")
    if own is not None:
        return str(own)
    place, names = first["loc"], [f.name for f in dataclasses.fields(cls)]
    if place and isinstance(place[0], int):  # given by position
        place = (names[min(place[0], len(names) - 1)], *place[1:])
    if first["type"] == "unexpected_keyword_argument":
        hint = f" ({cls.hint})" if cls.hint else ""
        return unknown(f"{_place(cls)}.{place[0]}", str(place[0]), names) + hint
    if first["type"] in ("missing", "too_long") and len(place) > 1:
        example = _example(cls, str(place[0]))
        return f"{_place(cls)}.{place[0]} = {_shown(first['input'])}: give {len(example)} values"
    what = str(first["msg"]).replace("Input should be", "it should be")
    return _told(cls, place, first["input"], what)


def _told(cls: type[Any], place: tuple[Any, ...], value: Any, what: str) -> str:
    name = str(place[0])
    example = _example(cls, name)
    if len(place) > 1 and isinstance(example, tuple):
        example = example[min(int(place[1]), len(example) - 1)]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and not abs(value) <= 1e308:
        what = "give a finite number"
    return f"{_place(cls)}.{name} = {_shown(value)}: {what}, for example {example!r}"


def _place(cls: type[Any]) -> str:
    inside_list = cls.slot in ("filters", "shapers", "extras")
    return f"algorithm.{cls.slot}" + (f".{cls.kind}" if inside_list else "")


def _example(cls: type[Any], name: str) -> Any:
    """A legal value of a field: the one that it names, else its default."""
    info = cls.__pydantic_fields__.get(name)
    if info is not None and info.examples:
        return info.examples[0]
    default = getattr(cls, name, None)
    return 1.0 if default is None else default


@dataclasses.dataclass(frozen=True)
class _Shown:
    """A field's value in a formula."""

    value: Any

    def __str__(self) -> str:
        if isinstance(self.value, tuple):
            return f"({', '.join(str(_Shown(each)) for each in self.value)})"
        return number(self.value) if isinstance(self.value, float) else str(self.value)

    def __format__(self, spec: str) -> str:
        if isinstance(self.value, bool) and spec:
            return spec.split("|")[not self.value]
        if spec:
            return spec.replace("#", str(self)) if self.value else ""
        return str(self)


def number(value: float) -> str:
    """A number as people write it: 0.2, 3e-4, inf.

    >>> number(0.0003), number(0.2), number(20.0)
    ('3e-4', '0.2', '20')
    """
    text = f"{value:.6g}"
    if 0 < abs(value) < 1e-3:
        mantissa, exponent = f"{value:.6e}".split("e")
        text = f"{float(mantissa):.6g}e{int(exponent)}"
    return text


_ENTROPY_ORDER: tuple[EntropyNeed, ...] = ("none", "detached", "live")
_TEACHER_ORDER: tuple[TeacherNeed, ...] = ("none", "logprobs", "distribution")


def merge_needs(needs: Iterable[Needs]) -> Needs:
    """The union of what several parts need."""
    every = list(needs)
    found: dict[str, Any] = {
        f.name: any(getattr(n, f.name) for n in every)
        for f in dataclasses.fields(Needs)
        if f.type == "bool"
    }
    return Needs(
        **found,
        entropies=max((n.entropies for n in every), key=_ENTROPY_ORDER.index, default="none"),
        teacher=max((n.teacher for n in every), key=_TEACHER_ORDER.index, default="none"),
        top_k=max((n.top_k for n in every), default=0),
        group_size=next((n.group_size for n in every if n.group_size is not None), None),
        min_group_size=max((n.min_group_size for n in every), default=1),
        keep=next((n.keep for n in every if n.keep is not None), None),
    )
