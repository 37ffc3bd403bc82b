"""A graded run's limits, tests, outcomes and results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from groupwise.errors import GroupwiseError, RecipeError
from groupwise.sandbox.guest.values import encode, plain

Kind = Literal["calls", "stdio", "asserts"]
KINDS: tuple[Kind, ...] = ("calls", "stdio", "asserts")
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
    threads: bool = False
    """Whether threads may be started. Otherwise `Thread.start` runs the thread to its end."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            legal = type(value) in (int, float) and 0 < value < math.inf
            if each.name == "threads" and not isinstance(value, bool):
                raise RecipeError(f"sandbox limit threads = {value!r}: give true or false")
            if each.name != "threads" and not legal:
                raise RecipeError(f"sandbox limit {each.name} = {value!r}: give a number above 0")

    @classmethod
    def of(cls, limits: Limits | Mapping[str, Any] | None) -> Limits:
        """Limits from fields by name. `RecipeError` names an unknown field and the known ones.

        >>> Limits.of({"time": 1.0}).time
        1.0
        """
        if isinstance(limits, Limits):
            return limits
        known = [each.name for each in fields(cls)]
        if limits is not None and not isinstance(limits, Mapping):
            raise RecipeError(f'limits = {limits!r:.60}: give fields by name, as {{"time": 5}}')
        for name, value in (limits or {}).items():
            if name not in known:
                raise RecipeError(
                    f"limits: unknown field {name!r} (= {value!r}); the fields are "
                    f"{', '.join(known)} (seconds and bytes)"
                )
        return cls(**(limits or {}))


@dataclass(frozen=True, slots=True)
class Call:
    """One test of kind calls: `entry(*arguments, **keywords)` must give `expected`.

    `encoded` are the arguments and keywords as data, `plain` the expected value in built-in types;
    both are made once. `ValueError` for a value that is not data.
    """

    arguments: tuple[Any, ...]
    expected: Any
    keywords: Mapping[str, Any] = field(default_factory=dict[str, Any])
    encoded: tuple[list[Any], dict[str, Any]] = field(init=False, repr=False, compare=False)
    plain: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        arguments = [encode(each) for each in self.arguments]
        keywords = {name: encode(each) for name, each in self.keywords.items()}
        object.__setattr__(self, "encoded", (arguments, keywords))
        object.__setattr__(self, "plain", plain(self.expected))


@dataclass(frozen=True, slots=True)
class Program:
    """One test of kind stdio: what the program reads, and what it must print."""

    stdin: str
    expected: str


@dataclass(frozen=True, slots=True)
class Job:
    """One graded run: untrusted `source`, and tests that stay in this process.

    `setup` (asserts) is run before the tests, in the tester. `tolerance`, below 1, is the largest
    difference from an expected number, relative to it; 0 compares exactly. `alike` reads lists and
    tuples alike, for expected values that came from JSON. `fresh` gives every case a
    process of its own, so that no state is shared. `stop_early` ends at the first case not passed.
    """

    source: str
    tests: tuple[Call | Program | str, ...]
    kind: Kind = "calls"
    entry: str | None = None
    setup: str = ""
    limits: Limits = field(default_factory=Limits)
    tolerance: float = 0.0
    alike: bool = False
    fresh: bool = False
    stop_early: bool = False

    def __post_init__(self) -> None:
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
    if isinstance(test, Mapping):
        given = test.get("args", test.get("input"))
        expected = test.get("expected", test.get("output"))
        keywords = dict(test.get("kwargs") or {})
        complete = ("args" in test or "input" in test) and ("expected" in test or "output" in test)
    else:
        complete = isinstance(test, (list, tuple)) and len(test) == 2
        given, expected = test if complete else (None, None)
        keywords = {}
    if not complete:
        raise RecipeError(f"tests[{index}] = {test!r}: give a pair of input and expected output")
    if kind == "calls":
        arguments = tuple(given) if isinstance(given, (list, tuple)) else (given,)
        try:
            return Call(arguments, expected, keywords)
        except ValueError as error:
            raise RecipeError(f"tests[{index}]: {error} cannot be sent or expected") from error
    return Program(_text(index, given), _text(index, expected))


def _text(index: int, value: Any) -> str:
    """A program's text; lists of lines, as some data sets have them, are joined."""
    text = "\n".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RecipeError(f"tests[{index}]: {error}; give text that UTF-8 can encode") from error
    return text
