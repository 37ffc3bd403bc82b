r"""The one evaluator of formulas: exact fractions while they last, mpmath's numbers beyond them.

Nothing is executed: an `ast` tree is walked, with its digits, powers and sizes bounded. With
`exact` only rational arithmetic is done, and what needs more is `UndecidedError`. Two formulas are
the same if they agree at random points, exactly or to 40 digits more than they write or reach: so
1/3 is not 0.333, and no symbol can get lost.
"""

from __future__ import annotations

import ast
import math
import operator
import random
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from fractions import Fraction
from functools import partial
from typing import Any

from mpmath import mp

MAX_BITS = 12_000
"""Bits of a numerator or denominator, and binary orders of magnitude of any other value."""
GUARD = 40
"""Decimal digits of agreement beyond those that a formula writes or reaches."""
MAX_DEPTH = 250
"""Operations inside each other."""
POINTS = 16
"""Random assignments to the symbols, of either sign; a quarter of them where all is exact."""
ENOUGH = 3
"""Points at which both formulas must be defined."""

Point = Mapping[str, Fraction]


class TooLargeError(ValueError):
    """A value beyond the bounds."""


class UndecidedError(ValueError):
    """It takes more than rational arithmetic."""


class UndefinedError(ZeroDivisionError):
    """No value here, or none that is real."""


def number(value: Fraction | int) -> ast.Constant:
    """A leaf of a tree."""
    return ast.Constant(Fraction(value))  # type: ignore[arg-type]


def call(name: str, *arguments: ast.expr) -> ast.Call:
    """A function of formulas; without any, a constant such as pi."""
    return ast.Call(ast.Name(name), list(arguments), [])


def called(node: ast.AST | None) -> str:
    """The name of the function that a node is, else nothing."""
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def symbols(node: ast.expr) -> set[str]:
    """The names of a formula that are not functions."""
    functions = {id(each.func) for each in ast.walk(node) if isinstance(each, ast.Call)}
    names = (each for each in ast.walk(node) if isinstance(each, ast.Name))
    return {each.id for each in names if id(each) not in functions}


def check_depth(node: ast.AST) -> None:
    """Raises TooLargeError for a tree that is too deep to be walked recursively."""
    level: list[ast.AST] = [node]
    for _ in range(MAX_DEPTH):
        level = [child for each in level for child in ast.iter_child_nodes(each)
                 if isinstance(child, ast.expr)]  # fmt: skip
        if not level:
            return
    raise TooLargeError(f"more than {MAX_DEPTH} operations inside each other")


def constant(node: ast.Constant) -> Fraction:
    """The number of a leaf; `ValueError` for a text or anything else."""
    if not isinstance(node.value, (int, Fraction)) or isinstance(node.value, bool):
        raise ValueError(f"{node.value!r:.40} is not a number")
    return Fraction(node.value)


def evaluate(node: ast.expr) -> Fraction:
    """The exact value of a tree of numbers.

    `ValueError` for a name or a value that is not rational (`TooLargeError` beyond the bounds);
    `ZeroDivisionError` where there is none.

    >>> evaluate(ast.BinOp(number(8), ast.Div(), number(6)))
    Fraction(4, 3)
    """
    value = Evaluator({}).value(node)
    if not isinstance(value, Fraction):
        raise ValueError("an infinity")
    return value


def rational(node: ast.expr) -> Fraction | None:
    """`evaluate`, with None where there is no rational value."""
    try:
        return evaluate(node)
    except (ValueError, ZeroDivisionError):
        return None


