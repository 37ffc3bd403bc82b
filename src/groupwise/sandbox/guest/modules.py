"""Modules kept in memory: an import in a graded run opens no file and looks up no path."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import sys
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    ExtensionFileLoader,
    ModuleSpec,
    SourceFileLoader,
)
from importlib.util import cache_from_source, spec_from_file_location
from typing import Any

_SKIPPED = {"test", "tests", "idlelib", "ensurepip", "tkinter", "turtledemo", "__pycache__"}
_EXTENSIONS = {suffix[1:] for suffix in EXTENSION_SUFFIXES}

_paths: dict[str, str] = {}
"""Where each module was found, by its full name; a folder for a package without `__init__.py`."""
_places: dict[str, tuple[int, int]] = {}
"""Where the content of a file lies in `_memory`."""
_stats: dict[str, dict[str, Any]] = {}
_memory: mmap.mmap | None = None


def keep(packages: list[str]) -> None:
    """Reads every module of the standard library and of the folders and files in `packages`.

    What is read lies in one private mapping of a sealed memory file, whose pages a fork need not
    copy and no process can change. Extension modules of packages are loaded into the process, where
    the dynamic linker finds them by name; those of the standard library are imported already.
    """
    global _memory
    contents = bytearray()
    for folder in sys.path:
        if os.path.isdir(folder) and not folder.endswith("-packages"):
            _keep_folder(folder, "", contents)
    for path in packages:
        name = os.path.basename(path)
        if os.path.isfile(path):
            _keep_file(path, name, "", contents)
        elif name.isidentifier():
            _paths[name] = path
            _keep_folder(path, name + ".", contents)
    file = os.memfd_create("modules", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(file, contents)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK)
    _memory = mmap.mmap(file, len(contents), flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    os.close(file)
    sys.meta_path.insert(-1, _Finder)  # before the finder of files


def _keep_folder(folder: str, prefix: str, contents: bytearray) -> None:
    for entry in sorted(os.scandir(folder), key=lambda each: each.name):
        if not entry.is_dir():
            _keep_file(entry.path, entry.name, prefix, contents)
        elif entry.name.isidentifier() and entry.name not in _SKIPPED:
            _paths[prefix + entry.name] = entry.path
            _keep_folder(entry.path, f"{prefix}{entry.name}.", contents)


def _keep_file(path: str, file_name: str, prefix: str, contents: bytearray) -> None:
    name, _, suffix = file_name.partition(".")
    if suffix in _EXTENSIONS and "lib-dynload" not in path:
        with contextlib.suppress(OSError):  # a library that it needs is not installed
            ctypes.CDLL(path, os.RTLD_LAZY)
            _paths[prefix + name] = path
    elif suffix == "py":
        _paths[prefix[:-1] if name == "__init__" else prefix + name] = path
        found = os.stat(path)
        _stats[path] = {"mtime": found.st_mtime, "size": found.st_size}
        kept, data = cache_from_source(path), b""
        with contextlib.suppress(OSError), open(kept, "rb") as file:
            data = file.read()
        if data[4:16] != bytes(4) + _stamp(found.st_mtime) + _stamp(found.st_size):
            kept = path
            with open(path, "rb") as file:
                data = file.read()
        _places[kept] = (len(contents), len(contents) + len(data))
        contents += data


def _stamp(number: float) -> bytes:
    return (int(number) & 0xFFFFFFFF).to_bytes(4, "little")


class KeptLoader(SourceFileLoader):
    def get_data(self, path: str) -> bytes:
        if path not in _places or _memory is None:
            raise FileNotFoundError(path)
        start, stop = _places[path]
        return _memory[start:stop]

    def path_stats(self, path: str) -> dict[str, Any]:
        return _stats[path]


class _Finder:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        found = _paths.get(name)
        if found is None:
            return None
        if found.endswith(".py"):
            return spec_from_file_location(name, found, loader=KeptLoader(name, found))
        if found.endswith(".so"):
            return spec_from_file_location(name, found, loader=ExtensionFileLoader(name, found))
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [found]
        return spec
