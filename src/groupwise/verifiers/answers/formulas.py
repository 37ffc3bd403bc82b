r"""Formulas as `ast` trees: sums, products, powers, roots, functions, in LaTeX or plain notation.

Recursive descent over tokens, bounded in depth. A tree has numbers (as fractions), names, the
operators of Python and calls (`evaluator.py` says what they mean).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from fractions import Fraction

from groupwise.verifiers.answers.evaluator import call, number
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
_OPERATORS: dict[str, type[ast.operator]] = {
    "+": ast.Add, "-": ast.Sub, "*": ast.Mult, r"\cdot": ast.Mult, r"\times": ast.Mult,
    "/": ast.Div, r"\div": ast.Div, r"\over": ast.Div,
}  # fmt: skip


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
            node = ast.BinOp(node, _OPERATORS[sign](), self.term(signed=self.at("-")))
        if self.take_if(r"\choose"):
            return call("binomial", node, self.sum())
        if self.take_if(r"\over"):
            return ast.BinOp(node, ast.Div(), self.sum())
        return node

    def term(self, signed: bool = True) -> ast.expr:
        if signed and (sign := self.take_if("+", "-")):
            return _signed(sign, self.term(signed=False))
        node = self.power()
        while not self.done():
            if mark := self.take_if("*", r"\cdot", r"\times", "/", r"\div"):
                factor = _signed(self.take_if("+", "-"), self.power())
                node = ast.BinOp(node, _OPERATORS[mark](), factor)
            elif self.starts():
                node = self._juxtaposed(node)
            else:
                break
        return node

    def _juxtaposed(self, node: ast.expr) -> ast.expr:
        r"""A product without a sign; `2\frac12` and `2 1/2` are mixed numbers."""
        before = self.tokens[self.place - 1]
        texts = [each.text for each in self.tokens[self.place : self.place + 3]]
        power = texts[1:2] == ["^"] and before.kind != "number"  # n2^n
        if self.token.kind == "number" and before.text != "!" and not power:
            fraction = texts[1:2] == ["/"] and all(map(str.isdecimal, texts[::2]))
            if before.kind != "number" or not fraction or len(texts) < 3:
                raise UnreadableError(f"{texts[0]!r} stands directly behind {before.text!r}")
            self.place += 3
            factor: ast.expr = ast.BinOp(number(int(texts[0])), ast.Div(), number(int(texts[2])))
        else:
            factor = self.power()
        match factor:
            case ast.BinOp(op=ast.Div(), left=top, right=bottom) if (
                before.kind == "number" and _is_whole(top) and _is_whole(bottom)
            ):
                if not _is_whole(node):
                    raise UnreadableError("a mixed number behind another factor")
                parts = [Fraction(each.value) for each in (node, top, bottom)]  # type: ignore[attr-defined]
                return number(parts[0] + parts[1] / parts[2])
        return ast.BinOp(node, ast.Mult(), factor)

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
            node = ast.BinOp(node, ast.Pow(), _signed(sign, exponent))
        return node

    def argument(self) -> ast.expr:
        r"""What a command takes: `{...}`, or as in TeX one digit, letter or command."""
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
        kind, text = self.take()
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
            if not self.at("["):
                return call("sqrt", self.primary())
            inner, closing = self.inside()
            return call("root", self.expression(inner, f"[{closing}"), self.primary())
        if text in _PAIRS:
            return self._pair(*_PAIRS[text])
        if text in _DECORATIONS:
            return self._symbol(f"{text} {self._name()}")
        raise UnreadableError(f"{text!r} is not expected there")

    def _decimal(self, text: str) -> ast.expr:
        value = Fraction(f"0{text}" if text.startswith(".") else text.rstrip("."))
        if "." in text and self.take_if(r"\overline", r"\bar", r"\dot"):
            period = self._name()
            if not period.isdecimal() or len(period) > 15:
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
        if text in "fghFGH" and self.at("("):  # f(x), f(2): a name; h(a + b): a factor
            inside = self.inside()[0]
            if text in "fF" or len(inside) == 1:
                return ast.Name(f"{text}({''.join(each.text for each in inside)})")
            self.place -= len(inside) + 2
        return ast.Name(text)

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
            if name not in ("sin", "cos", "tan") or ast.dump(exponent) != _MINUS_ONE:
                raise UnreadableError(f"a negative power of {name}")
            name, exponent = f"arc{name}", None
        node = self.primary() if self.at("(", "{", "[", *_PAIRS) else self._bare_argument()
        node = call(name, node) if base is None else call("log", node, base)
        return node if exponent is None else ast.BinOp(node, ast.Pow(), exponent)

    def _bare_argument(self) -> ast.expr:
        r"""The factors up to the next function or sign: of `\sin 2x \cos y`, `2x`."""
        if self.take_if("-"):
            return ast.UnaryOp(ast.USub(), self._bare_argument())
        function = not self.done() and self.token.kind == "function"
        node = self.power()
        while not self.done() and self.starts() and not function:
            if self.token.kind in ("function", "number"):
                break
            node = ast.BinOp(node, ast.Mult(), self.power())
        return node


_MINUS_ONE = ast.dump(ast.UnaryOp(ast.USub(), number(1)))


def _signed(sign: str, node: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.USub(), node) if sign == "-" else node


def _is_whole(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and Fraction(str(node.value)).denominator == 1
