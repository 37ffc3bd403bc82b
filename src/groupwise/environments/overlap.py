"""Whether held-out prompts are in the training data: exactly, or nearly.

Exact: the same text once normalised (NFKC, lower case, white space collapsed). Near: at least a
stated share of a held-out prompt's words stands in runs of `NGRAM` words that one training prompt
has too, as decontamination of benchmarks is usually done (Tulu 3, arXiv 2411.15124, section 3.2: 8
words, half of the prompt). A run of words that many training prompts share is the data set's
own wording and does not count. Left out: paraphrases and translations, which no n-gram finds.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from groupwise.environments.identity import normalised_text
from groupwise.errors import RecipeError
from groupwise.types import Prompt

OnOverlap = Literal["refuse", "drop", "allow"]
"""What to do about prompts that appear in both the training and held-out splits."""

NGRAM = 8
"""Words of a run."""
COMMON = 3
"""A run that more training prompts than this have..."""
COMMON_SHARE = 0.01
"""...and more than this share of them, or half of few, is common wording."""

_WORD = re.compile(r"\w+(?:[.,]\d+)*|[^\w\s]")
Run = tuple[str, ...]


class HeldOut:
    """Held-out prompts, indexed so that training prompts can be looked up one by one.

    Memory: the runs of the held-out prompts, whatever the size of the training data.
    """

    def __init__(
        self,
        prompts: Sequence[Prompt],
        near: float = 0.0,
        key: Callable[[Prompt], str] = normalised_text,
    ) -> None:
        """`near`: the share of words from which on a prompt counts as nearly the same; 0: none.

        `key`: prompts with the same one are the same.
        """
        self.key = key
        self.prompts = list(prompts)
        self.near = near
        self._texts: dict[str, list[int]] = {}
        self._words = [words(normalised_text(prompt)) for prompt in prompts]
        self._runs: dict[Run, list[tuple[int, int]]] = {}
        for number, prompt in enumerate(prompts):
            self._texts.setdefault(key(prompt), []).append(number)
            if near:
                for start, run in enumerate(runs(self._words[number])):
                    self._runs.setdefault(run, []).append((number, start))

    def same(self, text: str) -> list[int]:
        """Which held-out prompts have that key."""
        return self._texts.get(text, [])

    def shared(self, text: str) -> set[Run]:
        """The runs of a normalised text that held-out prompts have too."""
        if not self._runs:
            return set()
        return {run for run in runs(words(text)) if run in self._runs}

    def near_to(self, shared: Iterable[Run]) -> list[int]:
        """Which held-out prompts have at least the share `near` of their words in those runs."""
        covered: dict[int, set[int]] = {}
        for run in shared:
            for number, start in self._runs[run]:
                covered.setdefault(number, set()).update(range(start, start + NGRAM))
        return sorted(
            number
            for number, places in covered.items()
            if len(places) >= self.near * len(self._words[number])
        )


class Overlap:
    """What training and held-out prompts have in common.

    `exact` and `near`: pairs of (place in training, place in held-out); a pair is in one of them.
    """

    def __init__(self, train: Sequence[Prompt], heldout: HeldOut) -> None:
        self.exact: list[tuple[int, int]] = []
        self.near: list[tuple[int, int]] = []
        shared: dict[int, set[Run]] = {}
        for number, prompt in enumerate(train):
            text = heldout.key(prompt)
            self.exact += [(number, other) for other in heldout.same(text)]
            if found := heldout.shared(text):
                shared[number] = found
        common = common_runs(shared.values(), len(train))
        exact = set(self.exact)
        for number, found in shared.items():
            pairs = ((number, other) for other in heldout.near_to(found - common))
            self.near += [pair for pair in pairs if pair not in exact]


@dataclass(frozen=True)
class Elsewhere:
    """Held-out prompts of another source, which no training prompt may equal.

    `places` name them; `on_overlap` says what to do about an equal one. Sources may word the same
    question as raw text and as a chat, with a system message or without: roles do not count.
    """

    heldout: HeldOut
    places: Sequence[str]
    source: str
    on_overlap: OnOverlap

    def found(self, prompt: Prompt, place: str) -> list[int]:
        """Which of them a training prompt is. Raises RecipeError if that is refused."""
        same = self.heldout.same(asked(prompt))
        if same and self.on_overlap == "refuse":
            raise RecipeError(
                f"a training prompt is held out in source {self.source!r}: "
                f"{self.places[same[0]]} = {place}; take it out, or set on_overlap of the mixture "
                'to "drop" or "allow"'
            )
        return same


def asked(prompt: Prompt) -> str:
    """What a prompt asks, normalised alike: the words of its messages, without roles and without
    what a system message says.

    >>> asked(Prompt("p", text=" 3+4="))
    '3+4='
    >>> asked(Prompt("p", messages=({"role": "user", "content": "3+4= "},)))
    '3+4='
    """
    if prompt.text is not None:
        return normalised_text(prompt)
    shown = [m for m in prompt.messages if m.get("role") != "system"] or prompt.messages
    return normalised_text(Prompt("", text="\n".join(str(m.get("content")) for m in shown)))


def common_runs(shared: Iterable[set[Run]], num_prompts: int) -> set[Run]:
    """The runs that are the data set's own wording: many of its `num_prompts` prompts have them."""
    count = Counter(run for found in shared for run in found)
    limit = max(COMMON, COMMON_SHARE * num_prompts)
    return {run for run, num in count.items() if num > limit or 1 < num > num_prompts / 2}


def words(text: str) -> list[str]:
    """Words, numbers (decimals whole) and signs of a normalised text: 3 + 4 is not 3 - 4.

    >>> words("what is 1.5 + 2?")
    ['what', 'is', '1.5', '+', '2', '?']
    """
    return _WORD.findall(text)


def runs(found: Sequence[str]) -> list[Run]:
    """Every run of `NGRAM` words, in order; none where the text is shorter."""
    return [tuple(found[start : start + NGRAM]) for start in range(len(found) - NGRAM + 1)]
