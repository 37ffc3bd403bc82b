r"""Whether two answers that were read are the same: structure by structure, formula by formula.

Both sides must have the same kind of structure with the same members; where they have formulas, a
`Formulas` decides: `Exact` here (rational arithmetic, nothing else), `numeric.Numeric` in a worker.
Nothing is judged by truth: `2+2=5` is not `2+2=4`, and `\log_2 8=3` is only itself.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Protocol

from groupwise.verifiers.answers.arithmetic import Polynomial, evaluate
from groupwise.verifiers.answers.formulas import applied_alike
from groupwise.verifiers.answers.reading import Value
from groupwise.verifiers.answers.units import canonical, same_unit, singular

Percent = Literal["ignore", "divide"]

_FLIPPED = {">": "<", ">=": "<="}
_INEQUALITIES = {"<", "<=", ">", ">=", "!="}


class Formulas(Protocol):
    """How formulas are compared. Each method may only say True when it is certain."""

    def equal(self, gold: ast.expr, given: ast.expr) -> bool:
        """Whether two formulas have the same value for all values of their symbols."""
        ...

    def proportional(self, gold: ast.expr, given: ast.expr) -> bool:
        """Whether one formula is a constant, not 0, times the other and both have symbols."""
        ...

    def same_region(self, gold: Value, given: Value) -> bool:
        """Whether two sets of real numbers, written in different ways, have the same members."""
        ...


class Exact:
    """Rational arithmetic on polynomials; `undecided` counts what it could not settle."""

    def __init__(self) -> None:
        self.undecided = 0

    def equal(self, gold: ast.expr, given: ast.expr) -> bool:
        try:
            return evaluate(gold) == evaluate(given)
        except ZeroDivisionError:
            return False
        except ValueError:
            pass
        if ast.dump(gold) == ast.dump(given):
            return True
        self.undecided += 1
        return False

    def proportional(self, gold: ast.expr, given: ast.expr) -> bool:
        first, second = exact(gold), exact(given)
        if first is None or second is None:
            self.undecided += 1
            return False
        if first.terms.keys() != second.terms.keys() or first.constant is not None:
            return False
        return len({first.terms[key] / second.terms[key] for key in first.terms}) == 1

    def same_region(self, gold: Value, given: Value) -> bool:
        self.undecided += _may_be_region(gold) and _may_be_region(given)
        return False


def _may_be_region(value: Value) -> bool:
    return value.kind in ("group", "set", "sets", "builder", "relation", "list") or (
        isinstance(value.node, ast.Name) and value.node.id == r"\mathbb R"
    )


def exact(node: ast.expr) -> Polynomial | None:
    """The polynomial that a formula is, None if it is none or too large."""
    try:
        return evaluate(node)
    except (ValueError, ZeroDivisionError):
        return None


@dataclass(frozen=True, slots=True)
class Rule:
    """How answers are compared; `words` are the prompt's, which may stand behind a number."""

    formulas: Formulas
    percent: Percent = "ignore"
    words: Collection[str] = ()
    whole_units: bool = False

    def same(self, gold: Value, given: Value) -> bool:
        """Whether `given` is `gold`. The gold answer is always the first argument."""
        gold, given = self.unnamed(gold, given)
        kinds = {gold.kind, given.kind}
        if gold.kind == given.kind == "expression":
            return self._quantities(gold, given)
        if "based" in kinds:
            return self._based(gold, given)
        if kinds <= {"list", "set"}:
            return self._members(gold, given)
        if gold.kind == "mixed" and given.kind == "list" and given.name == "and":
            return self.same(gold, Value("mixed", given.items))
        if gold.kind != given.kind:
            if (coordinates := _coordinates(gold, given)) is not None:
                return self._all(coordinates, given.items)
            if (coordinates := _coordinates(given, gold)) is not None:
                return self._all(gold.items, coordinates)
            return self.formulas.same_region(gold, given)
        match gold.kind:
            case "text":
                return same_words(gold.name, given.name)
            case "relation":
                return self._relations(gold, given)
            case "sets":
                return self._sets(gold, given) or self.formulas.same_region(gold, given)
            case "builder":
                return self._all(gold.items, given.items) or self.formulas.same_region(gold, given)
            case "mixed":
                return Rule(self.formulas, self.percent, (), True)._all(gold.items, given.items)
        return gold.name == given.name and self._all(gold.items, given.items)

    def unnamed(self, gold: Value, given: Value) -> tuple[Value, Value]:
        """Both without `x =` or `x in` before them if only one of the two has it."""
        if (gold.kind == "relation") != (given.kind == "relation"):
            return _named_value(gold, self), _named_value(given, self)
        if _bounds(given, gold) or _bounds(gold, given):
            return _named_value(gold, self), _named_value(given, self)
        return gold, given

    def mismatch(self, gold: Value, given: Value) -> str:
        """Why `given` is not an answer of gold's kind; empty if it is."""
        gold, given = self.unnamed(gold, given)
        if _shape(gold) != _shape(given):
            return f"{_shape(given)}, not {_shape(gold)}"
        if given.unit and not gold.unit and not self._is_unit(given.unit):
            return f"with the words {given.unit[:40]!r}"
        return ""

    def _all(self, gold: Sequence[Value], given: Sequence[Value]) -> bool:
        return len(gold) == len(given) and all(map(self.same, gold, given))

    def _quantities(self, gold: Value, given: Value) -> bool:
        assert gold.node is not None
        assert given.node is not None
        if self.percent == "divide":
            gold, given = _share(gold), _share(given)
        if gold.unit and given.unit:
            fits = same_unit(gold.unit, given.unit)
        elif self.whole_units:
            fits = gold.unit == given.unit
        else:
            fits = self._is_unit(gold.unit or given.unit)
        assert gold.node is not None
        assert given.node is not None
        return fits and self.formulas.equal(*applied_alike(gold.node, given.node))

    def _is_unit(self, unit: str) -> bool:
        return (
            not unit
            or canonical(unit) is not None
            or all(singular(word) in self.words for word in unit.split())
        )

    def _members(self, gold: Value, given: Value) -> bool:
        """The same members in any order, as often; a set's own repetitions do not count."""
        if gold.kind == given.kind == "list" and not _same_joiner(gold, given):
            return False
        names = [_names(gold), _names(given) if _names(gold) else _letters(given)]
        if not all(names) and max(map(len, names)) > 1:
            return False  # `x=1, y=2` says more than `1, 2`
        wanted, found = self._distinct(gold), self._distinct(given)
        if len(wanted) != len(found):
            return False
        return self._matched(wanted, found)

    def _matched(self, wanted: Sequence[Value], found: Sequence[Value]) -> bool:
        rest = list(found)
        for each in wanted:
            place = next((p for p, other in enumerate(rest) if self.same(each, other)), None)
            if place is None:
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
        if set(gold.operators) == {"="}:
            if len(gold.items) == 2 and self._all(gold.items, given.items[::-1]):
                return True
            first, second = _difference(gold), _difference(given)
            if first is not None and second is not None:
                return self.formulas.proportional(first, second)
        return False

    def _sets(self, gold: Value, given: Value) -> bool:
        if gold.operators != given.operators:
            return False
        if len(set(gold.operators)) == 1 and gold.operators[0] in "|&":
            return len(gold.items) == len(given.items) and self._matched(gold.items, given.items)
        return self._all(gold.items, given.items)

    def _based(self, gold: Value, given: Value) -> bool:
        """Digits with their base; the gold digits alone too, or the value of gold without base."""
        if gold.kind == given.kind:
            return (gold.name, gold.operators) == (given.name, given.operators)
        based, other = (gold, given) if gold.kind == "based" else (given, gold)
        number = None if other.kind != "expression" or other.unit else exact(other.node or _NONE)
        if number is None or number.constant is None:
            return False
        base = int(based.operators[0])
        if based is given:
            return number.constant == int(based.name, base)
        return based.name.isdigit() and number.constant == int(based.name)


