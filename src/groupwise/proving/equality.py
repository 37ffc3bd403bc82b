"""Compares two run folders bit for bit; what a clock measures and when events happened is left out.

Compared are all files: tensors of checkpoints and models, ids, rewards and every other column of
rollouts and evaluations, metrics that are reproducible, evaluations and guards among the events.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from groupwise.distributed.shards import INDEX
from groupwise.records.compare import flatten, table_causes
from groupwise.records.files import read_json_lines
from groupwise.records.metrics import is_measured
from groupwise.texts import from_json, shortened
from groupwise.training.watchdog import STALLS

_CLOCKED = ("seconds", "time", "code", "run_id")
# The index of sharded tensors holds a random id; what it points at is compared.
_UNCOMPARED = (".lock", "manifest.json", STALLS, INDEX)
_IN_ORDER = ("rollouts", "metrics.jsonl", "evaluations", "checkpoints")
_RECORDED_EVENTS = ("evaluation", "guard")


@dataclass
class Comparison:
    """What was compared and what differs; `first` names the earliest difference, None if equal."""

    files: int = 0
    bits: int = 0
    bits_differing: int = 0
    found: list[tuple[tuple[float, ...], str]] = field(
        default_factory=list[tuple[tuple[float, ...], str]]
    )

    @property
    def first(self) -> str | None:
        return min(self.found)[1] if self.found else None


def compare_runs(unbroken: Path, broken: Path) -> Comparison:
    """Compare two run folders, of one run or of a pipeline."""
    made = Comparison()
    ours, theirs = _files(unbroken), _files(broken)
    stages = _stages(unbroken)
    for name in sorted(ours | theirs):
        if name not in ours or name not in theirs:
            which = "unbroken" if name in ours else "broken"
            made.found.append((_rank(name, stages), f"{name}: only in the {which} run"))
            continue
        made.files += 1
        made.bits += 8 * (unbroken / name).stat().st_size
        for step, text, bits in _differences(name, unbroken / name, broken / name):
            made.bits_differing += bits
            made.found.append((_rank(name, stages, step), f"{name}: {text}"))
    return made


def _files(folder: Path) -> set[str]:
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {path.as_posix() for path in found if path.name not in _UNCOMPARED}


def _stages(folder: Path) -> list[str]:
    summary = from_json((folder / "summary.json").read_text("utf-8"))
    return [each["name"] for each in summary.get("stages", [])]


def _rank(name: str, stages: list[str], step: float | None = None) -> tuple[float, ...]:
    """Where a file stands in the order of cause and effect: its stage, its step, its kind."""
    parts = Path(name).parts
    stage = len(stages)
    if parts[0] == "stages" and parts[1] in stages:
        stage, parts = stages.index(parts[1]), parts[2:]
    numbered = re.search(r"(step|version)_(\d+)", name)
    if step is None and numbered is not None:
        step = float(numbered[2]) - (0.0 if parts[0] == "rollouts" else 0.5)
    kind = _IN_ORDER.index(parts[0]) if parts[0] in _IN_ORDER else len(_IN_ORDER)
    return (stage, math.inf if step is None else step, kind)


def _differences(name: str, ours: Path, theirs: Path) -> Iterator[tuple[float | None, str, int]]:
    """(step where the file holds several, what differs, differing bits of tensors)."""
    if ours.read_bytes() == theirs.read_bytes():
        return
    if ours.suffix == ".safetensors":
        yield from ((None, text, bits) for text, bits in _tensor_differences(ours, theirs))
    elif ours.suffix == ".parquet":
        yield from ((None, text, 0) for text in _table_differences(ours, theirs))
    elif ours.name == "metrics.jsonl":
        for a, b in zip(*_lines(ours, theirs), strict=False):
            text = _plain_difference(a, b)
            if text is not None:
                yield a["step"], f"step {a['step']}, {text}", 0
        counts = tuple(map(len, _lines(ours, theirs)))
        if counts[0] != counts[1]:
            yield None, f"{counts[0]} lines unbroken, {counts[1]} broken", 0
    elif ours.name == "events.jsonl":
        a, b = (_recorded(lines) for lines in _lines(ours, theirs))
        for key in dict.fromkeys([*a, *b]):
            if a.get(key) != b.get(key):
                text = _plain_difference(a.get(key) or {}, b.get(key) or {})
                step = key[1] - 0.5 if isinstance(key[1], int) else None
                yield step, f"{key[0]} {key[1]}, {text}", 0
    elif ours.suffix == ".json":
        a, b = (from_json(path.read_text("utf-8")) for path in (ours, theirs))
        text = _plain_difference(a, b)
        if text is not None:
            yield None, text, 0
    else:
        yield None, "its bytes differ", 0


def _tensor_differences(ours: Path, theirs: Path) -> Iterator[tuple[str, int]]:
    from safetensors.torch import load_file

    a, b = load_file(ours), load_file(theirs)
    for name in sorted(a.keys() | b.keys()):
        if name not in a or name not in b:
            yield f"the tensor {name!r} is in one of the two alone", 0
        elif (a[name].shape, a[name].dtype) != (b[name].shape, b[name].dtype):
            yield f"the tensor {name!r} has another shape or type", 0
        elif bits := _bits(a[name], b[name]):
            moved = int((a[name] != b[name]).sum())
            yield f"{name}: {bits} bits in {moved} of {a[name].numel()} numbers differ", bits


def _bits(a: Tensor, b: Tensor) -> int:
    """How many bits of two tensors of one shape and type differ."""
    bytes_a, bytes_b = (each.contiguous().reshape(-1).view(torch.uint8) for each in (a, b))
    different = bytes_a ^ bytes_b
    return sum(int(((different >> place) & 1).sum()) for place in range(8))


def _table_differences(ours: Path, theirs: Path) -> Iterator[str]:
    import pyarrow.parquet as pq

    causes = table_causes(pq.read_table(ours), pq.read_table(theirs))
    yield str(causes[0]) if causes else "its bytes differ"


def _lines(ours: Path, theirs: Path) -> tuple[list[Any], list[Any]]:
    return list(read_json_lines(ours)), list(read_json_lines(theirs))


def _recorded(events: list[Any]) -> dict[tuple[str, Any], Any]:
    """The values of evaluations and guards, by version or stage."""
    return {
        (event["kind"], event.get("version", event.get("name"))): event["values"]
        for event in events
        if event["kind"] in _RECORDED_EVENTS
    }


def _plain_difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> str | None:
    """The first entry that differs and is reproducible, in words."""
    flat_a, flat_b = (flatten(_reproducible(each)) for each in (a, b))
    for key in dict.fromkeys([*flat_a, *flat_b]):
        x, y = flat_a.get(key), flat_b.get(key)
        if x != y:
            return f"{key}: {shortened(repr(x), 80)} unbroken, {shortened(repr(y), 80)} broken"
    return None


def _reproducible(value: Any) -> Any:
    """Without what clocks and the machine decide."""
    if isinstance(value, Mapping):
        return {
            key: _reproducible(inner)
            for key, inner in value.items()
            if key not in _CLOCKED and not is_measured(key)
        }
    return [_reproducible(each) for each in value] if isinstance(value, list) else value
