"""The one evaluator of arithmetic: exact polynomials over the rationals on Python's `ast`.

Nothing is executed: a tree is walked, and its size, depth, digits, exponents and terms are bounded.
The puzzles, the step verifier, the calculator tool and the exact part of `math` all use it.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

MAX_LENGTH = 2000
"""Characters of an expression."""
MAX_DEPTH = 250
"""Operations inside each other."""
MAX_BITS = 12_000
"""Bits of a numerator or denominator: about 3,600 digits."""
MAX_TERMS = 400
"""Terms of a polynomial."""
MAX_DEGREE = 60
"""Total degree of a term."""

Monomial = tuple[tuple[str, int], ...]

_SIGNS = str.maketrans({"×": "*", "·": "*", "∙": "*", "⋅": "*", "÷": "/", "−": "-", "–": "-"})
_COMMANDS = ((r"\times", "*"), (r"\cdot", "*"), (r"\div", "/"), (r"\left", ""), (r"\right", ""))
_LETTER_X = re.compile(r"(?<=[\d)\s])(?<!(?<![\d.])0)[xX](?=\s*[\d(])")  # not 0x7
_FRACTION = re.compile(r"\\[dt]?frac\s*\{\s*([\d.]+)\s*\}\s*\{\s*([\d.]+)\s*\}")
_ALLOWED = re.compile(r"[A-Za-z\d+\-*/().\s]*")
_NUMBER = re.compile(r"(?<![\w.])0+(?=\d)|\d(?:[_A-Za-df-zDF-Z]|[eE](?![+-]?\d{1,4}(?!\d)))")


class TooLargeError(ValueError):
    """A number or a polynomial beyond the bounds."""


@dataclass(frozen=True, slots=True)
class Polynomial:
    """`terms`: coefficient by monomial, zeros left out.

    >>> evaluate(parse("2*(x + 1)**2")) == evaluate(parse("2*x**2 + 4*x + 2"))
    True
    """

    terms: Mapping[Monomial, Fraction]

    @property
    def constant(self) -> Fraction | None:
        """The value if no variable occurs, else None."""
        return self.terms.get((), Fraction(0)) if set(self.terms) <= {()} else None

    def without(self, *names: str) -> Polynomial:
        """Without the constant term and without multiples of one of `names` alone."""
        dropped = {(), *(((name, 1),) for name in names)}
        return Polynomial({key: value for key, value in self.terms.items() if key not in dropped})

    def __add__(self, other: Polynomial) -> Polynomial:
        total = dict(self.terms)
        for key, value in other.terms.items():
            total[key] = total.get(key, Fraction(0)) + value
        return _bounded(total)

    def __mul__(self, other: Polynomial) -> Polynomial:
        if len(self.terms) * len(other.terms) > MAX_TERMS:
            raise TooLargeError(f"a product of {len(self.terms)} and {len(other.terms)} terms")
        total: dict[Monomial, Fraction] = {}
        for first, left in self.terms.items():
            for second, right in other.terms.items():
                powers = dict(first)
                for name, exponent in second:
                    powers[name] = powers.get(name, 0) + exponent
                if sum(powers.values()) > MAX_DEGREE:
                    raise TooLargeError(f"a degree above {MAX_DEGREE}")
                key = tuple(sorted(powers.items()))
                total[key] = total.get(key, Fraction(0)) + left * right
        return _bounded(total)

    def __truediv__(self, other: Polynomial) -> Polynomial:
        divisor = other.constant
        if divisor is None:
            raise ValueError("a division by a variable")
        if divisor == 0:
            raise ZeroDivisionError("division by zero")
        return self * number(1 / divisor)

    def __pow__(self, other: Polynomial) -> Polynomial:
        exponent, base = other.constant, self.constant
        if exponent is None or exponent.denominator != 1:
            raise ValueError("an exponent that is not a whole number")
        if base is not None:
            if base == 0 and exponent < 0:
                raise ZeroDivisionError("division by zero")
            size = max(base.numerator.bit_length(), base.denominator.bit_length())
            if abs(exponent) * size > MAX_BITS and abs(base) != 1:
                raise TooLargeError("a power with too many digits")
            return number(base ** (exponent.numerator % 2 if abs(base) == 1 else int(exponent)))
        if not 0 <= exponent <= MAX_DEGREE:
            raise ValueError(f"an exponent of a variable outside 0 to {MAX_DEGREE}")
        value = number(Fraction(1))
        for _ in range(int(exponent)):
            value = value * self
        return value


def number(value: Fraction | int) -> Polynomial:
    """A constant."""
    return _bounded({(): Fraction(value)})


def parse(text: str) -> ast.expr:
    r"""The tree of a plain expression such as `(3 + 4) * 12`, `2 × x**2` or `\frac{24}{2}`.

    `^` is a power, `x` between numbers a multiplication. `ValueError` if `text` as a whole is not
    an expression of numbers, names, + - * / ** and parentheses.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"the expression has {len(text)} characters, more than {MAX_LENGTH}")
    text = text.translate(_SIGNS)
    for command, sign in _COMMANDS:
        text = text.replace(command, sign)
    text = _FRACTION.sub(r"(\1/\2)", text).replace("^", "**")
    text = _LETTER_X.sub("*", text)
    text = " ".join(_NUMBER.sub(lambda m: "" if m.group().strip("0") == "" else "@", text).split())
    if not text:
        raise ValueError("the expression is empty")
    if not _ALLOWED.fullmatch(text) or "//" in text:
        raise ValueError(f"{text[:40]!r} is not arithmetic")
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{text[:40]!r} cannot be read: {getattr(error, 'msg', error)}") from error
    check_depth(node)
    for each in ast.walk(node):
        if isinstance(each, ast.Constant):  # as it is written: a float would lose digits
            each.value = Fraction(text[each.col_offset : each.end_col_offset])  # type: ignore[assignment]
    return node


