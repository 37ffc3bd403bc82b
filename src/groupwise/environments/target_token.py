"""Write the target as much as possible: a small environment whose reward is spread over the tokens.

The demonstration of a critic (and of step rewards) against group baselines: which tokens earned the
reward is known. Prompts are invented words, disjoint between training and held-out. Left out: the
counting (`verifiers/process/target.py`).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from groupwise.environments.base import Environment
from groupwise.environments.generated import ask, chat_prompt, from_prompts
from groupwise.errors import RecipeError
from groupwise.randomness import generator
from groupwise.types import Prompt
from groupwise.verifiers import VerifierSettings, VerifierTables
from groupwise.verifiers.core.names import Arguments

_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"


class TargetTokenSettings(Arguments):
    """The arguments of `target_token`."""

    target: str = Field(default="7", min_length=1, description="The wanted text, usually a token.")
    kind: Literal["share", "count"] = Field(
        default="share",
        description="share: of the completion's characters. count: occurrences over `cap`.",
    )
    cap: int = Field(default=8, ge=1, description="count: occurrences that give the full reward.")
    question: str = Field(
        default="{word}", description="The user's message; {word} and {target} are filled in."
    )
    syllables: int = Field(default=2, ge=1, le=6, description="Length of the invented words.")
    num_train: int = Field(default=64, ge=1, description="Training prompts.")
    num_heldout: int = Field(default=16, ge=0, description="Held-out prompts.")

    @field_validator("question")
    @classmethod
    def _has_a_word(cls, question: str) -> str:
        if "{word}" not in question:
            raise ValueError("no {word} in it: all prompts would be the same")
        return question


def make_target_token(
    settings: TargetTokenSettings, seed: int, verifiers: VerifierTables = ()
) -> Environment:
    """The `target_token` environment. Raises RecipeError if there are too few words."""
    count = settings.num_train + settings.num_heldout
    most = (len(_CONSONANTS) * len(_VOWELS)) ** settings.syllables
    if count > most:
        raise RecipeError(
            f"environment.num_train + environment.num_heldout = {count}, but there are {most} "
            f"words of {settings.syllables} syllables; give syllables = {settings.syllables + 1}"
        )
    prompts = [_prompt(word, settings) for word in _words(count, settings.syllables, seed)]
    own = settings.model_dump(include={"target", "kind", "cap"})
    verifiers = verifiers or [VerifierSettings(name="target", arguments=own)]
    train, heldout = prompts[: settings.num_train], prompts[settings.num_train :]
    return from_prompts("target_token", settings, train, heldout, verifiers)


def _words(count: int, syllables: int, seed: int) -> list[str]:
    """That many different words, by a keyed draw."""
    draw = generator(seed, "data", "target_token")
    words: dict[str, None] = {}
    while len(words) < count:
        word = "".join(draw.choice(_CONSONANTS) + draw.choice(_VOWELS) for _ in range(syllables))
        words[word] = None
    return list(words)


def _prompt(word: str, settings: TargetTokenSettings) -> Prompt:
    text = settings.question.replace("{word}", word).replace("{target}", settings.target)
    return chat_prompt(ask(text, None), columns={"word": word, "target": settings.target})
