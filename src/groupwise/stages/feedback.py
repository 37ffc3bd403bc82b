"""A feedback model: a judge that compares two answers, and what it said kept on disk."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from groupwise.errors import RecipeError
from groupwise.records.files import json_line, read_json_lines, write_text
from groupwise.stages.stage_models import ModelUse, stage_of
from groupwise.stages.traces import CHUNK
from groupwise.training.process import Interrupted, Interruption
from groupwise.types import Prompt
from groupwise.verifiers.judge.readouts import JudgeVerifier
from groupwise.verifiers.judge.rubric import load_judge


class Asked(NamedTuple):
    """Two answers to a prompt; `rubric` in place of the judge's own where there is one."""

    prompt: Prompt
    texts: tuple[str, str]
    rubric: str | None = None


class Label(NamedTuple):
    """How likely the first of two answers is the better one (None: unread), the judge's words, and
    what the place shown first gained."""

    value: float | None
    why: str
    first: float


def judge_uses(table: Mapping[str, Any]) -> list[ModelUse]:
    """The stage whose policy a judge is: `model = { stage = "NAME" }`."""
    stage = stage_of(table.get("model"))
    return [] if stage is None else [ModelUse(str(table.get("name", "judge")), stage)]


def judge_of(table: Mapping[str, Any], where: str, models: Mapping[str, str]) -> JudgeVerifier:
    """The judge that compares two answers; `models` are the stages' by name. Raises RecipeError."""
    found = {"readout": "pair", **table}
    for use in judge_uses(table):
        found["model"] = models[use.stage]
    judge = load_judge(found, where, {})
    if judge.readout != "pair":
        raise RecipeError(
            f'{where}.readout = "{judge.readout}": two answers are compared; give "pair"'
        )
    return judge


def labels(
    path: Path, judge: JudgeVerifier, asked: Sequence[Asked], interruption: Interruption
) -> Iterator[Label]:
    """A label of each two answers, in order: those that `path` has, then new ones, which it gets.

    Raises Interrupted between two parts.
    """
    lines = [Label(*each) for each in read_json_lines(path, torn="ignore")]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(json_line(each) for each in lines))  # without a torn end
    yield from lines
    with path.open("a", encoding="utf-8") as file:
        for start in range(len(lines), len(asked), CHUNK):
            chunk = asked[start : start + CHUNK]
            verdicts = judge.both_orders(
                [(each.prompt, each.texts) for each in chunk], [each.rubric for each in chunk]
            )
            found = [Label(v.values[0] if v.values else None, v.reason, v.first) for v in verdicts]
            file.write("".join(map(json_line, found)))
            file.flush()
            os.fsync(file.fileno())
            yield from found
            if interruption.number is not None:
                done = start + len(chunk)
                said = f"interrupted after {done} of {len(asked)} labels"
                raise Interrupted(interruption.number, said)
