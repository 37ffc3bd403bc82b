"""Small functions of lists, strings and numbers, drawn and put together: what `code` asks for.

A function is a chain of operations on one argument. Each operation has words and a Python
expression in `x`; the program, the description and the values of a chain come from the same table,
so they cannot disagree. Left out: prompts and tests (`code_tasks.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from groupwise.environments.vocabulary import WORDS

Kind = Literal["lists", "strings", "numbers"]
KINDS: tuple[Kind, ...] = ("lists", "strings", "numbers")


@dataclass(frozen=True, slots=True)
class Operation:
    """Words and a Python expression in `x`, both with `{k}` where a number is drawn from `low` to
    `high`. `gives` is the kind of what comes out."""

    words: str
    expression: str
    gives: Kind
    low: int = 0
    high: int = 0

    def with_number(self, draw: random.Random) -> Operation:
        """The operation with its number drawn and written in."""
        k = str(draw.randint(self.low, self.high))
        words, expression = (each.replace("{k}", k) for each in (self.words, self.expression))
        return Operation(words, expression, self.gives)


_LISTS = (
    Operation("keep the numbers greater than {k}", "[n for n in x if n > {k}]", "lists", -5, 12),
    Operation("keep the numbers smaller than {k}", "[n for n in x if n < {k}]", "lists", 0, 16),
    Operation("keep the even numbers", "[n for n in x if n % 2 == 0]", "lists"),
    Operation("keep the odd numbers", "[n for n in x if n % 2 == 1]", "lists"),
    Operation("multiply every number by {k}", "[n * {k} for n in x]", "lists", 2, 12),
    Operation("add {k} to every number", "[n + {k} for n in x]", "lists", 1, 20),
    Operation("subtract {k} from every number", "[n - {k} for n in x]", "lists", 1, 20),
    Operation("square every number", "[n * n for n in x]", "lists"),
    Operation("drop the first {k} numbers", "x[{k}:]", "lists", 1, 4),
    Operation("take the first {k} numbers", "x[:{k}]", "lists", 2, 5),
    Operation("drop the last {k} numbers", "x[:-{k}]", "lists", 1, 4),
    Operation("sort the numbers from small to large", "sorted(x)", "lists"),
    Operation("sort the numbers from large to small", "sorted(x, reverse=True)", "lists"),
    Operation("reverse the list", "x[::-1]", "lists"),
    Operation("remove the numbers that came before", "list(dict.fromkeys(x))", "lists"),
    Operation("take every second number, the first included", "x[::2]", "lists"),
    Operation("take the sum", "sum(x)", "numbers"),
    Operation("count the numbers", "len(x)", "numbers"),
    Operation("count the multiples of {k}", "sum(n % {k} == 0 for n in x)", "numbers", 2, 5),
    Operation("take the largest number, 0 if there is none", "max(x, default=0)", "numbers"),
    Operation("take the smallest number, 0 if there is none", "min(x, default=0)", "numbers"),
)  # fmt: skip
_STRINGS = (
    Operation("reverse the text", "x[::-1]", "strings"),
    Operation("turn it into capital letters", "x.upper()", "strings"),
    Operation("remove the vowels", "''.join(c for c in x if c not in 'aeiou')", "strings"),
    Operation("keep only the vowels", "''.join(c for c in x if c in 'aeiou')", "strings"),
    Operation("repeat it {k} times", "x * {k}", "strings", 2, 6),
    Operation("take the first {k} characters", "x[:{k}]", "strings", 2, 8),
    Operation("drop the first {k} characters", "x[{k}:]", "strings", 1, 6),
    Operation("take the last {k} characters", "x[-{k}:]", "strings", 2, 8),
    Operation("drop the last {k} characters", "x[:-{k}]", "strings", 1, 6),
    Operation("take every second character, the first included", "x[::2]", "strings"),
    Operation("sort its characters", "''.join(sorted(x))", "strings"),
    Operation("put the words into reverse order", "' '.join(x.split()[::-1])", "strings"),
    Operation("remove the spaces", "x.replace(' ', '')", "strings"),
    Operation("replace every space by {k} dashes", "x.replace(' ', '-' * {k})", "strings", 1, 4),
    Operation("take its first word", "x.split()[0] if x.split() else ''", "strings"),
    Operation("count its characters", "len(x)", "numbers"),
    Operation("count its words", "len(x.split())", "numbers"),
    Operation("count its different characters", "len(set(x))", "numbers"),
    Operation("list the lengths of its words", "[len(w) for w in x.split()]", "lists"),
)
_NUMBERS = (
    Operation("add {k}", "x + {k}", "numbers", 1, 50),
    Operation("subtract {k}", "x - {k}", "numbers", 1, 50),
    Operation("multiply by {k}", "x * {k}", "numbers", 2, 12),
    Operation("square it", "x * x", "numbers"),
    Operation("take the absolute value", "abs(x)", "numbers"),
    Operation("subtract it from {k}", "{k} - x", "numbers", 1, 50),
    Operation("take the remainder of the division by {k}", "x % {k}", "numbers", 3, 13),
    Operation("divide by {k} and round down", "x // {k}", "numbers", 2, 9),
    Operation("take the larger of it and {k}", "max(x, {k})", "numbers", -5, 10),
    Operation("take the smaller of it and {k}", "min(x, {k})", "numbers", 5, 30),
    Operation("take the sum of its digits", "sum(int(d) for d in str(abs(x)))", "numbers"),
    Operation("list its digits from left to right", "[int(d) for d in str(abs(x))]", "lists"),
)
OPERATIONS: dict[Kind, tuple[Operation, ...]] = {
    "lists": _LISTS, "strings": _STRINGS, "numbers": _NUMBERS,
}  # fmt: skip
TYPES: dict[Kind, str] = {"lists": "list[int]", "strings": "str", "numbers": "int"}
ARGUMENTS: dict[Kind, str] = {
    "lists": "a list of whole numbers", "strings": "a text", "numbers": "a whole number",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chain:
    """Operations in order, on an argument of a kind.

    >>> chain = Chain("numbers", (Operation("add 2", "x + 2", "numbers"),))
    >>> chain.program("f"), chain(5)
    ('def f(x):\\n    return x + 2\\n', 7)
    """

    takes: Kind
    operations: tuple[Operation, ...]

    @property
    def gives(self) -> Kind:
        return self.operations[-1].gives

    @property
    def description(self) -> str:
        """What to do with the argument, as one sentence without its end."""
        return ", then ".join(operation.words for operation in self.operations)

    def program(self, name: str) -> str:
        """A Python function of that name that does it."""
        *before, last = [operation.expression for operation in self.operations]
        lines = [f"    x = {each}\n" for each in before]
        return "".join([f"def {name}(x):\n", *lines, f"    return {last}\n"])

    def __call__(self, value: Any) -> Any:
        """The value of the chain."""
        return self.function()(value)

    def function(self) -> Callable[[Any], Any]:
        """The chain as a Python function; the source is this file's own table and a number."""
        namespace: dict[str, Any] = {}
        exec(self.program("f"), namespace)
        found: Callable[[Any], Any] = namespace["f"]
        return found

    def values(self) -> list[Any]:
        """What it gives for fixed arguments: equal for chains that are the same function."""
        return [*map(self.function(), PROBES[self.takes])]


