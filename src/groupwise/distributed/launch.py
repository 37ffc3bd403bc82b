"""Joins the processes of a run: those that torchrun started, or those that this one starts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from groupwise.distributed.ranks import ALONE, Ranks
from groupwise.distributed.settings import ComputeSettings
from groupwise.errors import GroupwiseError, RecipeError

_STORE = "GROUPWISE_STORE"
"""Names the file through which processes of one machine find each other."""
_STARTER = "GROUPWISE_STARTER"
"""The process that started this one, which ends with it."""
_CLOSING = 20.0
"""Seconds that the other processes have to end by themselves once rank 0 is done."""
_LOOK = 0.5
"""Seconds between two looks at the process that started this one."""
_A_CORE = 4
"""Processes that a core may have: each takes memory, and beyond one a core none is faster."""
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


def world_size(processes: int = 1) -> int:
    """Processes of a run that starts here: torchrun's number, else the recipe's `processes`."""
    return int(os.environ.get("WORLD_SIZE", processes))


def first_process() -> bool:
    """Whether this process speaks for its run: rank 0, or the only one."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def joined(settings: ComputeSettings, device: str, recipe_text: str) -> Iterator[Ranks]:
    """This process's place in its run, until the block ends.

    Under torchrun (or another launcher that sets its variables) it joins the others; else it is
    rank 0 of `settings.processes`, starts the rest with `groupwise train` on `recipe_text`, and
    ends them with the block. Raises GroupwiseError naming a process that does not come in time.
    """
    size = world_size(settings.processes)
    if size == 1:
        yield ALONE
    elif "WORLD_SIZE" in os.environ:
        _end_with_starter()
        rank = int(os.environ.get("RANK", "-1"))
        if not 0 <= rank < size:
            raise GroupwiseError(
                f"WORLD_SIZE = {size} in the environment and RANK = "
                f"{os.environ.get('RANK', 'unset')}: a launcher of several processes sets RANK to "
                f"0 to {size - 1}; start one, or unset WORLD_SIZE"
            )
        with _group(Ranks(rank, size, settings.deadline_seconds), device) as ranks:
            yield ranks
    else:
        _check_room(size, device)
        import torch

        before = torch.get_num_threads()
        threads = max(1, before // size)
        with (
            sigterm_leaves(),
            tempfile.TemporaryDirectory(prefix="groupwise-") as folder,
            _Others(Path(folder), size, recipe_text, threads) as others,
        ):
            ranks = Ranks(0, size, settings.deadline_seconds, ended=others.ended)
            torch.set_num_threads(threads)
            try:
                with _group(ranks, device, others) as made:
                    yield made
            finally:
                torch.set_num_threads(before)


def _on_gpu(device: str) -> bool:
    import torch

    return device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())


def _check_room(size: int, device: str) -> None:
    import torch

    if _on_gpu(device):
        most = torch.cuda.device_count()
        why = f"a process trains on a GPU of its own, and this machine has {most}"
    else:
        cores = os.cpu_count() or 1
        most = _A_CORE * cores
        why = f"this machine has {cores} cores, and a core takes {_A_CORE} processes"
    if size > most:
        raise RecipeError(f"compute.processes = {size}: {why}; give at most {most}")


