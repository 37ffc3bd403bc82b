"""An algorithm, or a part, in words and formulas that are rendered from the parts themselves."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from groupwise.algorithms.algorithm import LISTS, SLOTS, Algorithm
from groupwise.algorithms.kl import Kl
from groupwise.algorithms.parts import PARTS, Part, number
from groupwise.algorithms.presets import PRESETS, Preset
from groupwise.errors import RecipeError
from groupwise.suggestions import slips

NOTATION = (
    "lp: log-probability of the token now; old: at the start of the step's updates; sampler: as "
    "sampled; ref: of the reference. R: reward, A: advantage, sg[·]: no gradient; completion i of "
    "its group, token t of n_i"
)
MARKS = {
    "[P]": "formula read in the paper",
    "[R]": "formula read in the authors' own code",
    "[I]": "two or more independent implementations agree; the paper itself was not read",
    "[M]": "from memory, not confirmed",
}
_FROM_MEMORY = "the composition is from memory and was not confirmed against the paper"


@dataclass(frozen=True)
class Description:
    """What `groupwise algorithms show NAME` prints, and what its docs page is made from.

    `formula`: lines from the reward to the loss. `parts`: (slot, kind or function, formula).
    `needs`: what the loop has to provide. `misread`: what others often make of the method.
    """

    name: str
    title: str
    formula: tuple[str, ...]
    parts: tuple[tuple[str, str, str], ...]
    citation: str
    typical: str
    needs: tuple[str, ...]
    verified: tuple[str, ...]
    unsettled: tuple[str, ...]
    misread: str
    warnings: tuple[str, ...]

    @property
    def source(self) -> str:
        """What the citation's mark means, "" without one."""
        return "; ".join(words for mark, words in MARKS.items() if mark in self.citation)

    def text(self) -> str:
        """The whole as plain text, at most 100 columns where words can break."""
        cited = f"{self.citation} ({self.source})" if self.source else self.citation
        lines = [f"{self.name}: {self.title}", *_wrapped(cited), "", "Formula (minimised)"]
        for line in self.formula:
            lines += _wrapped(line, hang="    ")
        lines += ["", *_wrapped(NOTATION), "", "Parts"]
        for slot, kind, formula in self.parts:
            shown = f"{slot:<10} {kind:<18} {formula}".rstrip()
            lines += _wrapped(shown, hang=" " * 30)
        for title, body in (
            ("Typical values", [self.typical]),
            ("Needs", self.needs),
            ("Verified", self.verified),
            ("Not settled", self.unsettled),
            ("Often misread", [self.misread]),
            ("Warnings", self.warnings),
        ):
            if any(body):
                lines += ["", title]
                for entry in body:
                    lines += _wrapped(entry, hang="  ")
        return "\n".join(lines)


def _wrapped(text: str, hang: str = "") -> list[str]:
    wrapper = textwrap.TextWrapper(100, "  ", "  " + hang, break_long_words=False)
    wrapper.break_on_hyphens = False
    return wrapper.wrap(text)


def describe(algorithm: Algorithm) -> Description:
    """The description of any algorithm; a preset's with its paper and what was verified.

    A preset with a part changed keeps its citation, but nothing verified is claimed of it.
    """
    entry = PRESETS.get(algorithm.preset) or Preset(algorithm, "own composition", "")
    unsettled = (_FROM_MEMORY if "[M]" in entry.citation else "", entry.unsettled)
    return Description(
        name=algorithm.name,
        title=_title(algorithm, entry),
        formula=_formula(algorithm),
        parts=_parts(algorithm),
        citation=entry.citation,
        typical=entry.typical,
        needs=_needs(algorithm),
        verified=() if changes(algorithm) else verified(algorithm.preset),
        unsettled=tuple(filter(None, unsettled)),
        misread=entry.misread,
        warnings=tuple(algorithm.warnings),
    )


def changes(algorithm: Algorithm) -> dict[str, Any]:
    """What differs from the preset that it was made from, by dotted field."""
    entry = PRESETS.get(algorithm.preset)
    if entry is None:
        return {}
    found: dict[str, Any] = {}
    for slot in (*SLOTS, "kl", "anchor", *LISTS):
        now, before = getattr(algorithm, slot), getattr(entry.algorithm, slot)
        if now == before:
            continue
        if slot in LISTS:
            found[slot] = [_kind(each) for each in now]
        elif type(now) is not type(before) or not isinstance(now, Part) or not now.__dict__:
            found[slot] = now if slot == "anchor" else _kind(now)
        else:
            fields = now.__dict__.items()
            found |= {f"{slot}.{k}": v for k, v in fields if v != getattr(before, k)}
    return found


