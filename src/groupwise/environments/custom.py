"""User-defined environments (`module:Class`): loaded by name and checked before the model.

Checked: the type, the prompts against their verifier, that no training prompt is held out, and that
`start` returns episodes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args

from groupwise.environments.base import Environment, copied
from groupwise.environments.chat_messages import message_fault
from groupwise.environments.checks import check_prompts, check_values
from groupwise.environments.episode import checked_episode
from groupwise.environments.identity import normalised_text
from groupwise.environments.overlap import OnOverlap
from groupwise.errors import RecipeError
from groupwise.imports import import_object, raised_at
from groupwise.types import Prompt
from groupwise.verifiers import Verifier, VerifierTables
from groupwise.verifiers.core.contract import describe_error
from groupwise.verifiers.core.user import call_user


def custom_environment(
    name: str, seed: int, verifiers: VerifierTables, arguments: Mapping[str, Any]
) -> Environment:
    """The environment that a user's class or function returns.

    Called with `seed`, its arguments, and `verifiers` if there are any. Raises RecipeError naming
    what is wrong with it.
    """
    where = f"environment {name!r}"
    found = import_object(name, "environment")
    if not callable(found):
        raise RecipeError(
            f"{where} is not callable; give a class derived from "
            "groupwise.environments.Environment, or a function that returns one"
        )
    given = {"seed": seed, **arguments, **({"verifiers": verifiers} if verifiers else {})}
    made = call_user(found, given, where)
    if not isinstance(made, Environment):
        raise RecipeError(
            f"{where} is a {type(made).__name__}, not an Environment; derive it from "
            "groupwise.environments.Environment"
        )
    if not hasattr(made, "_splits"):
        raise RecipeError(
            f"{where}: the __init__ of {type(made).__name__} does not call "
            'super().__init__("name", verifier, {"train": prompts})'
        )
    if not isinstance(made.verifier, Verifier):
        raise RecipeError(
            f"{where}: verifier = {made.verifier!r:.80} is not a Verifier; give "
            'groupwise.verifiers.compose([{"name": "number"}]), or a class derived from '
            "groupwise.verifiers.Verifier"
        )
    try:
        for prompt in made.prompts(split="all"):
            _check_prompt(prompt, f"{where}, {made.place(prompt.id)}")
        _keep_heldout_apart(made, where)
        _check_start(made, where)
        check_prompts(made.verifier, made.prompts(split="all"), where)
    except BaseException:
        made.close()
        raise
    return made


def _check_prompt(prompt: Prompt, where: str) -> None:
    """Whether the policy can read the prompt, and a record can hold it."""
    if not isinstance(prompt.text, str | None):
        raise RecipeError(f"{where}: text = {prompt.text!r:.60}; give a text, or messages")
    for number, message in enumerate(prompt.messages, start=1):
        fault = message_fault(message)
        if fault is not None:
            raise RecipeError(f"{where}: message {number} {fault}")
    if not isinstance(prompt.columns, Mapping):
        raise RecipeError(f"{where}: columns = {prompt.columns!r:.60}; give a dict by name")
    values = {"text": prompt.text, "messages": prompt.messages, "answer": prompt.answer}
    check_values({**values, **prompt.columns}, where)


def _keep_heldout_apart(made: Environment, where: str) -> None:
    """Refuses, drops or counts prompts that are in both splits, as its `on_overlap` says."""
    if made.on_overlap not in get_args(OnOverlap):
        raise RecipeError(
            f"{where}: on_overlap = {made.on_overlap!r} is not one of 'refuse', 'drop', 'allow'"
        )
    held = [each for split in made.splits if split != "train" for each in made.placed(split)]
    key = _task if made._multi_turn else normalised_text
    made.count("overlap", made.keep_out(held, made.on_overlap, where, key))


def _task(prompt: Prompt) -> str:
    """The words, and what an episode may use beside them."""
    hidden = [prompt.answer, dict(prompt.columns)]
    return json.dumps([normalised_text(prompt), *hidden], default=str)


def _check_start(made: Environment, where: str) -> None:
    """Whether `start` returns episodes: tried twice on the first training prompt, then closed."""
    if not made._multi_turn:
        return
    prompt = made.prompts(1)[0]
    try:
        first, other = (checked_episode(made.start(copied(prompt)), prompt) for _ in range(2))
        if first is other:
            raise RecipeError("start returned the same episode twice; return a new one every time")
        for each in (first, other):  # `close` may be async, or never return
            made.waits.start(each.close, made.limits.wait_seconds).result()
    except RecipeError as error:
        raise RecipeError(f"{where}: {error}") from error
    except (Exception, SystemExit) as error:
        raise RecipeError(
            f"{where}: start({made.place(prompt.id)}) raised {describe_error(error)}"
            f"{raised_at(error)}"
        ) from error