_NONE = ast.Name("")


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
        letters = sum(map(str.isalpha, first))
        ordinary = letters > 1 and (first.islower() or first.istitle())
        forms = {first.lower(), first.upper(), first.title()}
        if re.search(r"[^\W\d_]{2}", first):
            forms.add(first.capitalize())
        if first != second and not (ordinary and second in forms):
            return False
    return True


def _shape(value: Value) -> str:
    """The kind in words, for a reason."""
    names = {"expression": "a value", "group": "a tuple or interval", "set": "a list",
             "list": "a list", "builder": "a set", "sets": "a set", "text": "words",
             "relation": "a relation", "matrix": "a matrix", "mixed": "several parts",
             "based": "a value"}  # fmt: skip
    return names[value.kind]


def _named_value(value: Value, rule: Rule) -> Value:
    r"""The last side of `x = 5`, `f(x) = 3 + 4 = 7`, `x \in [0,1]`; the value itself otherwise."""
    *sides, last = value.items if value.kind == "relation" else (value,)
    if not sides or set(value.operators) not in ({"="}, {"in"}):
        return value
    named = _is_name(sides[0])
    others = sides[1:] if named else sides
    if value.operators == ("in",):
        return last if named else value
    return last if all(rule.same(side, last) for side in others) else value


def _bounds(inequality: Value, element: Value) -> bool:
    r"""Whether `element` is `x \in ...` and `inequality` one about the same `x`."""
    if element.operators != ("in",) or not set(inequality.operators) <= _INEQUALITIES:
        return False
    nodes = [side.node for side in (element.items[0], *inequality.items)]
    name, *sides = [ast.dump(node) if node is not None else "" for node in nodes]
    return bool(name) and name in sides


def _is_name(value: Value) -> bool:
    if value.kind == "group":
        return all(map(_is_name, value.items))
    if value.kind == "text":
        return True
    if value.kind != "expression" or value.unit or value.node is None:
        return False
    node = value.node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id.startswith("apply ")
    return all(
        isinstance(each, (ast.Name, ast.BinOp, ast.Mult, ast.Div, ast.expr_context))
        for each in ast.walk(node)
    )


def _coordinates(gold: Value, given: Value) -> tuple[Value, ...] | None:
    """Of `x=1, y=2` against `(1,2)` the values in the order of their names; None otherwise."""
    if gold.kind != "list" or given.kind != "group" or given.name != "()":
        return None
    named: dict[str, Value] = {}
    for item in gold.items:
        if item.kind != "relation" or item.operators != ("=",):
            return None
        name = item.items[0].node
        if not isinstance(name, ast.Name) or name.id in named:
            return None
        named[name.id] = item.items[1]
    return tuple(named[name] for name in sorted(named)) if len(named) > 1 else None


def _share(value: Value) -> Value:
    if value.unit != "%" or value.node is None:
        return value
    hundred = ast.Constant(Fraction(100))  # type: ignore[arg-type]
    return Value("expression", node=ast.BinOp(value.node, ast.Div(), hundred))


def _names(value: Value) -> set[str]:
    """What is before the equals signs of the members."""
    sides = [item.items[0] for item in value.items if item.kind == "relation"]
    return {ast.dump(side.node) if side.node else side.name for side in sides}


def _letters(value: Value) -> set[str]:
    """The names before the equals signs without their indices: of `x_1=2, x_2=3`, one."""
    return {re.sub(r"_\w+", "", name) for name in _names(value)}


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