def draw_argument(draw: random.Random, kind: Kind) -> Any:
    """An argument of a kind."""
    if kind == "lists":
        return [draw.randint(-9, 20) for _ in range(draw.randint(5, 9))]
    if kind == "strings":
        return " ".join(draw.sample(WORDS, draw.randint(2, 4)))
    return draw.choice((-1, 1)) * draw.randint(0, 9999) // draw.choice((1, 10, 100))


def _probes(kind: Kind) -> tuple[Any, ...]:
    draw = random.Random(f"probes of {kind}")
    return tuple(draw_argument(draw, kind) for _ in range(12))


PROBES: dict[Kind, tuple[Any, ...]] = {kind: _probes(kind) for kind in KINDS}
"""Arguments that tell functions apart."""


def draw_chain(draw: random.Random, takes: Kind, length: int) -> Chain | None:
    """A chain of `length` operations, each of which matters; None where this draw gave none."""
    kind, chosen = takes, list[Operation]()
    for _ in range(length):
        chosen.append(draw.choice(OPERATIONS[kind]).with_number(draw))
        kind = chosen[-1].gives
    chain = Chain(takes, tuple(chosen))
    return chain if _all_matter(chain) else None


def _all_matter(chain: Chain) -> bool:
    """Whether it is no constant, not the identity, and no shorter chain does the same."""
    values = chain.values()
    if len({repr(value) for value in values}) < 4 or values == list(PROBES[chain.takes]):
        return False
    return all(values != each.values() for each in _shorter(chain))


def _shorter(chain: Chain) -> list[Chain]:
    """The chain without one of its operations, where the kinds still fit."""
    operations = chain.operations
    found: list[Chain] = []
    for place, operation in enumerate(operations):
        before = operations[place - 1].gives if place else chain.takes
        is_last = place == len(operations) - 1
        rest = operations[:place] + operations[place + 1 :]
        if rest and (is_last or before == operation.gives):
            found.append(Chain(chain.takes, rest))
    return found
