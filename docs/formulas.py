"""Formulas as MathML, which browsers draw without a script or a network.

The notation is the one that `groupwise algorithms show` prints: `A_i = (x_i - b_i)/(std over the
group)`. A subscript follows `_`, `/` between two terms is a fraction, words stay words. In a page,
a fence marked `formula` holds one formula a line.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

FENCE = re.compile(r"^```formula\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOKEN = re.compile(
    r"\s+|(?P<apostrophe>'s\b)|(?P<root>√)|(?P<word>[A-Za-z]{3,}-[a-z]{3,}(?:-[a-z]+)*)"
    r"|(?P<number>\d+(?:\.\d+)?(?:e-?\d+)?)"
    r"|(?P<name>[A-Za-zα-ωΑ-ΡΤ-Ωπμτφλδ][\w⁺⁻]*?)(?:_(?P<sub>\w+(?:,\w+(?:[+-]\d)?)*))?(?![\w⁺⁻])(?P<sup>\^\w+)?"
    r"|(?P<sum>[ΣΠ∏])(?:_(?P<under>\w+(?:,\w+)*))?"
    r"|(?P<open>[(\[{])|(?P<close>[)\]}])"
    r"|(?P<other>.)"
)
ROOT = "√"
FUNCTIONS = {"exp", "log", "min", "max", "clip", "sigmoid", "sg", "std", "mean", "KL", "TV"}
SYMBOLS = {"lp", "old", "ref", "sampler"}
SHORT_WORDS = {"a", "an", "as", "at", "by", "if", "in", "is", "no", "of", "on", "or", "to"}


def render_page(markdown: str) -> str:
    """Every `formula` fence as a block of MathML, a line each."""
    return FENCE.sub(lambda fence: block(fence[1].splitlines()), markdown)


def block(lines: list[str]) -> str:
    drawn = "".join(f"<p>{inline(line.strip())}</p>" for line in lines if line.strip())
    return f'<div class="formula">{drawn}</div>'


def inline(text: str) -> str:
    """One formula as a `<math>` element."""
    return f"<math>{''.join(_fractions(list(_nodes(iter(_tokens(text))))))}</math>"


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """(kind, MathML or character) of every token."""
    for match in TOKEN.finditer(text):
        if match["apostrophe"]:
            yield "word", "<mtext>'s&nbsp;</mtext>"
        elif match["word"]:
            yield "word", f"<mtext>&nbsp;{match['word']}&nbsp;</mtext>"
        elif match["root"]:
            yield "function", ROOT
        elif match["number"]:
            yield "atom", f"<mn>{match['number']}</mn>"
        elif match["name"]:
            yield _name(match)
        elif match["sum"]:
            sign = f"<mo>{match['sum']}</mo>"
            under = f"<munder>{sign}<mi>{match['under']}</mi></munder>" if match["under"] else sign
            yield "operator", under
        elif match["open"] or match["close"]:
            yield ("open", match["open"]) if match["open"] else ("close", match["close"])
        elif match["other"]:
            kind = "slash" if match["other"] == "/" else "operator"
            sign = html.escape(match["other"]).replace("-", "−")
            yield kind, f"<mo>{sign}</mo>"


def _name(match: re.Match[str]) -> tuple[str, str]:
    name, subscript = match["name"], match["sub"]
    if name == "max" and subscript == "tokens":
        return "word", "<mtext>max_tokens</mtext>"
    is_word = len(name) > 2 and name not in FUNCTIONS | SYMBOLS
    if not subscript and (is_word or name in SHORT_WORDS):
        return "word", f"<mtext>&nbsp;{name}&nbsp;</mtext>"
    drawn = f"<mi>{name}</mi>"
    if subscript:
        drawn = f"<msub>{drawn}<mi>{subscript}</mi></msub>"
    if match["sup"]:
        drawn = f"<msup>{drawn}<mi>{match['sup'][1:]}</mi></msup>"
    return ("function" if name in FUNCTIONS else "atom"), drawn


def _nodes(tokens: Iterator[tuple[str, str]], closing: bool = False) -> Iterator[tuple[str, str]]:
    """The tokens with every bracketed part as one node; a function takes its brackets along."""
    function = ""
    for kind, drawn in tokens:
        if kind == "close":
            if closing:
                return
            yield "operator", f"<mo>{drawn}</mo>"
        elif kind == "open":
            close = {"(": ")", "[": "]", "{": "}"}[drawn]
            inner = "".join(_fractions(list(_nodes(tokens, closing=True))))
            whole = f"<mrow><mo>{drawn}</mo>{inner}<mo>{close}</mo></mrow>"
            if function == ROOT:
                whole = f"<msqrt>{inner if drawn == '(' else whole}</msqrt>"
                yield "atom", whole
            else:
                yield ("atom", f"<mrow>{function}{whole}</mrow>") if function else (inner, whole)
            function = ""
        else:
            if function:
                yield "word", f"{function}<mtext>&nbsp;</mtext>"
                function = ""
            if kind == "function":
                function = drawn
            else:
                yield kind, drawn
    if function:
        yield "word", function


def _fractions(nodes: list[tuple[str, str]]) -> list[str]:
    """MathML of nodes; `a/b` of two terms as a fraction, whose terms need no brackets."""
    drawn: list[str] = []
    index = 0
    while index < len(nodes):
        kind, text = nodes[index]
        following = nodes[index + 1 : index + 3]
        if len(following) == 2 and following[0][0] == "slash" and _is_term(kind, following[1][0]):
            drawn.append(f"<mfrac>{_bare(nodes[index])}{_bare(following[1])}</mfrac>")
            index += 3
        else:
            drawn.append(text)
            index += 1
    return drawn


def _is_term(*kinds: str) -> bool:
    return not set(kinds) & {"operator", "slash", "word"}


def _bare(node: tuple[str, str]) -> str:
    """A node without its outer brackets, where it has some (its kind is then what they hold)."""
    kind, text = node
    return text if kind == "atom" else f"<mrow>{kind}</mrow>"
