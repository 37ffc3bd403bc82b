r"""Whether two answers that were read are the same: structure by structure, formula by formula.

Both sides must have the same kind of structure with the same members; inequalities in one symbol
are read as intervals. Nothing is judged by truth: `2+2=5` is not `2+2=4`, and `\log_2 8=3` is only
itself.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from groupwise.verifiers.answers.evaluator import (
    TooLargeError,
    UndecidedError,
    agree,
    call,
    proportional,
    rational,
    symbols,
)
from groupwise.verifiers.answers.reading import Value
from groupwise.verifiers.answers.units import canonical, same_unit, singular

_FLIPPED = {">": "<", ">=": "<="}
_GREATEST = Value("expression", node=call("inf"))
_LEAST = Value("expression", node=ast.UnaryOp(ast.USub(), call("inf")))


@dataclass(frozen=True, slots=True)
class Rule:
    """How answers are compared. The gold answer is always the first argument.

    `exact`: by rational arithmetic alone; what that cannot settle is noted in `undecided`, and else
    raises TooLargeError beyond the bounds. Of `tolerance` and `relative_tolerance`, a share of
    gold's size, the larger one counts. `words` are the prompt's, which may stand behind a number.
    """

    exact: bool = True
    tolerance: float = 0.0
    relative_tolerance: float = 0.0
    words: Collection[str] = ()
    undecided: list[bool] = field(default_factory=list[bool])

    def same(self, gold: Value, given: Value) -> bool:
        """Whether `given` is `gold`."""
        gold, given = self.unnamed(gold, given)
        if gold.kind == given.kind == "expression":
            return self._quantities(gold, given)
        if {gold.kind, given.kind} <= {"list", "set"}:
            return self._members(gold, given)
        if gold.kind != given.kind:
            intervals = _intervals(gold), _intervals(given)
            return intervals[0].kind == intervals[1].kind and self.same(*intervals)
        match gold.kind:
            case "text":
                return same_words(gold.name, given.name)
            case "relation":
                return self._relations(gold, given)
            case "sets":
                return self._sets(_intervals(gold), _intervals(given))
        return gold.name == given.name and self._all(gold.items, given.items)

    def unnamed(self, gold: Value, given: Value) -> tuple[Value, Value]:
        """Both without `x =` or `x in` before them if only one of the two has it."""
        if (gold.kind == "relation") == (given.kind == "relation") and not (
            _bounds(given, gold) or _bounds(gold, given)
        ):
            return gold, given
        return self._named_value(gold), self._named_value(given)

    def mismatch(self, gold: Value, given: Value) -> str:
        """Why `given` is not an answer of gold's kind; empty if it is."""
        gold, given = self.unnamed(gold, given)
        if _SHAPES[gold.kind] != _SHAPES[given.kind]:
            return f"{_SHAPES[given.kind]}, not {_SHAPES[gold.kind]}"
        if given.unit and not gold.unit and not self._is_unit(given.unit):
            return f"with the words {given.unit[:40]!r}"
        return ""

    def _decided(self, decide: Callable[[], bool], first: Any = None, second: Any = None) -> bool:
        """What `decide` says; of what it cannot settle, whether both trees are alike."""
        try:
            return decide()
        except (UndecidedError, TooLargeError):
            if first is not None and ast.dump(first) == ast.dump(second):
                return True
            if not self.exact:
                raise
            self.undecided.append(True)
            return False
        except (ValueError, ZeroDivisionError):
            return False

    def _all(self, gold: Sequence[Value], given: Sequence[Value]) -> bool:
        return len(gold) == len(given) and all(map(self.same, gold, given))

    def _quantities(self, gold: Value, given: Value) -> bool:
        if gold.unit and given.unit:
            fits = same_unit(gold.unit, given.unit)
        else:
            fits = self._is_unit(gold.unit or given.unit)
        first, second = gold.node, given.node
        assert first is not None
        assert second is not None
        if fits and (self.tolerance or self.relative_tolerance):
            a, b = rational(first), rational(second)
            if a is not None and b is not None:
                share = Fraction(str(self.relative_tolerance)) * abs(a)
                return abs(a - b) <= max(Fraction(str(self.tolerance)), share)
        return fits and self._decided(lambda: agree(first, second, exact=self.exact), first, second)

    def _is_unit(self, unit: str) -> bool:
        known = not unit or canonical(unit) is not None
        return known or all(singular(word) in self.words for word in unit.split())

    def _members(self, gold: Value, given: Value) -> bool:
        """The same members in any order, as often; a set's own repetitions do not count."""
        if gold.kind == given.kind == "list" and not _same_joiner(gold, given):
            return False
        names = [_names(gold), _names(given)]
        if not names[0]:  # of `x_1=2, x_2=3` one name
            names[1] = {re.sub(r"_\w+", "", name) for name in names[1]}
        if not all(names) and max(map(len, names)) > 1:
            return False  # `x=1, y=2` says more than `1, 2`
        return self._matched(self._distinct(gold), self._distinct(given))

    def _matched(self, wanted: Sequence[Value], found: Sequence[Value]) -> bool:
        rest = list(found)
        for each in wanted:
            place = next((p for p, other in enumerate(rest) if self.same(each, other)), None)
            if place is None or len(wanted) != len(found):
                return False
            rest.pop(place)
        return not rest

    def _distinct(self, value: Value) -> Sequence[Value]:
        if value.kind == "list":
            return value.items
        found: list[Value] = []
        for item in value.items:
            if not any(self.same(item, each) for each in found):
                found.append(item)
        return found

    def _relations(self, gold: Value, given: Value) -> bool:
        gold, given = _directed(gold), _directed(given)
        if gold.operators != given.operators:
            return False
        if self._all(gold.items, given.items):
            return True
        if set(gold.operators) != {"="}:
            return False
        if len(gold.items) == 2 and self._all(gold.items, given.items[::-1]):
            return True
        first, second = _difference(gold), _difference(given)
        if first is None or second is None:
            return False
        return self._decided(lambda: proportional(first, second, exact=self.exact))

    def _sets(self, gold: Value, given: Value) -> bool:
        if gold.operators != given.operators:
            return False
        if len(set(gold.operators)) == 1 and gold.operators[0] in "|&":
            return self._matched(gold.items, given.items)
        return self._all(gold.items, given.items)

    def _named_value(self, value: Value) -> Value:
        r"""The last side of `x = 5`, `f(x) = 3 + 4 = 7`, `x \in [0,1]`; else the value itself."""
        if value.kind != "relation" or set(value.operators) not in ({"="}, {"in"}):
            return value
        *sides, last = value.items
        named = _is_name(sides[0])
        if value.operators == ("in",):
            return last if named else value
        others = sides[1:] if named else sides
        return last if all(self.same(side, last) for side in others) else value


