"""Prompts, turns, and the verifier that judges completions.

An environment is loaded and checked before the model: its splits are disjoint, its verifier accepts
its gold answers, and its columns exist.
"""

import warnings
from typing import Any

from groupwise.environments.base import Environment as Environment
from groupwise.environments.episode import Episode as Episode
from groupwise.environments.episode import Limits as Limits
from groupwise.environments.generated import GeneratedSettings as GeneratedSettings
from groupwise.environments.generated import Level as Level
from groupwise.environments.generated import Task as Task
from groupwise.environments.generated import generated as generated
from groupwise.environments.identity import prompt_id as prompt_id
from groupwise.environments.order import Cursor as Cursor
from groupwise.environments.order import PromptCursor as PromptCursor
from groupwise.environments.order import prompt_order as prompt_order
from groupwise.environments.registry import BUILTIN as BUILTIN
from groupwise.environments.registry import environment_from_settings as environment_from_settings
from groupwise.environments.registry import load_environment as load_environment
from groupwise.environments.registry import settings_class as settings_class
from groupwise.environments.settings import EnvironmentSettings as EnvironmentSettings


def __getattr__(name: str) -> Any:
    if name == "Play":
        warnings.warn(
            "groupwise.environments.Play is now Episode; the old name goes in the next version",
            DeprecationWarning,
            stacklevel=2,
        )
        return Episode
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