class Evaluator:
    """Values of trees at one point.

    A value is a Fraction, a number of mpmath's, or an infinite float alone. `high` and `low` are
    the binary sizes of mpmath's numbers that were met on the way.
    """

    def __init__(self, point: Point, *, exact: bool = True, real: bool = True) -> None:
        self.point = point
        self.exact = exact
        self.real = real
        self.high = 0
        self.low = 0

    def defined(self, node: ast.expr) -> Any:
        """The value, or None where there is none."""
        try:
            return self.value(node)
        except ZeroDivisionError:
            return None

    def value(self, node: ast.expr) -> Any:
        """The value; the errors of `evaluate`, and `UndecidedError`."""
        match node:
            case ast.Constant():
                return self.kept(constant(node))
            case ast.Name():
                if node.id not in self.point:
                    raise ValueError(f"{node.id} is not a number")
                return self.point[node.id]
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                value = self.value(node.operand)
                return -value if isinstance(node.op, ast.USub) else value
            case ast.BinOp():
                return self.combined(node.op, self.value(node.left), self.value(node.right))
            case ast.Call() if called(node):
                values = [self.value(each) for each in node.args]
                if any(isinstance(each, float) for each in values):
                    raise UndefinedError("an infinity in a formula")
                return self.function(called(node), *values)
        raise ValueError(f"{type(node).__name__} is not arithmetic")

    def combined(self, op: ast.operator, a: Any, b: Any) -> Any:
        """The result of an operator."""
        if isinstance(a, float) or isinstance(b, float):
            raise UndefinedError("an infinity in a formula")
        if isinstance(op, ast.Pow):
            return self.power(a, b)
        if type(op) not in _OPERATORS:
            raise ValueError(f"{type(op).__name__} is not arithmetic")
        if isinstance(op, ast.Div) and self.tiny(b):
            raise UndefinedError("division by zero")
        if not (isinstance(a, Fraction) and isinstance(b, Fraction)):
            a, b = self.inexact(a), self.inexact(b)
        return self.kept(_OPERATORS[type(op)](a, b), isinstance(op, (ast.Mult, ast.Div)))

    def divided(self, a: Any, b: Any) -> Any:
        return self.combined(ast.Div(), a, b)

    def kept(self, value: Any, low: bool = True) -> Any:
        """The value, with its size bounded and noted; differences may be small by rounding."""
        if isinstance(value, Fraction):
            if max(value.numerator.bit_length(), value.denominator.bit_length()) <= MAX_BITS:
                return value
            if self.exact:
                raise TooLargeError("a number with too many digits")
            return self.inexact(value)
        if not mp.isfinite(value):
            raise UndefinedError("not finite")
        if value != 0:
            size = int(mp.mag(value))
            if abs(size) > MAX_BITS:
                raise TooLargeError("a value with too many digits")
            self.high = max(self.high, size)
            self.low = min(self.low, size) if low else self.low
        return value

    def inexact(self, value: Any) -> Any:
        """The value as a number of mpmath's."""
        if self.exact:
            raise UndecidedError("not a rational number")
        if isinstance(value, Fraction):
            return self.kept(mp.mpf(value.numerator) / value.denominator)
        return value

    def tiny(self, value: Any) -> bool:
        """Whether a value is 0 up to rounding."""
        if isinstance(value, Fraction):
            return value == 0
        return bool(value == 0 or int(mp.mag(value)) < self.low - 0.6 * mp.prec)

    def power(self, base: Any, exponent: Any) -> Any:
        if self.tiny(base):
            if (exponent if isinstance(exponent, Fraction) else mp.re(exponent)) <= 0:
                raise UndefinedError("division by zero")
            return Fraction(0)
        whole = isinstance(exponent, Fraction) and exponent.denominator == 1
        if isinstance(base, Fraction) and isinstance(exponent, Fraction):
            if whole and abs(base) == 1:
                return base ** (exponent.numerator % 2)
            bits = max(base.numerator.bit_length(), base.denominator.bit_length())
            if whole and abs(exponent) * bits <= MAX_BITS:
                return base ** int(exponent)
            if whole and self.exact:
                raise TooLargeError("a power with too many digits")
            root = _root(base) if exponent.denominator == 2 else None
            if root is not None:
                return self.power(root, exponent * 2)
        base = self.inexact(base)
        if self.real and base < 0 and not whole:
            if not isinstance(exponent, Fraction) or exponent.denominator % 2 == 0:
                raise UndefinedError("a root of a negative number")
            size = self.power(-base, exponent)
            return -size if exponent.numerator % 2 else size
        size = self.inexact(exponent)
        if abs(size) * (abs(int(mp.mag(base))) + 1) > 2 * MAX_BITS:
            raise TooLargeError("a power with too many digits")
        return self.kept(base ** int(exponent) if whole else mp.power(base, size))

    def function(self, name: str, *values: Any) -> Any:
        if name not in _FUNCTIONS:
            raise ValueError(f"the function {name!r} is not known")
        return _FUNCTIONS[name](self, *values)

    def rounded(self, name: str, x: Any) -> Any:
        """Floor or ceiling of a number; with symbols about, a function without identities."""
        if self.point:
            return self.power(x, Fraction(3 if name == "floor" else 5))
        if isinstance(x, Fraction):
            return Fraction(getattr(math, name)(x))
        if mp.im(x) != 0:
            raise UndefinedError("complex")
        nearest = mp.nint(mp.re(x))
        near = self.tiny(mp.re(x) - nearest)
        return Fraction(int(nearest if near else getattr(mp, name)(mp.re(x))))

    def analytic(self, name: str, x: Any) -> Any:
        """A function of mpmath's."""
        x = self.inexact(x)
        undefined = name == "log" and self.tiny(x)
        if self.real and not undefined:
            undefined = abs(x) > 1 if name in ("asin", "acos") else name == "log" and x < 0
        if undefined:
            raise UndefinedError(f"{name} is not defined there")
        if name in ("exp", "sinh", "cosh") and abs(x) > MAX_BITS:
            raise TooLargeError("an exponential with too many digits")
        return self.kept(getattr(mp, name)(x), low=name == "exp")

    def log(self, x: Any, base: Any) -> Any:
        return self.divided(self.analytic("log", x), self.analytic("log", base))

    def factorial(self, x: Any) -> Any:
        if abs(x) > 1500:
            raise TooLargeError("a factorial beyond 1500!")
        if not isinstance(x, Fraction) or x.denominator != 1:
            return self.kept(mp.gamma(self.inexact(x) + 1))
        if x < 0:
            raise UndefinedError("a factorial of a negative number")
        return self.kept(Fraction(math.factorial(int(x))))

    def binomial(self, n: Any, k: Any) -> Any:
        whole = all(isinstance(each, Fraction) and each.denominator == 1 for each in (n, k))
        if whole and 0 <= n <= 5000 and k >= 0:
            return self.kept(Fraction(math.comb(int(n), int(k))))
        below = self.factorial(self.combined(ast.Sub(), n, k))
        return self.divided(self.factorial(n), self.combined(ast.Mult(), self.factorial(k), below))


