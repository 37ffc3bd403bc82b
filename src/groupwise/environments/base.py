"""What an environment is: it owns prompts, turns and the verifier, and lives as long as the run.

A subclass gives prompts by split and a verifier; one turn is the default. An environment with turns
of its own overrides `start` and returns its own `Play`.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from groupwise.environments.identity import data_hash
from groupwise.environments.order import Cursor, PromptCursor
from groupwise.environments.overlap import Elsewhere, OnOverlap
from groupwise.environments.splits import checked_splits
from groupwise.errors import RecipeError
from groupwise.templates import Template
from groupwise.types import Message, Outcome, Prompt, Score
from groupwise.verifiers import Case, Verifier, score_cases
from groupwise.waiting.calls import CallQueue

Judged = Literal["last", "all"]

SHOWN = 5
"""How many prompts a message names."""
_NOTED = {
    "duplicates": "training prompts that are copies of another one, answer included",
    "heldout_duplicates": "held-out prompts that are copies of another one, answer included",
    "overlap": "held-out prompts that are also in the training data",
    "near_overlap": "held-out prompts of which half or more is also in a training prompt",
    "dropped_overlap": "training prompts dropped for being in the held-out data too",
    "dropped_bad_answers": "prompts dropped because their verifier rejects their gold answer",
    "dropped_too_long": "prompts dropped because they leave no room for a completion",
    "unused_user_rules": "prompts whose column `user` holds a user's rules, which nobody plays: "
    "there is no [environment.user]",
}
"""Facts that are counts worth telling, where they are not 0."""


class Play:
    """One rollout's side of the conversation; single use.

    The policy has read the prompt's messages (`first()`; a play cannot change them).
    `next(completion)` gives the messages that answer a completion, or None where the rollout has
    ended. It may be `async` or slow, as may `result` and `close`: they run beside the sampler, with
    a deadline each (`Limits.wait_seconds`). What they raise marks this rollout as failed. `rewards`
    takes one number for every completion, where turns have rewards of their own; `counts` takes
    finite numbers by name that the metrics add up (`plays/<name>`). `prompt` is a copy of its own.
    """

    def __init__(self, prompt: Prompt) -> None:
        self.prompt = prompt
        self.rewards: list[float] = []
        self.counts: Counter[str] = Counter()

    def first(self) -> tuple[Message, ...]:
        return self.prompt.messages

    def next(
        self, completion: str
    ) -> Sequence[Message] | Awaitable[Sequence[Message] | None] | None:
        """One turn: the first completion ends the rollout."""
        return None

    def result(self) -> Score | None:
        """The play's own verdict, once it has ended; the verifier `play` gives it on.

        By default the sum of `rewards`, and None where there are none. Asked after a limit ended
        the play, too.
        """
        if not self.rewards:
            return None
        total = math.fsum(self.rewards)
        outcome: Outcome = "correct" if total >= 1 else "incorrect" if total <= 0 else "partial"
        return Score(total, outcome, f"rewards of {len(self.rewards)} turns")

    def close(self) -> None:
        """Ends what the play started; called once, however it ended."""


def checked_play(play: Any, prompt: Prompt) -> Play:
    """What `start` gave for a prompt. RecipeError where that is no play."""
    if not isinstance(play, Play):
        if inspect.iscoroutine(play):
            play.close()
        raise RecipeError(
            f"start gave {play!r:.80} for prompt {prompt.id!r}; give an object of a class derived "
            "from groupwise.environments.Play"
        )
    if not all(hasattr(play, name) for name in ("prompt", "rewards", "counts")):
        raise RecipeError(
            f"the __init__ of {type(play).__name__}, which start gave for prompt {prompt.id!r}, "
            "does not call super().__init__(prompt)"
        )
    return play


class Wrapper:
    """What a recipe puts around every play of an environment: tools, a user who answers.

    Subclasses override what they change.
    """

    def around(self, play: Play, template: Template) -> Play:
        """The play that is played instead."""
        return play

    answers: str | None = None
    """The role of its messages to the policy, where it sends any."""

    @property
    def variables(self) -> dict[str, Any]:
        """What the chat template gets beside the messages."""
        return {}

    def prompt(self, prompt: Prompt, template: Template) -> Prompt:
        """The prompt that the policy reads; verifiers get the environment's own."""
        return prompt

    def describe(self) -> dict[str, Any]:
        """For the record."""
        return {}

    def close(self) -> None:
        """Ends what it started."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a rollout of several turns ends, whatever its environment wants.

    `turns` completions; `turn_tokens` sampled tokens a turn (None: what is left of the rollout's
    `sampling.max_tokens`); `seconds` from the rollout's start; `wait_seconds` for one answer of the
    environment, and for its start, its verdict and its end; `length` positions of the model, prompt
    and context included (None: no bound); `characters` of one message of the environment.
    """

    turns: int = 16
    turn_tokens: int | None = None
    seconds: float | None = 600.0
    wait_seconds: float = 60.0
    length: int | None = None
    characters: int | None = 20_000


