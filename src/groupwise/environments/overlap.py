"""Keeps held-out prompts out of the training data: finds those that are in it, exactly or nearly.

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
from typing import Literal, NamedTuple

from groupwise.environments.checks import first_of
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
Key = Callable[[Prompt], str]
Pairs = list[tuple[int, int]]
"""Places in the training and in the held-out data."""


class Placed(NamedTuple):
    """A prompt, and what messages call its place, as `data.jsonl, line 3`."""

    where: str
    prompt: Prompt


class Kept(NamedTuple):
    """Places of the training prompts to drop, and how many held-out prompts are in the training
    data exactly and nearly."""

    dropped: set[int]
    overlap: int
    near: int


def keep_apart(
    train: Sequence[Placed],
    heldout: Sequence[Placed],
    on_overlap: OnOverlap,
    where: str,
    near: float = 0.0,
    key: Key = normalised_text,
) -> Kept:
    """Looks for held-out prompts among the training prompts, as `exact_overlap` and `near_overlap`.

    Raises RecipeError naming the first pairs if there are any and `on_overlap` is refuse.
    """
    sides = [[each.prompt for each in side] for side in (train, heldout)]
    exact = exact_overlap(sides[0], sides[1], key)
    close = near_overlap(sides[0], sides[1], near, exact) if near else []
    parts = []
    for pairs, how in ((exact, "also"), (close, "nearly")):
        first = {other: number for number, other in reversed(pairs)}
        if first:
            shown = first_of(
                [f"{heldout[each].where} = {train[first[each]].where}" for each in sorted(first)]
            )
            parts.append(f"{len(first)} held-out prompts are {how} in the training data ({shown})")
    if parts and on_overlap == "refuse":
        raise RecipeError(
            f'{where}: {" and ".join(parts)}; set on_overlap = "drop" to take them out of '
            'training, or "allow"'
        )
    both = {number for number, _ in [*exact, *close]} if on_overlap == "drop" else set[int]()
    counts = (len({other for _, other in pairs}) for pairs in (exact, close))
    return Kept(both, *counts)


def exact_overlap(
    train: Sequence[Prompt], heldout: Sequence[Prompt], key: Key = normalised_text
) -> Pairs:
    """The pairs of a training and a held-out prompt with the same key."""
    places: dict[str, list[int]] = {}
    for other, prompt in enumerate(heldout):
        places.setdefault(key(prompt), []).append(other)
    return [(at, other) for at, prompt in enumerate(train) for other in places.get(key(prompt), ())]


def near_overlap(
    train: Sequence[Prompt], heldout: Sequence[Prompt], share: float, exact: Pairs
) -> Pairs:
    """The pairs outside `exact` where the training prompt has at least that share of the other's
    words, in runs that are not common wording.
    """
    held = [words(normalised_text(prompt)) for prompt in heldout]
    places: dict[Run, Pairs] = {}
    for other, text in enumerate(held):
        for start, run in enumerate(runs(text)):
            places.setdefault(run, []).append((other, start))
    shared = [places.keys() & runs(words(normalised_text(prompt))) for prompt in train]
    common = common_runs(shared, len(train))
    found: Pairs = []
    for at, own in enumerate(shared):
        covered: dict[int, set[int]] = {}
        for run in own - common:
            for other, start in places[run]:
                covered.setdefault(other, set()).update(range(start, start + NGRAM))
        enough = (o for o, spots in covered.items() if len(spots) >= share * len(held[o]))
        found += [(at, other) for other in sorted(enough)]
    known = set(exact)
    return [pair for pair in found if pair not in known]


def asked(prompt: Prompt) -> str:
    """What a prompt asks, normalised alike: the words of its messages, without roles and without
    what a system message says. Sources of a mixture may word one question as text and as a chat.

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
