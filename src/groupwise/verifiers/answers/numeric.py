r"""Formulas compared by their values, inside a worker process that can be killed.

Two formulas are the same if they agree at several random points to more digits than either of them
writes down or reaches: 40 digits beyond the digits written and the sizes met on the way. So 1/3 is
not 0.333, pi is not 3.14159265, and no symbol can get lost. Sizes are bounded first; what exceeds
the bounds is an `OversizedError`.
"""

from __future__ import annotations

import ast
import copy
import random
import zlib
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any

from mpmath import mp

from groupwise.verifiers.answers.arithmetic import constant
from groupwise.verifiers.answers.comparing import Exact, Percent, Rule
from groupwise.verifiers.answers.formulas import called, number
from groupwise.verifiers.answers.judging import as_words, read_gold
from groupwise.verifiers.answers.reading import Value, read

MAX_BITS = 12_000
"""Binary orders of magnitude that a value may reach in either direction."""
GUARD = 40
"""Decimal digits of agreement beyond those that a formula writes or reaches."""
POINTS = 16
"""Random assignments to the symbols, of either sign."""
ENOUGH = 3
"""Points at which both formulas must be defined."""


class OversizedError(ValueError):
    """A value beyond the bounds."""


class _UndefinedError(ArithmeticError):
    """No value here, or none that is real."""


Job = tuple[str, str, Percent, tuple[str, ...], bool]
"""Gold answer, given answer, percent policy, the prompt's words, whether letters are units."""


def make() -> Callable[[Job], str]:
    """The function of a worker: `equal`, `different` or `limit` for a `Job`."""

    def judge(job: Job) -> str:
        gold, given, percent, words, letters = job
        rule = Rule(Numeric(), percent, frozenset(words))
        wanted = read_gold(gold)
        assert not isinstance(wanted, str)  # those are decided as they are written
        try:
            same = rule.same(*as_words(wanted, gold, read(given, unit_letters=letters), given))
        except OversizedError:
            return "limit"
        return "equal" if same else "different"

    judge(("x+1", r"\sqrt{x}", "ignore", (), False))
    return judge


class Numeric(Exact):
    """Formulas by their values; regions of the real line by membership."""

    def equal(self, gold: ast.expr, given: ast.expr) -> bool:
        self.undecided = 0
        return super().equal(gold, given) or (bool(self.undecided) and _agree(gold, given))

    def proportional(self, gold: ast.expr, given: ast.expr) -> bool:
        if not _symbols(gold) or not _symbols(given):
            return False
        if any(_agree(each, number(0)) for each in (gold, given)):
            return False
        at_start = [_Fixed().visit(copy.deepcopy(each)) for each in (gold, given)]
        return _agree(
            ast.BinOp(gold, ast.Mult(), at_start[1]), ast.BinOp(given, ast.Mult(), at_start[0])
        )

    def same_region(self, gold: Value, given: Value) -> bool:
        names = [_free(each) for each in (gold, given)]
        if len(names[0] | names[1]) > 1 or any(len(each) > 1 for each in names):
            return False
        try:
            ends = sorted({end for each in (gold, given) for end in _ends(each)})
            probes = [*ends, *((a + b) / 2 for a, b in pairwise(ends))]
            probes += [ends[0] - 1, ends[-1] + 1] if ends else [mp.mpf(0)]
            return all(_holds(gold, each) == _holds(given, each) for each in probes)
        except (_UndefinedError, NotImplementedError):
            return False