class Environment:
    """Prompts by split, and the verifier that judges what is written to them.

    `splits` maps a split's name to its prompts, ids unique over all splits; the usual ones are
    `train` and `heldout`. `prompts(split="all")` is all of them, in order. `strict` is a second
    verifier that training never sees; evaluations score with it too.

    `limits` bound a rollout of several turns. `judged` says which of the policy's words verifiers
    read: those of the last turn, or of all turns, joined by newlines. What the environment or a
    tool says is never among them.
    """

    judged: Judged = "last"
    on_overlap: OnOverlap = "refuse"
    """A training prompt that is held out, too, of an environment named as `module:Class`: refuse,
    drop it from training, or allow."""
    streamed: bool = False
    """Whether training prompts are read as the run goes; `prompts()` are then only the first."""

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
        self.wrappers: tuple[Wrapper, ...] = ()
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

    def stream(self, split: str = "train") -> Iterator[Prompt]:
        """The prompts of a split, once, in their own order."""
        yield from self.prompts(split=split)

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

        Longer ones are dropped and counted where `drop` is set. Raises RecipeError naming their
        rows else, `advice` behind it, or where no training prompt is left.
        """
        lengths = {prompt.id: length_of(prompt) for prompt in self.prompts(split="all")}
        too_long = [each for each, length in lengths.items() if length > room]
        if too_long and not drop:
            named = ", ".join(
                f"{self.place(each)} ({lengths[each]} tokens)" for each in too_long[:SHOWN]
            )
            more = f" and {len(too_long) - SHOWN} more" if len(too_long) > SHOWN else ""
            raise RecipeError(f"{len(too_long)} prompts do not fit: {named}{more}; {advice}")
        self.remove(too_long, "dropped_too_long")
        return {each: length for each, length in lengths.items() if length <= room}

    def remove(self, ids: Collection[str], fact: str, split: str | None = None) -> None:
        """Take prompts out of a split, of every one by default, and count them as `fact`.

        Raises RecipeError where no training prompt is left.
        """
        gone = set(ids)
        self._splits = {
            each: tuple(p for p in prompts if p.id not in gone or split not in (None, each))
            for each, prompts in self._splits.items()
        }
        if not self._splits["train"]:
            raise RecipeError(
                f"environment {self.name!r}: no training prompt is left of {len(gone)} that were "
                f"dropped ({fact})"
            )
        self._by_id = {prompt.id: prompt for each in self._splits.values() for prompt in each}
        self._facts[fact] = int(self._facts.get(fact, 0)) + len(gone)

    def count(self, fact: str, number: int) -> None:
        """Put a count among the facts, where it is not 0."""
        if number:
            self._facts[fact] = number

    def keep_apart(self, others: Elsewhere) -> int:
        """How many held-out prompts of another source are training prompts here, to the letter.

        Dropped and counted, or refused with RecipeError, as `others` says.
        """
        found = {
            prompt.id: same
            for prompt in self.prompts()
            if (same := others.found(prompt, self.place(prompt.id)))
        }
        if found and others.on_overlap == "drop":
            self.remove(found, "dropped_overlap", split="train")
        return len({number for same in found.values() for number in same})

    @property
    def gives_steps(self) -> bool:
        """Whether scores carry rewards of steps, which process supervision needs."""
        return self.verifier.gives_steps

    def start(self, prompt: Prompt) -> Play:
        """A single-use object for one rollout of `prompt`.

        Called for every rollout before any is sampled: what is slow belongs into `Play.next`.
        """
        return Play(prompt)

    # What collection asks for: the environment with everything that a recipe put around it.

    def open(self, prompt: Prompt, template: Template) -> Play:
        """`start`, with the wrappers around it, the last one outermost."""
        # A play of somebody's own may change what it was given; the prompt is everyone's.
        own = prompt if type(self).start is Environment.start else copied(prompt)
        play = checked_play(self.start(own), prompt)
        for wrapper in self.wrappers:
            play = wrapper.around(play, template)
        return play

    @property
    def variables(self) -> dict[str, Any]:
        """What the chat template gets beside the messages: the tools, where there are any."""
        found: dict[str, Any] = {}
        for wrapper in self.wrappers:
            found.update(wrapper.variables)
        return found

    @property
    def answers(self) -> str | None:
        """The role of messages that answer a completion; None where every play has one turn."""
        for wrapper in reversed(self.wrappers):
            if wrapper.answers is not None:
                return wrapper.answers
        return None if type(self).start is Environment.start else "user"

    def prompt_ids(self, prompt: Prompt, template: Template) -> tuple[int, ...]:
        """The ids of a prompt as the policy reads it. RecipeError as `Template.encode_prompt`."""
        for wrapper in self.wrappers:
            prompt = wrapper.prompt(prompt, template)
        return template.encode_prompt(prompt, **self.variables)

    @cached_property
    def waits(self) -> CallQueue:
        """Where slow answers of plays are waited for; ends with the environment."""
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
        """What is worth knowing of the data before training, in words; for the plan."""
        return [
            f"{words}: {self._facts[fact]}"
            for fact, words in _NOTED.items()
            if self._facts.get(fact)
        ]

    def close(self) -> None:
        """Ends what the environment started."""
        if "waits" in self.__dict__:
            self.waits.close()
        for wrapper in self.wrappers:
            wrapper.close()
        self.verifier.close()
        if self.strict is not None:
            self.strict.close()


def copied(prompt: Prompt) -> Prompt:
    """The prompt with values of its own; one that cannot be copied (a lock, a client) is shared."""
    return replace(
        prompt,
        messages=_copied_value(prompt.messages),
        answer=_copied_value(prompt.answer),
        columns={name: _copied_value(value) for name, value in prompt.columns.items()},
    )


def _copied_value(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 (what the value's own class says of copying)
        return value
