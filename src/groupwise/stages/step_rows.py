"""Rows of solutions with labelled steps: our own, TRL's stepwise rows, PRM800K's, and outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from groupwise.environments.readers import Row
from groupwise.records.files import read_json_lines
from groupwise.scorers.classifiers import prompt_ids, step_tokens
from groupwise.stages.pairs import UNUSED
from groupwise.stages.sources import RowData, absent
from groupwise.stages.stage import DROPPED, Rows
from groupwise.texts import counted
from groupwise.types import Prompt
from groupwise.verifiers.process.boundaries import step_ends

Labels = Literal["soft", "hard", "outcome"]


@dataclass(frozen=True, slots=True)
class Solution:
    """A prompt, the steps of one answer, and their labels from 0 to 1 (None: not labelled)."""

    prompt: Prompt
    steps: tuple[str, ...]
    labels: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class StepExample:
    """A solution as ids. `places` are the labelled steps' last tokens, one to one with `labels`."""

    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    places: tuple[int, ...]
    labels: tuple[float, ...]

    @property
    def tokens(self) -> int:
        """Positions that it takes."""
        return len(self.ids)


class StepData(RowData):
    """One source of solutions: rows of `prompt`, `steps` (or `completions`) and `labels` (or
    `ratings`), of PRM800K, or of a completion with one `label` or `outcome`."""

    takes: ClassVar[frozenset[Rows]] = frozenset({"steps", "scored"})
    columns: ClassVar[tuple[str, ...]] = ("prompt", "steps", "labels")

    steps: str = Field(
        "steps",
        description="The column with the steps, texts or tables of `text` and `label` or `rating`; "
        "TRL's `completions` is read too.",
    )
    labels: str = Field(
        "labels",
        description="The column with the steps' labels from 0 to 1, null where a step has none.",
    )
    neutral: Literal["right", "wrong", "skip"] = Field(
        "right", description="What a rating of 0 is, of PRM800K's -1, 0 and 1."
    )

    def rows(self, folder: Path | None, seed: int) -> tuple[list[Row], str, str | None]:
        """As of every source; of a stage that judged completions those that it dropped too."""
        read, named, remark = super().rows(folder, seed)
        dropped = None if folder is None else folder / DROPPED
        if dropped is None or not dropped.is_file():
            return read, named, remark
        others = [
            Row(f"{DROPPED}, line {line}", row)
            for line, row in enumerate(read_json_lines(dropped), start=1)
            if not str(row.get("reason", "")).startswith(UNUSED)
        ]
        return [*read, *others][: self.limit], named, remark

    def solutions(self, row: Row) -> list[Solution]:
        """A row's solutions. Raises ValueError saying what is wrong with it."""
        values = row.values
        if "question" in values and "label" in values:
            return self._prm800k(row.where, values["question"], values["label"])
        steps = values.get(self.steps, values.get("completions"))
        if steps is None:
            return [self._outcome(row)]
        if not isinstance(steps, list | tuple) or not steps:
            raise ValueError(f"has the {self.steps} {steps!r:.60}; give a list of at least one")
        labels = values.get(self.labels, values.get("ratings"))
        both = labels is not None and values.get("ratings") is not None
        if both and "labels" not in self.model_fields_set and self.labels in values:
            raise ValueError(
                f"has both {self.labels!r} and 'ratings'; keep one, or name it: labels = \"labels\""
            )
        read = self._label if self.labels in values else self._rating
        if labels is None and isinstance(steps[0], Mapping):
            if not all(isinstance(each, Mapping) for each in steps):
                raise ValueError(f"has {self.steps} of tables and others; give tables alone")
            read = self._label if "label" in steps[0] else self._rating
            labels = [each.get("label", each.get("rating")) for each in steps]
            steps = [each.get("text") for each in steps]
        if labels is not None and not isinstance(labels, list | tuple):
            raise ValueError(f"has the labels {labels!r:.40}; give a list with one a step")
        if labels is None or len(labels) != len(steps):
            given = "no labels" if labels is None else counted(len(labels), "label")
            raise ValueError(f"has {counted(len(steps), 'step')} and {given}; give one a step")
        return [Solution(self._prompt(row), _texts(steps), tuple(map(read, labels)))]

    def _prompt(self, row: Row) -> Prompt:
        prompt = row.values.get(self.prompt)
        if isinstance(prompt, str) and prompt and not self.chat:
            return Prompt(row.where, text=prompt)
        if not prompt:
            raise ValueError(absent(row.values, self.prompt))
        messages, _ = self.turns(prompt, [])
        return Prompt(row.where, tuple(messages))

    def _outcome(self, row: Row) -> Solution:
        """A whole completion as one step, with its `label` or `outcome`."""
        values = row.values
        label: float | None
        if "label" in values:
            label = self._label(values["label"])
        elif values.get("outcome") == "no_verdict":
            raise ValueError("has an outcome without a verdict; set its verifier's correct_from")
        elif "outcome" in values:
            label = float(values["outcome"] == "correct")
        else:
            names = ", ".join(values)
            raise ValueError(f"has neither {self.steps!r} nor 'label'; its columns are {names}")
        if "messages" in values:
            messages = self.messages_of(values["messages"])
            if messages[-1]["role"] != "assistant":
                raise ValueError("has a chat that does not end with the assistant")
            prompt = Prompt(row.where, tuple(messages[:-1]))
            return Solution(prompt, _texts([messages[-1].get("content")]), (label,))
        return Solution(self._prompt(row), _texts([values.get("completion")]), (label,))

    def _prm800k(self, where: str, question: Any, label: Any) -> list[Solution]:
        """The path that the labellers took, and each rated alternative to one of its steps.

        A step's label counts once: in an alternative only the last step has one.
        """
        try:
            messages, _ = self.turns(question["problem"], [])
            prompt = Prompt(where, tuple(messages))
            texts: list[str] = []
            labels: list[float | None] = []
            found: list[Solution] = []
            for step in label["steps"]:
                taken = step.get("human_completion")
                for number, each in enumerate(step.get("completions") or ()):
                    if number == step.get("chosen_completion"):
                        taken = each
                    elif (value := self._rating(each["rating"])) is not None:
                        steps = (*texts, each["text"])
                        found.append(Solution(prompt, _texts(steps), (*[None] * len(texts), value)))
                if taken is None:
                    break
                texts.append(taken["text"])
                labels.append(self._rating(taken.get("rating")))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"is not a row of PRM800K: {type(error).__name__} {error}") from error
        if not texts and not found:
            raise ValueError("is not a row of PRM800K: no step has a completion that was taken")
        path = [Solution(prompt, _texts(texts), tuple(labels))] if texts else []
        return [*path, *found]

    def _label(self, value: Any) -> float | None:
        if value is None:
            return None
        if not isinstance(value, bool | int | float) or not 0 <= value <= 1:
            raise ValueError(
                f"has the label {value!r:.40}; give numbers from 0 to 1, true or false, or null "
                "(ratings of -1, 0 and 1 belong in a column 'ratings')"
            )
        return float(value)

    def _rating(self, value: Any) -> float | None:
        if value is None:
            return None
        if isinstance(value, bool) or value not in (-1, 0, 1):
            raise ValueError(f"has the rating {value!r:.40}; give -1, 0, 1 or null")
        return {-1: 0.0, 1: 1.0, 0: {"right": 1.0, "wrong": 0.0, "skip": None}[self.neutral]}[value]


