"""A pool of workers as the sampler of a session, and as what scores its rollouts."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from groupwise.cluster.pool import Later, Pool, Task, settled
from groupwise.cluster.workers import SamplerWorker, VerifierWorker, weights_of
from groupwise.policies import Policy
from groupwise.samplers.contract import Pause, Then, check_length
from groupwise.types import Completion, Request, Score
from groupwise.verifiers import Case

if TYPE_CHECKING:
    from groupwise.training.session import Session


class ClusterSampler:
    """Implements `Sampler` on a pool of workers.

    Requests are cut into chunks, one for each worker of the recipe, and a chunk is sampled together
    by whichever worker takes it: what is decoded together does not depend on which workers are
    there, so completions are equal bit for bit after a loss. A chunk's follow-ups are its next
    chunk.
    """

    def __init__(self, policy: Policy, count: int, pool: Pool) -> None:
        self.count, self.pool = count, pool
        self.serial = 0
        self.load(policy, policy.version)

    def load(self, policy: Policy, version: int) -> None:
        """Publish these weights; every worker takes them with its next chunk."""
        import ray

        self.policy, self.version = policy, version
        self.weights = [ray.put(weights_of(policy.model))]
        self.serial += 1

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """One completion per request, in order."""
        made: dict[int, Completion] = {}
        self.play(requests, made.__setitem__)
        return [made[place] for place in range(len(requests))]

    def play(self, requests: Sequence[Request], then: Then, pause: Pause | None = None) -> None:
        """Sample every request and its follow-ups; see `Sampler.play`. It does not pause."""
        for place, request in enumerate(requests):
            check_length(self.policy, place, request)
        places = list(enumerate(requests))
        size = max(1, math.ceil(len(places) / self.count))
        chunks = [places[start : start + size] for start in range(0, len(places), size)]
        self.pool.run([self._task(chunk, then) for chunk in chunks])

    def _task(self, chunk: Sequence[tuple[int, Request]], then: Then) -> Task:
        serial, version, weights = self.serial, self.version, self.weights
        requests = [request for _, request in chunk]

        def ended(completions: list[Completion]) -> Later:
            answers = [(place, then(place, each)) for (place, _), each in zip(chunk, completions)]

            def following() -> Sequence[Task] | None:
                if not all(settled(answer) for _, answer in answers):
                    return None
                known = [
                    (place, answer.result() if isinstance(answer, Future) else answer)
                    for place, answer in answers
                ]
                left = [(place, request) for place, request in known if request is not None]
                return [self._task(left, then)] if left else []

            return following

        return Task(lambda actor: actor.sample.remote(serial, version, weights, requests), ended)

    def close(self) -> None:
        self.pool.close()


def scored_by(pool: Pool, count: int) -> Callable[[Sequence[Case]], list[Score]]:
    """`Environment.score` on a pool of workers, one chunk of cases for each."""

    def score(cases: Sequence[Case]) -> list[Score]:
        size = max(1, math.ceil(len(cases) / count))
        made: dict[int, list[Score]] = {}

        def task(start: int) -> Task:
            chunk = cases[start : start + size]

            def ended(scores: list[Score]) -> Later:
                made[start] = scores
                return tuple

            return Task(lambda actor: actor.score.remote(chunk), ended)

        starts = range(0, len(cases), size)
        pool.run([task(start) for start in starts])
        return [score for start in starts for score in made[start]]

    return score


def attach(session: Session, group: Any, rank: int, event: Callable[..., Any]) -> None:
    """Give a learner's session its share of the samplers and verifiers of the placement group,
    whose bundles are the learner's, the samplers' and the verifiers', in this order."""
    settings, text = session.recipe.compute, session.recipe.to_toml()
    learners, end = settings.processes, settings.processes + settings.samplers

    def pool(role: str, cls: type, bundles: Sequence[int]) -> Pool:
        def make(number: int) -> Any:
            return placed(cls, group, bundles[number]).remote(text, os.getcwd())

        def numbered(kind: str, *, worker: int, **fields: Any) -> None:
            event(kind, worker=rank + worker * learners, **fields)

        return Pool(role, len(bundles), make, settings, numbered)

    samplers = range(learners, end)[rank::learners]
    verifiers = range(end, end + settings.verifiers)[rank::learners]
    pools = pool("sampler", SamplerWorker, samplers), pool("verifier", VerifierWorker, verifiers)
    for each in pools:
        each.join()
    if samplers:
        session.sampler.close()
        made = ClusterSampler(session.sampled, len(samplers), pools[0])
        session.sampler = session.collector.sampler = made
    if verifiers:
        setattr(session.environment, "score", scored_by(pools[1], len(verifiers)))  # noqa: B010


def placed(cls: type, group: Any, bundle: int) -> Any:
    """An actor class with the resources of one bundle of a placement group. Its second thread
    answers pings."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    resources = group.bundle_specs[bundle]
    return ray.remote(cls).options(
        num_cpus=resources["CPU"],
        num_gpus=resources.get("GPU", 0),
        max_concurrency=2,
        scheduling_strategy=PlacementGroupSchedulingStrategy(
            placement_group=group, placement_group_bundle_index=bundle
        ),
    )
