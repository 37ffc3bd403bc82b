"""Environment x sampler -> groups: prompts are played, scored, and leave as text-free rewards.

Left out: which prompts are played (the recipe's order, or an algorithm's keep rule) and what is
learned from them. Sampled ids are kept as they came; nothing is encoded again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from groupwise.environments import Environment, Play
from groupwise.errors import GroupwiseError, VerifierError
from groupwise.randomness import Purpose, stream_key
from groupwise.samplers import Sampler, SamplingSettings
from groupwise.templates import Template, token_ends
from groupwise.types import Completion, Group, Prompt, Request, Rollout, Score, Turn
from groupwise.verifiers import Case

Timer = Callable[[str], AbstractContextManager[None]]


def no_timer(_part: str) -> AbstractContextManager[None]:
    """A timer that measures nothing."""
    return nullcontext()


def collect(
    environment: Environment,
    sampler: Sampler,
    template: Template,
    prompts: Sequence[tuple[Prompt, int]],
    *,
    group_size: int,
    sampling: SamplingSettings,
    seed: int,
    purpose: Purpose = "training",
    step: int = 0,
    greedy: bool = False,
    entropies: bool = False,
    top_k: int = 0,
    timer: Timer = no_timer,
) -> list[Group]:
    """Sample and score a group for each (prompt, visit), in order.

    `group_size` 0 gives only the greedy rollout of each prompt. `greedy` adds one greedy rollout to
    every group, kept apart in `Group.greedy`. `timer("rollout")` and `timer("score")` wrap the two
    parts. Raises VerifierError where a verifier breaks its contract.
    """
    members = [
        (prompt, visit, index)
        for prompt, visit in prompts
        for index in [*range(group_size), *([-1] if greedy else [])]
    ]
    with timer("rollout"):
        turns = _play(
            environment,
            sampler,
            template,
            members,
            sampling=sampling,
            seed=seed,
            purpose=purpose,
            entropies=entropies,
            top_k=top_k,
        )
    with timer("score"):
        scores = environment.score(
            [
                Case(
                    prompt=prompt,
                    text="\n".join(turn.completion.text for turn in played),
                    completion_ids=played[-1].completion.token_ids,
                    finish_reason=played[-1].completion.finish_reason,
                )
                for (prompt, _, _), played in zip(members, turns, strict=True)
            ]
        )
    rollouts = [
        Rollout(
            prompt,
            played,
            score,
            group_index=index,
            visit=visit,
            step=step,
            step_ends=_step_ends(score, played[0].completion, template, environment.name),
        )
        for (prompt, visit, index), played, score in zip(members, turns, scores, strict=True)
    ]
    return _group(prompts, rollouts, group_size, greedy)


def _play(
    environment: Environment,
    sampler: Sampler,
    template: Template,
    members: Sequence[tuple[Prompt, int, int]],
    *,
    sampling: SamplingSettings,
    seed: int,
    purpose: Purpose,
    entropies: bool,
    top_k: int,
) -> list[tuple[Turn, ...]]:
    """Play every member to its end. One request a member a turn; today an environment has one."""
    encoded: dict[str, tuple[int, ...]] = {}
    for prompt, _, _ in members:
        if prompt.id not in encoded:
            encoded[prompt.id] = template.encode_prompt(prompt)
    plays = [environment.start(prompt) for prompt, _, _ in members]
    requests = [
        Request(
            prompt_ids=encoded[prompt.id],
            key=stream_key(seed, purpose, prompt.id, visit, index, 0),
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            greedy=index < 0,
            stop_strings=tuple(sampling.stop),
            deadline=sampling.deadline,
            entropies=entropies,
            top_k=top_k,
        )
        for prompt, visit, index in members
    ]
    completions = sampler.sample(requests)
    turns: list[tuple[Turn, ...]] = []
    for request, play, completion in zip(requests, plays, completions, strict=True):
        _end(play, completion.text, environment.name)
        turns.append((Turn(request.prompt_ids, completion),))
    return turns


def _end(play: Play, text: str, name: str) -> None:
    if play.next(text) is not None:
        raise GroupwiseError(
            f"environment {name!r} answered with another turn; this version plays one turn "
            "(give an environment whose play ends after the first completion)"
        )


def _step_ends(
    score: Score, completion: Completion, template: Template, name: str
) -> tuple[int, ...] | None:
    """The tokens that end the score's steps: text ends here, only ids go on."""
    if score.steps is None:
        return None
    ends = [step.end for step in score.steps]
    try:
        return token_ends(completion.token_ids, completion.text, ends, template.decode_completion)
    except ValueError as error:
        raise VerifierError(f"the verifier of environment {name!r}: {error}") from error


def _group(
    prompts: Sequence[tuple[Prompt, int]],
    rollouts: Sequence[Rollout],
    group_size: int,
    greedy: bool,
) -> list[Group]:
    size = group_size + int(greedy)
    groups = []
    for number, (prompt, _) in enumerate(prompts):
        own = tuple(rollouts[number * size : (number + 1) * size])
        groups.append(Group(prompt, own[:group_size], greedy=own[group_size] if greedy else None))
    return groups