class _Fixed(ast.NodeTransformer):
    """Marks the symbols of a formula with a prime: they have one value at all points."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.args = [self.visit(each) for each in node.args]
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(f"{node.id}'")


def _symbols(node: ast.expr) -> set[str]:
    functions = {id(each.func) for each in ast.walk(node) if isinstance(each, ast.Call)}
    return {
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and id(each) not in functions
    }


def _points(symbols: Iterable[str], spread: int) -> list[dict[str, Fraction]]:
    """The same values for the same symbols, of either sign and moderate size.

    Every other point is `spread` times as far from 0.
    """

    def value(name: str, point: int) -> Fraction:
        seed = f"{name.rstrip(chr(39))} {0 if name.endswith(chr(39)) else point}"
        source = random.Random(zlib.crc32(seed.encode()))
        value = Fraction(source.choice((-1, 1, 1)) * source.randint(1009, 9973), 4001)
        return value * spread if point % 2 else value

    return [{name: value(name, point) for name in symbols} for point in range(POINTS)]


def _agree(first: ast.expr, second: ast.expr) -> bool:
    """Whether two formulas have one value, or none, at every point.

    Among the real numbers; if they are defined nowhere there, among the complex ones.
    """
    nodes = [*ast.walk(first), *ast.walk(second)]
    symbols = _symbols(first) | _symbols(second)
    steps = any(called(each) in ("floor", "ceil", "mod") for each in nodes)
    points = _points(symbols, spread=41 if steps else 1) if symbols else [{}]
    written = sum(len(str(constant(each))) for each in nodes if isinstance(each, ast.Constant))
    for real in (False,) if any(called(each) == "i" for each in nodes) else (True, False):
        verdicts = [_same_at(first, second, point, real, written) for point in points]
        known = [verdict for verdict in verdicts if verdict is not None]
        if False in known or len(known) >= min(ENOUGH, len(points)):
            return False not in known
    return False


def _same_at(
    first: ast.expr, second: ast.expr, point: Mapping[str, Fraction], real: bool, written: int
) -> bool | None:
    """Whether two values agree; None where neither is defined."""
    precision = GUARD + written + 20
    while True:
        with mp.workdps(precision):
            reader = _Evaluator(point, real)
            a, b = (reader.defined(each) for each in (first, second))
            if a is None or b is None:
                return None if a is b else False
            if mp.isinf(a) or mp.isinf(b):
                return bool(a == b)
            size, small = max(reader.high, 0) * 0.302, max(-reader.low, 0) * 0.302
            if abs(a - b) > mp.mpf(10) ** (size - precision + 10):
                return False
            needed = int(GUARD + written + 2 * size + small) + 10
            if precision >= needed:
                return True
            precision = needed + 20


class _Evaluator:
    """Values of trees at one point. `high` and `low`: the binary sizes met on the way."""

    def __init__(self, point: Mapping[str, Fraction], real: bool) -> None:
        self.point = point
        self.real = real
        self.high = 0
        self.low = 0

    def defined(self, node: ast.expr) -> Any:
        """The value, or None where there is none."""
        try:
            return self.value(node)
        except _UndefinedError:
            return None

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant():
                given = constant(node)
                return self.sized(mp.mpf(given.numerator) / given.denominator)
            case ast.Name():
                given = self.point[node.id]
                return mp.mpf(given.numerator) / given.denominator
            case ast.UnaryOp():
                return -self.value(node.operand)
            case ast.BinOp():
                a, b = self.value(node.left), self.value(node.right)
                if mp.isinf(a) or mp.isinf(b):
                    raise _UndefinedError
                match node.op:
                    case ast.Add():
                        return self.sized(a + b, low=False)
                    case ast.Sub():
                        return self.sized(a - b, low=False)
                    case ast.Mult():
                        return self.sized(a * b)
                    case ast.Div():
                        return self.divided(a, b)
                return self.power(a, b)
            case ast.Call():
                values = [self.value(each) for each in node.args]
                if any(mp.isinf(each) for each in values):
                    raise _UndefinedError
                return self.function(called(node), *values)
        raise NotImplementedError(type(node).__name__)

    def sized(self, value: Any, low: bool = True) -> Any:
        """The value, with its size noted; differences may be small by rounding alone."""
        if not mp.isfinite(value):
            raise _UndefinedError
        if value != 0:
            size = int(mp.mag(value))
            if abs(size) > MAX_BITS:
                raise OversizedError("a value with too many digits")
            self.high = max(self.high, size)
            self.low = min(self.low, size) if low else self.low
        return value

    def tiny(self, value: Any) -> bool:
        """Whether a value is 0 up to rounding."""
        return bool(value == 0 or int(mp.mag(value)) < self.low - 0.6 * mp.prec)

    def divided(self, a: Any, b: Any) -> Any:
        if self.tiny(b):
            raise _UndefinedError
        return self.sized(a / b)

    def power(self, base: Any, exponent: Any) -> Any:
        if self.tiny(base):
            if mp.re(exponent) <= 0:
                raise _UndefinedError
            return mp.mpf(0)
        if abs(exponent) * (abs(int(mp.mag(base))) + 1) > 2 * MAX_BITS:
            raise OversizedError("a power with too many digits")
        whole = mp.isint(exponent)
        if self.real and base < 0 and not whole:
            odd = next(
                (q for q in (3, 5, 7, 9) if self.tiny(exponent * q - mp.nint(exponent * q))), 0
            )
            if not odd:
                raise _UndefinedError
            sign = -1 if int(mp.nint(exponent * odd)) % 2 else 1
            return sign * self.sized(mp.power(-base, exponent))
        return self.sized(base ** int(exponent) if whole else mp.power(base, exponent))

    def root(self, index: Any, value: Any) -> Any:
        return self.power(value, self.divided(mp.mpf(1), index))

    def log(self, value: Any) -> Any:
        if self.tiny(value) or (self.real and value < 0):
            raise _UndefinedError
        return mp.log(value)

    def exp(self, value: Any) -> Any:
        if abs(value) > MAX_BITS:
            raise OversizedError("an exponential with too many digits")
        return self.sized(mp.exp(value))

    def whole(self, value: Any, rounding: Callable[[Any], Any]) -> Any:
        if mp.im(value) != 0:
            raise _UndefinedError
        nearest = mp.nint(mp.re(value))
        return nearest if self.tiny(mp.re(value) - nearest) else rounding(mp.re(value))

    def factorial(self, value: Any) -> Any:
        if abs(value) > 1500:
            raise OversizedError("a factorial beyond 1500!")
        if mp.isint(value) and mp.re(value) < 0:
            raise _UndefinedError
        return self.sized(mp.gamma(value + 1))

    def inverse(self, name: str, value: Any) -> Any:
        if self.real and name != "atan" and abs(value) > 1:
            raise _UndefinedError
        return getattr(mp, name)(value)

    def function(self, name: str, x: Any = None, y: Any = None) -> Any:
        if name.startswith("apply "):  # an unknown function: any fixed one without identities
            one, two, three = (
                mp.mpf(zlib.crc32(f"{name}{k}".encode()) % 1000 + 500) / 1000 for k in range(3)
            )
            return mp.sin(one * x + two) + three * x * x
        try:
            return _FUNCTIONS[name](self, x, y)
        except KeyError:
            raise NotImplementedError(name) from None


_FUNCTIONS: dict[str, Callable[[_Evaluator, Any, Any], Any]] = {
    "pi": lambda s, x, y: +mp.pi,
    "e": lambda s, x, y: +mp.e,
    "i": lambda s, x, y: mp.mpc(0, 1),
    "inf": lambda s, x, y: mp.inf,
    "sin": lambda s, x, y: mp.sin(x),
    "cos": lambda s, x, y: mp.cos(x),
    "tan": lambda s, x, y: s.divided(mp.sin(x), mp.cos(x)),
    "cot": lambda s, x, y: s.divided(mp.cos(x), mp.sin(x)),
    "sec": lambda s, x, y: s.divided(mp.mpf(1), mp.cos(x)),
    "csc": lambda s, x, y: s.divided(mp.mpf(1), mp.sin(x)),
    "arcsin": lambda s, x, y: s.inverse("asin", x),
    "arccos": lambda s, x, y: s.inverse("acos", x),
    "arctan": lambda s, x, y: s.inverse("atan", x),
    "sinh": lambda s, x, y: (s.exp(x) - s.exp(-x)) / 2,
    "cosh": lambda s, x, y: (s.exp(x) + s.exp(-x)) / 2,
    "tanh": lambda s, x, y: s.divided(s.exp(x) - s.exp(-x), s.exp(x) + s.exp(-x)),
    "exp": lambda s, x, y: s.exp(x),
    "ln": lambda s, x, y: s.log(x),
    "log": lambda s, x, y: s.log(x) if y is None else s.divided(s.log(x), s.log(y)),
    "lg": lambda s, x, y: s.divided(s.log(x), mp.log(10)),
    "sqrt": lambda s, x, y: s.root(2, x),
    "root": lambda s, x, y: s.root(x, y),
    "abs": lambda s, x, y: abs(x),
    "floor": lambda s, x, y: s.whole(x, mp.floor),
    "ceil": lambda s, x, y: s.whole(x, mp.ceil),
    "mod": lambda s, x, y: x - y * s.whole(s.divided(x, y), mp.floor),
    "factorial": lambda s, x, y: s.factorial(x),
    "binomial": lambda s, x, y: s.divided(s.factorial(x), s.factorial(y) * s.factorial(x - y)),
    "degrees": lambda s, x, y: x * mp.pi / 180,
}

_REALS = r"\mathbb R"
_TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "!=": lambda a, b: a != b,
}


def _parts(value: Value) -> list[Value]:
    return [value, *(part for each in value.items for part in _parts(each))]


def _free(value: Value) -> set[str]:
    """The symbols a set of numbers speaks of; that of a set-builder is bound."""
    found = {name for each in _parts(value) if each.node for name in _symbols(each.node)}
    return set() if value.kind == "builder" and len(found - {_REALS}) == 1 else found - {_REALS}


def _real(value: Value) -> Any:
    """An end of an interval, rounded so that one number has one form."""
    if value.kind != "expression" or value.unit or value.node is None or _symbols(value.node):
        raise _UndefinedError
    found = _Evaluator({}, True).value(value.node)
    return found if mp.isinf(found) else mp.mpf(mp.nstr(found, 14))


def _ends(value: Value) -> set[Any]:
    leaves = [each for each in _parts(value) if each.node and not _symbols(each.node)]
    return {end for end in map(_real, leaves) if not mp.isinf(end)}


def _holds(value: Value, x: Any) -> bool:
    """Whether a number is in the set of reals that a value describes."""
    match value.kind:
        case "set":
            return x in map(_real, value.items)
        case "group" if len(value.items) == 2 and value.name in ("()", "[]", "(]", "[)"):
            low, high = map(_real, value.items)
            ends = [end for end, bracket in zip((low, high), value.name) if bracket in "[]"]
            if not low < high or any(map(mp.isinf, ends)):
                raise _UndefinedError
            return low < x < high or x in ends
        case "expression" if isinstance(value.node, ast.Name) and value.node.id == _REALS:
            return True
        case "sets":
            found = _holds(value.items[0], x)
            for operator, other in zip(value.operators, value.items[1:]):
                there = _holds(other, x)
                found = {"|": found or there, "&": found and there}.get(operator, found > there)
            return found
        case "list" if value.name in ("and", "or"):
            each = [_holds(item, x) for item in value.items]
            return all(each) if value.name == "and" else any(each)
        case "relation" if value.operators == ("in",):
            return _holds(value.items[1], x)
        case "relation" if set(value.operators) <= set(_TESTS):
            chain = [x if isinstance(side.node, ast.Name) else _real(side) for side in value.items]
            return all(_TESTS[op](a, b) for op, (a, b) in zip(value.operators, pairwise(chain)))
        case "builder":
            bound, condition = value.items
            symbol = bound.items[0] if bound.kind == "relation" else bound
            if not isinstance(symbol.node, ast.Name):
                raise _UndefinedError
            return (bound is symbol or _holds(bound, x)) and _holds(condition, x)
    raise _UndefinedError
