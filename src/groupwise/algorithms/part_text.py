"""A part in words, from its docstring and fields: what `groupwise algorithms show tis` prints."""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass
from typing import Any

from groupwise.algorithms import catalogue
from groupwise.algorithms.algorithm import LISTS, SLOTS
from groupwise.algorithms.kl import Kl
from groupwise.algorithms.parts import PARTS, Part
from groupwise.errors import RecipeError
from groupwise.suggestions import unknown


@dataclass(frozen=True)
class PartDescription:
    """`fields`: (name, type, default). `presets`: those that are made with it."""

    slot: str
    kind: str
    aliases: tuple[str, ...]
    words: str
    formula: str
    fields: tuple[tuple[str, str, str], ...]
    presets: tuple[str, ...]

    def text(self) -> str:
        """The whole as plain text."""
        lines = [f"{self.kind}: a part for the slot {self.slot}", "", self.words, ""]
        lines += ["Formula", f"  {self.formula}", ""]
        if self.aliases:
            lines += ["Also called", "  " + ", ".join(self.aliases), ""]
        if self.fields:
            lines += ["Fields", *(f"  {n}: {kind} = {default}" for n, kind, default in self.fields)]
            lines.append("")
        lines += ["In a recipe", f"  {self.recipe()}"]
        if self.presets:
            lines += ["", "Presets with it", "  " + ", ".join(self.presets)]
        return "\n".join(lines)

    def recipe(self) -> str:
        """The line of TOML that puts it into an [algorithm] table."""
        if self.slot == "kl":
            return 'kl = { placement = "loss", estimator = "k3", coef = 0.04 }'
        name = f'"{self.kind}"'
        if any(default == "required" for _, _, default in self.fields):
            name = f'{{ kind = "{self.kind}", … }}'
        return f"{self.slot} = " + (f"[{name}]" if self.slot in LISTS else name)


def every_part() -> list[type[Part]]:
    """The library's parts, slot by slot, and any that were defined since."""
    kinds = [PARTS.get(slot, {}).values() for slot in (*SLOTS, *LISTS)]
    return [*(cls for each in kinds for cls in each), Kl]


def describe_parts(name: str) -> list[PartDescription]:
    """The parts of that kind, or with that other name. Raises RecipeError with the nearest name."""
    wanted = name.lower()
    found = [cls for cls in every_part() if wanted == cls.kind or wanted in cls.aliases]
    if not found:
        legal = {n for cls in every_part() for n in (cls.kind, *cls.aliases)}
        raise RecipeError(
            unknown(f"algorithm or part {name!r}", name, {*legal, *catalogue.PRESETS})
        )
    return [describe_part(cls) for cls in found]


def describe_part(cls: type[Part]) -> PartDescription:
    """A part's docstring, fields and formula with its defaults."""
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    missing: Any = dataclasses.MISSING
    return PartDescription(
        slot=cls.slot,
        kind=cls.kind or cls.slot,
        aliases=cls.aliases,
        words=inspect.getdoc(cls) or "",
        formula=_formula(cls),
        fields=tuple(
            (f.name, _type(f.type), "required" if f.default is missing else repr(f.default))
            for f in fields
        ),
        presets=tuple(
            name
            for name, entry in catalogue.PRESETS.items()
            if any(type(each) is cls and (each.kind or _on(each)) for each in entry.algorithm.parts)
        ),
    )


def _on(part: Part) -> bool:
    return isinstance(part, Kl) and part.on


def _formula(cls: type[Part]) -> str:
    made = Kl("loss", "k3", 0.04) if cls is Kl else cls()
    return made.formula().replace("{anchor}", "anchor")


def _type(annotation: Any) -> str:
    """A field's type without its limits, as `float | None`."""
    text = annotation if isinstance(annotation, str) else str(annotation)
    if text.startswith("Annotated["):
        text = text.removeprefix("Annotated[").split(", Field")[0]
    names = ("NonNegative", "Positive", "Number", "Bound", "Share")
    for each in names:
        text = text.replace(each, "float")
    return " ".join(text.replace("Count", "int").split())
