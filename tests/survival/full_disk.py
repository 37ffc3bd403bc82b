"""Runs in a mount namespace of its own: a small real disk is filled under a save, a record, a run
and a cache. Prints what happened as JSON.

    unshare --user --map-root-user --mount python full_disk.py FOLDER
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import groupwise as gw
from groupwise.checkpoints import checkpoint_steps, is_complete, save_checkpoint
from groupwise.policies.cache import cached_folder
from groupwise.records import RunWriter, open_run
from groupwise.training.callbacks import Callback

RECIPE: dict[str, Any] = {
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic", "level": "table", "audit": False},
    "algorithm": {"preset": "grpo"},
    "sampling": {"group_size": 2, "max_tokens": 4},
    "training": {"prompts_per_step": 4, "steps": 3},
    "evaluation": {"every": 0, "samples": 1, "max_prompts": 2},
    "checkpoints": {"every": 1, "keep": 5},
}


def mount(folder: Path, size: str, *options: str) -> Path:
    folder.mkdir(exist_ok=True)
    flags = ",".join([f"size={size}", *options])
    subprocess.run(["mount", "-t", "tmpfs", "-o", flags, "none", str(folder)], check=True)
    return folder


def fill(disk: Path, leave: int) -> Path:
    """Take all of the disk but about `leave` bytes."""
    file = disk / "others"
    free = os.statvfs(disk)
    with file.open("wb") as others:
        os.posix_fallocate(others.fileno(), 0, free.f_bavail * free.f_frsize - leave)
    return file


def refused(action: Any) -> list[str]:
    try:
        action()
    except Exception as error:  # noqa: BLE001 (the test reads which)
        return [type(error).__name__, str(error)]
    return []


def saving(disk: Path) -> dict[str, Any]:
    """The tensors fit and the files around them do not, so the look at the free space passes."""
    weights = {"w": torch.zeros(15 * 1024)}
    save_checkpoint(disk / "c", 1, model_state=weights, state={})
    others = fill(disk, 64 * 1024)
    error = refused(lambda: save_checkpoint(disk / "c", 2, model_state=weights, state={}))
    left = [path.name for path in (disk / "c").iterdir()]
    others.unlink()
    path = save_checkpoint(disk / "c", 2, model_state=weights, state={})
    whole = [is_complete(disk / "c" / "step_000001"), is_complete(path)]
    return {"error": error, "left": left, "whole": whole}


def recording(disk: Path) -> dict[str, Any]:
    """A line that does not fit leaves no half of it before the next one."""
    with RunWriter.create(disk / "r", "", {}) as writer:
        writer.event("first")
        others = fill(disk, 0)
        error = refused(lambda: [writer.event("long", text="x" * 9000)])
        others.unlink()
        writer.event("last")
    return {"error": error, "kinds": [each["kind"] for each in open_run(disk / "r").events()]}


class Fill(Callback):
    def __init__(self, disk: Path) -> None:
        self.disk = disk

    def on_step(self, line: Any) -> None:
        if line["step"] == 1:
            fill(self.disk, 0)


def running(disk: Path, beside: Path) -> dict[str, Any]:
    """The disk fills during a run; with room again it is resumed to what an unbroken run gives."""
    gw.train(RECIPE, output=beside)
    error = refused(lambda: gw.train(RECIPE, output=disk / "run", callbacks=[Fill(disk)]))
    steps = checkpoint_steps(disk / "run" / "checkpoints")
    (disk / "others").unlink()
    gw.train(RECIPE, output=disk / "run", resume=True)
    name = Path("checkpoints") / "step_000003" / "model.safetensors"
    ours, theirs = load_file(disk / "run" / name), load_file(beside / name)
    equal = ours.keys() == theirs.keys() and all(ours[k].equal(theirs[k]) for k in ours)
    recorded = open_run(disk / "run").steps
    return {"error": error, "steps": steps, "recorded": recorded, "equal": equal}


def caching(disk: Path) -> dict[str, Any]:
    os.environ["GROUPWISE_CACHE"] = str(disk)
    others = fill(disk, 8192)

    def build(folder: Path) -> None:
        (folder / "weights").write_bytes(bytes(65536))

    error = refused(lambda: cached_folder("m", build))
    left = [path.name for path in (disk / "models").iterdir()]
    others.unlink()
    return {
        "error": error,
        "left": left,
        "again": (cached_folder("m", build) / "weights").is_file(),
    }


def reading_only(disk: Path) -> dict[str, Any]:
    """A finished run on a disk that has become read-only: it opens, and is not resumed."""
    gw.train(RECIPE | {"training": {"prompts_per_step": 4, "steps": 1}}, output=disk / "run")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    return {
        "resume": refused(lambda: gw.train(RECIPE, output=disk / "run", resume=True)),
        "start": refused(lambda: gw.train(RECIPE, output=disk / "other")),
        "steps": open_run(disk / "run").steps,
    }


def main(folder: Path) -> None:
    small = [mount(folder / name, "1m") for name in ("saving", "recording", "caching")]
    large = [mount(folder / name, "64m") for name in ("running", "reading")]
    found = {
        "saving": saving(small[0]),
        "recording": recording(small[1]),
        "running": running(large[0], folder / "beside"),
        "reading": reading_only(large[1]),
        "caching": caching(small[2]),  # last: it moves the cache
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
