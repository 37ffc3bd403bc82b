"""Workers of one role: tasks in, results out, and a lost worker's task is given to another.

A worker is lost where Ray reports its death, and where it answers no ping for
`compute.silence_seconds` (Ray never reports a process that is stopped). It is ended and
replaced in its place of the placement group; until then the others go on.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from groupwise.distributed import ComputeSettings
from groupwise.errors import GroupwiseError

_MOST_LOSSES = 3
"""Workers that one task, or one place's start, may cost before it is what ends them."""
_LOOK = 0.2
_AFTER = 3.0
"""Seconds after an error in which a death that caused it may still show."""
Later = Callable[[], "Sequence[Task] | None"]
"""What follows a task: tasks, or None while that is not known yet."""


@dataclass(slots=True)
class Task:
    """Work for any worker: `call(worker)` starts it there and gives Ray's reference. `ended` gets
    the result, in the thread of `Pool.run`."""

    call: Callable[[Any], Any]
    ended: Callable[[Any], Later]
    losses: int = 0


@dataclass(slots=True)
class _Worker:
    """`running` refers to its task's result, or to its start as long as `place` is empty."""

    number: int
    actor: Any
    running: Any
    task: Task | None = None
    ping: Any = None
    place: str = ""
    seen: float = field(default_factory=time.monotonic)


class Lost(Exception):  # noqa: N818 (not an error of the run)
    """A worker of a pool without replacement is lost: its number, its place, and why."""


class Pool:
    """`count` workers of `role`; `make(number)` gives a new actor for a place. `event` writes into
    the run's record. Every actor answers `where()`, also while it works. Without `replaces` the
    first loss raises `Lost`."""

    def __init__(
        self, role: str, count: int, make: Callable[[int], Any], settings: ComputeSettings,
        event: Callable[..., None], *, replaces: bool = True,
    ) -> None:  # fmt: skip
        self.role, self.make, self.settings, self.event = role, make, settings, event
        self.replaces = replaces
        self.failed = Counter[int]()
        self.lock = threading.Lock()
        self.workers = [self._started(number) for number in range(count)]

    def join(self) -> None:
        """Waits until every worker has started."""
        while any(not worker.place for worker in self.workers):
            self._look(deque())

    def run(self, tasks: Sequence[Task], tick: Callable[[], None] = lambda: None) -> None:
        """Work through the tasks and all that follow from them; `tick` is called now and then.

        Raises what a task raised, and GroupwiseError where no worker is left.
        """
        with self.lock:
            waiting, later = deque(tasks), list[Later]()
            while waiting or later or any(worker.task is not None for worker in self.workers):
                for worker in self.workers:
                    if worker.running is None and waiting:
                        worker.task, worker.seen = waiting.popleft(), time.monotonic()
                        worker.running = worker.task.call(worker.actor)
                later += self._look(waiting)
                known = [(each, each()) for each in later]
                later = [each for each, found in known if found is None]
                waiting.extend(task for _, found in known for task in found or ())
                tick()

    def close(self) -> None:
        """Ends every worker."""
        for worker in self.workers:
            _end(worker.actor)

    def _started(self, number: int) -> _Worker:
        actor = self.make(number)
        return _Worker(number, actor, actor.where.remote())

    def _look(self, waiting: deque[Task]) -> list[Later]:
        """Take what has ended, replace what is lost; a lost worker's task goes to the front."""
        import ray

        running = {each.running: each for each in self.workers if each.running is not None}
        if not running:
            time.sleep(0.01)
        found: list[Later] = []
        for reference in ray.wait(list(running), timeout=_LOOK)[0] if running else ():
            worker = running[reference]
            try:
                result = ray.get(reference)
            except ray.exceptions.RayTaskError as error:
                self._find_cause([each for each in running if each != reference], running)
                raise cause_of(error, f"{self.role} {worker.number} on {worker.place}") from error
            except ray.exceptions.RayError as error:
                self._lose(worker, waiting, _first_line(error))
                continue
            task, worker.task, worker.running = worker.task, None, None
            if task is not None:
                found.append(task.ended(result))
            else:
                worker.place, self.failed[worker.number] = result, 0
                self.event("worker_joined", role=self.role, worker=worker.number, node=result)
        for worker in [each for each in self.workers if each.running is not None]:
            self._find_silent(worker, waiting)
        return found

    def _find_silent(self, worker: _Worker, waiting: deque[Task]) -> None:
        """A worker that answers no ping is lost; one that does not start in time is given up."""
        import ray

        age, silence = time.monotonic() - worker.seen, self.settings.silence_seconds
        deadline = self.settings.deadline_seconds
        if not worker.place and age > deadline:
            self.event("worker_not_placed", role=self.role, worker=worker.number, seconds=deadline)
            _end(worker.actor)
            self.workers.remove(worker)
            if not self.workers or not self.replaces:
                raise GroupwiseError(
                    f"{self.role} {worker.number} did not start within compute.deadline_seconds = "
                    f"{deadline:g}, and no other is left"
                )
        elif worker.place and worker.ping is not None and ray.wait([worker.ping], timeout=0)[0]:
            worker.ping, worker.seen = None, time.monotonic()
        elif worker.place and age > silence:
            self._lose(worker, waiting, f"answered nothing for {silence:g} s")
        elif worker.place and worker.ping is None and age > silence / 4:
            worker.ping = worker.actor.where.remote()

    def _find_cause(self, others: list[Any], running: dict[Any, _Worker]) -> None:
        """Raises Lost for a worker whose death made another one of its group fail."""
        import ray

        if self.replaces or not others:
            return
        for reference in ray.wait(others, num_returns=len(others), timeout=_AFTER)[0]:
            try:
                ray.get(reference)
            except ray.exceptions.RayTaskError:
                continue
            except ray.exceptions.RayError as error:
                self._lose(running[reference], deque(), _first_line(error))

    def _lose(self, worker: _Worker, waiting: deque[Task], why: str) -> None:
        """Record it, give its task back, and ask for another in its place."""
        if not self.replaces:
            raise Lost(worker.number, worker.place, why)
        task = worker.task
        self.event(
            "worker_lost", role=self.role, worker=worker.number, node=worker.place, why=why,
            reissued=int(task is not None),
        )  # fmt: skip
        if task is not None:
            task.losses += 1
            waiting.appendleft(task)
        self.failed[worker.number] += not worker.place
        if max(self.failed[worker.number], task.losses if task else 0) >= _MOST_LOSSES:
            what = f"work of a {self.role}" if task else f"the start of {self.role} {worker.number}"
            raise GroupwiseError(f"{what} failed {_MOST_LOSSES} times: {why}")
        _end(worker.actor)
        self.workers[self.workers.index(worker)] = self._started(worker.number)


def _end(actor: Any) -> None:
    import ray

    with suppress(ray.exceptions.RayError, ValueError):
        ray.kill(actor, no_restart=True)


def _first_line(error: Exception) -> str:
    """What happened; of an error while an actor started, that error, which comes last."""
    lines = str(error).strip().splitlines()
    return lines[-1 if "creation task" in lines[0] else 0][:300]


def cause_of(error: Any, where: str) -> Exception:
    """What a task raised, as groupwise raises it here."""
    cause = getattr(error, "cause", None) or error
    if isinstance(cause, GroupwiseError):
        cause.args = (f"{where}: {cause}",)
        return cause
    return GroupwiseError(f"{where}: {type(cause).__name__}: {cause}")


def settled(answer: Any) -> bool:
    """Whether the answer to a completion is known."""
    return not isinstance(answer, Future) or answer.done()