def _root(x: Fraction) -> Fraction | None:
    """The rational square root, if there is one."""
    if x < 0:
        return None
    root = Fraction(math.isqrt(x.numerator), math.isqrt(x.denominator))
    return root if root * root == x else None


_ONE = Fraction(1)
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "inf": lambda s: math.inf,
    "pi": lambda s: s.inexact(_ONE) * mp.pi,
    "e": lambda s: s.inexact(_ONE) * mp.e,
    "i": lambda s: s.inexact(_ONE) * mp.mpc(0, 1),
    **{name: lambda s, x, own=own: s.analytic(own, x) for name, own in (
        *((each, each) for each in ("sin", "cos", "sinh", "cosh", "exp")), ("ln", "log"),
        ("arcsin", "asin"), ("arccos", "acos"), ("arctan", "atan"))},
    **{name: lambda s, x, pair=pair: s.divided(*(s.analytic(each, x) for each in pair))
       for name, pair in (("tan", ("sin", "cos")), ("cot", ("cos", "sin")),
                          ("tanh", ("sinh", "cosh")))},
    "sec": lambda s, x: s.divided(_ONE, s.analytic("cos", x)),
    "csc": lambda s, x: s.divided(_ONE, s.analytic("sin", x)),
    "log": lambda s, x, base=None: s.analytic("log", x) if base is None else s.log(x, base),
    "lg": lambda s, x: s.log(x, Fraction(10)),
    "sqrt": lambda s, x: s.power(x, Fraction(1, 2)),
    "root": lambda s, index, x: s.power(x, s.divided(_ONE, index)),
    "abs": lambda s, x: abs(x),
    "factorial": lambda s, x: s.factorial(x),
    "binomial": lambda s, n, k: s.binomial(n, k),
    "degrees": lambda s, x: s.inexact(x) * mp.pi / 180,
    "floor": lambda s, x: s.rounded("floor", x),
    "ceil": lambda s, x: s.rounded("ceil", x),
}  # fmt: skip


