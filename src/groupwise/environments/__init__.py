"""Prompts, turns, and the verifier that judges completions.

An environment is loaded and checked before the model: its splits are disjoint, its verifier accepts
its gold answers, and its columns exist.
"""

import warnings
from typing import Any

from groupwise.environments.base import Environment
from groupwise.environments.episode import Episode, Limits
from groupwise.environments.generated import GeneratedSettings, Level, Task, generated
from groupwise.environments.identity import prompt_id
from groupwise.environments.order import Cursor, PromptCursor, prompt_order
from groupwise.environments.registry import (
    BUILTIN,
    environment_from_settings,
    load_environment,
    settings_class,
)
from groupwise.environments.settings import EnvironmentSettings

__all__ = [
    "BUILTIN",
    "Cursor",
    "Environment",
    "EnvironmentSettings",
    "Episode",
    "GeneratedSettings",
    "Level",
    "Limits",
    "PromptCursor",
    "Task",
    "environment_from_settings",
    "generated",
    "load_environment",
    "prompt_id",
    "prompt_order",
    "settings_class",
]


def __getattr__(name: str) -> Any:
    if name == "Play":
        warnings.warn(
            "groupwise.environments.Play is now Episode; the old name goes in the next version",
            DeprecationWarning,
            stacklevel=2,
        )
        return Episode
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
