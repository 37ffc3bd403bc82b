"""Data sets that people have, by the shape of their rows: GSM8K, MATH, MMLU and ARC, IFEval,
HumanEval, MBPP.

Each is `dataset` with that shape's columns, prompt and verifier as defaults; the rows come from a
file, a folder or a `datasets` name of the user's. Left out: the data itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field

from groupwise.environments.base import Environment
from groupwise.environments.dataset import DatasetSettings, from_rows
from groupwise.environments.readers import Row
from groupwise.errors import RecipeError
from groupwise.randomness import generator
from groupwise.texts import from_json
from groupwise.verifiers import VerifierSettings, VerifierTables
from groupwise.verifiers.answers.extraction import last_box

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
PROMPT = "The column with the prompt."
PATTERN = "A regular expression whose first group is the answer within its column."


def _suffix(words: str) -> Any:
    what = "Words behind every prompt; may be empty. Not used with `template`."
    return Field(default=words, description=what)


class ShapedSettings(DatasetSettings):
    """What every data set of a known shape has beside `dataset`'s arguments."""

    default_verifier: ClassVar[str]

    suffix: str = _suffix("")

    def question(self, row: Row) -> str:
        """The prompt's text, before the suffix; `RecipeError` where the column is not there."""
        return str(_value(row, self.prompt))

    def derived(self, row: Row, seed: int) -> dict[str, Any]:
        """Columns of the row that are made from others."""
        return {}

    def prepared(self, row: Row, seed: int) -> Row:
        values = {**row.values, **self.derived(row, seed)}
        row = replace(row, values=values)
        if self.template is not None:
            return row
        text = self.question(row).strip()
        if self.suffix:
            text = f"{text}\n{self.suffix}"
        return replace(row, values={**values, self.prompt: text})


class Gsm8kSettings(ShapedSettings):
    """The arguments of `gsm8k`: columns `question` and `answer`, the number behind `####`."""

    environment_name: ClassVar[str] = "gsm8k"
    default_verifier: ClassVar[str] = "number"

    prompt: str = Field(default="question", description=PROMPT)
    answer_pattern: str | None = Field(default=r"####\s*(.+)", description=PATTERN)
    suffix: str = _suffix("Think step by step, and end with the answer as a number.")


class MathSettings(ShapedSettings):
    """The arguments of `math`: columns `problem` and `answer`, else the last box of `solution`."""

    environment_name: ClassVar[str] = "math"
    default_verifier: ClassVar[str] = "math"

    prompt: str = Field(default="problem", description=PROMPT)
    solution: str = Field(
        default="solution", description="The column whose last box is the answer, if need be."
    )
    suffix: str = _suffix("Think step by step, and give the final answer in \\boxed{}.")

    def derived(self, row: Row, seed: int) -> dict[str, Any]:
        if self.answer in row.values:
            return {}
        return {self.answer: last_box(str(_value(row, self.solution)))}


class MmluSettings(ShapedSettings):
    """The arguments of `mmlu`: `question`, `choices` and `answer`, or ARC's `answerKey`.

    The options are shuffled by the seed and the question, so that what a policy has seen of their
    order does not help; the gold answer moves with them.
    """

    environment_name: ClassVar[str] = "mmlu"
    default_verifier: ClassVar[str] = "choice"

    prompt: str = Field(default="question", description=PROMPT)
    choices: str = Field(default="choices", description="The column with the options.")
    shuffle: bool = Field(default=True, description="Shuffle the options by the seed.")
    suffix: str = _suffix("Give the letter of the right option inside <answer></answer> tags.")

    def question(self, row: Row) -> str:
        options = zip(LETTERS, row.values["choices"])
        return "\n".join([super().question(row), *(f"{each}) {words}" for each, words in options)])

    def derived(self, row: Row, seed: int) -> dict[str, Any]:
        found = _value(row, self.choices)
        labels: Sequence[Any] = LETTERS
        if isinstance(found, Mapping):  # ARC: {"text": [...], "label": [...]}
            found, labels = found["text"], [str(label) for label in found["label"]]
        options = [str(option) for option in found]
        answer = row.values.get(self.answer, row.values.get("answerKey"))
        right = _option(row, answer, options, labels)
        if not self.shuffle:
            return {"choices": options, self.answer: LETTERS[right]}
        shown = [options[right], *options[:right], *options[right + 1 :]]
        generator(seed, "data", "mmlu", str(_value(row, self.prompt))).shuffle(shown)
        return {"choices": shown, self.answer: LETTERS[shown.index(options[right])]}


