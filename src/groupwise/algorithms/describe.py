"""An algorithm in words and formulas, rendered from its parts, so that it cannot drift."""

from __future__ import annotations

from dataclasses import dataclass

from groupwise.algorithms.algorithm import Algorithm
from groupwise.algorithms.catalogue import PRESETS
from groupwise.algorithms.corrections import NoCorrection
from groupwise.algorithms.parts import formula_of
from groupwise.algorithms.tables import LISTS, SLOTS
from groupwise.algorithms.verified import verified


@dataclass(frozen=True)
class Description:
    """What `groupwise algorithms show NAME` prints, and what its docs page is made from.

    `formula`: lines from the reward to the loss. `parts`: (slot, kind or function, formula).
    """

    name: str
    title: str
    formula: tuple[str, ...]
    parts: tuple[tuple[str, str, str], ...]
    citation: str
    typical: str
    verified: tuple[str, ...]
    unsettled: str
    misread_of: str
    warnings: tuple[str, ...]

    def text(self) -> str:
        """The whole as plain text."""
        lines = [f"{self.name}: {self.title}", f"  {self.citation}", "", "Formula (minimised)"]
        lines += [f"  {line}" for line in self.formula]
        lines += ["", "Parts"]
        lines += [f"  {slot:<10} {kind}" for slot, kind, _ in self.parts]
        for title, body in (("Typical values", self.typical), ("Not settled", self.unsettled)):
            if body:
                lines += ["", title, f"  {body}"]
        if self.misread_of:
            lines += ["", f"Not {self.misread_of}: a form that is often taken for it."]
        if self.verified:
            lines += ["", "Verified", *(f"  {line}" for line in self.verified)]
        lines += [f"Warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)


def describe(algorithm: Algorithm) -> Description:
    """The description of any algorithm; a preset's with its paper and what was verified."""
    entry = PRESETS.get(algorithm.name)
    same = entry is not None and entry.algorithm == algorithm
    return Description(
        name=algorithm.name,
        title=entry.title + ("" if same else " (changed)") if entry else "own composition",
        formula=_formula(algorithm),
        parts=_parts(algorithm),
        citation=entry.citation if entry else "",
        typical=entry.typical if entry else "",
        verified=verified(algorithm.name) if same else (),
        unsettled=entry.unsettled if entry else "",
        misread_of=entry.misread_of if entry else "",
        warnings=tuple(algorithm.warnings),
    )


def _formula(a: Algorithm) -> tuple[str, ...]:
    """From the reward to the loss, one line a slot that does something."""
    anchor = {"old": "old", "sampler": "sampler", "none": "lp"}[a.anchor]
    lines = [formula_of(part) for part in a.shapers]
    lines.append(formula_of(a.transform))
    if a.kl.in_reward:
        lines.append(a.kl.formula())
    lines += [formula_of(a.baseline), formula_of(a.scale), formula_of(a.spread)]
    lines.append(formula_of(a.ratio).replace("{anchor}", anchor))
    lines.append(formula_of(a.surrogate))
    if not isinstance(a.correction, NoCorrection):
        lines.append(formula_of(a.correction))
    lines += [formula_of(part) for part in (*a.filters, *a.extras)]
    lines.append(formula_of(a.weight))
    loss = "loss = -Σ_i,t w_i,t·f_i,t"
    if a.kl.on and a.kl.placement == "loss":
        loss += " + Σ_i,t w_i,t·" + a.kl.formula().removeprefix("loss + ")
    return (*lines, loss)


def _parts(a: Algorithm) -> tuple[tuple[str, str, str], ...]:
    out: list[tuple[str, str, str]] = []
    for slot in (*SLOTS, "anchor", "kl"):
        value = getattr(a, slot)
        if slot == "anchor":
            out.append((slot, str(value), ""))
        elif slot == "kl":
            kind = a.kl.placement if not a.kl.on else f"{a.kl.estimator} in {a.kl.placement}"
            out.append((slot, kind, a.kl.formula()))
        else:
            out.append((slot, str(getattr(value, "kind", value)), formula_of(value)))
    for name in LISTS:
        out.extend(
            (name, str(getattr(part, "kind", part)), formula_of(part)) for part in getattr(a, name)
        )
    return tuple(out)
