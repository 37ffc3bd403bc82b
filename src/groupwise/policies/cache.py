"""The user's cache of model folders; a folder appears in it complete or not at all. No torch."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError

from groupwise.errors import GroupwiseError


def cache_folder() -> Path:
    """`$GROUPWISE_CACHE`, else the platform's cache folder for groupwise."""
    chosen = os.environ.get("GROUPWISE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("groupwise"))


def cached_folder(name: str, build: Callable[[Path], None]) -> Path:
    """The folder `models/<name>` of the cache; built by `build(empty folder)` when it is not there.

    Built in a temporary folder and renamed, so a folder with this name is complete; if two
    processes build at once, the first wins. Raises GroupwiseError where the cache cannot be
    written.
    """
    target = cache_folder() / "models" / name
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=target.parent))
    except OSError as error:
        raise GroupwiseError(
            f"the model cache {str(target.parent)!r} cannot be written ({error.strerror}); "
            "set GROUPWISE_CACHE to a folder that can"
        ) from error
    try:
        build(scratch)
        for file in scratch.rglob("*"):
            if file.is_file():
                file.chmod(0o644)
                with file.open("rb") as handle:
                    os.fsync(handle.fileno())
        scratch.chmod(0o755)
        try:
            scratch.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    except (OSError, SafetensorError) as error:
        if os.strerror(errno.ENOSPC) not in str(error):
            raise
        raise GroupwiseError(
            f"the disk of the model cache {str(target.parent)!r} is full; free some space, or set "
            "GROUPWISE_CACHE to a folder on another disk"
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target
