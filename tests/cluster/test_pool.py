"""A pool's workers without Ray: a stand-in whose processes die, freeze, fail and come late."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from groupwise.cluster.pool import Lost, Pool, Task
from groupwise.cluster.roles import ClusterSampler, scored_by
from groupwise.cluster.workers import put_weights, weights_of
from groupwise.distributed import ComputeSettings
from groupwise.errors import GroupwiseError, NonFiniteError
from groupwise.types import Completion, Request


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Reference:
    """A result that is there, raises, or never comes; compared by identity."""

    def __init__(self, value: Any = None, error: Exception | None = None, comes: bool = True):
        self.value, self.error, self.comes = value, error, comes


class Actor:
    """Plays a script: what each call of `work` gives. `place` None: it never starts."""

    def __init__(
        self, script: Sequence[Any] = (), place: str | None = "node", answers: bool = True
    ) -> None:
        self.script, self.place, self.answers = list(script), place, answers
        self.calls: list[Any] = []
        self.ended = self.asked = False
        self.where = SimpleNamespace(remote=self._where)
        self.work = SimpleNamespace(remote=self._work)
        self.sample = SimpleNamespace(remote=lambda *given: self._work(given[-1]))
        self.score = self.work

    def _where(self) -> Reference:
        first, self.asked = not self.asked, True
        return Reference(self.place, comes=self.place is not None and (first or self.answers))

    def _work(self, given: Any) -> Reference:
        self.calls.append(given)
        found = self.script.pop(0) if self.script else Reference(given)
        return Reference(error=found) if isinstance(found, Exception) else found


def wait(references: list[Reference], num_returns: int = 1, timeout: float = 0.0) -> Any:
    assert references
    found = [each for each in references if each.comes]
    if not found:
        time.sleep(min(timeout, 0.02))
    return found[:num_returns], []


def get(reference: Reference) -> Any:
    if reference.error is not None:
        raise reference.error
    return reference.value


@pytest.fixture(autouse=True)
def ray(monkeypatch: pytest.MonkeyPatch) -> None:
    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
    made = SimpleNamespace(
        exceptions=exceptions, wait=wait, get=get, put=lambda value: value,
        kill=lambda actor, no_restart: setattr(actor, "ended", True),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "ray", made)
    monkeypatch.setattr("groupwise.cluster.roles.check_length", lambda *_: None)


class Cluster:
    """Makes a pool of actors, those of a place one after the other, and keeps its events."""

    def __init__(self, *places: Sequence[Actor], replaces: bool = True, **settings: Any) -> None:
        left = [list(actors) for actors in places]
        self.events: list[dict[str, Any]] = []
        self.made: list[Actor] = []

        def make(number: int) -> Actor:
            self.made.append(left[number].pop(0))
            return self.made[-1]

        given = {"cluster": "auto", "silence_seconds": 0.2, "deadline_seconds": 0.3, **settings}
        self.pool = Pool(
            "sampler", len(places), make, ComputeSettings(**given),
            lambda kind, **fields: self.events.append({"kind": kind, **fields}), replaces=replaces,
        )  # fmt: skip
        self.pool.join()

    def run(self, count: int) -> list[Any]:
        found: dict[int, Any] = {}

        def task(number: int) -> Task:
            def ended(result: Any) -> Callable[[], Sequence[Task]]:
                found[number] = result
                return tuple

            return Task(lambda actor: actor.work.remote(number), ended)

        self.pool.run([task(number) for number in range(count)])
        return [found[number] for number in range(count)]

    def calls(self) -> list[Any]:
        return [call for actor in self.made for call in actor.calls]

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.events if event["kind"] != "worker_joined"]


def test_work_is_shared_and_comes_back_in_place() -> None:
    cluster = Cluster([Actor()], [Actor()])
    assert cluster.run(5) == [0, 1, 2, 3, 4]
    assert all(actor.calls for actor in cluster.made)
    assert sorted(cluster.calls()) == [0, 1, 2, 3, 4]
    assert [event["node"] for event in cluster.events] == ["node", "node"]
    cluster.pool.close()
    assert all(actor.ended for actor in cluster.made)


def test_a_dead_workers_task_is_given_again_and_the_worker_replaced() -> None:
    cluster = Cluster([Actor([RayError("The actor died.\nmore")]), Actor(place="new")], [Actor()])
    assert cluster.run(4) == [0, 1, 2, 3]
    (lost,) = [event for event in cluster.events if event["kind"] == "worker_lost"]
    assert (lost["role"], lost["worker"], lost["why"]) == ("sampler", 0, "The actor died.")
    assert lost["reissued"] == 1
    assert cluster.made[0].ended
    assert sum(0 in actor.calls for actor in cluster.made) == 2


def test_a_silent_worker_is_lost_and_one_that_answers_is_not() -> None:
    frozen = Actor([Reference(comes=False)], answers=False)
    cluster = Cluster([frozen, Actor()])
    assert cluster.run(1) == [0]
    assert [event.get("why") for event in cluster.events][1] == "answered nothing for 0.2 s"
    slow = Reference("late", comes=False)
    patient = Cluster([Actor([slow])])
    ends = time.monotonic() + 0.6
    task = Task(lambda actor: actor.work.remote(0), lambda result: tuple)

    def tick() -> None:
        slow.comes = time.monotonic() > ends

    patient.pool.run([task], tick)
    assert patient.kinds() == []


@pytest.mark.parametrize(("cause", "kind"), [(NonFiniteError("NaN"), NonFiniteError),
                                             (KeyError("x"), GroupwiseError)])  # fmt: skip
def test_an_error_of_the_work_ends_the_run_with_its_place(cause: Exception, kind: type) -> None:
    cluster = Cluster([Actor([RayTaskError(cause)])])
    with pytest.raises(kind, match=r"sampler 0 on node: ") as raised:
        cluster.run(1)
    assert str(cause) in str(raised.value)


def test_work_that_costs_three_workers_is_the_cause() -> None:
    dies = [Actor([RayError("out of memory")]) for _ in range(3)]
    with pytest.raises(GroupwiseError, match="work of a sampler failed 3 times: out of memory"):
        Cluster(dies).run(1)


def test_a_worker_that_cannot_start_is_named() -> None:
    class Broken(Actor):
        def _where(self) -> Reference:
            return Reference(error=RayError("an error raised in its creation task\nx\nKeyError: 1"))

    with pytest.raises(GroupwiseError, match="start of sampler 0 failed 3 times: KeyError: 1"):
        Cluster([Broken() for _ in range(3)])
    with pytest.raises(GroupwiseError, match=r"sampler 0 did not start within .* = 0\.3"):
        Cluster([Actor(place=None)])


def test_the_others_go_on_where_a_lost_worker_is_not_placed_again() -> None:
    cluster = Cluster([Actor([RayError("gone")]), Actor(place=None)], [Actor()])
    assert cluster.run(2) == [0, 1]
    time.sleep(0.35)
    assert cluster.run(2) == [0, 1]
    assert cluster.kinds() == ["worker_lost", "worker_not_placed"]


def test_without_replacement_the_first_loss_counts_and_not_the_errors_it_causes() -> None:
    with pytest.raises(Lost) as lost:
        Cluster([Actor([RayError("died")])], replaces=False).run(1)
    assert lost.value.args == (0, "node", "died")
    peer = Actor([RayTaskError(GroupwiseError("rank 1 does not answer"))])
    with pytest.raises(Lost) as lost:
        Cluster([peer], [Actor([RayError("died")])], replaces=False).run(2)
    assert lost.value.args == (1, "node", "died")
    with pytest.raises(GroupwiseError, match="its own"):
        Cluster([Actor([RayTaskError(ValueError("its own"))])], [Actor()], replaces=False).run(2)


# --- roles ---------------------------------------------------------------------------------------


class Echo(Actor):
    """Completes each request with its key."""

    def _work(self, given: Any) -> Reference:
        self.calls.append([request.key for request in given])
        return Reference([Completion((r.key,), str(r.key), (0.0,), "stop") for r in given])


def sampler(*places: Sequence[Actor]) -> tuple[ClusterSampler, Cluster]:
    cluster = Cluster(*places)
    policy: Any = SimpleNamespace(model=torch.nn.Linear(2, 2), version=3, max_length=64, name="p")
    return ClusterSampler(policy, 2, cluster.pool), cluster


def test_chunks_depend_on_the_requests_alone() -> None:
    requests = [Request((1,), key, 1) for key in range(5)]
    for places in ([[Echo()], [Echo()]], [[Echo()]]):
        made, cluster = sampler(*places)
        assert [each.token_ids for each in made.sample(requests)] == [(n,) for n in range(5)]
        assert sorted(cluster.calls()) == [[0, 1, 2], [3, 4]]


def test_follow_ups_of_a_chunk_are_its_next_chunk() -> None:
    made, cluster = sampler([Echo()])
    later: Future[Request | None] = Future()
    seen: list[tuple[int, str]] = []

    def then(place: int, completion: Completion) -> Any:
        seen.append((place, completion.text))
        if completion.text == "0":
            later.set_result(Request((1,), 10, 1))
            return later
        return Request((1,), 11, 1) if completion.text == "2" else None

    made.play([Request((1,), key, 1) for key in range(4)], then)
    assert sorted(cluster.calls()) == [[0, 1], [2, 3], [10], [11]]
    assert sorted(seen) == [(0, "0"), (0, "10"), (1, "1"), (2, "11"), (2, "2"), (3, "3")]


def test_scores_come_back_in_order() -> None:
    cluster = Cluster([Actor()], [Actor()])
    cases: Any = list("abcde")
    assert scored_by(cluster.pool, 2)(cases) == cases
    assert sorted(cluster.calls()) == [list("abc"), list("de")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_travel_bit_for_bit(dtype: torch.dtype) -> None:
    one, two = (torch.nn.Linear(3, 2, dtype=dtype) for _ in range(2))
    put_weights(two, weights_of(one))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters()))
    with pytest.raises(GroupwiseError, match=r"first weight: \(2, 3\) there, \(2, 4\) here"):
        put_weights(torch.nn.Linear(4, 2, dtype=dtype), weights_of(one))
