"""Keeps held-out prompts out of the training data: finds those that are in it.

The same prompt is the same text once normalised (NFKC, lower case, white space collapsed). Left
out: changed words, paraphrases and translations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from groupwise.environments.checks import first_of
from groupwise.environments.identity import normalised_text
from groupwise.errors import RecipeError
from groupwise.types import Prompt

OnOverlap = Literal["refuse", "drop", "allow"]
"""What to do about prompts that appear in both the training and held-out splits."""

Key = Callable[[Prompt], str]


class Placed(NamedTuple):
    """A prompt, and what messages call its place, as `data.jsonl, line 3`."""

    where: str
    prompt: Prompt


class Kept(NamedTuple):
    """Places of the training prompts to drop, and how many held-out prompts are training ones."""

    dropped: set[int]
    overlap: int


def keep_apart(
    train: Sequence[Placed],
    heldout: Sequence[Placed],
    on_overlap: OnOverlap,
    where: str,
    key: Key = normalised_text,
) -> Kept:
    """Looks for held-out prompts among the training prompts: those with an equal `key`.

    Raises RecipeError naming the first pairs if there are any and `on_overlap` is refuse.
    """
    places: dict[str, list[int]] = {}
    for number, each in enumerate(train):
        places.setdefault(key(each.prompt), []).append(number)
    pairs = [(each, found) for each in heldout if (found := places.get(key(each.prompt)))]
    if pairs and on_overlap == "refuse":
        shown = first_of([f"{each.where} = {train[found[0]].where}" for each, found in pairs])
        raise RecipeError(
            f"{where}: {len(pairs)} held-out prompts are also in the training data ({shown}); set "
            'on_overlap = "drop" to take them out of training, or "allow"'
        )
    dropped = {number for _, found in pairs for number in found}
    return Kept(dropped if on_overlap == "drop" else set(), len(pairs))


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
