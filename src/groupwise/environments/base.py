"""What an environment is: it owns prompts, turns and the verifier, and lives as long as the run.

A subclass gives prompts by split and a verifier; one turn is the default. An environment with turns
of its own overrides `start` and returns its own `Play`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from groupwise.environments.identity import data_hash
from groupwise.errors import RecipeError
from groupwise.types import Message, Prompt, Score
from groupwise.verifiers import Case, Verifier, score_cases


class Play:
    """One rollout's side of the conversation; single use.

    `first()` gives the opening messages (empty for a raw text prompt). `next(completion)` gives the
    messages that answer a completion, or None where the rollout has ended; it may be `async`.
    """

    def __init__(self, prompt: Prompt) -> None:
        self.prompt = prompt

    def first(self) -> tuple[Message, ...]:
        return self.prompt.messages

    def next(self, completion: str) -> Sequence[Message] | None:
        """One turn: the first completion ends the rollout."""
        return None


class Environment:
    """Prompts by split, and the verifier that judges what is written to them.

    `splits` maps a split's name to its prompts, ids unique over all splits; the usual ones are
    `train` and `heldout`. `prompts(split="all")` is all of them, in order. `strict` is a second
    verifier that training never sees; evaluations score with it too.
    """

    def __init__(
        self,
        name: str,
        verifier: Verifier,
        splits: Mapping[str, Sequence[Prompt]],
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """`facts` are further entries of `describe()`. `RecipeError` where `train` is empty."""
        if not splits.get("train"):
            raise RecipeError(f"environment {name!r} has no training prompts; its data is empty")
        self.name = name
        self.verifier = verifier
        self.strict: Verifier | None = None
        self._splits = {split: tuple(prompts) for split, prompts in splits.items()}
        self._facts = dict(facts or {})
        self._by_id = {prompt.id: prompt for each in self._splits.values() for prompt in each}

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

    @property
    def gives_steps(self) -> bool:
        """Whether scores carry rewards of steps, which process supervision needs."""
        return self.verifier.gives_steps

    def start(self, prompt: Prompt) -> Play:
        """A single-use object for one rollout of `prompt`."""
        return Play(prompt)

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
        }

    @property
    def notes(self) -> list[str]:
        """What is worth knowing of the data before training, in words; for the plan."""
        sides = (("training", "duplicates"), ("held-out", "heldout_duplicates"))
        return [
            f"{side} prompts that are copies of another one, answer included: {self._facts[fact]}"
            for side, fact in sides
            if self._facts.get(fact)
        ]

    def close(self) -> None:
        """Ends what the environment started."""
        self.verifier.close()
        if self.strict is not None:
            self.strict.close()