def label(algorithm: Algorithm) -> str:
    """What an algorithm is, in one line.

    >>> from groupwise.algorithms import preset
    >>> label(preset("grpo")), label(preset("grpo", surrogate="unclipped", kl_coef=0))
    ('grpo', 'grpo with surrogate = unclipped, kl.coef = 0.0')
    """
    changed = ", ".join(f"{field} = {value}" for field, value in changes(algorithm).items())
    made = algorithm.preset + (f" with {changed}" if changed else "")
    if algorithm.name == algorithm.preset:
        return made
    return f"{algorithm.name} ({made})" if algorithm.preset else algorithm.name


def _title(algorithm: Algorithm, entry: Preset) -> str:
    if changes(algorithm):
        return f"{label(algorithm)} (changed)"
    made = algorithm.preset in PRESETS and algorithm.name != algorithm.preset
    return entry.title + (f" (as {algorithm.preset})" if made else "")


def verified(name: str) -> tuple[str, ...]:
    """One line a proof that the tests hold of a preset, with its precision."""
    return tuple(line for line, names in _claims().items() if name in names)


@cache
def _claims() -> dict[str, list[str]]:
    """claim -> presets; the tests write this file, and fail where it is not what they verify."""
    source = files("groupwise.algorithms").joinpath("verified.json")
    found: dict[str, list[str]] = json.loads(source.read_text(encoding="utf-8"))
    return found


def _formula(a: Algorithm) -> tuple[str, ...]:
    """From the reward to the loss in the order of the computation, a line a slot that acts."""
    rows = [each for each in a.filters if each.name]
    tokens = [each for each in a.filters if not each.name]
    lines = [each.formula() for each in a.shapers]
    lines += _advantage_lines(a)
    terms = [each.formula() for each in a.extras]
    lines += [term for term in terms if term.startswith("A_i,t ←")]
    lines += [each.formula() for each in rows]
    lines += [_ratio_formula(a), a.surrogate.formula()]
    if a.correction.active:
        lines.append(a.correction.formula())
    lines += [each.formula() for each in tokens]
    lines += [term for term in terms if not term.startswith(("loss ", "A_i,t ←"))]
    lines += [a.weight.formula(), "loss = -Σ_i,t w_i,t·f_i,t"]
    if a.kl.on and a.kl.placement == "loss":
        lines.append(f"loss ← loss + Σ_i,t w_i,t·{a.kl.formula()}")
    lines += [f"loss ← {term}" for term in terms if term.startswith("loss ")]
    return tuple(lines)


def _advantage_lines(a: Algorithm) -> list[str]:
    """From the signal to the advantage of every token; whitening comes last of all."""
    lines = [a.transform.formula()]
    if a.kl.in_reward and a.kl.placement == "sequence_reward":
        lines.append(a.kl.formula())
    if a.baseline.critic:
        lines += [a.kl.token_rewards("x_i", "R_i,j"), a.baseline.formula()]
    else:
        lines += _indexed(_centred(a), a)
        if a.kl.in_reward and a.kl.placement == "token_reward":
            lines.append(a.kl.formula())
        if _letter(a) != "t":
            lines.append(a.spread.formula())
    if a.scale.active and not a.scale.divides:
        lines.append(a.scale.formula())
    return lines


def _centred(a: Algorithm) -> list[str]:
    """Baseline and scale; one line where one of them does it all."""
    if not a.baseline.active and not a.scale.divides:
        return ["A_i = x_i"]
    if a.baseline.final and not a.scale.divides:
        return [a.baseline.formula()]
    return [a.baseline.formula(), a.scale.formula() if a.scale.divides else "A_i = x_i - b_i"]


def _letter(a: Algorithm) -> str:
    """The second index of a signal that is one a step (j) or one a token (t), else ""."""
    return {"token": "t", "step": "j", "row": ""}[a.transform.scope]


def _indexed(lines: Iterable[str], a: Algorithm) -> list[str]:
    letter = _letter(a)
    if not letter:
        return list(lines)
    return [re.sub(r"\b([xA])_i\b(?!,)", rf"\1_i,{letter}", line) for line in lines]


def _ratio_formula(a: Algorithm) -> str:
    return a.ratio.formula().replace("{anchor}", "lp" if a.anchor == "none" else a.anchor)


def _parts(a: Algorithm) -> tuple[tuple[str, str, str], ...]:
    rows = [(slot, _kind(part := getattr(a, slot)), part.formula()) for slot in SLOTS]
    ratio = SLOTS.index("ratio")
    rows[ratio] = ("ratio", _kind(a.ratio), _ratio_formula(a))
    rows.append(("anchor", a.anchor, _ANCHORS[a.anchor]))
    kl = f"{a.kl.estimator} in {a.kl.placement}" if a.kl.on else "none"
    rows.append(("kl", kl, a.kl.formula()))
    return (*rows, *((n, _kind(part), part.formula()) for n in LISTS for part in getattr(a, n)))


