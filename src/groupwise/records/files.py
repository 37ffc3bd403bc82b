"""Files that are either old or new, never half: atomic replacement, durable folders, JSON lines."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from groupwise.errors import RecipeError
from groupwise.instants import passed
from groupwise.texts import from_json, from_toml, whole_text


def fsync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_folder(path: Path) -> None:
    """Force a folder's entries (names, renames) to the disk; nothing where folders cannot be."""
    if os.name == "nt":
        return
    fsync_file(path)


def replace_file(path: Path, write: Callable[[Path], None], *, durable: bool = False) -> None:
    """Let `write` fill a temporary file beside `path`, then rename it into place.

    A reader sees the old file or the new one. `durable` also forces content and name to the disk.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        if durable:
            fsync_file(temporary)
        passed("file")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if durable:
        fsync_folder(path.parent)


def write_for_user(path: Path, text: str, option: str) -> None:
    """Write a text to the file that an option named, with the folders that it lacks.

    Raises RecipeError naming the option where the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    except OSError as error:
        raise RecipeError(
            f"{option} = {str(path)!r} cannot be written: {error.strerror}; name a file that can"
        ) from error


def check_place(path: Path, option: str) -> None:
    """Refuse a new file or folder for which the folders above leave no place.

    Raises RecipeError naming the option.
    """
    above = next(parent for parent in path.absolute().parents if parent.exists())
    if not above.is_dir():
        raise RecipeError(f"{option} = {str(path)!r}: {str(above)!r} is a file; name a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise RecipeError(
            f"{option} = {str(path)!r}: {str(above)!r} cannot be written to; name a folder that can"
        )


def check_suffix(path: Path, option: str, suffix: str) -> None:
    """Raises RecipeError where a path that an option named does not end so."""
    if path.suffix != suffix:
        raise RecipeError(f"{option} = {str(path)!r}: give a file that ends in {suffix}")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file as `write_text` does, indented. NaN and infinities are refused."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically and durably, as UTF-8 with the newlines given."""
    content = whole_text(text).encode("utf-8")
    replace_file(path, lambda p: _write(p, content), durable=True)


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def append_whole(path: Path, line: bytes) -> None:
    """Append a line, or raise OSError and leave the file as it was."""
    before = path.stat().st_size if path.exists() else 0
    try:
        with path.open("ab") as file:
            file.write(line)
    except OSError:
        if path.exists():
            os.truncate(path, before)
        raise


def cut_torn_line(path: Path) -> None:
    """Cut what follows the last newline: half a line of a killed process."""
    if path.exists():
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(path, whole)


def json_line(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))
    return whole_text(text) + "\n"


def read_json_lines(path: Path, *, torn: Literal["warn", "ignore"] = "warn") -> Iterator[Any]:
    """The values of a JSON-lines file, in order; nothing where the file is absent.

    A last line without its newline is the torn end of an interrupted write: it is skipped, with a
    warning unless `torn` is "ignore". A broken line elsewhere raises RecipeError with its number,
    and so does a path that cannot be read, a folder for example.
    """
    if not path.exists():
        return
    try:
        opened = path.open("rb")
    except OSError as error:
        raise RecipeError(f"{path} cannot be read: {error.strerror}") from error
    with opened as lines:
        for number, raw in enumerate(lines, start=1):
            if not raw.endswith(b"\n"):
                if torn == "warn":
                    warnings.warn(f"{path}: line {number} is incomplete and skipped", stacklevel=2)
                return
            try:
                yield from_json(raw)
            except ValueError as error:
                raise RecipeError(f"{path}: line {number} is not JSON: {error}") from error


def file_hash(path: str | Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with Path(path).open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def text_hash(text: str) -> str:
    """SHA-256 of a text's UTF-8 bytes, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def recipe_hash(text: str) -> str:
    """SHA-256 of a recipe's fields and values, whatever their order in its TOML."""
    return text_hash(json.dumps(from_toml(text), sort_keys=True, default=str))