def _texts(steps: Sequence[Any]) -> tuple[str, ...]:
    for number, step in enumerate(steps, start=1):
        if not isinstance(step, str) or not step.strip():
            raise ValueError(f"has the step {number} {step!r:.40}; give texts that are not blank")
    return tuple(steps)


def written(steps: Sequence[str], separator: str) -> list[str]:
    """The steps as the parts of one text: each but the last ends with the separator (a newline
    between turns), which is added where a step leaves it out.

    >>> written(["a", "b\\n", "c"], "\\n")
    ['a\\n', 'b\\n', 'c']
    """
    end = separator or "\n"
    return [*(each if each.endswith(end) else each + end for each in steps[:-1]), steps[-1]]


def step_example(tokenizer: Any, solution: Solution, separator: str, labels: Labels) -> StepExample:
    """A solution as ids, read as the verifier `process_reward_model` reads it.

    Raises ValueError where it has no label, or its steps are not those that the separator makes or
    have no last token of their own.
    """
    parts = written(solution.steps, separator)
    text, given = "".join(parts), solution.labels
    ends = list(accumulate(map(len, parts)))
    if labels == "outcome":
        ends, given = ends[-1:], given[-1:]
    elif separator and (found := step_ends(text, separator)) != ends:
        raise ValueError(
            f"has {counted(len(ends), 'step')}, and the separator {separator!r} divides their text "
            f'into {len(found)}; set separator to what ends a step, or labels = "outcome" for one '
            "label a completion"
        )
    before = prompt_ids(tokenizer, solution.prompt)
    ids, places = step_tokens(tokenizer, before, text, ends)
    labelled = [label is not None for label in given]
    within = [number for number, place in enumerate(places) if place is None and labelled[number]]
    if within:
        part = text[: ends[within[0]]][-40:]
        raise ValueError(
            f"has a step that ends within a token, {part!r}; divide steps where tokens end, "
            "say by a newline or a tag"
        )
    kept = [(p, y) for p, y in zip(places, given, strict=True) if p is not None and y is not None]
    if not kept:
        raise ValueError("has no labelled step")
    own = tuple(float(y > 0) if labels == "hard" else y for _, y in kept)
    return StepExample(tuple(before), tuple(ids), tuple(p for p, _ in kept), own)
