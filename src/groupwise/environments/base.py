"""The environment: it owns prompts, turns and the verifier, and lives as long as the run.

A subclass passes prompts by split and a verifier to the constructor; one turn is the default. An
environment of several turns overrides `start` and returns its own `Episode` (`episode.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

from groupwise.environments.checks import first_of
from groupwise.environments.episode import Episode, Limits, checked_episode
from groupwise.environments.identity import data_hash
from groupwise.environments.order import Cursor, PromptCursor
from groupwise.environments.overlap import Key, OnOverlap, Placed, keep_apart
from groupwise.environments.splits import checked_splits
from groupwise.environments.wrappers import EnvironmentWrapper, with_tools
from groupwise.errors import RecipeError
from groupwise.templates import Template
from groupwise.texts import counted
from groupwise.types import Prompt, Score
from groupwise.verifiers import Case, Verifier, score_cases
from groupwise.waiting.calls import CallQueue

Judged = Literal["last", "all"]

_NOTED = {
    "duplicates": "training prompts that are copies of another one, answer included",
    "heldout_duplicates": "held-out prompts that are copies of another one, answer included",
    "overlap": "held-out prompts that are also in the training data",
    "dropped_overlap": "training prompts dropped for being in the held-out data too",
    "dropped_bad_answers": "prompts dropped because their verifier rejects their gold answer",
    "dropped_too_long": "prompts dropped because they leave no room for a completion",
    "unused_row_tools": "prompts whose own tools are replaced by environment.tools",
}
"""Counts among the facts that the plan shows if they are not 0."""


class Environment:
    """Prompts by split, and the verifier that judges completions.

    `splits` maps a split's name to its prompts, ids unique over all splits; the usual ones are
    `train` and `heldout`. `prompts(split="all")` is all of them, in order. `strict` is a second
    verifier that training never sees; evaluations score with it too.

    `limits` bound a rollout of several turns. `judged` says which of the policy's words verifiers
    read: those of the last turn, or of all turns, joined by newlines. Messages of the environment
    and of tools are never included.
    """

    judged: Judged = "last"
    player: Any = None
    """Plays whole rollouts where the environment does more than answer turns: a
    `rollouts.member.Player`."""
    on_overlap: OnOverlap = "refuse"
    """What to do with prompts that appear in both the training and held-out splits of an
    environment named `module:Class`: refuse, drop from training, or allow."""

    def __init__(
        self,
        name: str,
        verifier: Verifier,
        splits: Mapping[str, Sequence[Prompt]],
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """`facts` are further entries of `describe()`.

        Raises RecipeError where `train` is empty, and as `checked_splits`.
        """
        self.name = name
        self.verifier = verifier
        self.strict: Verifier | None = None
        self.limits = Limits()
        self.wrappers: tuple[EnvironmentWrapper, ...] = ()
        self._splits = checked_splits(name, splits)
        self._facts = dict(facts or {})
        self._by_id = {prompt.id: prompt for each in self._splits.values() for prompt in each}
        self.places: dict[str, str] = {}

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits."""
        return tuple(self._splits)

    def prompts(self, n: int | None = None, split: str = "train") -> list[Prompt]:
        """The first `n` prompts of a split (all by default); split `all` is every split's."""
        if split == "all":
            found = [prompt for each in self._splits.values() for prompt in each]
        elif split in self._splits:
            found = list(self._splits[split])
        else:
            raise RecipeError(
                f"environment {self.name!r} has no split {split!r}; it has "
                f"{', '.join([*self._splits, 'all'])}"
            )
        return found if n is None else found[:n]

    def __len__(self) -> int:
        """Training prompts."""
        return len(self._splits["train"])

    def prompt(self, id: str) -> Prompt:  # noqa: A002 (the field's name)
        """The prompt of that id, whatever its split."""
        return self._by_id[id]

    def cursor(self, seed: int) -> Cursor:
        """The order in which a run of that seed visits the training prompts."""
        return PromptCursor([prompt.id for prompt in self._splits["train"]], seed)

    def place(self, id: str) -> str:  # noqa: A002 (the field's name)
        """Where a prompt comes from, for messages: `data.jsonl, line 3`, else its id."""
        return self.places.get(id, f"prompt {id}")

    def fit(
        self, length_of: Callable[[Prompt], int], room: int, *, drop: bool, advice: str
    ) -> dict[str, int]:
        """Length in tokens of every prompt by id, none above `room`.

        Longer ones are dropped and counted if `drop` is set; otherwise raises RecipeError naming
        their rows, followed by `advice`. Raises RecipeError if no training prompt is left.
        """
        lengths = {prompt.id: length_of(prompt) for prompt in self.prompts(split="all")}
        too_long = [each for each, length in lengths.items() if length > room]
        if too_long and not drop:
            named = first_of([f"{self.place(i)} ({lengths[i]} tokens)" for i in too_long])
            raise RecipeError(
                f"{counted(len(too_long), 'prompt does', 'prompts do')} not fit: {named}; {advice}"
            )
        self.remove(too_long, "dropped_too_long")
        return {each: length for each, length in lengths.items() if length <= room}

    def remove(self, ids: Collection[str], fact: str, split: str | None = None) -> None:
        """Take prompts out of a split (None: of all splits), and count them as `fact`.

        Raises RecipeError if no training prompt is left.
        """
        gone = set(ids)
        self._splits = {
            each: tuple(p for p in prompts if p.id not in gone or split not in (None, each))
            for each, prompts in self._splits.items()
        }
        if not self._splits["train"]:
            raise RecipeError(
                f"environment {self.name!r}: no training prompt is left after dropping "
                f"{len(gone)} ({fact})"
            )
        self._by_id = {prompt.id: prompt for each in self._splits.values() for prompt in each}
        self._facts[fact] = int(self._facts.get(fact, 0)) + len(gone)

    def placed(self, split: str) -> list[Placed]:
        """A split's prompts, each with its place, else as `prompt 3 of split 'train'`."""
        return [
            Placed(self.places.get(prompt.id, f"prompt {number} of split {split!r}"), prompt)
            for number, prompt in enumerate(self.prompts(split=split), start=1)
        ]

    def keep_out(
        self, heldout: Sequence[Placed], on_overlap: OnOverlap, where: str, key: Key
    ) -> int:
        """How many of those prompts are training prompts here, which are dropped, or refused with
        RecipeError, as `on_overlap` says (see `keep_apart`).
        """
        train = self.placed("train")
        kept = keep_apart(train, heldout, on_overlap, where, key=key)
        if kept.dropped:
            gone = [train[place].prompt.id for place in kept.dropped]
            self.remove(gone, "dropped_overlap", split="train")
        return kept.overlap

    def count(self, fact: str, number: int) -> None:
        """Add a count to the facts if it is not 0."""
        if number:
            self._facts[fact] = number

    def start(self, prompt: Prompt) -> Episode:
        """A new episode, for one rollout of `prompt`.

        Called for every rollout before any is sampled: do slow work in `Episode.next`.
        """
        return Episode(prompt)

    # For collection: the environment with the wrappers of the recipe.

    def open(self, prompt: Prompt, template: Template) -> Episode:
        """`start`, with the wrappers around it, the last one outermost."""
        # A user's episode may change its prompt, and the prompt is shared, so copy it.
        own = copied(prompt) if self._multi_turn else prompt
        episode = checked_episode(self.start(own), prompt)
        for wrapper in self.wrappers:
            episode = wrapper.wrap(episode, template)
        return episode

    @property
    def variables(self) -> dict[str, Any]:
        """Variables that the chat template gets beside the messages, such as the tools."""
        found: dict[str, Any] = {}
        for wrapper in self.wrappers:
            found.update(wrapper.variables)
        return found

    @property
    def _multi_turn(self) -> bool:
        """Whether its own episodes answer completions; otherwise they end after one."""
        return type(self).start is not Environment.start

    def judged_for(self, prompt: Prompt) -> Judged:
        """Which of the policy's words verifiers read in a rollout of that prompt."""
        return self.judged

    def set_judged(self, judged: Judged) -> None:
        """Set `judged`, of the sources too if there are any."""
        self.judged = judged

    @property
    def answer_role(self) -> str | None:
        """The role of messages that answer a completion; None if every episode has one turn."""
        own = "user" if self._multi_turn else None
        return next((w.answer_role for w in reversed(self.wrappers) if w.answer_role), own)

    def prompt_ids(self, prompt: Prompt, template: Template) -> tuple[int, ...]:
        """The ids of a prompt as the policy reads it. RecipeError as `Template.encode_prompt`."""
        for wrapper in self.wrappers:
            prompt = wrapper.prompt(prompt, template)
        variables = self.variables_for(prompt)
        if prompt.tools and variables["tools"] == list(prompt.tools):
            prompt = with_tools(prompt, prompt.tools, template)
        return template.encode_prompt(prompt, **variables)

    def variables_for(self, prompt: Prompt) -> dict[str, Any]:
        """`variables`, with the prompt's own tools if the environment has none."""
        return {"tools": list(prompt.tools), **self.variables} if prompt.tools else self.variables

    @cached_property
    def waits(self) -> CallQueue:
        """Runs the slow calls of episodes; closed with the environment."""
        return CallQueue()

    def score(self, cases: Sequence[Case]) -> list[Score]:
        """The verifier's scores, the contract enforced; give it a whole step's cases."""
        return score_cases(self.verifier, cases)

    def verify(self, prompt: Prompt, text: str, **fields: Any) -> Score:
        """One completion's score; `fields` are further fields of `Case`."""
        (score,) = self.score([Case(prompt, text, **fields)])
        return score

    def describe(self) -> dict[str, Any]:
        """For the plan and the record: counts by split, verifier signature, data hash, facts."""
        return {
            "name": self.name,
            "splits": {split: len(prompts) for split, prompts in self._splits.items()},
            "verifier": self.verifier.signature(),
            **({} if self.strict is None else {"strict_verifier": self.strict.signature()}),
            "data_hash": data_hash(self.prompts(split="all")),
            **self._facts,
            **{key: value for each in self.wrappers for key, value in each.describe().items()},
        }

    @property
    def notes(self) -> list[str]:
        """What the user should know about the data before training; for the plan."""
        return [
            f"{words}: {self._facts[fact]}"
            for fact, words in _NOTED.items()
            if self._facts.get(fact)
        ]

    def close(self) -> None:
        """Release what the environment opened."""
        if "waits" in self.__dict__:
            self.waits.close()
        for wrapper in self.wrappers:
            wrapper.close()
        self.verifier.close()
        if self.strict is not None:
            self.strict.close()


def copied(prompt: Prompt) -> Prompt:
    """A copy of the prompt; a value that cannot be copied (a lock, a client) is shared."""
    return replace(
        prompt,
        messages=_copied_value(prompt.messages),
        answer=_copied_value(prompt.answer),
        columns={name: _copied_value(value) for name, value in prompt.columns.items()},
    )


def _copied_value(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 (a user's class may raise anything)
        return value
