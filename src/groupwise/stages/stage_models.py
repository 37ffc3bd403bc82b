"""Models of other stages that a stage's verifiers read: `model = { stage = "NAME" }`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from groupwise.environments import EnvironmentSettings
from groupwise.errors import RecipeError

SCORERS = {"reward_model": "reward_model", "process_reward_model": "process"}
"""Verifiers that read a model with a head of its own, with the kind of stage that trains it; any
other reads a policy."""


class ModelUse(NamedTuple):
    """One verifier that reads a stage's model."""

    verifier: str
    stage: str


def model_uses(settings: EnvironmentSettings | None) -> list[ModelUse]:
    """Every use of another stage's model by an environment's verifiers."""
    return [] if settings is None else list(_uses(settings.model_dump(), ""))


def with_models(settings: EnvironmentSettings, models: Mapping[str, str]) -> EnvironmentSettings:
    """The same environment, whose verifiers read the folders (or names) in `models`."""
    return type(settings).model_validate(_replaced(settings.model_dump(), models))


def check_use(use: ModelUse, leaves_policy: bool, leaves_scorer: str | None) -> None:
    """Refuse a stage that leaves no model of the kind that the verifier reads.

    Raises RecipeError.
    """
    named = f"verifier {use.verifier!r}: model.stage = {use.stage!r}"
    if use.verifier in SCORERS and leaves_scorer != use.verifier:
        raise RecipeError(
            f"{named} leaves no model for it; name a stage that trains one (kind "
            f'"{SCORERS[use.verifier]}")'
        )
    if use.verifier not in SCORERS and ":" not in use.verifier and not leaves_policy:
        raise RecipeError(
            f"{named} leaves a model for the verifier {leaves_scorer!r}, and this one reads a "
            "policy; name a stage that trains one"
        )


def stage_of(value: Any) -> str | None:
    """The stage that a value names, None for any other value."""
    found = value.get("stage") if isinstance(value, Mapping) and len(value) == 1 else None
    return found if isinstance(found, str) else None


def _uses(value: Any, verifier: str) -> Iterator[ModelUse]:
    if isinstance(value, Mapping):
        verifier = value["name"] if "arguments" in value else verifier
        for key, item in value.items():
            stage = stage_of(item) if key == "model" else None
            yield from _uses(item, verifier) if stage is None else [ModelUse(verifier, stage)]
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _uses(item, verifier)


def _replaced(value: Any, models: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {
            key: models[stage]
            if key == "model" and (stage := stage_of(item)) is not None
            else _replaced(item, models)
            for key, item in value.items()
        }
    return [_replaced(each, models) for each in value] if isinstance(value, list | tuple) else value
