"""A play around another one: what tools and a user share.

Left out: what either adds to a turn (`tools/toolbox.py`, `user.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from groupwise.environments.base import Play
from groupwise.types import Score


class Around(Play):
    """Another play, with turns put before its own; its verdict and its end are the inner one's.

    `told` are the counts of what is put around it; `counts` adds them to the inner play's as those
    are at that moment, in whatever object it keeps them by then.
    """

    def __init__(self, inner: Play) -> None:
        self.told: Counter[str] = Counter()
        self.inner = inner
        super().__init__(inner.prompt)

    @property
    def counts(self) -> Any:
        """The inner play's counts and these; what is no table is given on as it is."""
        inner: Any = self.inner.counts
        if not isinstance(inner, Mapping):
            return inner
        found: dict[Any, Any] = {**inner}
        for name, number in self.told.items():
            own = found.get(name, 0)
            found[name] = own + number if isinstance(own, int | float) else own
        return found

    @counts.setter
    def counts(self, value: Counter[str]) -> None:
        self.told = value

    def result(self) -> Score | None:
        return self.inner.result()

    def close(self) -> None:
        self.inner.close()
