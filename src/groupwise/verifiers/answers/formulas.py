r"""Formulas as `ast` trees: sums, products, powers, roots, functions, in LaTeX or plain notation.

Recursive descent over tokens, bounded in depth. A tree has numbers (as fractions), names, the
operators of Python and calls; nothing in it is ever executed.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Sequence
from fractions import Fraction

from groupwise.verifiers.answers.tokens import CLOSING, GREEK, OPENING, Token, UnreadableError

MAX_DEPTH = 80
"""Brackets, functions and powers inside each other."""

Tokens = Sequence[Token]

_CONSTANTS = {r"\pi": "pi", r"\infty": "inf", "e": "e", "i": "i"}
_SYMBOLS = frozenset(f"\\{name}" for name in GREEK.values()) | {r"\ell", r"\hbar"}
_DECORATIONS = (r"\vec", r"\hat", r"\bar", r"\overline", r"\tilde", r"\mathbb", r"\mathcal",
                r"\overrightarrow", r"\angle", r"\triangle")  # fmt: skip
_BINOMIALS = (r"\binom", r"\dbinom", r"\tbinom")
_PAIRS = {"|": ("|", "abs"), r"\lvert": (r"\rvert", "abs"), r"\vert": (r"\vert", "abs"),
          r"\lfloor": (r"\rfloor", "floor"), r"\lceil": (r"\rceil", "ceil")}  # fmt: skip
_STARTS = {"(", "[", "{", r"\sqrt", r"\frac", *_BINOMIALS, *_PAIRS, *_CONSTANTS, *_SYMBOLS,
           *_DECORATIONS}  # fmt: skip
_APPLIED = frozenset("fghFGH")
"""Letters that are functions before a parenthesis."""


def split(tokens: Tokens, at: Callable[[Token], bool]) -> tuple[list[Tokens], list[str]]:
    """Pieces between the tokens outside of brackets that `at` picks, and those tokens' texts."""
    start, level = 0, 0
    pieces: list[Tokens] = []
    found: list[str] = []
    for place, token in enumerate(tokens):
        level += (token.text in OPENING) - (token.text in CLOSING)
        if level == 0 and at(token):
            found.append(token.text)
            pieces.append(tokens[start:place])
            start = place + 1
    return [*pieces, tokens[start:]], found