_ANCHORS = {
    "old": "the learner's own log-probabilities at the start of the step",
    "sampler": "the log-probabilities that the sampler reported",
    "none": "no anchor",
}


def _kind(part: Part) -> str:
    return part.kind or part.formula()


def _needs(a: Algorithm) -> tuple[str, ...]:
    n = a.needs
    size = f"exactly {n.group_size}" if n.group_size else f"{n.min_group_size} or more"
    wanted = (
        (n.group_size is not None or n.min_group_size > 1, f"sampling.group_size of {size}"),
        (n.ref_logprobs, "a frozen reference"),
        (n.sampler_logprobs, "the sampler's log-probabilities"),
        (n.top_k > 0, f"the {n.top_k} most likely ids of every token, from sampler and learner"),
        (n.entropies != "none", "the entropy at every token"),
        (n.greedy, "one greedy completion a prompt"),
        (n.step_rewards, "step rewards from the verifier"),
        (n.components, "the reward's components (two or more verifiers)"),
        (n.values, "a critic"),
        (n.teacher != "none", "a teacher (the recipe's [teacher] table)"),
        (n.max_tokens, "sampling.max_tokens, as the constant of its weight"),
        (n.state, "a memory of every prompt's earlier rewards, kept in the checkpoint"),
        (n.whole_groups, "whole groups in a micro-batch"),
    )
    return tuple(words for needed, words in wanted if needed)


@dataclass(frozen=True)
class PartDescription:
    """`fields`: (name, legal values, default). `presets`: those that are made with it."""

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
            lines += [
                "Fields",
                *(f"  {n} = {default}  ({legal})" for n, legal, default in self.fields),
            ]
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
        legal = {n for cls in every_part() for n in (cls.kind, *cls.aliases) if n} | {*PRESETS}
        near = difflib.get_close_matches(wanted, sorted(legal), n=5, cutoff=0.3)
        near = sorted(near, key=lambda other: slips(wanted, other))[:3]
        hint = f"the nearest names are {', '.join(near)}; " if near else ""
        raise RecipeError(
            f"algorithm or part {name!r} is not known; {hint}all are in: groupwise algorithms list"
        )
    return [describe_part(cls) for cls in found]


def describe_part(cls: type[Part]) -> PartDescription:
    """A part's docstring, fields and formula with its defaults."""
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    missing: Any = dataclasses.MISSING
    known = cls.__pydantic_fields__  # type: ignore[attr-defined]
    return PartDescription(
        slot=cls.slot,
        kind=cls.kind or cls.slot,
        aliases=cls.aliases,
        words=inspect.getdoc(cls) or "",
        formula=_part_formula(cls),
        fields=tuple(
            (
                f.name,
                _legal(known[f.name].annotation, known[f.name].metadata),
                "required" if f.default is missing else _default(f.default),
            )
            for f in fields
        ),
        presets=tuple(
            name
            for name, entry in PRESETS.items()
            if any(type(each) is cls and (each.kind or _on(each)) for each in entry.algorithm.parts)
        ),
    )


def _on(part: Part) -> bool:
    return isinstance(part, Kl) and part.on


def _part_formula(cls: type[Part]) -> str:
    made = Kl("loss", "k3", 0.04) if cls is Kl else cls()
    return made.formula().replace("{anchor}", "anchor")


def _default(value: Any) -> str:
    """As a recipe writes it; "unset" for None, which TOML does not have."""
    if value is None:
        return "unset"
    if isinstance(value, float):
        return number(value)
    return json.dumps(value)


_LIMITS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def _legal(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    """A field's legal values: `"none" or "loss"`, `float ≥ 0 or unset`."""
    if get_origin(annotation) is Annotated:
        base, *more = get_args(annotation)
        inner = [x for each in more for x in getattr(each, "metadata", [each])]
        return _legal(base, [*inner, *metadata])
    bounds = [
        f" {sign} {number(float(getattr(each, name)))}"
        for each in metadata
        for name, sign in _LIMITS.items()
        if hasattr(each, name)
    ]
    options = get_args(annotation)
    if get_origin(annotation) is Literal:
        return " or ".join(json.dumps(each) for each in options)
    if get_origin(annotation) in (Union, UnionType):
        shown = [_legal(each, () if each is NoneType else metadata) for each in options]
        return " or ".join(shown)
    if get_origin(annotation) is tuple:
        return f"[{', '.join('...' if each is ... else _legal(each) for each in options)}]"
    name = "unset" if annotation is NoneType else getattr(annotation, "__name__", str(annotation))
    return name + " and".join(bounds)
