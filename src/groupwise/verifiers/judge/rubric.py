"""The `rubric` verifier: written criteria with weights, which a judge reads one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from groupwise.errors import RecipeError
from groupwise.texts import from_toml
from groupwise.types import Prompt, Score
from groupwise.verifiers.core.contract import BatchVerifier, Case, VerifierLogs
from groupwise.verifiers.core.names import validated
from groupwise.verifiers.core.registry import load_verifier, verifier_class
from groupwise.verifiers.core.scores import BadAnswer, graded, shorten
from groupwise.verifiers.judge.judging import Verdict
from groupwise.verifiers.judge.readouts import JudgeVerifier


def not_blank(value: str) -> str:
    """A text of which something is seen. Raises PydanticCustomError."""
    if not value.strip():
        raise PydanticCustomError("blank", "is empty; write a text")
    return value


class Criterion(BaseModel):
    """One criterion. A negative weight is for a fault: what shows it loses."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: str = Field(min_length=1, description="What the score's parts call it.")
    text: str = Field(min_length=1, description="What the judge reads.")
    weight: float = Field(default=1.0, description="What its verdict counts; below 0 for a fault.")

    _not_blank = field_validator("text")(not_blank)


class OwnCriterion(Criterion):
    """One criterion that a prompt brings; without a name it is left out of the parts."""

    name: str = Field(default="", description="What the score's parts call it, if anything.")


class Rubric(BatchVerifier):
    """The weighted mean of a judge's verdicts on each criterion: 1 where all are met.

    The criteria are the same for every prompt, or each prompt's own (`column`). The score's parts
    are the verdicts, its reason the judge's words on each. A completion is scored where all its
    criteria have a verdict, else not, and it is counted.
    """

    verifier_name: ClassVar[str] = "rubric"
    concurrent: ClassVar[bool] = True

    criteria: tuple[Criterion, ...] = Field(
        default=(),
        description="Tables of name, text and weight; or a TOML file with them as [[criteria]].",
    )
    column: str | None = Field(
        default=None,
        min_length=1,
        description="In place of criteria: the data's column with each prompt's own, a list of "
        "texts, or of tables of text, weight (1 by default) and name.",
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
        if value in ([], ()):
            raise ValueError("is empty; give tables of name and text, or leave it out for column")
        return read_tables(value, "criteria") if isinstance(value, str) else value

    @model_validator(mode="after")
    def _usable(self) -> Rubric:
        if bool(self.criteria) == (self.column is not None):
            raise ValueError(
                "give criteria (tables, or a TOML file) or column (each prompt's own), one of two"
            )
        if self.criteria:
            check_criteria(self.criteria)
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

    @property
    def part_names(self) -> tuple[str, ...] | None:
        return None if self.column else tuple(each.name for each in self.criteria)

    @property
    def required_columns(self) -> frozenset[str]:
        return frozenset() if self.column is None else frozenset({self.column})

    def check_row(self, prompt: Prompt) -> None:
        self.criteria_of(prompt)

    def criteria_of(self, prompt: Prompt) -> Sequence[Criterion]:
        """What the prompt's completions are judged by; `BadAnswer` for a column without that."""
        if self.column is None:
            return self.criteria
        given = prompt.columns.get(self.column)
        if not isinstance(given, list | tuple):
            raise BadAnswer(f"the column {self.column!r} is {shorten(repr(given))}; give a list")
        try:
            found = [validated(OwnCriterion, _filled(each), "criterion") for each in given]
            check_criteria(found)
        except ValueError as error:
            raise BadAnswer(
                f"the column {self.column!r} is {shorten(repr(given))}: {error}"
            ) from error
        return found

    def prepare(self, case: Case) -> tuple[Case, Sequence[Criterion]]:
        return case, self.criteria_of(case.prompt)

    def run(self, jobs: Sequence[tuple[Case, Sequence[Criterion]]]) -> list[Score]:
        verdicts = iter(
            self.reader.ask(
                [
                    self.reader.question(case.prompt, [case.text], criterion.text)
                    for case, criteria in jobs
                    for criterion in criteria
                ]
            )
        )
        return [
            _total(criteria, list(islice(verdicts, len(criteria))), self.correct_from)
            for _, criteria in jobs
        ]

    def take_logs(self) -> VerifierLogs:
        return self.reader.take_logs()


def check_criteria(criteria: Sequence[Criterion]) -> None:
    """Raises ValueError for criteria by which nothing can be judged."""
    names = [each.name for each in criteria if each.name]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two criteria are called {twice[0]!r}; give each a name of its own")
    if not any(each.weight > 0 for each in criteria):
        raise ValueError("no criterion has a weight above 0; give one weight = 1.0")


def _filled(given: Any) -> Any:
    """A criterion of a column as a table; a text is its text, None a field that is not there."""
    if isinstance(given, Mapping):
        return {name: value for name, value in given.items() if value is not None}
    return {"text": given}


def _total(
    criteria: Sequence[Criterion], verdicts: Sequence[Verdict], correct_from: float
) -> Score:
    reasons, parts, total = list[str](), dict[str, float | None](), 0.0
    for criterion, verdict in zip(criteria, verdicts, strict=True):
        value = None if verdict.values is None else verdict.values[0]
        if criterion.name:
            parts[criterion.name] = value
        total += criterion.weight * (value or 0.0)
        shown = "unread" if value is None else f"{value:.3g}"
        said = f" ({shorten(verdict.reason, 120)})" if verdict.reason else ""
        reasons.append(f"{criterion.name or repr(shorten(criterion.text, 40))} {shown}{said}")
    reason = "; ".join(reasons)
    failed = next((each for each in verdicts if each.values is None), None)
    if failed is not None:
        return Score(None, failed.outcome, reason, parts)
    value = total / sum(max(each.weight, 0.0) for each in criteria)
    found = graded(value, reason, correct_from)
    return Score(found.value, found.outcome, reason, parts)


def load_judge(table: Mapping[str, Any], where: str, defaults: Mapping[str, Any]) -> JudgeVerifier:
    """A judge from its table; `defaults` are for the one behind an endpoint. Raises RecipeError."""
    arguments = dict(table)
    name = str(arguments.pop("name", "judge"))
    judges = ":" in name or issubclass(verifier_class(name), JudgeVerifier)
    found = judges and load_verifier(
        name, **({**defaults, **arguments} if name == "judge" else arguments)
    )
    if not isinstance(found, JudgeVerifier):
        raise RecipeError(f'{where}: {name!r} is not a judge; give name = "judge" or "local_judge"')
    return found


def read_tables(path: str, key: str) -> Any:
    """The list of tables `[[key]]` of a TOML file. Raises ValueError naming what is wrong."""
    try:
        table = from_toml(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError("there is no such file") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"{path!r} cannot be read as TOML: {error}") from error
    found = table.get(key)
    if set(table) != {key} or not isinstance(found, list) or not found:
        raise ValueError(f"{path!r} has {', '.join(table) or 'nothing'}; give tables [[{key}]]")
    if not all(isinstance(each, Mapping) for each in found):
        raise ValueError(f"{path!r} has {key} that are no tables; give tables [[{key}]]")
    return found
