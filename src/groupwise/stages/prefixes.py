"""Labels of steps from completions (Math-Shepherd, arXiv 2312.08935): the policy completes each
beginning of its own solutions, and a step is worth the share of these completions that are right.

A prefix is the sampled ids up to a step's last token. Equal prefixes of a prompt are completed
once, and the completions of one prefix share its part of the sampler's cache. The last step's label
is the solution's own outcome. What was labelled is stored some prompts at a time.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from groupwise.algorithms.process import completion_label
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.policies import Policy
from groupwise.records.files import json_line, read_json_lines, write_text
from groupwise.rollouts import collect
from groupwise.rollouts.judged import case_of, step_ends
from groupwise.samplers import Sampler, sampler_of
from groupwise.samplers.contract import Pause, Then
from groupwise.stages.traces import CHUNK, Source
from groupwise.types import Completion, Group, Prompt, Request, Rollout, StepReward
from groupwise.verifiers.process import boundaries


@dataclass(frozen=True, slots=True)
class Prefix:
    """Whole turns of a rollout and the beginning of the one after them (None: it begins anew)."""

    turns: tuple[Completion, ...]
    begun: Completion | None


@dataclass(frozen=True, slots=True)
class Continued:
    """A sampler of what follows prefixes: their turns are played back, `begun` is a part of
    what it samples. The requests of a call are `size` of each prefix, in order."""

    sampler: Sampler
    prefixes: Sequence[Prefix]
    size: int
    decode: Callable[[Sequence[int]], str]

    def play(self, requests: Sequence[Request], then: Then, pause: Pause | None = None) -> None:
        """See `Sampler.play`. Raises GroupwiseError where the environment plays otherwise now."""
        started: set[int] = set()

        def on_completion(
            place: int, completion: Completion
        ) -> Request | Future[Request | None] | None:
            begun = self.prefixes[place // self.size].begun
            if begun is not None and place not in started:
                completion = self._joined(begun, completion)
            started.add(place)
            return then(place, completion)

        first = [self._first(*each, then) for each in enumerate(requests)]
        self.sampler.play(first, on_completion, pause)

    def _first(self, place: int, request: Request, then: Then) -> Request:
        prefix = self.prefixes[place // self.size]
        for turn in prefix.turns:
            answer = then(place, turn)
            following = answer.result() if isinstance(answer, Future) else answer
            if following is None:
                raise GroupwiseError(
                    "rollouts: the environment ended earlier when the same turns were played "
                    "again; it must answer the same turns in the same way"
                )
            request = following
        if prefix.begun is None:
            return request
        count = prefix.begun.num_tokens
        return replace(
            request,
            prompt_ids=(*request.prompt_ids, *prefix.begun.token_ids),
            max_tokens=request.max_tokens - count,
            room=max(request.room - count, 0),
        )

    def _joined(self, begun: Completion, rest: Completion) -> Completion:
        ids = (*begun.token_ids, *rest.token_ids)
        text, behind = self.decode(ids), len(self.decode(rest.token_ids)) - len(rest.text)
        return replace(
            rest,
            token_ids=ids,
            text=text[: len(text) - behind],  # cut behind a stop string
            sampler_logprobs=(*begun.sampler_logprobs, *rest.sampler_logprobs),
            supports=None,
        )

    # The rest of the interface is the sampler's own.

    def load(self, policy: Policy, version: int) -> None:
        self.sampler.load(policy, version)

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        return self.sampler.sample(requests)

    def close(self) -> None:
        self.sampler.close()


def prefix_of(rollout: Rollout, position: int) -> Prefix:
    """The prefix up to a position in the rollout's `completion_ids`."""
    turns: list[Completion] = []
    start = 0
    for number, turn in enumerate(rollout.turns):
        own = turn.completion
        start += len(turn.context_ids) if number else 0
        count = position + 1 - start
        if count == own.num_tokens:
            return Prefix((*turns, own), None)
        if count < own.num_tokens:
            logprobs = own.sampler_logprobs[:count]
            begun = Completion(own.token_ids[:count], "", logprobs, "length", own.version)
            return Prefix(tuple(turns), begun)
        turns.append(own)
        start += own.num_tokens
    raise ValueError(f"position {position} is behind the rollout's {rollout.num_tokens} tokens")


