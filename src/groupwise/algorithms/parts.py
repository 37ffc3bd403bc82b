"""What every part has in common: a kind, what it needs, and its line of the formula.

A part is a small frozen dataclass that is called with its slot's arguments. A plain function with
the same arguments is a part too; it has no needs and is rendered by its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from groupwise.algorithms.contracts import EntropyNeed, Needs


@dataclass(frozen=True)
class Part:
    """Base of the parts. `kind` is the part's name in TOML; `needs` says what it reads."""

    kind: ClassVar[str] = ""
    hint: ClassVar[str] = ""
    """Added to the refusal of an unknown field, where a common name means something else."""
    open_ended: ClassVar[tuple[str, ...]] = ()
    """Fields in which a part built in Python may hold +inf, which means no bound."""

    @property
    def needs(self) -> Needs:
        return Needs()

    def formula(self) -> str:
        """One line of plain mathematics, with this part's own numbers in it."""
        return self.kind


def needs_of(part: Any) -> Needs:
    """A part's needs; a plain function has none."""
    needs = getattr(part, "needs", None)
    return needs if isinstance(needs, Needs) else Needs()


def formula_of(part: Any) -> str:
    """A part's line of the formula; a plain function's is its name."""
    if isinstance(part, Part):
        return part.formula()
    return f"{getattr(part, '__module__', '?')}:{getattr(part, '__qualname__', part)}"


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


def merge_needs(needs: Iterable[Needs]) -> Needs:
    """The union of what several parts need."""
    all_needs = list(needs)
    sizes = {n.group_size for n in all_needs if n.group_size is not None}
    keeps = [n.keep for n in all_needs if n.keep is not None]
    return Needs(
        old_logprobs=any(n.old_logprobs for n in all_needs),
        ref_logprobs=any(n.ref_logprobs for n in all_needs),
        sampler_logprobs=any(n.sampler_logprobs for n in all_needs),
        entropies=max((n.entropies for n in all_needs), key=_ENTROPY_ORDER.index, default="none"),
        top_k=max((n.top_k for n in all_needs), default=0),
        greedy=any(n.greedy for n in all_needs),
        step_rewards=any(n.step_rewards for n in all_needs),
        components=any(n.components for n in all_needs),
        values=any(n.values for n in all_needs),
        max_tokens=any(n.max_tokens for n in all_needs),
        group_size=next(iter(sizes), None),
        min_group_size=max((n.min_group_size for n in all_needs), default=1),
        keep=keeps[0] if keeps else None,
        whole_groups=any(n.whole_groups for n in all_needs),
        state=any(n.state for n in all_needs),
        accuracies=any(n.accuracies for n in all_needs),
    )
