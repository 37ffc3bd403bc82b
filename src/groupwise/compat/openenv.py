"""`openenv`: environments behind an OpenEnv server, played over its client.

A prompt is a seed: `reset(seed)` gives the first observation, which the policy reads; what it
writes goes to `step` as one field of the action, and the next observation answers it, until the
server says done. The verdict is the sum of the server's rewards. Every rollout has a session of its
own, and every wait a deadline. Start the server yourself; written for openenv 0.10.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from groupwise.compat import optional
from groupwise.environments import Environment, Episode, prompt_id
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.types import Message, Prompt, Score
from groupwise.verifiers import VerifierSettings, compose
from groupwise.verifiers.core.names import validated

NAME = "openenv"


class OpenEnvSettings(BaseModel):
    """The arguments of `openenv`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = Field(
        min_length=1, description='Where the server is, as "http://127.0.0.1:8000"; it must run.'
    )
    action: str = Field(
        default="message",
        min_length=1,
        description="The field of an action that takes what the policy wrote.",
    )
    action_fields: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="Further fields of every action."
    )
    observation: str | None = Field(
        default=None,
        description="The field of an observation that the policy reads; all of it as JSON where "
        "none is named.",
    )
    reset_fields: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="Further arguments of every reset."
    )
    num_train: int = Field(default=64, ge=1, description="Training prompts: seeds of resets.")
    num_heldout: int = Field(default=16, ge=0, description="Held-out prompts: further seeds.")
    system: str | None = Field(default=None, description="A system message.")
    seconds: float = Field(default=30.0, gt=0, description="How long a reset or a step may take.")


def make_openenv(
    arguments: Mapping[str, Any],
    seed: int,
    verifiers: Sequence[Mapping[str, Any] | VerifierSettings] = (),
) -> Environment:
    """The `openenv` environment. `RecipeError` where the server does not answer as it should."""
    settings = validated(OpenEnvSettings, arguments, f"environment {NAME!r}")
    optional("openenv.core", "openenv", "openenv")
    return OpenEnv(settings, seed * 1_000_000, verifiers)


class OpenEnv(Environment):
    """Seeds from `first` on as prompts; every rollout is a session on the server."""

    def __init__(
        self,
        settings: OpenEnvSettings,
        first: int,
        verifiers: Sequence[Mapping[str, Any] | VerifierSettings],
    ) -> None:
        count = settings.num_train + settings.num_heldout
        try:
            prompts = _prompts(settings, range(first, first + count))
        except GroupwiseError as error:
            raise RecipeError(f"environment {NAME!r}: {error}") from error
        splits = {"train": prompts[: settings.num_train], "heldout": prompts[settings.num_train :]}
        verifier = compose(verifiers or [VerifierSettings(name="play")])
        super().__init__(NAME, verifier, splits, {"arguments": settings.model_dump(mode="json")})
        self.settings = settings

    def start(self, prompt: Prompt) -> Episode:
        return OpenEnvEpisode(prompt, self.settings)


class OpenEnvEpisode(Episode):
    """One session: opened at the first completion, closed with the play.

    A fault of the server raises `GroupwiseError`, which marks the rollout as failed.
    """

    def __init__(self, prompt: Prompt, settings: OpenEnvSettings) -> None:
        super().__init__(prompt)
        self._settings = settings
        self._session: Session | None = None
        self._rewarded = False

    def next(self, completion: str) -> Sequence[Message] | None:
        if self._session is None:
            self._session = Session(self._settings)
            opening = self._session.reset(self.prompt.columns["seed"])
            if opening.text != self.prompt.columns["observation"]:
                raise GroupwiseError(
                    f"seed {self.prompt.columns['seed']} returned another first observation than "
                    "when the prompts were made; an environment must be a function of its seed"
                )
        seen = self._session.step(completion)
        self._rewarded = self._rewarded or seen.reward is not None
        self.rewards.append(seen.reward or 0.0)
        return None if seen.done else ({"role": "user", "content": seen.text},)

    def result(self) -> Score | None:
        """The sum of the rewards; None if the server never sent one."""
        return super().result() if self._rewarded else None

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


class Seen(NamedTuple):
    """An observation as the policy reads it, with its reward and whether it is the last."""

    text: str
    reward: float | None
    done: bool


class Session:
    """One connection to the server: `reset`, `step`, `close`. `GroupwiseError` for any failure."""

    def __init__(self, settings: OpenEnvSettings) -> None:
        self._settings = settings
        core = optional("openenv.core", "openenv", "openenv")
        self._client = core.GenericEnvClient(
            base_url=settings.url,
            connect_timeout_s=settings.seconds,
            message_timeout_s=settings.seconds,
            mode="simulation",
        ).sync()

    def reset(self, seed: int) -> Seen:
        fields = self._settings.reset_fields
        return self._asked("reset", lambda: self._client.reset(seed=seed, **fields))

    def step(self, completion: str) -> Seen:
        action = {**self._settings.action_fields, self._settings.action: completion}
        return self._asked("step", lambda: self._client.step(action))

    def _asked(self, what: str, call: Any) -> Seen:
        try:
            return seen(call(), self._settings)
        except Exception as error:  # the client, the wire and the server: all named, none hidden
            cause = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise GroupwiseError(f"{what} of the server {self._settings.url}: {cause}") from error

    def close(self) -> None:
        with contextlib.suppress(Exception):  # a session that is broken cannot say goodbye
            self._client.close()


def seen(result: Any, settings: OpenEnvSettings) -> Seen:
    """A step's result as it is read; `ValueError` where it is none."""
    observation, reward, done = result.observation, result.reward, result.done
    if not isinstance(observation, Mapping):
        raise ValueError(f"an observation that is not a table: {observation!r:.80}")
    if not isinstance(done, bool):
        raise ValueError(f"done = {done!r:.80}")
    if reward is not None and not (isinstance(reward, (int, float)) and math.isfinite(reward)):
        raise ValueError(f"a reward that is not a finite number: {reward!r:.80}")
    if settings.observation is None:
        text = json.dumps(observation, ensure_ascii=False, sort_keys=True)
    elif settings.observation in observation:
        text = str(observation[settings.observation])
    else:
        raise ValueError(
            f"no field {settings.observation!r} in the observation; it has "
            f"{', '.join(map(str, observation)) or 'none'}"
        )
    return Seen(text, None if reward is None else float(reward), done)


def _prompts(settings: OpenEnvSettings, seeds: Sequence[int]) -> list[Prompt]:
    """The first observation of every seed, over one session."""
    prompts = []
    with contextlib.closing(Session(settings)) as session:
        for each in seeds:
            first = session.reset(each)
            if first.done:
                raise GroupwiseError(f"seed {each} is done before anything was played")
            user = {"role": "user", "content": first.text}
            opening = [{"role": "system", "content": settings.system}] if settings.system else []
            messages: tuple[Message, ...] = (*opening, user)
            columns = {"seed": each, "observation": first.text}
            prompts.append(Prompt(prompt_id(messages, answer=each), messages, columns=columns))
    return prompts
