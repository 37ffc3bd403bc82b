"""The `rubric` verifier: written criteria with weights, which a judge reads one by one."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from groupwise.errors import RecipeError
from groupwise.types import Score
from groupwise.verifiers.core.contract import Case, SettingsVerifier, VerifierLogs
from groupwise.verifiers.core.registry import load_verifier
from groupwise.verifiers.core.scores import graded, shorten
from groupwise.verifiers.judge.judging import Verdict
from groupwise.verifiers.judge.readouts import JudgeVerifier


class Criterion(BaseModel):
    """One criterion. A negative weight is for a fault: what shows it loses."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: str = Field(min_length=1, description="What the score's parts call it.")
    text: str = Field(min_length=1, description="What the judge reads.")
    weight: float = Field(default=1.0, description="What its verdict counts; below 0 for a fault.")


class Rubric(SettingsVerifier):
    """The weighted mean of a judge's verdicts on each criterion: 1 where all are met.

    The score's parts are the verdicts, its reason the judge's words on each. A completion is scored
    where all its criteria have a verdict, else not, and it is counted.
    """

    verifier_name: ClassVar[str] = "rubric"
    concurrent: ClassVar[bool] = True

    criteria: tuple[Criterion, ...] = Field(
        description="Tables of name, text and weight; or a TOML file with them as [[criteria]]."
    )
    judge: dict[str, Any] = Field(
        description="Who reads: `name` (judge, the default, or local_judge) and its arguments."
    )
    correct_from: float = Field(
        default=1.0, gt=0, le=1, description="Value from which the outcome is `correct`."
    )

    @field_validator("criteria", mode="before")
    @classmethod
    def _from_file(cls, value: Any) -> Any:
        return read_tables(value, "criteria") if isinstance(value, str) else value

    @model_validator(mode="after")
    def _usable(self) -> Rubric:
        names = [each.name for each in self.criteria]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two criteria are called {twice[0]!r}; give each a name of its own")
        if not any(each.weight > 0 for each in self.criteria):
            raise ValueError("no criterion has a weight above 0; give one weight = 1.0")
        if self.reader.readout != "score":
            raise ValueError(
                f'judge.readout = "{self.reader.readout}": a criterion is met by one completion; '
                "leave it out"
            )
        return self

    @cached_property
    def reader(self) -> JudgeVerifier:
        """The judge; by default an endpoint marks 0 or 1."""
        return load_judge(self.judge, "rubric: judge", {"highest": 1})

    @property
    def waits(self) -> bool:
        return self.reader.waits

    def score(self, cases: Sequence[Case]) -> list[Score]:
        verdicts = self.reader.ask(
            [
                self.reader.question(case.prompt, [case.text], criterion.text)
                for case in cases
                for criterion in self.criteria
            ]
        )
        size = len(self.criteria)
        return [self._total(verdicts[size * row : size * (row + 1)]) for row in range(len(cases))]

    def _total(self, verdicts: Sequence[Verdict]) -> Score:
        reasons, parts, total = list[str](), dict[str, float | None](), 0.0
        for criterion, verdict in zip(self.criteria, verdicts, strict=True):
            value = None if verdict.values is None else verdict.values[0]
            parts[criterion.name] = value
            total += criterion.weight * (value or 0.0)
            shown = "unread" if value is None else f"{value:.3g}"
            said = f" ({shorten(verdict.reason, 120)})" if verdict.reason else ""
            reasons.append(f"{criterion.name} {shown}{said}")
        reason = "; ".join(reasons)
        failed = next((each for each in verdicts if each.values is None), None)
        if failed is not None:
            return Score(None, failed.outcome, reason, parts)
        value = total / sum(max(each.weight, 0.0) for each in self.criteria)
        found = graded(value, reason, self.correct_from)
        return Score(found.value, found.outcome, reason, parts)

    def take_logs(self) -> VerifierLogs:
        return self.reader.take_logs()


def load_judge(table: Mapping[str, Any], where: str, defaults: Mapping[str, Any]) -> JudgeVerifier:
    """A judge from its table; `defaults` are for the one behind an endpoint. Raises RecipeError."""
    arguments = dict(table)
    name = str(arguments.pop("name", "judge"))
    found = load_verifier(name, **({**defaults, **arguments} if name == "judge" else arguments))
    if not isinstance(found, JudgeVerifier):
        raise RecipeError(f'{where}: {name!r} is not a judge; give name = "judge" or "local_judge"')
    return found


def read_tables(path: str, key: str) -> Any:
    """The list of tables `[[key]]` of a TOML file. Raises ValueError naming what is wrong."""
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{path!r} cannot be read as TOML: {error}") from error
    found = table.get(key)
    if set(table) != {key} or not isinstance(found, list) or not found:
        raise ValueError(f"{path!r} has {', '.join(table) or 'nothing'}; give tables [[{key}]]")
    if not all(isinstance(each, Mapping) for each in found):
        raise ValueError(f"{path!r} has {key} that are no tables; give tables [[{key}]]")
    return found