@dataclass(frozen=True, slots=True)
class Labelling:
    """How solutions are sampled (`source`) and their steps labelled."""

    source: Source
    completions: int
    separator: str

    def stored(self, path: Path, policy: Policy) -> Iterator[dict[str, Any]]:
        """For every prompt, in order, its `rows` and `counts`: those of `path`, then new ones,
        which it gets. Raises RecipeError where `path` is of other prompts."""
        lines = list(read_json_lines(path, torn="ignore"))
        prompts = self.source.prompts
        if [line["prompt_id"] for line in lines] != [each.id for each in prompts[: len(lines)]]:
            raise RecipeError(
                f"{path} has labels of other prompts: the data changed since the stage was "
                "stopped. Restore the data, or start again with --overwrite"
            )
        if len(lines) < len(prompts):  # whole parts alone, as in an unbroken run
            lines = lines[: len(lines) - len(lines) % CHUNK]
        write_text(path, "".join(map(json_line, lines)))
        yield from lines
        with path.open("a", encoding="utf-8") as file:
            for start in range(len(lines), len(prompts), CHUNK):
                made = self.labelled(prompts[start : start + CHUNK], policy)
                file.write("".join(map(json_line, made)))
                file.flush()
                os.fsync(file.fileno())
                yield from made

    def labelled(self, prompts: Sequence[Prompt], policy: Policy) -> list[dict[str, Any]]:
        """What `stored` gives, of some prompts."""
        settings = self.source.sampling
        sampler = sampler_of(settings, policy)
        try:
            asked = [(prompt, self.source.visit) for prompt in prompts]
            groups = self._collect(sampler, policy, asked, settings.group_size)
            drafts = [self._draft(group, policy) for group in groups]
            prefixes = [(p, prefix) for p, each in enumerate(drafts) for prefix in each.prefixes]
            numbered = [
                (prompts[p], self.source.visit + 1 + number)
                for p, each in enumerate(drafts)
                for number in range(len(each.prefixes))
            ]
            found: list[Group] = []
            if prefixes:
                decode, own = policy.template.decode_completion, [each for _, each in prefixes]
                going_on = Continued(sampler, own, self.completions, decode)
                found = self._collect(going_on, policy, numbered, self.completions)
        finally:
            sampler.close()
        left = iter(found)
        return [each.line(prompt, left) for prompt, each in zip(prompts, drafts, strict=True)]

    def _collect(
        self, sampler: Any, policy: Policy, asked: Sequence[tuple[Prompt, int]], size: int
    ) -> list[Group]:
        return collect(
            self.source.environment,
            sampler,
            policy.template,
            asked,
            group_size=size,
            sampling=self.source.sampling,
            seed=self.source.seed,
        )

    def _draft(self, group: Group, policy: Policy) -> _Draft:
        """The steps of a prompt's solutions and their prefixes, equal ones once."""
        draft = _Draft()
        environment, template = self.source.environment, policy.template
        for rollout in group.rollouts:
            case = case_of(rollout, environment.judged)
            ends = boundaries.step_ends(case.text, self.separator, case.turn_ends)
            draft.add("tokens", rollout.num_tokens)
            if not rollout.score.scored or not ends:
                draft.add("dropped/unscored" if ends else "dropped/empty", 1)
                continue
            steps = tuple(StepReward(0.0, end) for end in ends)
            positions = step_ends(
                replace(rollout.score, steps=steps), rollout, template, environment
            )
            assert positions is not None
            keys: list[tuple[int, ...] | None] = []
            for number, (end, position) in enumerate(zip(ends[:-1], positions)):
                prefix = prefix_of(rollout, position)
                start = max((turn for turn in case.turn_ends if turn < end), default=0)
                reached = start
                if prefix.begun is not None:
                    reached += len(template.decode_completion(prefix.begun.token_ids))
                if position == positions[number + 1] or case.text[end:reached].strip():
                    keys.append(None)
                    draft.add("unaligned", 1)
                    continue
                ids = rollout.completion_ids[: position + 1]
                draft.add("shared", int(ids in draft.places))
                draft.places.setdefault(ids, len(draft.prefixes))
                if draft.places[ids] == len(draft.prefixes):
                    draft.prefixes.append(prefix)
                keys.append(ids)
            draft.solutions.append((rollout, boundaries.pieces(case.text, ends), keys))
        return draft


@dataclass(slots=True)
class _Draft:
    """A prompt's solutions with their steps, and what is completed for them."""

    solutions: list[tuple[Rollout, list[str], list[tuple[int, ...] | None]]] = field(
        default_factory=list[tuple[Rollout, list[str], list[tuple[int, ...] | None]]]
    )
    prefixes: list[Prefix] = field(default_factory=list[Prefix])
    places: dict[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])
    counts: Counter[str] = field(default_factory=Counter[str])

    def add(self, name: str, number: int) -> None:
        self.counts[name] += number

    def line(self, prompt: Prompt, completed: Iterator[Group]) -> dict[str, Any]:
        """The labelled rows; `completed` gives the group of each prefix, in order."""
        judged: list[tuple[int, int]] = []
        for prefix, group in zip(self.prefixes, completed):
            scored = [each for each in group.rollouts if each.score.scored]
            judged.append((sum(map(_is_right, scored)), len(scored)))
            before = sum(each.num_tokens for each in prefix.turns)
            before += 0 if prefix.begun is None else prefix.begun.num_tokens
            self.add("completions", len(group.rollouts))
            self.add("tokens", sum(each.num_tokens - before for each in group.rollouts))
        rows = []
        for rollout, steps, keys in self.solutions:
            counted = [(0, 0) if key is None else judged[self.places[key]] for key in keys]
            counted.append((int(_is_right(rollout)), 1))
            labels = [completion_label(right, of) if of else None for right, of in counted]
            self.add("labels", len(labels) - labels.count(None))
            self.add("unscored", sum(k is not None and not of for k, (_, of) in zip(keys, counted)))
            rows.append(
                {
                    "prompt_id": prompt.id,
                    "prompt": prompt.text or [dict(each) for each in prompt.messages],
                    "steps": steps,
                    "labels": labels,
                    "right": [right for right, _ in counted],
                    "completed": [of for _, of in counted],
                    "outcome": rollout.score.outcome,
                }
            )
        return {"prompt_id": prompt.id, "rows": rows, "counts": dict(self.counts)}


def _is_right(rollout: Rollout) -> bool:
    return (rollout.score.accuracy or 0.0) >= 1.0
