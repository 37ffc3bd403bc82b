"""Prompts, turns, and which verifier judges them.

An environment is loaded and checked before any weight: its splits are disjoint, its gold answers
are accepted by its own verifier, its columns are there.
"""

from groupwise.environments.base import Environment, Limits, Play
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
    "Environment",
    "EnvironmentSettings",
    "GeneratedSettings",
    "Level",
    "Limits",
    "Play",
    "Cursor",
    "PromptCursor",
    "Task",
    "environment_from_settings",
    "generated",
    "load_environment",
    "prompt_id",
    "prompt_order",
    "settings_class",
]