class IfevalSettings(ShapedSettings):
    """The arguments of `ifeval`: columns `prompt`, `instruction_id_list` and `kwargs`."""

    environment_name: ClassVar[str] = "ifeval"
    default_verifier: ClassVar[str] = "instructions"

    def derived(self, row: Row, seed: int) -> dict[str, Any]:
        texts = {name: row.values.get(name) for name in ("instruction_id_list", "kwargs")}
        return {name: from_json(text) for name, text in texts.items() if isinstance(text, str)}


class HumanevalSettings(ShapedSettings):
    """The arguments of `humaneval`: `prompt`, `entry_point`, `test`, `canonical_solution`."""

    environment_name: ClassVar[str] = "humaneval"
    default_verifier: ClassVar[str] = "code"

    suffix: str = _suffix(
        "Complete this function. Answer with all of it, in one block of Python code."
    )

    def question(self, row: Row) -> str:
        return f"```python\n{super().question(row).strip()}\n```"

    def derived(self, row: Row, seed: int) -> dict[str, Any]:
        start = str(_value(row, self.prompt))
        rest = row.values.get("canonical_solution")
        columns: dict[str, Any] = {"code_prompt": start}
        if rest is not None and self.answer not in row.values:
            columns[self.answer] = start + str(rest)
        return columns


class MbppSettings(ShapedSettings):
    """The arguments of `mbpp`: `text` (or `prompt`), `test_list`, `code`."""

    environment_name: ClassVar[str] = "mbpp"
    default_verifier: ClassVar[str] = "code"

    prompt: str = Field(default="text", description=PROMPT)
    answer: str = Field(default="code", description="The column with a program that passes.")
    tests_shown: int = Field(
        default=1,
        ge=0,
        description="How many of the tests the prompt shows: one tells the function's name.",
    )
    suffix: str = _suffix("Answer with one block of Python code.")

    def question(self, row: Row) -> str:
        tests = [str(test) for test in _value(row, "test_list")][: self.tests_shown]
        shown = ["It must pass this test:" if len(tests) == 1 else "It must pass these tests:"]
        return "\n".join([super().question(row), *(shown + tests if tests else [])])

    def derived(self, row: Row, seed: int) -> dict[str, Any]:
        if self.prompt in row.values or "prompt" not in row.values:
            return {}
        return {self.prompt: row.values["prompt"]}  # the sanitised release


def make_shaped(settings: ShapedSettings, seed: int, verifiers: VerifierTables = ()) -> Environment:
    """The environment of rows of a known shape; gold programs run in the sandbox at loading."""
    own = VerifierSettings(name=settings.default_verifier)
    return from_rows(settings, seed, verifiers or [own])


def _value(row: Row, name: str) -> Any:
    if row.values.get(name) is None:
        raise RecipeError(
            f"{row.where}: no column {name!r}; it has {', '.join(row.values) or 'none'}"
        )
    return row.values[name]


def _option(row: Row, answer: Any, options: Sequence[str], labels: Sequence[Any]) -> int:
    """Which option an index from 0, a label or a text names."""
    places = range(len(options))
    if isinstance(answer, int) and answer in places:
        return answer
    for names in (labels, options):
        found = [place for place in places if str(names[place]) == str(answer)]
        if found:
            return found[0]
    raise RecipeError(f"{row.where}: the answer {answer!r} is none of the options {list(options)}")