def evaluate(node: ast.expr) -> Polynomial:
    """The exact value of a tree.

    `ValueError` (`TooLargeError` beyond the bounds) for what is not a polynomial with rational
    coefficients; `ZeroDivisionError` for a division by zero.

    >>> evaluate(parse("8/(3 - 1)")).constant
    Fraction(4, 1)
    """
    match node:
        case ast.Constant():
            return number(constant(node))
        case ast.Name():
            return Polynomial({((node.id, 1),): Fraction(1)})
        case ast.UnaryOp(op=ast.UAdd()):
            return evaluate(node.operand)
        case ast.UnaryOp(op=ast.USub()):
            return evaluate(node.operand) * number(-1)
        case ast.BinOp(op=ast.Add()):
            return evaluate(node.left) + evaluate(node.right)
        case ast.BinOp(op=ast.Sub()):
            return evaluate(node.left) + evaluate(node.right) * number(-1)
        case ast.BinOp(op=ast.Mult()):
            return evaluate(node.left) * evaluate(node.right)
        case ast.BinOp(op=ast.Div()):
            return evaluate(node.left) / evaluate(node.right)
        case ast.BinOp(op=ast.Pow()):
            return evaluate(node.left) ** evaluate(node.right)
        case ast.Call(func=ast.Name(id=name)) if name in _EXACT:
            values = [evaluate(each).constant for each in node.args]
            known = [value for value in values if value is not None]
            if len(known) < len(values):
                raise ValueError(f"{name} of a variable")
            return number(_EXACT[name](*known))
    raise ValueError(f"{type(node).__name__} is not arithmetic")


def value(text: str) -> Fraction:
    """The exact value of a plain expression without variables; errors as `evaluate`."""
    found = evaluate(parse(text)).constant
    if found is None:
        raise ValueError(f"{text[:40]!r} has a variable")
    return found


def numbers_in(node: ast.expr) -> list[Fraction]:
    """The numbers as they are written, in no particular order."""
    return [constant(each) for each in ast.walk(node) if isinstance(each, ast.Constant)]


def operations_in(node: ast.expr) -> set[str]:
    """The operations used: `+ - * / **` and `sign`."""
    names = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}
    found = {"sign" for each in ast.walk(node) if isinstance(each, ast.UnaryOp)}
    return found | {
        names.get(type(each.op), "?") for each in ast.walk(node) if isinstance(each, ast.BinOp)
    }


def _factorial(n: Fraction) -> int:
    if n.denominator != 1 or not 0 <= n <= 1500:
        raise TooLargeError("a factorial beyond 1500!")
    return math.factorial(int(n))


def _binomial(n: Fraction, k: Fraction) -> int:
    if n.denominator != 1 or k.denominator != 1 or not 0 <= n <= 5000 or not k >= 0:
        raise TooLargeError("a binomial coefficient beyond 5000")
    return math.comb(int(n), int(k))


def _root(x: Fraction) -> Fraction:
    top, bottom = (math.isqrt(abs(each)) for each in (x.numerator, x.denominator))
    if x < 0 or Fraction(top, bottom) ** 2 != x:
        raise ValueError("a root that is not rational")
    return Fraction(top, bottom)


_EXACT: dict[str, Callable[..., Fraction | int]] = {
    "factorial": _factorial, "binomial": _binomial, "abs": abs, "floor": math.floor,
    "ceil": math.ceil, "sqrt": _root,
}  # fmt: skip


def constant(node: ast.Constant) -> Fraction:
    """The number of a leaf; `ValueError` for a text or anything else."""
    if not isinstance(node.value, (int, Fraction)) or isinstance(node.value, bool):
        raise ValueError(f"{node.value!r:.40} is not a number")
    return Fraction(node.value)


def _bounded(terms: Mapping[Monomial, Fraction]) -> Polynomial:
    if len(terms) > MAX_TERMS:
        raise TooLargeError(f"more than {MAX_TERMS} terms")
    for each in terms.values():
        if max(each.numerator.bit_length(), each.denominator.bit_length()) > MAX_BITS:
            raise TooLargeError("a number with too many digits")
    return Polynomial({key: value for key, value in terms.items() if value})


def check_depth(node: ast.AST) -> None:
    """Raises TooLargeError for a tree that is too deep to be walked recursively."""
    level: list[ast.AST] = [node]
    for _ in range(MAX_DEPTH):
        level = [child for each in level for child in _children(each)]
        if not level:
            return
    raise TooLargeError(f"more than {MAX_DEPTH} operations inside each other")


def _children(node: ast.AST) -> Iterator[ast.AST]:
    return (each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr))
