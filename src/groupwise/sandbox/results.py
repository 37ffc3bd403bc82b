"""A graded run's limits, tests, outcomes and results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from groupwise.errors import GroupwiseError, RecipeError
from groupwise.sandbox.guest.values import encode

Kind = Literal["calls", "stdio", "asserts"]
KINDS: tuple[Kind, ...] = get_args(Kind)
CodeOutcome = Literal[
    "passed", "failed", "timeout", "out_of_memory", "crash", "limit", "infrastructure_error"
]

BROKEN_TESTS = "the tests' own source does not run"
"""How the reason of an infrastructure_error begins that is the data's fault."""


class SandboxUnavailable(GroupwiseError):  # noqa: N818 (it says what is not there)
    """No tier of isolation works here: names the reason and what would help."""


class TrustedCallFailed(GroupwiseError):  # noqa: N818 (it says what failed)
    """A trusted function called in the sandbox returned no value: names the function and the cause.

    `outcome` is "failed" where it raised or returned what is not data, else what ended it;
    "infrastructure_error" is a fault of the sandbox, which no argument can cause.
    """

    def __init__(self, message: str, outcome: CodeOutcome) -> None:
        super().__init__(message)
        self.outcome: CodeOutcome = outcome


@dataclass(frozen=True, slots=True)
class Limits:
    """What one graded run may use; every one ends with an outcome, never with a hang.

    >>> Limits(time=2.0).total_time
    20.0
    """

    time: float = 5.0
    """Seconds of wall time for each case, loading the source included in the first."""
    total_time: float = 20.0
    """Seconds of wall time for all cases together."""
    memory: int = 512 << 20
    """Bytes of address space above what the warm interpreter has."""
    output: int = 1 << 20
    """Bytes of standard output in a stdio case."""
    reply: int = 1 << 20
    """Bytes of one value that is sent back."""
    source: int = 1 << 18
    """Bytes of source; a longer one is not run."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if type(value) not in (int, float) or not 0 < value < math.inf:
                raise RecipeError(f"sandbox limit {each.name} = {value!r}: give a number above 0")

    @classmethod
    def of(cls, limits: Limits | Mapping[str, Any] | None) -> Limits:
        """Limits from fields by name. `RecipeError` names an unknown field and the known ones.

        >>> Limits.of({"time": 1.0}).time
        1.0
        """
        if isinstance(limits, Limits):
            return limits
        if limits is not None and not isinstance(limits, Mapping):
            raise RecipeError(f'limits = {limits!r:.60}: give fields by name, as {{"time": 5}}')
        given, known = dict(limits or {}), [each.name for each in fields(cls)]
        for name in (each for each in given if each not in known):
            raise RecipeError(
                f"limits: unknown field {name!r} (= {given[name]!r}); the fields are "
                f"{', '.join(known)} (seconds and bytes)"
            )
        return cls(**given)


@dataclass(frozen=True, slots=True)
class Call:
    """A test of kind calls: `entry(*arguments, **keywords)` must give `expected` or one of `also`.

    `encoded` are the arguments and keywords as data, `right` the values that are right; both are
    made once. `ValueError` for a value that is not data.
    """

    arguments: tuple[Any, ...]
    expected: Any
    keywords: Mapping[str, Any] = field(default_factory=dict[str, Any])
    also: tuple[Any, ...] = ()
    encoded: tuple[list[Any], dict[str, Any]] = field(init=False, repr=False, compare=False)
    right: tuple[Any, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        arguments = [encode(each) for each in self.arguments]
        keywords = {name: encode(each) for name, each in self.keywords.items()}
        object.__setattr__(self, "encoded", (arguments, keywords))
        object.__setattr__(self, "right", tuple(map(encode, (self.expected, *self.also))))


@dataclass(frozen=True, slots=True)
class Program:
    """One test of kind stdio: what the program reads, and what it must print."""

    stdin: str
    expected: str


@dataclass(frozen=True, slots=True)
class Job:
    """One graded run: untrusted `source`, and tests that stay in this process.

    `tests` are in any form that `make_tests` reads. `setup` (asserts) is run before them, in the
    tester. `tolerance`, below 1, is the largest difference from an expected number, relative to it;
    0 compares exactly. `alike` reads lists and tuples alike, for expected values that came from
    JSON. `fresh` gives every case a process of its own, so that no state is shared. `stop_early`
    ends at the first case not passed. `RecipeError` names what is malformed.
    """

    source: str
    tests: Sequence[Any]
    kind: Kind = "calls"
    entry: str | None = None
    setup: str = ""
    limits: Limits = field(default_factory=Limits)
    tolerance: float = 0.0
    alike: bool = False
    fresh: bool = False
    stop_early: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.source, str):
            raise RecipeError(f"source = {self.source!r:.80}: give the program's text")
        object.__setattr__(self, "tests", make_tests(self.tests, self.kind))
        if self.kind == "calls" and not self.entry:
            raise RecipeError('kind = "calls" needs entry, the name of the function to call')
        if not 0 <= self.tolerance < 1:
            raise RecipeError(f"tolerance = {self.tolerance}; give 0 or more and less than 1")


@dataclass(frozen=True, slots=True)
class CodeResult:
    """The result of a graded run. `outcome` is "passed", or why the first case did not pass.

    `cases` are the outcomes of the cases that were run, in order; a run ends at a timeout.

    >>> CodeResult("passed", 2, 2).passed_all
    True
    """

    outcome: CodeOutcome
    passed: int
    total: int
    reason: str = ""
    cases: tuple[CodeOutcome, ...] = ()

    @property
    def passed_all(self) -> bool:
        return self.outcome == "passed"


def make_tests(tests: Sequence[Any], kind: Kind) -> tuple[Call | Program | str, ...]:
    """Tests in any accepted form; `RecipeError` names the first one that is malformed.

    calls: `(arguments, expected)` or a table with `args`, `expected` and optionally `kwargs`;
    stdio: `(input, output)` or a table with `input` and `output`; asserts: source text.
    """
    if kind not in KINDS:
        raise RecipeError(f"kind = {kind!r}; give one of {', '.join(KINDS)}")
    if isinstance(tests, str) or not tests:
        raise RecipeError("tests: give a list with at least one test")
    return tuple(_make_test(index, test, kind) for index, test in enumerate(tests))


def _make_test(index: int, test: Any, kind: Kind) -> Call | Program | str:
    if isinstance(test, (Call, Program)):
        return test
    if kind == "asserts":
        if isinstance(test, str) and test.strip():
            return test
        raise RecipeError(f"tests[{index}]: an asserts test is source text, got {test!r}")
    table = test if isinstance(test, Mapping) else {}
    given = [table[name] for name in ("args", "input") if name in table]
    expected = [table[name] for name in ("expected", "output") if name in table]
    pair = [*given[:1], *expected[:1]] if isinstance(test, Mapping) else test
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        raise RecipeError(f"tests[{index}] = {test!r}: give a pair of input and expected output")
    if kind == "stdio":
        return Program(_text(index, pair[0]), _text(index, pair[1]))
    arguments = tuple(pair[0]) if isinstance(pair[0], (list, tuple)) else (pair[0],)
    try:
        return Call(arguments, pair[1], dict(table.get("kwargs") or {}))
    except ValueError as error:
        raise RecipeError(f"tests[{index}]: {error} cannot be sent or expected") from error


def _text(index: int, value: Any) -> str:
    """A program's text; lists of lines, as some data sets have them, are joined."""
    text = "\n".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RecipeError(f"tests[{index}]: {error}; give text that UTF-8 can encode") from error
    return text
