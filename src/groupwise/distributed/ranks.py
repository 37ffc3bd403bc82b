"""The processes of one run: what they divide, what they exchange, and which of them failed.

Every process runs the same loop on the same data; only rollouts and micro-batches are divided, and
their results exchanged, so that all of them know the same afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from groupwise.errors import GroupwiseError, NonFiniteError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup, Store
    from torch.distributed.device_mesh import DeviceMesh

T = TypeVar("T")
R = TypeVar("R")

_PATIENCE = 5.0
"""Seconds that the others have to say that they live, once an exchange has failed."""


@dataclass(frozen=True)
class _Raised:
    """An error as it is sent to the other ranks: its kind, where groupwise has it, and its text."""

    kind: type[GroupwiseError]
    text: str

    @classmethod
    def of(cls, error: Exception) -> _Raised:
        if isinstance(error, GroupwiseError):
            return cls(type(error), str(error))
        return cls(GroupwiseError, f"{type(error).__name__}: {error}")


@dataclass(frozen=True)
class Ranks:
    """This process among the `size` processes of its run; alone by default.

    `mesh` is what weights are sharded over, `objects` the group that exchanges Python objects,
    `store` tells of failures. `ended` says what became of a rank's process, where that is known.
    """

    rank: int = 0
    size: int = 1
    deadline: float = 0.0
    mesh: DeviceMesh | None = None
    objects: ProcessGroup | None = None
    store: Store | None = None
    ended: Callable[[int], str | None] = field(default=lambda rank: None)

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes the record."""
        return self.rank == 0

    # --- exchanges: every rank calls them in the same order --------------------------------------

    def gather(self, value: T) -> list[T]:
        """Every rank's value, in order, on every rank."""
        if self.size == 1:
            return [value]
        import torch.distributed as dist

        found: list[Any] = [None] * self.size
        with self.named():
            dist.all_gather_object(found, value, group=self.objects)
        return found

    def together(self, call: Callable[[], T]) -> T:
        """This rank's `call()`; where it raises on some ranks, all raise the first one's error."""
        if self.size == 1:
            return call()
        error: Exception | None = None
        try:
            made = call()
        except Exception as raised:  # noqa: BLE001 (raised again, by every rank)
            error = raised
        for rank, each in enumerate(self.gather(None if error is None else _Raised.of(error))):
            if each is not None and rank == self.rank:
                raise cast(Exception, error)
            if each is not None:
                raise each.kind(f"rank {rank}: {each.text}")
        return made

    def first(self, call: Callable[[], T]) -> T:
        """Rank 0's `call()`, on every rank; the others do not call it."""
        made = self.together(call if self.leads else lambda: cast(T, None))
        return self.gather(made)[0]

    def share(self, parts: Sequence[T], work: Callable[[T, bool], R]) -> list[R]:
        """`work(part, True)` of every part, in order, on every rank; each rank does its share.

        All ranks call `work` equally often, as the exchanges inside it need: one without a part
        left calls `work(part, False)`, whose value is dropped. Raises the first part's error.
        """
        if self.size == 1:
            return [work(part, True) for part in parts]
        own: list[tuple[int, R | _Raised]] = []
        for start in range(0, len(parts), self.size):
            place = start + self.rank
            idle = place >= len(parts)
            made: R | _Raised
            try:
                made = work(parts[-1 if idle else place], not idle)
            except NonFiniteError as error:  # raised after the part's own exchanges
                made = _Raised.of(error)
            if not idle:
                own.append((place, made))
        found = dict(pair for each in self.gather(own) for pair in each)
        results: list[R] = []
        for place in range(len(parts)):
            result = found[place]
            if isinstance(result, _Raised):
                raise result.kind(result.text)
            results.append(result)
        return results

    def same(self, what: str, value: str) -> None:
        """Raises GroupwiseError where a rank's text is not that of rank 0."""
        for rank, each in enumerate(values := self.gather(value)):
            if each != values[0]:
                raise GroupwiseError(
                    f"rank {rank} has {what} {each:.80}, and rank 0 has {values[0]:.80}: all "
                    "processes of a run need the same"
                )

    # --- failures --------------------------------------------------------------------------------

    @contextmanager
    def named(self) -> Iterator[None]:
        """An exchange that fails inside raises GroupwiseError naming the rank that caused it."""
        try:
            yield
        except BaseException as error:
            if self.size == 1 or not of_an_exchange(error):
                self._tell(error)
                raise
            raise GroupwiseError(self._cause(error)) from error

    def _tell(self, error: BaseException) -> None:
        """Leaves word of this rank's error for the others."""
        if self.store is not None:
            with suppress(RuntimeError):
                said = f"{type(error).__name__}: {error}"
                self.store.set(f"failed/{self.rank}", said.strip().splitlines()[0][:500])

    def _cause(self, error: BaseException) -> str:
        """Which rank failed, after an exchange of this one broke off."""
        assert self.store is not None
        with suppress(RuntimeError):  # the store went with its process
            self.store.set(f"alive/{self.rank}", "1")
        others = [rank for rank in range(self.size) if rank != self.rank]
        ends = time.monotonic() + _PATIENCE
        while True:
            silent = [each for each in others if not self._holds(f"alive/{each}")]
            for rank in silent:
                if self._holds(f"failed/{rank}"):
                    return f"rank {rank} failed: {self.store.get(f'failed/{rank}').decode()}"
            if not silent or time.monotonic() > ends:
                break
            time.sleep(0.05)
        gone = {rank: how for rank in silent if (how := self.ended(rank)) is not None}
        known = gone or dict.fromkeys(silent, "does not answer")
        if known:
            named = ", ".join(f"rank {rank} {how}" for rank, how in known.items())
            return f"{named}; the run ends, the last checkpoint is intact"
        said = (str(error).splitlines() or [""])[0][:200]
        return (
            f"an exchange between the {self.size} processes failed within compute.deadline_seconds "
            f"= {self.deadline:g}, and all of them still answer: {said}"
        )

    def _holds(self, key: str) -> bool:
        assert self.store is not None
        try:
            return bool(self.store.check([key]))
        except RuntimeError:  # the store went with its process
            return False

    def await_all(self, about: str, alive: Callable[[], None]) -> None:
        """Waits until every rank has come, with equal `about`. GroupwiseError names who has not;
        `alive` may raise while waiting."""
        assert self.store is not None
        self.store.set(f"here/{self.rank}", about)
        ends = time.monotonic() + self.deadline
        while missing := [n for n in range(self.size) if not self._holds(f"here/{n}")]:
            alive()
            if time.monotonic() > ends:
                named = ", ".join(map(str, missing))
                raise GroupwiseError(
                    f"rank {named} of {self.size} did not come within compute.deadline_seconds = "
                    f"{self.deadline:g}"
                )
            time.sleep(0.02)
        for rank in range(self.size):
            other = self.store.get(f"here/{rank}").decode()
            if other != about:
                raise GroupwiseError(
                    f"rank {rank} runs {other}, and rank {self.rank} runs {about}: install the "
                    "same versions on every machine"
                )

    @property
    def timeout(self) -> timedelta:
        """The deadline as PyTorch takes it."""
        return timedelta(seconds=self.deadline)


ALONE = Ranks()
"""The only process of its run."""


def of_an_exchange(error: BaseException) -> bool:
    """Whether PyTorch raised it because a collective broke off: gloo's have only their file."""
    import torch.distributed as dist

    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and any(n in str(error) for n in ("gloo", "NCCL", "c10d"))
    )