class Reader:
    """Recursive descent over the tokens of one part."""

    def __init__(self, tokens: Tokens, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise UnreadableError(f"more than {MAX_DEPTH} brackets inside each other")
        self.tokens = tokens
        self.depth = depth
        self.place = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.place]

    def done(self) -> bool:
        return self.place >= len(self.tokens)

    def at(self, *texts: str) -> bool:
        return not self.done() and self.token.text in texts and self.token.kind != "text"

    def take(self) -> Token:
        if self.done():
            raise UnreadableError("it ends too early")
        self.place += 1
        return self.tokens[self.place - 1]

    def take_if(self, *texts: str) -> str:
        """Passes over one of these tokens if it is here; which one, else nothing."""
        return self.take().text if self.at(*texts) else ""

    def inside(self) -> tuple[Tokens, str]:
        """The tokens up to the bracket that closes the one here, and that bracket."""
        start, level = self.place, 0
        while not self.done():
            token = self.take()
            level += (token.text in OPENING) - (token.text in CLOSING)
            if level == 0:
                if token.text not in OPENING[self.tokens[start].text]:
                    raise UnreadableError(f"{self.tokens[start].text} is closed by {token.text}")
                return self.tokens[start + 1 : self.place - 1], token.text
        raise UnreadableError("a bracket is not closed")

    def sum(self) -> ast.expr:
        node = self.term()
        while sign := self.take_if("+", "-"):
            operator = ast.Add() if sign == "+" else ast.Sub()
            node = ast.BinOp(node, operator, self.term(signed=self.at("-")))
        if mark := self.take_if(r"\choose", r"\over"):
            below = self.sum()
            over = ast.BinOp(node, ast.Div(), below)
            return over if mark == r"\over" else call("binomial", node, below)
        return call("mod", node, self.term()) if self.take_if(r"\bmod") else node

    def term(self, signed: bool = True) -> ast.expr:
        if signed and (sign := self.take_if("+", "-")):
            node = self.term(signed=False)
            return node if sign == "+" else ast.UnaryOp(ast.USub(), node)
        node = self.power()
        while not self.done():
            if self.take_if("*", r"\cdot", r"\times"):
                node = ast.BinOp(node, ast.Mult(), self.operand())
            elif self.take_if("/", r"\div"):
                node = ast.BinOp(node, ast.Div(), self.operand())
            elif self.starts():
                node = self._juxtaposed(node)
            else:
                break
        return node

    def _juxtaposed(self, node: ast.expr) -> ast.expr:
        r"""A product without a sign; `2\frac12` and `2 1/2` are mixed numbers, and sums."""
        before = self.tokens[self.place - 1]
        power = [each.text for each in self.tokens[self.place + 1 : self.place + 2]] == ["^"]
        factor_of_its_own = before.text == "!" or (power and before.kind != "number")
        if self.token.kind == "number" and not factor_of_its_own:
            top, slash, bottom = (each.text for each in [*self.tokens, *[Token("op", "")] * 3][
                self.place : self.place + 3])  # fmt: skip
            if (
                before.kind != "number"
                or slash != "/"
                or not (top.isdecimal() and bottom.isdecimal())
            ):
                raise UnreadableError(f"{top!r} stands directly behind {before.text!r}")
            self.place += 3
            factor: ast.expr = ast.BinOp(number(int(top)), ast.Div(), number(int(bottom)))
        else:
            factor = self.power()
        mixed = before.kind == "number" and isinstance(factor, ast.BinOp) and (
            isinstance(factor.op, ast.Div) and _is_whole(factor.left) and _is_whole(factor.right)
        )  # fmt: skip
        if mixed and not _is_whole(node):
            raise UnreadableError("a mixed number behind another factor")
        product = ast.BinOp(node, ast.Add() if mixed else ast.Mult(), factor)
        product.mixed = mixed  # type: ignore[attr-defined]
        return product

    def operand(self) -> ast.expr:
        """A factor behind an explicit operator: it may have a sign."""
        sign = self.take_if("+", "-")
        node = self.power()
        return ast.UnaryOp(ast.USub(), node) if sign == "-" else node

    def starts(self) -> bool:
        """Whether a factor starts here."""
        return self.token.kind in ("number", "letter", "function") or (
            self.token.kind == "op" and self.token.text in _STARTS
        )

    def power(self) -> ast.expr:
        node = self.primary()
        while mark := self.take_if("!", "°"):
            if mark == "!" and self.at("!"):
                raise UnreadableError("a double factorial")
            node = call("factorial" if mark == "!" else "degrees", node)
        if self.take_if("^", "**"):
            sign = self.take_if("-", "+")
            exponent = self.argument() if self.at("{") else self.power()
            if self.at("^", "!"):
                raise UnreadableError(f"{self.token.text!r} behind a power")
            exponent = ast.UnaryOp(ast.USub(), exponent) if sign == "-" else exponent
            node = ast.BinOp(node, ast.Pow(), exponent)
        return node

    def argument(self) -> ast.expr:
        r"""What a command takes: `{...}`, or as in TeX one digit, letter or command."""
        if self.at("{"):
            return self.expression(self.inside()[0])
        if not self.done() and self.token.kind == "number" and len(self.token.text) > 1:
            digits = self.token.text
            if not digits.isdigit():
                raise UnreadableError("a command before a decimal without braces")
            split = [Token("number", digits[0]), Token("number", digits[1:])]
            self.tokens = [*self.tokens[: self.place], *split, *self.tokens[self.place + 1 :]]
        return self.primary()

    def expression(self, tokens: Tokens, brackets: str = "") -> ast.expr:
        """The tokens as one expression without a unit."""
        if brackets not in ("", "()", "[]", "{}"):
            raise UnreadableError("brackets of two kinds around a formula")
        reader = Reader(tokens, self.depth + 1)
        if reader.done():
            raise UnreadableError("nothing between brackets")
        node = reader.sum()
        if not reader.done():
            raise UnreadableError(f"{reader.token.text!r} is not expected there")
        return node

    def primary(self) -> ast.expr:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnreadableError(f"more than {MAX_DEPTH} brackets inside each other")
        node = self._primary()
        self.depth -= 1
        return node

    def _primary(self) -> ast.expr:
        kind, text = token = self.take()
        if kind == "number":
            return self._decimal(text)
        if kind == "letter" or text in _SYMBOLS or text in _CONSTANTS:
            return self._symbol(text)
        if kind == "function":
            return self._function(text)
        if text in ("(", "[", "{"):
            self.place -= 1
            inner, closing = self.inside()
            return self.expression(inner, text + closing)
        if text == r"\frac":
            return ast.BinOp(self.argument(), ast.Div(), self.argument())
        if text in _BINOMIALS:
            return call("binomial", self.argument(), self.argument())
        if text == r"\sqrt":
            index = None
            if self.at("["):
                inner, closing = self.inside()
                index = self.expression(inner, f"[{closing}")
            body = self.argument() if self.at("{") else self.primary()
            return call("sqrt", body) if index is None else call("root", index, body)
        if text in _PAIRS:
            return self._pair(*_PAIRS[text])
        if text in _DECORATIONS:
            return self._symbol(f"{text} {self._name()}")
        raise UnreadableError(f"{token.text!r} is not expected there")

    def _decimal(self, text: str) -> ast.expr:
        value = Fraction(f"0{text}" if text.startswith(".") else text.rstrip("."))
        if "." in text and self.take_if(r"\overline", r"\bar", r"\dot"):
            period = self._name()
            if not re.fullmatch(r"\d{1,15}", period):
                raise UnreadableError("a period that is not digits")
            shift = 10 ** len(text.partition(".")[2])
            value += Fraction(int(period), (10 ** len(period) - 1) * shift)
        return number(value)

    def _name(self) -> str:
        """What stands in braces or alone behind `_` or a decoration, as it is written."""
        inner = self.inside()[0] if self.at("{") else [self.take()]
        if not inner or any(each.text in "{}^_|" for each in inner):
            raise UnreadableError("a name with braces or powers")
        return "".join(each.text for each in inner)

    def _symbol(self, text: str) -> ast.expr:
        if self.take_if("_"):
            return ast.Name(f"{text}_{self._name()}")
        if text in _CONSTANTS:
            return call(_CONSTANTS[text])
        if self.at("(") and (condition := self._conditional()):
            return ast.Name(f"{text}({condition})")
        if text in _APPLIED and self.at("("):
            return call(f"apply {text}", self.primary())
        return ast.Name(text)

    def _conditional(self) -> str:
        """What stands in the parentheses here if one bar is in it: `A|B` of `P(A|B)`."""
        start = self.place
        inner, closing = self.inside()
        texts = ["|" if each.text == r"\mid" else each.text for each in inner]
        if texts.count("|") == 1 and closing == ")":
            return " ".join(texts)
        self.place = start
        return ""

    def _pair(self, closing: str, name: str) -> ast.expr:
        """Absolute value, floor or ceiling."""
        pieces, marks = split(self.tokens[self.place :], lambda token: token.text == closing)
        if not marks:
            raise UnreadableError(f"{closing} is missing")
        self.place += len(pieces[0]) + 1
        return call(name, self.expression(pieces[0]))

    def _function(self, name: str) -> ast.expr:
        base = exponent = None
        for _ in range(2):
            if name == "log" and base is None and self.take_if("_"):
                base = self.argument()
            elif exponent is None and self.take_if("^"):
                exponent = self.argument()
        if isinstance(exponent, ast.UnaryOp):  # \sin^{-1}
            if name not in ("sin", "cos", "tan") or ast.dump(exponent) != ast.dump(_MINUS_ONE):
                raise UnreadableError(f"a negative power of {name}")
            name, exponent = f"arc{name}", None
        node = self.primary() if self.at("(", "{", "[", *_PAIRS) else self._bare_argument()
        node = call(name, node) if base is None else call("log", node, base)
        return node if exponent is None else ast.BinOp(node, ast.Pow(), exponent)

    def _bare_argument(self) -> ast.expr:
        r"""The factors up to the next function or sign: of `\sin 2x \cos y`, `2x`."""
        if self.take_if("-"):
            return ast.UnaryOp(ast.USub(), self._bare_argument())
        if not self.done() and self.token.kind == "function":
            return self.power()
        node = self.power()
        while not self.done() and self.starts() and self.token.kind not in ("function", "number"):
            node = ast.BinOp(node, ast.Mult(), self.power())
        return node


