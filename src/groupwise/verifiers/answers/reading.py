r"""Reads an answer whole: its structure by one grammar, its formulas as `ast` trees.

LaTeX and plain notation are one grammar. Whatever it has no rule for raises `UnreadableError`:
nothing is skipped and nothing is guessed, so every character of an answer takes part in its
comparison (`comparing.py`). Bounded by the length of the text and the depth of its brackets.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

from groupwise.verifiers.answers.evaluator import TooLargeError, check_depth, number, rational
from groupwise.verifiers.answers.formulas import MAX_DEPTH, Reader, Tokens, split
from groupwise.verifiers.answers.tokens import (
    CLOSING,
    OPENING,
    Token,
    UnreadableError,
    is_name,
    normal,
    tokenized,
    without_ending,
)
from groupwise.verifiers.answers.units import SCALES

MAX_MEMBERS = 100
"""Members of one list or set; a longer gold answer is compared as it is written."""

Kind = Literal[
    "expression", "text", "group", "set", "builder", "list", "sets", "relation", "matrix"
]


@dataclass(frozen=True, slots=True)
class Value:
    """One answer, or one part of it.

    An `expression` is a tree in `node`, with its `unit` if one is written; `text` is words in
    `name`; all other kinds have `items`. `name` is the bracket pair of a `group`, the separator of
    a `list`. `operators` are those between the items of a `relation` or of `sets` (unions and their
    like).
    """

    kind: Kind
    items: tuple[Value, ...] = ()
    name: str = ""
    operators: tuple[str, ...] = ()
    node: ast.expr | None = field(default=None, compare=False)
    unit: str = ""


_RELATIONS = {
    **{sign: sign for sign in ("=", "<", ">", "<=", ">=", "!=")}, "->": "to",
    r"\le": "<=", r"\leq": "<=", r"\leqslant": "<=", r"\ge": ">=", r"\geq": ">=",
    r"\geqslant": ">=", r"\lt": "<", r"\gt": ">", r"\ne": "!=", r"\neq": "!=",
    **{f"\\{name}": name for name in (
        "in", "notin", "approx", "equiv", "to", "sim", "cong", "subset", "subseteq", "perp",
        "parallel", "implies", "iff", "propto", "mapsto")},
    r"\rightarrow": "to", r"\Rightarrow": "implies",
}  # fmt: skip
_SET_OPERATORS = {r"\cup": "|", r"\cap": "&", r"\setminus": "-", r"\backslash": "-"}
_MATRICES = ("matrix", "pmatrix", "bmatrix", "Bmatrix", "array", "smallmatrix")
_WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")


def read(text: str, *, unit_letters: bool = False) -> Value:
    r"""The answer that `text` is as a whole; `UnreadableError` if it is not one.

    `unit_letters`: a single letter directly behind a number is a unit (`5m`), not a factor.

    >>> read(r"\{1,2\}").kind, read("x=5").kind, read("7 or 8").kind, read(r"(0,1]").name
    ('set', 'relation', 'list', '(]')
    """
    words = words_alone(text)
    if words and any(len(each) > 2 and not is_name(each) for each in re.split(r"[\s-]", words)):
        return Value("text", name=words)
    try:
        tokens = tokenized(text, unit_letters)
        levels = accumulate((each.text in OPENING) - (each.text in CLOSING) for each in tokens)
        if max(levels, default=0) > MAX_DEPTH:
            raise UnreadableError(f"more than {MAX_DEPTH} brackets inside each other")
        return _list(tokens, 0)
    except UnreadableError:
        raise
    except (RecursionError, ArithmeticError, LookupError, ValueError) as error:
        # Whatever a policy writes has a verdict: no text may end a run.
        raise UnreadableError(f"{type(error).__name__}: {error}") from error


def words_alone(text: str) -> str | None:
    """The text if it is nothing but words, else None; `and` and `or` separate members.

    >>> words_alone("The dog."), words_alone("2 dogs"), words_alone("cat or dog")
    ('The dog', None, None)
    """
    words = without_ending(normal(text)).replace("$", " ").split()
    if not words or not all(_WORD.fullmatch(word) for word in words):
        return None
    return None if {"and", "or"} & {word.casefold() for word in words} else " ".join(words)


def _list(tokens: Tokens, depth: int) -> Value:
    r"""A value, or several with separators between them; one with `\pm` is two."""
    pieces, joiners = split(tokens, lambda token: token.kind == "separator")
    values = [_item(each, depth) for piece in pieces for each in _by_sign(piece)]
    words = {joiner for joiner in joiners if joiner != ","}
    if len(words) > 1 or len(values) > MAX_MEMBERS:
        raise UnreadableError(f"both `and` and `or`, or more than {MAX_MEMBERS} members")
    if len(values) == 1:
        return values[0]
    return Value("list", tuple(values), words.pop() if words else ",")


def _by_sign(tokens: Tokens) -> list[Tokens]:
    r"""The upper and the lower signs of `\pm` and `\mp`; a set keeps those inside it."""
    signs, level = {r"\pm": "+-", r"\mp": "-+"}, 0
    ways: tuple[list[Token], list[Token]] = ([], [])
    for token in tokens:
        level += (token.text == r"\{") - (token.text == r"\}")
        pair = signs.get(token.text) if level == 0 else None
        for way, each in enumerate(ways):
            each.append(Token("op", pair[way]) if pair else token)
    return list(ways) if ways[0] != ways[1] else [tokens]


def _item(tokens: Tokens, depth: int) -> Value:
    """A relation, a set, an expression with its unit, or words."""
    sides, operators = split(tokens, lambda token: token.text in _RELATIONS)
    values = tuple(_sets(side, depth) for side in sides)
    names = tuple(_RELATIONS[each] for each in operators)
    return Value("relation", values, operators=names) if names else values[0]


def _sets(tokens: Tokens, depth: int) -> Value:
    pieces, operators = split(tokens, lambda token: token.text in _SET_OPERATORS)
    values = tuple(_parts(piece, depth) for piece in pieces)
    if not operators:
        return values[0]
    return Value("sets", values, operators=tuple(_SET_OPERATORS[each] for each in operators))


def _parts(tokens: Tokens, depth: int) -> Value:
    """One formula or container, with its unit if one is written; or words."""
    if tokens and tokens[-1].text == "°" and not any(each.kind == "function" for each in tokens):
        tokens = [*tokens[:-1], Token("text", "degrees")]
    reader = _Parts(tokens, depth)
    if reader.done():
        raise UnreadableError("nothing is written")
    value = Value("text", name=reader.words()) if reader.token.kind == "text" else reader.value()
    if value.node is not None and not reader.done():
        value = _with_unit(value.node, reader.words())
    if not reader.done():
        raise UnreadableError(f"{reader.token.text!r} is not expected there")
    return value


def _with_unit(node: ast.expr, words: str) -> Value:
    """The words behind a number are its unit; those of `SCALES` multiply it."""
    money, words = (words[0], words[2:]) if words[:2] in ("$ ", "€ ", "£ ", "¥ ") else ("", words)
    first, _, rest = words.partition(" ")
    while first.casefold() in SCALES:
        scale, known = SCALES[first.casefold()], rational(node)
        scaled = ast.BinOp(node, ast.Mult(), number(scale))
        node = scaled if known is None else number(known * scale)
        first, _, rest = rest.partition(" ")
    return Value("expression", node=node, unit=f"{first} {rest}".strip() or money)


class _Parts(Reader):
    """A reader of what stands between separators, relations and set operators."""

    def words(self) -> str:
        """Text tokens, with the marks of units between them: `cm^2`, `m/s`."""
        start = self.place
        while not self.done():
            behind = self.tokens[self.place + 1 : self.place + 2]
            if self.token.kind == "text":
                self.place += 1
            elif self.at("^") and behind and (behind[0].text.isdigit() or behind[0].text == "{"):
                self.place += 2 if behind[0].text != "{" else 4
            elif self.at("/") and behind and behind[0].kind == "text":
                self.place += 1
            else:
                break
        return " ".join(" ".join(each.text for each in self.tokens[start : self.place]).split())

    def value(self) -> Value:
        """A container if one starts here and nothing binds to it, else an expression."""
        start = self.place
        if self.at("(", "[", r"\{", r"\langle", "{", r"\begin"):
            found = self._container()
            if found is not None and (self.done() or self.token.kind == "text"):
                return found
            self.place = start
        if self.take_if(r"\emptyset"):
            return Value("set")
        node = self.sum()
        if self.take_if(":"):
            node = ast.BinOp(node, ast.Div(), self.sum())
        try:
            check_depth(node)
        except TooLargeError as error:
            raise UnreadableError(str(error)) from error
        return Value("expression", node=node)

    def _container(self) -> Value | None:
        """A tuple, an interval, a set, a vector or a matrix; None for brackets of a formula."""
        opening = self.token.text
        inner, closing = self.inside()
        if opening == r"\begin":
            return self._matrix(inner)
        if opening == r"\{":
            parts, marks = split(inner, lambda token: token.text in ("|", r"\mid", ":"))
            if len(marks) == 1 and all(parts):
                return Value("builder", tuple(_list(part, self.depth + 1) for part in parts))
        value = _list(inner, self.depth + 1)
        separated = value.kind == "list" and value.name == ","
        if opening == r"\{" or (opening == "{" and separated):
            return Value("set", value.items if value.kind == "list" else (value,))
        if separated:
            return Value("group", value.items, (opening + closing).replace("\\", ""))
        if opening + closing not in ("()", "[]", "{}") or value.kind == "list":
            raise UnreadableError("brackets that are not of a formula around one value")
        return None if value.kind == "expression" and not value.unit else value

    def _matrix(self, inner: Tokens) -> Value:
        name = inner[0].text if inner else ""
        if name not in _MATRICES or self.take().text != name:
            raise UnreadableError(f"an environment {name!r}")
        lines, _ = split(inner[1:], lambda token: token.text == r"\\")
        rows = [split(line, lambda token: token.text == "&")[0] for line in lines if line]
        if len({len(row) for row in rows}) != 1:
            raise UnreadableError("a matrix with rows of different lengths")
        cells = [tuple(_item(cell, self.depth + 1) for cell in row) for row in rows]
        return Value("matrix", tuple(Value("group", row) for row in cells))
