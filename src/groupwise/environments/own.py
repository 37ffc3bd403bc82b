"""An environment of somebody's own: called by its name, and looked at before anything loads.

What is checked: that it is one, that its prompts are right for its verifier and apart from the
held-out ones, and that its `start` gives a play. Left out: what its plays say (`chat_messages.py`).
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from groupwise.environments.base import Environment, checked_play, copied
from groupwise.environments.chat_messages import message_fault
from groupwise.environments.checks import (
    SHOWN,
    check_answers,
    check_columns,
    check_values,
)
from groupwise.environments.identity import normalised_text
from groupwise.environments.overlap import OnOverlap
from groupwise.errors import RecipeError
from groupwise.types import Prompt
from groupwise.verifiers import Verifier, VerifierSettings, import_object
from groupwise.verifiers.core.contract import describe_error
from groupwise.verifiers.core.raised import raised_at

_FROM = "derive it from groupwise.environments.Environment"


def own_environment(
    name: str,
    seed: int,
    verifiers: Sequence[Mapping[str, Any] | VerifierSettings],
    arguments: Mapping[str, Any],
) -> Environment:
    """A user's class or function, called with `seed`, its arguments, and `verifiers` if any.

    Raises RecipeError naming what of it will not do.
    """
    where = f"environment {name!r}"
    made = _called(name, seed, {**arguments, **({"verifiers": verifiers} if verifiers else {})})
    if not isinstance(made, Environment):
        raise RecipeError(f"{where} gave a {type(made).__name__}, not an Environment; {_FROM}")
    _check_made(made, where)
    try:
        for prompt in made.prompts(split="all"):
            _check_prompt(prompt, f"{where}, {made.place(prompt.id)}")
        _keep_heldout_apart(made, where)
        _check_start(made, where)
        check_columns(made.verifier, made.prompts(split="all"), where)
        check_answers(made.verifier, made.prompts(split="all"), where)
    except BaseException:
        made.close()
        raise
    return made


def _called(name: str, seed: int, arguments: Mapping[str, Any]) -> Any:
    found = import_object(name, "environment")
    if not callable(found):
        raise RecipeError(
            f"environment {name!r} is not callable; give a class derived from "
            "groupwise.environments.Environment, or a function that returns one"
        )
    try:
        signature = inspect.signature(found)
    except ValueError:
        signature = None  # not known, as of some written in C
    try:
        if signature is not None:
            signature.bind(seed=seed, **arguments)
    except TypeError as error:
        raise RecipeError(
            f"environment {name!r} cannot be called with seed and {sorted(arguments)}: {error}; it "
            f"takes {signature}"
        ) from error
    try:
        return found(seed=seed, **arguments)
    except RecipeError as error:
        raise RecipeError(f"environment {name!r}: {error}") from error
    except (Exception, SystemExit) as error:
        raise RecipeError(
            f"environment {name!r} raised {describe_error(error)}{raised_at(error)}"
        ) from error


def _check_made(made: Environment, where: str) -> None:
    """Whether its constructor gave what an environment consists of."""
    if not hasattr(made, "_splits") or not hasattr(made, "verifier"):
        raise RecipeError(
            f"{where}: the __init__ of {type(made).__name__} does not call "
            'super().__init__("name", verifier, {"train": prompts})'
        )
    if not isinstance(made.verifier, Verifier):
        raise RecipeError(
            f"{where}: verifier = {made.verifier!r:.80} is no Verifier; give "
            'groupwise.verifiers.compose([{"name": "number"}]), or a class derived from '
            "groupwise.verifiers.Verifier"
        )


def _check_prompt(prompt: Prompt, where: str) -> None:
    """Whether the policy can read it, and a record can hold it."""
    if not isinstance(prompt.text, str | None):
        raise RecipeError(f"{where}: text = {prompt.text!r:.60}; give a text, or messages")
    for number, message in enumerate(prompt.messages, start=1):
        fault = message_fault(message)
        if fault is not None:
            raise RecipeError(f"{where}: message {number} {fault}")
    if not isinstance(prompt.columns, Mapping):
        raise RecipeError(f"{where}: columns = {prompt.columns!r:.60}; give a dict of them by name")
    told = {"text": prompt.text, "messages": prompt.messages, "answer": prompt.answer}
    check_values({**told, **prompt.columns}, where)


def _keep_heldout_apart(made: Environment, where: str) -> None:
    """No training prompt is held out, too: refused, dropped or counted as its `on_overlap` says."""
    if made.on_overlap not in get_args(OnOverlap):
        raise RecipeError(
            f"{where}: on_overlap = {made.on_overlap!r} is not one of 'refuse', 'drop', 'allow'"
        )
    own_plays = type(made).start is not Environment.start
    held: dict[str, str] = {}
    for split in made.splits:
        for place, prompt in _placed(made, split) if split != "train" else ():
            held.setdefault(_asked(prompt, own_plays), place)
    found = [
        (prompt.id, place, held[key])
        for place, prompt in _placed(made, "train")
        if (key := _asked(prompt, own_plays)) in held
    ]
    both = {each for each, _, _ in found}
    made.count("overlap", len({other for _, _, other in found}))
    if both and made.on_overlap == "refuse":
        shown = "; ".join(f"{place} = {other}" for _, place, other in found[:SHOWN])
        more = f"; and {len(both) - SHOWN} more" if len(both) > SHOWN else ""
        raise RecipeError(
            f"{where}: {len(both)} training prompts are held out, too ({shown}{more}); take them "
            'out of one side, or set its attribute on_overlap to "drop" (from training) or "allow"'
        )
    if both and made.on_overlap == "drop":
        made.remove(both, "dropped_overlap", split="train")


def _placed(made: Environment, split: str) -> list[tuple[str, Prompt]]:
    """A split's prompts, each with its place, as `prompt 3 of split 'train'`."""
    return [
        (made.places.get(prompt.id, f"prompt {number} of split {split!r}"), prompt)
        for number, prompt in enumerate(made.prompts(split=split), start=1)
    ]


def _asked(prompt: Prompt, own_plays: bool) -> str:
    """What makes two prompts the same task: the words, and what a play of its own may hide."""
    hidden = [prompt.answer, dict(prompt.columns)] if own_plays else []
    return json.dumps([normalised_text(prompt), *hidden], default=str)


def _check_start(made: Environment, where: str) -> None:
    """Whether `start` gives a play, tried on the first training prompt and closed again."""
    if type(made).start is Environment.start:
        return
    prompt = made.prompts(1)[0]
    try:
        play, other = (checked_play(made.start(copied(prompt)), prompt) for _ in range(2))
        if play is other:
            raise RecipeError("start gave the same play twice; give every rollout one of its own")
        for each in (play, other):  # which may be async, or never come
            made.waits.start(each.close, made.limits.wait_seconds).result()
    except RecipeError as error:
        raise RecipeError(f"{where}: {error}") from error
    except (Exception, SystemExit) as error:
        raise RecipeError(
            f"{where}: start({made.place(prompt.id)}) raised {describe_error(error)}"
            f"{raised_at(error)}"
        ) from error