class _Others:
    """The processes of ranks 1 and up, on this machine. What they say goes into files."""

    def __init__(self, folder: Path, size: int, recipe_text: str, threads: int) -> None:
        self.folder = folder
        self.store = folder / "store"
        (folder / "recipe.toml").write_text(recipe_text, encoding="utf-8")
        paths = [path or os.getcwd() for path in sys.path]
        self._variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "OMP_NUM_THREADS": str(threads),
            "WORLD_SIZE": str(size),
            _STORE: str(self.store),
            _STARTER: str(os.getpid()),
        }
        self._ranks = range(1, size)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def _start(self, rank: int) -> None:
        recipe = self.folder / "recipe.toml"
        with self._said(rank).open("wb") as said:
            self.processes[rank] = subprocess.Popen(
                [sys.executable, "-m", "groupwise", "train", str(recipe), "--quiet"],
                env={**self._variables, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,  # the terminal's Ctrl-C is rank 0's to pass on
            )

    def _said(self, rank: int) -> Path:
        return self.folder / f"rank_{rank}.txt"

    def ended(self, rank: int) -> str | None:
        """How a rank's process ended, and the last that it said; None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            code = self.processes[rank].wait(timeout=0.5)
            how = f"was killed (signal {-code})" if code < 0 else f"ended with exit code {code}"
            lines = self._said(rank).read_text("utf-8", errors="replace").strip().splitlines()
            return how + (f": {lines[-1][:300]}" if lines else "")
        return None

    def check(self) -> None:
        """Raises GroupwiseError where one has ended."""
        for rank, process in self.processes.items():
            if process.poll() is not None:
                raise GroupwiseError(f"rank {rank} {self.ended(rank)}")

    def __enter__(self) -> _Others:
        """Start them; those that were started end where one cannot be."""
        try:
            for rank in self._ranks:
                self._start(rank)
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Wait for their end, or end them where this block failed."""
        for process in self.processes.values():
            if kind is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=_CLOSING)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def _group(ranks: Ranks, device: str, others: _Others | None = None) -> Iterator[Ranks]:
    """The process group of these ranks. On one machine it is bound to the loopback interface."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    on_gpu = _on_gpu(device)
    path = str(others.store) if others is not None else os.environ.get(_STORE)
    with _variables({"GLOO_SOCKET_IFNAME": _LOOPBACK, "NCCL_SOCKET_IFNAME": _LOOPBACK}, path):
        if on_gpu:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        store = dist.FileStore(path, ranks.size) if path is not None else _met(ranks)
        ranks = replace(ranks, store=store)
        ranks.await_all(_versions(), (lambda: None) if others is None else others.check)
        try:
            with ranks.named():
                dist.init_process_group(
                    "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
                    store=dist.PrefixStore("group", store),
                    rank=ranks.rank,
                    world_size=ranks.size,
                    timeout=ranks.timeout,
                )
                mesh = init_device_mesh("cuda" if on_gpu else "cpu", (ranks.size,))
                objects = dist.new_group(backend="gloo", timeout=ranks.timeout)
                yield replace(ranks, mesh=mesh, objects=objects)
        finally:
            # gloo's threads need the interpreter to let go of the last exchange: it would abort if
            # it ended meanwhile.
            time.sleep(0.1)
            if dist.is_initialized():
                dist.destroy_process_group()


def _met(ranks: Ranks) -> Any:
    """The store at MASTER_ADDR:MASTER_PORT, where the processes of a launcher meet."""
    import torch.distributed as dist

    try:
        return next(dist.rendezvous("env://", timeout=ranks.timeout))[0]
    except (ValueError, dist.DistError) as error:
        host, port = (os.environ.get(name, "unset") for name in ("MASTER_ADDR", "MASTER_PORT"))
        said = str(error).strip().splitlines()[0][:200]
        raise GroupwiseError(
            f"rank {ranks.rank} of {ranks.size} did not meet the others at "
            f"MASTER_ADDR:MASTER_PORT = {host}:{port} (compute.deadline_seconds = "
            f"{ranks.deadline:g}): {said}"
        ) from error


def _end_with_starter() -> None:
    """From now on this process ends, and what it started, once the one that started it is gone,
    however that ended; it takes their folder along."""
    starter = os.environ.get(_STARTER)

    def watch() -> None:
        while str(os.getppid()) == starter:
            time.sleep(_LOOK)
        shutil.rmtree(Path(os.environ[_STORE]).parent, ignore_errors=True)
        with suppress(ProcessLookupError):  # a group of its own, unless something else started it
            os.killpg(os.getpid(), signal.SIGKILL)
        os._exit(1)

    if starter is not None:
        threading.Thread(target=watch, daemon=True).start()


@contextmanager
def sigterm_leaves() -> Iterator[None]:
    """SIGTERM leaves the block as SystemExit, unless the caller or a run inside handles it."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    if not is_main or before is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _versions() -> str:
    return ", ".join(f"{name} {version(name)}" for name in ("groupwise", "torch"))


@contextmanager
def _variables(values: dict[str, str], local: str | None) -> Iterator[None]:
    """Environment variables inside the block, where the processes are of one machine."""
    before = {name: os.environ.get(name) for name in values}
    if local is not None:
        os.environ.update({name: value for name, value in values.items() if not before[name]})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