def number(value: Fraction | int) -> ast.Constant:
    """A leaf of a tree."""
    return ast.Constant(Fraction(value))  # type: ignore[arg-type]


def call(name: str, *arguments: ast.expr) -> ast.Call:
    """A function of formulas; without any, a constant such as pi."""
    return ast.Call(ast.Name(name), list(arguments), [])


def called(node: ast.AST | None) -> str:
    """The name of the function that a node is, else nothing."""
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def applied_alike(first: ast.expr, second: ast.expr) -> tuple[ast.expr, ast.expr]:
    """Both with a letter before a parenthesis as a factor where either has the letter alone.

    So `g(1-k)` is `g-gk`, while `f(-x)` stays a value of f.
    """
    nodes = [*ast.walk(first), *ast.walk(second)]
    alone = {node.id for node in nodes if isinstance(node, ast.Name)}
    letters = {name for node in nodes if (name := called(node)) and name[6:] in alone}
    if not letters:
        return first, second
    return tuple(_AsFactor(letters).visit(copy.deepcopy(node)) for node in (first, second))


class _AsFactor(ast.NodeTransformer):
    def __init__(self, letters: set[str]) -> None:
        self.letters = letters

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if called(node) not in self.letters:
            return node
        return ast.BinOp(ast.Name(called(node)[6:]), ast.Mult(), node.args[0])

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        base = node.left
        if isinstance(node.op, ast.Pow) and isinstance(base, ast.Call) and (
            called(base) in self.letters  # g(x)^2
        ):  # fmt: skip
            power = ast.BinOp(base.args[0], ast.Pow(), node.right)
            node = ast.BinOp(ast.Name(called(base)[6:]), ast.Mult(), power)
        return self.generic_visit(node)


_MINUS_ONE = ast.UnaryOp(ast.USub(), number(1))


def _is_whole(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and Fraction(str(node.value)).denominator == 1