def agree(first: ast.expr, second: ast.expr, *, exact: bool) -> bool:
    """Whether two formulas have one value, or none, at every point; the errors of `evaluate`.

    Among the real numbers; if they are defined nowhere there, among the complex ones.
    """
    nodes = [*ast.walk(first), *ast.walk(second)]
    names = symbols(first) | symbols(second)
    written = sum(len(str(constant(each))) for each in nodes if isinstance(each, ast.Constant))
    points = _points(names, POINTS // 4 if exact else POINTS)
    complex_only = any(called(each) == "i" for each in nodes)
    for real in (True,) if exact else (False,) if complex_only else (True, False):
        verdicts: list[bool | None] = []
        for point in points:
            make = partial(Evaluator, point, exact=exact, real=real)
            verdicts.append(_same_at((first, second), make, written))
            if verdicts[-1] is False:
                return False
        if len(verdicts) - verdicts.count(None) >= min(ENOUGH, len(points)):
            return True
    return False


def proportional(first: ast.expr, second: ast.expr, *, exact: bool) -> bool:
    """Whether one formula is a rational number, not 0, times the other, and both have symbols."""
    if not symbols(first) or not symbols(second):
        return False
    reader = Evaluator(_points(symbols(first) | symbols(second), 1)[0])
    try:
        ratios = [reader.divided(reader.value(first), reader.value(second))]
    except UndecidedError:
        ratios = [Fraction(1), Fraction(-1)]
    products = (ast.BinOp(number(each), ast.Mult(), second) for each in ratios if each)
    return any(agree(first, each, exact=exact) for each in products)


def _points(names: Iterable[str], count: int) -> list[Point]:
    """The same values for the same symbols, of either sign and moderate size."""

    def value(name: str, point: int) -> Fraction:
        source = random.Random(zlib.crc32(f"{name} {point}".encode()))
        return Fraction(source.choice((-1, 1, 1)) * source.randint(1009, 9973), 4001)

    return [{name: value(name, k) for name in names} for k in range(count if names else 1)]


def _same_at(nodes: Sequence[ast.expr], make: Callable[[], Evaluator], written: int) -> bool | None:
    """Whether two values agree; None where neither is defined."""
    precision = GUARD + written + 20
    while True:
        reader = make()
        with nullcontext() if reader.exact else mp.workdps(precision):
            a, b = map(reader.defined, nodes)
            if a is None or b is None:
                return None if a is b else False
            if isinstance(a, float) or isinstance(b, float):
                return type(a) is type(b) and bool(a == b)
            if isinstance(a, Fraction) and isinstance(b, Fraction):
                return a == b
            a, b = reader.inexact(a), reader.inexact(b)
            size, small = max(reader.high, 0) * 0.302, max(-reader.low, 0) * 0.302
            if abs(a - b) > mp.mpf(10) ** (size - precision + 10):
                return False
            needed = int(GUARD + written + 2 * size + small) + 10
            if precision >= needed:
                return True
            precision = needed + 20