_SHAPES = {
    "expression": "a value", "group": "a tuple or interval", "set": "a list", "list": "a list",
    "builder": "a set", "sets": "a set", "text": "words", "relation": "a relation",
    "matrix": "a matrix",
}  # fmt: skip
"""The kinds in words, for a reason."""


def same_words(gold: str, given: str) -> bool:
    """Whether two texts are the same words: a word may begin with a capital or be all capitals.

    Letters keep their case where gold is not an ordinary word: `AB`, `NaCl`, `p`.

    >>> same_words("the dog", "The Dog"), same_words("AB", "ab"), same_words("Yes", "YES")
    (True, False, True)
    """
    wanted, found = gold.strip(" .\"'").split(), given.strip(" .\"'").split()
    if len(wanted) != len(found):
        return False
    for first, second in zip(wanted, found):
        word = re.sub("[-'’,;]", "", first)
        ordinary = len(word) > 1 and word.isalpha() and (word.islower() or word.istitle())
        forms = (first.lower(), first.upper(), first.title(), first.capitalize())
        if first != second and not (ordinary and second in forms):
            return False
    return True


def _bounds(inequality: Value, element: Value) -> bool:
    r"""Whether `element` is `x \in ...` and `inequality` one about the same `x`."""
    if element.operators != ("in",) or not set(inequality.operators) <= {*"<>", "<=", ">="}:
        return False
    nodes = [side.node for side in (element.items[0], *inequality.items)]
    name, *sides = [ast.dump(node) if node is not None else "" for node in nodes]
    return bool(name) and name in sides


def _is_name(value: Value) -> bool:
    if value.kind == "group":
        return all(map(_is_name, value.items))
    if value.kind == "text":
        return True
    if value.unit or value.node is None:
        return False
    named = (ast.Name, ast.BinOp, ast.Mult, ast.Div, ast.expr_context)
    return all(isinstance(each, named) for each in ast.walk(value.node))


def _names(value: Value) -> set[str]:
    """What is before the equals signs of the members."""
    sides = [item.items[0] for item in value.items if item.kind == "relation"]
    return {ast.dump(side.node) if side.node else side.name for side in sides}


def _same_joiner(gold: Value, given: Value) -> bool:
    """Whether `and` and `or` agree, which matters between inequalities alone."""
    if gold.name == given.name or "," in (gold.name, given.name):
        return True
    relations = [item for item in gold.items if item.kind == "relation"]
    return all(set(item.operators) == {"="} for item in relations)


def _directed(relation: Value) -> Value:
    """The relation with `<` in place of `>`."""
    if not set(relation.operators) <= set(_FLIPPED):
        return relation
    operators = tuple(_FLIPPED[each] for each in relation.operators[::-1])
    return Value("relation", relation.items[::-1], operators=operators)


def _difference(relation: Value) -> ast.expr | None:
    left, right = relation.items[0], relation.items[-1]
    if len(relation.items) != 2 or left.node is None or right.node is None:
        return None
    if left.unit or right.unit:
        return None
    return ast.BinOp(left.node, ast.Sub(), right.node)


def _intervals(value: Value) -> Value:
    r"""Inequalities in one symbol, a set-builder and `\mathbb R` as intervals; others unchanged."""
    match value.kind:
        case "expression" if _is_line(value):
            return Value("group", (_LEAST, _GREATEST), "()")
        case "builder" if _variables(value.items[0]) == _variables(value.items[1]):
            return _intervals(value.items[1])
        case "list" if value.name == "or" and len(_variables(value)) == 1:
            parts = tuple(map(_intervals, value.items))
            if all(each.kind == "group" for each in parts):
                return Value("sets", parts, operators=("|",) * (len(parts) - 1))
        case "relation" if set(value.operators) <= {"<", "<=", ">", ">="}:
            value = _directed(value)
            items, marks = value.items, value.operators
            if isinstance(items[0].node, ast.Name):
                items, marks = (_LEAST, *items), ("<", *marks)
            if isinstance(items[-1].node, ast.Name):
                items, marks = (*items, _GREATEST), (*marks, "<")
            if len(items) == 3 and isinstance(items[1].node, ast.Name):
                ends = (items[0], items[2])
                if not any(map(_variables, ends)):
                    brackets = f"{'(['[marks[0] == '<=']}{')]'[marks[1] == '<=']}"
                    return Value("group", ends, brackets)
    return value


def _is_line(value: Value) -> bool:
    return isinstance(value.node, ast.Name) and value.node.id == r"\mathbb R"


def _variables(value: Value) -> set[str]:
    own = symbols(value.node) if value.node else set()
    return own.union(*map(_variables, value.items))
