"""What a model's name means: a built-in model, `module:function`, a folder, an adapter's folder, or
a hub id. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from groupwise.errors import RecipeError
from groupwise.policies.catalogue import builder_of, get_model, models
from groupwise.suggestions import nearest, slips
from groupwise.texts import from_json

ADAPTER_CONFIG = "adapter_config.json"


def adapter_folder(name: Any) -> Path | None:
    """The folder of an adapter, None for any other name. Raises RecipeError for an empty name or
    another type."""
    if not isinstance(name, str) or not name:
        raise RecipeError(
            f"model.name = {name!r}: give a text: a built-in model "
            f"({', '.join(entry.name for entry in models())}), a folder, or a hub id"
        )
    path = Path(name).expanduser()
    return path if get_model(name) is None and (path / ADAPTER_CONFIG).is_file() else None


def base_of(folder: Path) -> str:
    """The folder or hub id of an adapter's base. Raises RecipeError where it is not there."""
    file = folder / ADAPTER_CONFIG
    try:
        base = from_json(file.read_text(encoding="utf-8")).get("base_model_name_or_path")
    except (OSError, ValueError, AttributeError) as error:
        raise RecipeError(f"{file} cannot be read ({first_line(error)})") from error
    if not base or not isinstance(base, str):
        raise RecipeError(f"{file} does not name its base model: set base_model_name_or_path")
    beside = folder / base
    source = str(beside) if beside.is_dir() else base
    if not Path(source).is_dir():
        # A cache may be elsewhere on another machine; the folder of a built-in model has its name.
        named = [entry for entry in models() if entry.folder_name() == Path(base).name]
        if named:
            return str(named[0].get())
        if Path(base).is_absolute():
            raise RecipeError(
                f"the base model {base!r} of the adapter in {str(folder)!r} is missing; copy it "
                f"there, or set base_model_name_or_path in {file.name}"
            )
    if (Path(source) / ADAPTER_CONFIG).is_file():
        raise RecipeError(
            f"the adapter in {str(folder)!r} is based on another adapter, {source!r}; merge "
            "that one into a model first"
        )
    return source_of(source)


def source_of(name: str) -> str:
    """The folder or hub id behind a name."""
    entry = get_model(name)
    if entry is not None:
        return str(entry.get())
    try:
        build = builder_of(name)
    except (ImportError, AttributeError, TypeError) as error:
        raise RecipeError(
            f"model.name = {name!r}: cannot be imported ({first_line(error)}); give "
            "module:function, a function without arguments that returns a model's folder"
        ) from error
    if build is not None:
        return source_of(str(build()))
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise RecipeError(
                f"model.name: the folder {name!r} has no config.json; give a folder that "
                f"save_pretrained wrote{stage_models(path)}"
            )
        return str(path)
    if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise RecipeError(f"model.name = {name!r}: no such folder")
    near = min((entry.name for entry in models()), key=lambda known: slips(name, known))
    if slips(name, near) <= 2:  # the hub would be asked, and tried again, for half a minute
        raise RecipeError(
            f"model.name = {name!r}: not a built-in model or a folder; did you mean {near!r}?"
        )
    return name


def stage_models(folder: Path) -> str:
    """What to add to a message about a pipeline's folder or a stage's: its models' folders."""
    found = [*folder.glob("model/config.json"), *folder.glob("stages/*/model/config.json")]
    if not found:
        return ""
    return f". Models of its stages: {', '.join(str(each.parent) for each in sorted(found))}"


def cannot_load(name: str, source: str, error: Exception) -> str:
    if Path(source).is_dir():
        return f"model.name = {name!r}: cannot be loaded ({first_line(error)})"
    known = [entry.name for entry in models()]
    near = nearest(name, known)
    hint = f"; did you mean {near!r}?" if near else f"; built in: {', '.join(known)}"
    return (
        f"model.name = {name!r}: not a built-in model or a folder, and the hub failed to load it "
        f"({first_line(error)}){hint}"
    )


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
