"""`collect`: every member of every group is played to its end and scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import islice

from groupwise.distributed import ALONE, Ranks
from groupwise.environments import Environment
from groupwise.errors import GroupwiseError
from groupwise.instants import passed
from groupwise.randomness import Purpose
from groupwise.rollouts.judged import case_of, step_ends
from groupwise.rollouts.member import Member, Place, Played, Setting
from groupwise.rollouts.scoring import Scoring
from groupwise.samplers import Sampler, SamplingSettings
from groupwise.templates import Template
from groupwise.types import Completion, Group, Prompt, Request, Rollout, Score

Timer = Callable[[str], AbstractContextManager[None]]
UNJUDGED = Score(None, "not_applicable", "not yet judged")


def no_timer(_part: str) -> AbstractContextManager[None]:
    """A timer that measures nothing."""
    return nullcontext()


def collect(
    environment: Environment,
    sampler: Sampler,
    template: Template,
    prompts: Sequence[tuple[Prompt, int]],
    *,
    group_size: int | Sequence[int],
    sampling: SamplingSettings,
    seed: int,
    purpose: Purpose = "training",
    step: int = 0,
    greedy: bool = False,
    entropies: bool = False,
    top_k: int = 0,
    timer: Timer = no_timer,
    ranks: Ranks = ALONE,
) -> list[Group]:
    """Sample and score a group for each (prompt, visit), in order.

    `group_size` is one number, or one for every prompt; 0 gives only the greedy rollout. `greedy`
    adds one greedy rollout to every group, kept apart in `Group.greedy`. `timer("rollout")` and
    `timer("score")` wrap the two parts; scoring that overlaps sampling is in the first. A rollout
    whose environment fails ends with finish reason "error" and without a score. Each of several
    `ranks` plays its share of the groups, and all of them get every group.

    Raises VerifierError where a verifier breaks its contract, GroupwiseError where every rollout
    failed.
    """
    setting = Setting(environment, template, sampling, seed, purpose, entropies, top_k)
    sizes = [group_size] * len(prompts) if isinstance(group_size, int) else list(group_size)
    share = slice(ranks.rank, None, ranks.size)
    groups = ranks.together(
        lambda: _collected(setting, sampler, prompts[share], sizes[share], step, greedy, timer)
    )
    if ranks.size > 1:
        found = ranks.gather(
            [_with_prompt(each, Prompt(each.prompt.id, text="")) for each in groups]
        )
        groups = [
            _with_prompt(found[place % ranks.size][place // ranks.size], prompt)
            for place, (prompt, _) in enumerate(prompts)
        ]
    played = [each for group in groups for each in (*group.rollouts, group.greedy) if each]
    if played and all(rollout.extras.failure is not None for rollout in played):
        raise GroupwiseError(
            f"environment {environment.name!r} failed in all {len(played)} rollouts; the first: "
            f"{played[0].extras.failure}"
        )
    return groups


def _with_prompt(group: Group, prompt: Prompt) -> Group:
    """The group as one of that prompt: its own may hold what no other process can be sent."""
    rollouts = tuple(replace(each, prompt=prompt) for each in group.rollouts)
    greedy = None if group.greedy is None else replace(group.greedy, prompt=prompt)
    return Group(prompt, rollouts, greedy)


def _collected(
    setting: Setting,
    sampler: Sampler,
    prompts: Sequence[tuple[Prompt, int]],
    sizes: Sequence[int],
    step: int,
    greedy: bool,
    timer: Timer,
) -> list[Group]:
    """One process's groups."""
    environment = setting.environment
    places: list[Place] = [
        (prompt, visit, index)
        for (prompt, visit), size in zip(prompts, sizes, strict=True)
        for index in [*range(size), *([-1] if greedy else [])]
    ]
    scoring = Scoring(environment.score, len(places), singly=environment.verifier.judges_singly)
    members: list[Played] = []

    def ended(place: int) -> None:
        rollout = members[place].rollout(UNJUDGED, step)
        case = case_of(rollout, environment.judged_for(rollout.prompt))
        scoring.put(place, case, members[place].verdict)

    play = environment.player.play if environment.player is not None else _play_turns
    with timer("rollout"):
        try:
            play(setting, sampler, places, members, ended)
        finally:
            scoring.stop()
    with timer("score"):
        scores = scoring.results()
    left = iter(zip(members, scores, strict=True))
    return [
        finished_group(setting, prompt, list(islice(left, size + greedy)), step, greedy=greedy)
        for (prompt, _), size in zip(prompts, sizes, strict=True)
    ]


def finished_group(
    setting: Setting,
    prompt: Prompt,
    scored: Sequence[tuple[Played, Score]],
    step: int,
    *,
    greedy: bool,
) -> Group:
    """The group of played rollouts with their scores, the `greedy` one last."""
    rollouts: list[Rollout] = []
    for member, score in scored:
        rollout = member.rollout(score, step)
        ends = step_ends(score, rollout, setting.template, setting.environment)
        rollouts.append(replace(rollout, step_ends=ends))
    last = rollouts.pop() if greedy else None
    return Group(prompt, tuple(rollouts), greedy=last)


def _play_turns(
    setting: Setting,
    sampler: Sampler,
    places: Sequence[Place],
    members: list[Played],
    ended: Callable[[int], None],
) -> None:
    """`Player.play` of every other environment: prompts, and what episodes answer."""
    environment, prompts = setting.environment, {prompt.id: prompt for prompt, _, _ in places}
    ids = {name: environment.prompt_ids(each, setting.template) for name, each in prompts.items()}
    played = [
        Member(setting, prompt, visit, index, ids[prompt.id], partial(ended, place))
        for place, (prompt, visit, index) in enumerate(places)
    ]
    members += played

    def on_completion(
        place: int, completion: Completion
    ) -> Request | Future[Request | None] | None:
        passed("sampling")
        return played[place].on_completion(completion)

    sampler.play([member.request() for member in played], on_completion)
