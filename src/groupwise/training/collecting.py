"""What a step learns from: prompts are chosen, sampled, kept or dropped, and the rest waits.

The collector owns everything that decides it: the prompts' order and history, the groups that wait
for the next step, the groups to be replayed. All of it is in the checkpoint.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from groupwise.algorithms import AlgorithmState
from groupwise.distributed import ALONE, Ranks
from groupwise.environments import Environment
from groupwise.errors import GroupwiseError
from groupwise.policies import Policy
from groupwise.recipe import Recipe
from groupwise.records import Value
from groupwise.rollouts import Timer, collect, no_timer
from groupwise.samplers import Sampler
from groupwise.selection import (
    PromptPicker,
    ReplayBuffer,
    down_sample,
    from_plain,
    group_sizes,
    max_tokens_at,
    to_plain,
)
from groupwise.templates import Template
from groupwise.types import Group, Prompt
from groupwise.verifiers import VerifierLogs


@dataclass(slots=True)
class Collected:
    """One step's groups.

    `groups` are learned from, the last `replayed` of them again. `sampled` are all that the step
    sampled, refills included; `waiting` are those of them that a later step learns from, and
    `discarded` is what none will. `max_tokens` is the step's limit on a completion. `notes` are for
    a person; a step without groups has one that says why. `logs` are the verifiers' own, `ahead`
    are metrics of collecting ahead of learning.
    """

    max_tokens: int
    groups: list[Group] = field(default_factory=list[Group])
    sampled: list[Group] = field(default_factory=list[Group])
    waiting: list[Group] = field(default_factory=list[Group])
    discarded: list[Group] = field(default_factory=list[Group])
    notes: list[str] = field(default_factory=list[str])
    rounds: int = 0
    carried: int = 0
    replayed: int = 0
    level: int | None = None
    logs: VerifierLogs = field(default_factory=VerifierLogs)
    ahead: dict[str, Value] = field(default_factory=dict[str, Value])

    @property
    def fresh(self) -> list[Group]:
        """The groups that are learned from for the first time."""
        return self.groups[: len(self.groups) - self.replayed]

    @property
    def again(self) -> list[Group]:
        return self.groups[len(self.groups) - self.replayed :]

    @property
    def num_tokens(self) -> int:
        """Tokens that the policy chose in the step, refills included."""
        return sum(each.num_tokens for group in self.sampled for each in group.sequences)

    def metrics(self) -> dict[str, Value]:
        return {
            "selection/rounds": self.rounds,
            "selection/trained": len(self.groups),
            "selection/discarded": len(self.discarded),
            "selection/carried": self.carried,
            "selection/replayed": self.replayed,
            "selection/skipped": int(not self.groups),
            "selection/max_tokens": self.max_tokens,
            **({} if self.level is None else {"selection/level": self.level}),
            **{f"ahead/{name}": value for name, value in self.ahead.items()},
        }


class Collector:
    """Fills steps with groups, by the recipe's `[selection]` and the algorithm's keep rule."""

    def __init__(
        self,
        recipe: Recipe,
        environment: Environment,
        sampler: Sampler,
        template: Template,
        state: AlgorithmState,
        ranks: Ranks = ALONE,
    ) -> None:
        self.ranks = ranks
        self.recipe = recipe
        self.environment = environment
        self.sampler = sampler
        self.template = template
        self.state = state
        self.rule = recipe.algorithm.needs.keep
        self.picker = PromptPicker(environment, recipe.selection, recipe.seed)
        replay = recipe.selection.replay
        self.replay = None if replay is None else ReplayBuffer(replay)
        self.waiting: list[Group] = []

    def collect(self, step: int, *, update: int, timer: Timer = no_timer) -> Collected:
        """Groups for one step; `update` counts the optimiser updates made so far.

        Without a keep rule one round samples exactly `prompts_per_step` prompts. With one, rounds
        continue until as many groups are kept or the rule's bound is reached; a step that is then
        short is skipped, made smaller, or raises GroupwiseError, as the rule says.
        """
        final = self.recipe.sampling.max_tokens
        found = Collected(max_tokens_at(update, self.recipe.selection.length, final))
        wanted = self.recipe.training.prompts_per_step
        ready = self._gather(wanted, step, found, timer)
        self._share_out(ready, wanted, step, found)
        if self.replay is not None:
            again = [] if not found.groups else self.replay.take(step)
            self.replay.see(found.groups)
            found.replayed = len(again)
            found.groups += again
        found.groups = [_at_step(group, step) for group in found.groups]
        if (curriculum := self.picker.curriculum) is not None:
            found.level = curriculum.level
            if curriculum.promote():
                found.notes.append(f"curriculum: level {curriculum.name!r} opens")
        return found

    def _gather(self, wanted: int, step: int, found: Collected, timer: Timer) -> list[Group]:
        """The groups that may be learned from: `wanted` of them, or fewer where the rule ends."""
        verifier = self.environment.verifier
        verifier.begin_step(step)
        ready = [*self.waiting]
        rounds = 1 if self.rule is None else self.rule.max_batches
        while len(ready) < wanted and found.rounds < rounds:
            ready += self._round(wanted - len(ready), step, found, timer)
        for logs in self.ranks.gather(verifier.take_logs()):
            found.logs.add(logs)
        return ready

    def _take(self, count: int, step: int) -> list[tuple[Prompt, int]]:
        """The next prompts with their visits."""
        algorithm = self.recipe.algorithm
        chosen = self.picker.take(count, step, lambda each: algorithm.wants(each, self.state))
        return [(self.environment.prompt(prompt_id), visit) for prompt_id, visit in chosen]

    def _round(self, missing: int, step: int, found: Collected, timer: Timer) -> list[Group]:
        """Sample once; the groups that are kept."""
        count = missing if self.rule is None else math.ceil(missing * self.rule.oversample)
        needs, chosen = self.recipe.algorithm.needs, self._take(count, step)
        groups = collect(
            self.environment,
            self.sampler,
            self.template,
            chosen,
            group_size=self._sizes([prompt.id for prompt, _ in chosen], found.max_tokens),
            sampling=self.recipe.sampling.model_copy(update={"max_tokens": found.max_tokens}),
            seed=self.recipe.seed,
            step=step,
            greedy=needs.greedy,
            entropies=needs.entropies != "none",
            top_k=needs.top_k,
            timer=timer,
            ranks=self.ranks,
        )
        self.picker.see(groups)
        found.rounds += 1
        found.sampled += groups
        return [kept for group in groups if (kept := self._kept(group, found)) is not None]

    def _kept(self, group: Group, found: Collected) -> Group | None:
        """What of a group may be learned from; the rest is discarded."""
        if self.rule is not None and not self.rule.rule(values_of(group, self.rule.by)):
            accuracies = [each.score.accuracy for each in group.rollouts]
            scored = [each for each in accuracies if each is not None]
            self.recipe.algorithm.saw(group.prompt.id, scored, self.state)
            found.discarded.append(group)
            return None
        size = self.recipe.selection.train_on
        if size is None:
            return group
        group, rest = down_sample(group, size)
        found.discarded += [] if rest is None else [rest]
        return group

    def _share_out(self, ready: list[Group], wanted: int, step: int, found: Collected) -> None:
        """The step's groups, and what waits for the next one or goes."""
        short = len(ready) < wanted
        rule = self.rule
        if rule is not None and short and rule.when_short == "stop":
            raise GroupwiseError(self._short(ready, wanted, step, found, "the run stops"))
        if rule is not None and short and (rule.when_short == "skip" or not ready):
            surplus = ready
            found.notes.append(self._short(ready, wanted, step, found, "the step is skipped"))
        else:
            found.groups, surplus = ready[:wanted], ready[wanted:]
        if rule is not None and rule.surplus == "carry":
            before, self.waiting = set(map(id, self.waiting)), surplus
            found.carried = len(surplus)
            found.waiting = [group for group in surplus if id(group) not in before]
        else:
            found.discarded += surplus

    def _short(
        self, ready: Sequence[Group], wanted: int, step: int, found: Collected, then: str
    ) -> str:
        assert self.rule is not None
        values = [v for group in found.sampled for v in values_of(group, self.rule.by)]
        scored = [value for value in values if not math.isnan(value)]
        spread = "none was scored"
        if scored:
            spread = f"{min(scored):.3g} to {max(scored):.3g}, mean {sum(scored) / len(scored):.3g}"
        hint = ""
        if self.rule.by != "reward" and any(
            self.rule.rule(values_of(group, "reward")) for group in found.discarded
        ):
            hint = "the rewards of discarded groups do differ (by = 'reward' keeps those); or "
        return (
            f"step {step}: {found.rounds} rounds of dynamic sampling sampled {len(found.sampled)} "
            f"groups and only {len(ready)} of {wanted} have completions of different "
            f"{self.rule.by} ({spread}): {then}. Try: {hint}harder or easier prompts, larger "
            "groups (sampling.group_size), more rounds (max_batches), or when_short = 'partial'"
        )

    def _sizes(self, prompt_ids: Sequence[str], max_tokens: int) -> list[int]:
        """The size of each prompt's group."""
        sizes, fixed = self.recipe.selection.sizes, self.recipe.sampling.group_size
        if sizes is None:
            return [fixed] * len(prompt_ids)
        history = self.picker.history
        costs = [history.tokens(each) or float(max_tokens) for each in prompt_ids]
        budget = fixed * sum(costs)
        if sizes.tokens is not None:
            budget = sizes.tokens * len(prompt_ids) / self.recipe.training.prompts_per_step
        rates = [history.smoothed(each) for each in prompt_ids]
        return group_sizes(rates, costs, budget=budget, low=sizes.low, high=sizes.high)

    # --- what collecting ahead of learning adds to (`ahead.py`) ---------------------------------

    def load(self, policy: Policy, version: int) -> dict[str, Any] | None:
        """Collect with these weights from now on; a line of the schedule, where there is one."""

    def quiet(self, version: int) -> AbstractContextManager[object]:
        """No verifier works for this collector in the context, in which a version is evaluated."""
        return nullcontext()

    def close(self) -> None:
        """Ends what works in the background."""

    # --- state ----------------------------------------------------------------------------------

    def tensor(self) -> Tensor:
        """All of the collector's state as bytes [N] uint8: JSON, compressed."""
        state = json.dumps(self.state_dict(), separators=(",", ":"))
        return torch.frombuffer(bytearray(zlib.compress(state.encode(), 1)), dtype=torch.uint8)

    def load_tensor(self, packed: Tensor) -> None:
        """Replace the state by what `tensor` gave."""
        self.load_state_dict(json.loads(zlib.decompress(packed.numpy().tobytes())))

    def state_dict(self) -> dict[str, Any]:
        replay = self.replay
        return {
            "picker": self.picker.state_dict(),
            "waiting": [to_plain(group) for group in self.waiting],
            "replay": None if replay is None else replay.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        prompt_of = self.environment.prompt
        self.picker.load_state_dict(state["picker"])
        self.waiting = [from_plain(each, prompt_of) for each in state["waiting"]]
        if self.replay is not None and state["replay"] is not None:
            self.replay.load_state_dict(state["replay"], prompt_of)


def values_of(group: Group, by: str) -> list[float]:
    """The numbers a keep rule looks at, NaN where there is none: accuracies, rewards before the
    shapers, or one verifier's own values."""
    if by == "accuracy":
        found = [rollout.score.accuracy for rollout in group.rollouts]
    elif by == "reward":
        found = [rollout.reward for rollout in group.rollouts]
    else:
        found = [rollout.score.parts.get(by) for rollout in group.rollouts]
    return [math.nan if each is None else each for each in found]


def _at_step(group: Group, step: int) -> Group:
    """The group as one of this step: what waited was sampled in an earlier one."""
    if all(rollout.step == step for rollout in group.rollouts):
        return group
    greedy = None if group.greedy is None else replace(group.greedy, step=step)
    rollouts = tuple(replace(rollout, step=step) for rollout in group.rollouts)
    return replace(group, rollouts=rollouts, greedy=greedy)
