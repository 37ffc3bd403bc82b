"""Collection ahead of learning (`compute.max_staleness`): sampling and verification go on while the
policy learns.

The run's thread decides: it starts groups, takes scored ones and loads weights, and each only while
the sampler is still. A background thread samples from the start of a step's collection until the
next weights are there. What a clock decides is therefore two things a step: which groups the step
took, in which order, and after how many decoding steps the sampler was interrupted. They are the
step's line in `schedule.jsonl`. A replay follows these lines in one thread.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from groupwise.algorithms import AlgorithmState
from groupwise.distributed import copy_weights
from groupwise.environments import Environment
from groupwise.errors import GroupwiseError
from groupwise.instants import pulse
from groupwise.policies import Policy
from groupwise.recipe import Recipe
from groupwise.rollouts import Timer
from groupwise.rollouts.arrivals import Arrivals, Arrived
from groupwise.rollouts.member import Setting
from groupwise.rollouts.rounds import Progress, Rounds, Started
from groupwise.samplers import Sampler
from groupwise.selection import from_plain, to_plain
from groupwise.templates import Template
from groupwise.training.collecting import Collected, Collector
from groupwise.types import Group
from groupwise.verifiers import VerifierLogs
from groupwise.waiting.deadlines import BackgroundCall

Schedule = Sequence[Mapping[str, Any]]


class Stretch:
    """Sampling from one interruption to the next: counts the decoding steps (`Pause`).

    `end` is the count after which it ends in a replay, None where `stop` ends it.
    """

    def __init__(self, rounds: Rounds, end: int | None) -> None:
        self.steps = 0
        self._end = end
        self._stopping = False
        self._call: BackgroundCall[None] | None = None
        if end is None:
            self._call = BackgroundCall(lambda: rounds.run(self))
        else:
            rounds.run(self)

    def __call__(self) -> bool:
        if self._stopping if self._end is None else self.steps >= self._end:
            return True
        self.steps += 1
        return False

    @property
    def runs(self) -> bool:
        """Whether it samples now. Raises what sampling raised."""
        if self._call is not None and self._call.error is not None:
            raise self._call.error
        return self._call is not None and self._call.runs

    def stop(self) -> int:
        """End it before the next decoding step; how many it made. Raises what sampling raised."""
        self._stopping = True
        if self._call is not None:
            self._call.result()
        return self.steps


class AheadCollector(Collector):
    """A collector whose groups are sampled up to `compute.max_staleness` steps ahead.

    `policy` is the sampler's own copy of the weights; None for an engine that holds weights itself,
    which evaluations share. `schedule` are the lines of the run that is replayed, one a step; None
    where the clock decides.
    """

    def __init__(
        self,
        recipe: Recipe,
        environment: Environment,
        sampler: Sampler,
        template: Template,
        state: AlgorithmState,
        policy: Policy | None,
        schedule: Schedule | None = None,
    ) -> None:
        super().__init__(recipe, environment, sampler, template, state)
        self.policy = policy
        self.compute = recipe.compute
        self.schedule = schedule
        needs = recipe.algorithm.needs
        setting = Setting(
            environment,
            template,
            recipe.sampling,
            recipe.seed,
            "training",
            entropies=needs.entropies != "none",
            top_k=needs.top_k,
            park_after=recipe.compute.park_after or 0,
        )
        self.arrivals = Arrivals(setting)
        self.rounds = Rounds(setting, sampler, self.arrivals.put)
        self.started: dict[int, Started] = {}
        self.num_started = 0
        self.skipped: list[int] = []
        self._stretch: Stretch | None = None
        self._line: dict[str, Any] | None = None

    # --- a step's groups ------------------------------------------------------------------------

    def _gather(self, wanted: int, step: int, found: Collected, timer: Timer) -> list[Group]:
        """See `Collector`: groups that are discarded are replaced once all others are taken."""
        line = self._line = {"step": step, "groups": [], "held": []}
        most = math.inf if self.rule is None else self.rule.max_batches * wanted
        limit, parked, self.rounds.num_parked = found.max_tokens, self.rounds.num_parked, 0
        ready = [*self.waiting]  # carried over by skipped steps alone, so none is older now
        logs: list[VerifierLogs] = []
        dropped = 0
        self._sample(step, limit)
        with timer("rollout"):
            while len(ready) < wanted and len(found.sampled) - dropped < most:
                if not self.started:
                    self._hold()
                    self._sample(step, limit)
                started, group, logged = self._next(step)
                del self.started[started.number]
                line["groups"].append(started.number)
                logs.append(logged)
                found.max_tokens = max(found.max_tokens, started.max_tokens)
                found.sampled.append(group)
                self.picker.see([group])
                if (
                    self.compute.stale == "drop"
                    and self._age(group, step) > self.compute.max_staleness
                ):
                    found.discarded.append(group)
                    dropped += 1
                elif (kept := self._kept(group, found)) is not None:
                    ready.append(kept)
        found.rounds = math.ceil(len(found.sampled) / wanted)
        found.logs = _merged(logs)
        rollouts = [rollout for group in ready for rollout in group.rollouts]
        mixed = sum(any(t.completion.versions for t in each.turns) for each in rollouts)
        found.ahead = {
            "dropped": dropped,
            "mixed": mixed / len(rollouts) if rollouts else None,
            "parked": parked,
            "staleness_max": max((self._age(group, step) for group in ready), default=None),
            "unlearned": len(self.started),
        }
        return ready

    def _sample(self, step: int, max_tokens: int) -> None:
        """Start as many groups as may be ahead of learning, and sample."""
        per_step, greedy = self.recipe.training.prompts_per_step, self.recipe.algorithm.needs.greedy
        most = (1 + self.compute.max_staleness) * per_step
        chosen = self._take(most - len(self.started) - len(self.waiting), step)
        sizes = self._sizes([prompt.id for prompt, _ in chosen], max_tokens)
        for (prompt, visit), size in zip(chosen, sizes, strict=True):
            number = self.num_started
            self._start(Started(number, step, prompt, visit, size, greedy, max_tokens))
        held = self._line["held"] if self._line else []
        end = None if self.schedule is None else self._logged(step, "held", len(held))
        self._stretch = Stretch(self.rounds, end)

    def _age(self, group: Group, step: int) -> int:
        """The staleness of its oldest token; a skipped step changed no weights."""
        version = min(rollout.version for rollout in group.rollouts)
        return step - version - sum(skipped >= version for skipped in self.skipped)

    def _share_out(self, ready: list[Group], wanted: int, step: int, found: Collected) -> None:
        super()._share_out(ready, wanted, step, found)
        if not found.groups:
            self.skipped.append(step)
        held = [rollout.version for group in self.waiting for rollout in group.rollouts]
        oldest = min([step, *held, *(group.version for group in self.started.values())])
        self.skipped = [skipped for skipped in self.skipped if skipped >= oldest]

    def _start(self, group: Started, progress: Sequence[Progress] = ()) -> None:
        self.started[group.number] = group
        self.num_started = group.number + 1
        self.rounds.start(group, progress)

    def _hold(self) -> None:
        """The sampler is still from now on."""
        stretch, self._stretch = self._stretch, None
        if stretch is not None and self._line is not None:
            self._line["held"].append(stretch.stop())

    def _next(self, step: int) -> Arrived:
        """The next group that the step takes, waited for."""
        number, oldest = None, min(group.version for group in self.started.values())
        if self.schedule is not None and self._line is not None:
            number = self._logged(step, "groups", len(self._line["groups"]))

        def fits(group: Started) -> bool:
            if number is not None:
                return group.number == number
            return self.compute.stale != "wait" or group.version == oldest

        arrived = self.arrivals.take(fits, self._sampling)
        if arrived is None:
            raise self._differs(step, f"group {number} is not finished")
        return arrived

    def _sampling(self) -> bool:
        if pulse.check is not None:
            pulse.check()
        return self._stretch is not None and self._stretch.runs

    # --- the schedule ---------------------------------------------------------------------------

    def _logged(self, step: int, name: str, place: int) -> int:
        assert self.schedule is not None
        entries = self.schedule[step][name]
        if place >= len(entries):
            raise self._differs(step, f"it has no entry {place} of {name!r}")
        return int(entries[place])

    def _differs(self, step: int, why: str) -> GroupwiseError:
        return GroupwiseError(
            f"step {step} does not follow line {step + 1} of the schedule: {why}; repeat the run "
            "with the recipe, the data and the version of groupwise that it was recorded with, and "
            "with the schedule as it was written"
        )

    def load(self, policy: Policy, version: int) -> dict[str, Any] | None:
        """Interrupts the sampler, which continues with these weights in the next step."""
        self._hold()
        if self.policy is not None:
            copy_weights(policy, self.policy)
            self.policy.version = version
            self.sampler.load(self.policy, version)
        self.rounds.unpark()
        line, self._line = self._line, None
        if line is not None and self.schedule is not None:
            for name in ("groups", "held"):
                logged = self.schedule[line["step"]][name]
                if line[name] != logged:
                    why = f"{name} = {logged!r:.60} there, {line[name]!r:.60} here"
                    raise self._differs(line["step"], why)
        return line

    @contextmanager
    def quiet(self, version: int) -> Iterator[None]:
        """The verifier is the caller's, in the state that a synchronous run evaluates with."""
        with self.arrivals.judging:
            self.environment.verifier.begin_step(max(version - 1, 0))
            yield

    def close(self) -> None:
        self.arrivals.close()
        if self._stretch is not None:
            with suppress(Exception):  # the run has ended with a cause of its own, or well
                self._stretch.stop()
        if self.policy is not None:
            self.sampler.close()

    # --- state ----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        groups = [
            [
                group.number, group.version, group.prompt.id, group.visit, group.size,
                group.greedy, group.max_tokens, to_plain(tuple(map(tuple, group.progress))),
            ]
            for group in self.started.values()
        ]  # fmt: skip
        counts = {"started": self.num_started, "parked": self.rounds.num_parked}
        ahead = {**counts, "skipped": [*self.skipped], "groups": groups}
        return {**super().state_dict(), "ahead": ahead}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        ahead = state["ahead"]
        if "skipped" not in ahead and self.rule is not None:
            raise GroupwiseError(
                "the checkpoint does not say which steps were skipped, so how old its groups are "
                "is not known: an earlier version of groupwise wrote it; start the run again"
            )
        self.skipped = list(ahead.get("skipped", ()))  # without a keep rule none is skipped
        for *fields, progress in ahead["groups"]:
            number, version, prompt_id, visit, size, greedy, max_tokens = fields
            prompt = self.environment.prompt(prompt_id)
            group = Started(number, version, prompt, visit, size, greedy, max_tokens)
            stored = from_plain(progress, self.environment.prompt)
            self._start(group, [Progress(*each) for each in stored])
        self.num_started = int(ahead["started"])
        self.rounds.num_parked = int(ahead["parked"])


def _merged(logs: Sequence[VerifierLogs]) -> VerifierLogs:
    """The logs of several groups; a metric is the mean of those that logged it."""
    found = VerifierLogs()
    for each in logs:
        found.add(each)
    for name in found.metrics:
        values = [each.metrics[name] for each in logs if name in each.metrics]
        found.metrics[name] = sum(values) / len(values)
    return found
