"""Dressing taken off a short answer or a text: markdown, LaTeX delimiters, spacing, Unicode forms.

What stays has the same value to a reader. Left out: what the value is (`numbers.py`).
"""

from __future__ import annotations

import re
import unicodedata

from groupwise.verifiers.answers.extraction import repaired

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")
_VULGAR = re.compile("[¼½¾⅐-⅞]")
_DASHES = str.maketrans({"−": "-", "‐": "-", "‑": "-", "–": "-", "—": "-", "⁄": "/", "∕": "/"})
_WORDS = r"(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|mbox|operatorname|textnormal)"
_WORD_COMMAND = re.compile(rf"\\{_WORDS}\*?\s*\{{([^{{}}]*)\}}")
_UNIT = r"(?:mm|cm|dm|m|km|in|ft|yd|mi|units?|inch(?:es)?|feet|met(?:er|re)s?)"
_EXPONENT = r"\s*\^\s*(?:\{\s*([23])\s*\}|([23]))"
_WORD_POWER = re.compile(rf"\\{_WORDS}\*?\s*\{{\s*({_UNIT})\s*\}}{_EXPONENT}")
_UNIT_POWER = re.compile(rf"(?<![A-Za-z\\])({_UNIT}){_EXPONENT}")
_DEGREES = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degrees?\b|°")
_FONT = re.compile(
    r"\\(?:text)?color\s*\{[^{}]*\}"
    r"|\\(?:bf|it|rm|sf|tt|small|normalsize|[lL]arge|LARGE|[hH]uge|textstyle)(?![A-Za-z])"
)
_EMPTY = re.compile(r"\\left(?![a-zA-Z])|\\right(?![a-zA-Z])|\\displaystyle|\\!|\\limits")
_THIN = re.compile(r"(?<=\d)(?:\\,|\{,\}|\\ )(?=\d{3}(?!\d))")
_SPACES = re.compile(r"\\[,;: ]|~|\\q?quad(?![a-zA-Z])|\\\(|\\\)|\\\[|\\\]|\\\\")
_FRAC = re.compile(r"\\[dtc]frac(?![a-zA-Z])|(?<![\\a-zA-Z])frac(?=\s*[\{\d])")
_LETTERS = re.compile(r"[^\W\d_][^\W\d_'’-]*(?: [^\W\d_][^\W\d_'’-]*)*")
_NO_ELEMENT = re.compile(r"\\varnothing(?![A-Za-z])|∅|\\\{\s*\\\}|\\O(?![A-Za-z])")
_BOLD = re.compile(r"\*\*|__|`")


def cleaned(text: str) -> str:
    r"""One line of plain LaTeX or text with the dressing off; `$` stays.

    >>> cleaned(r"**73**"), cleaned(r"8{,}000"), cleaned(r"\dfrac{1}{2}")
    ('73', '8,000', '\\frac{1}{2}')
    """
    text = repaired(text)
    text = _SUPERSCRIPT_RUN.sub(
        lambda match: "^{" + match.group().translate(_SUPERSCRIPTS) + "}", text
    )
    text = _VULGAR.sub(lambda match: " " + match.group(), text)
    text = unicodedata.normalize("NFKC", text.replace("°", r"\degree ")).translate(_DASHES)
    text = without_fonts(text)
    text = _NO_ELEMENT.sub(r"\\emptyset ", text)
    text = _BOLD.sub("", text)
    text = _THIN.sub(",", text)
    text = _DEGREES.sub(" degrees ", text)
    text = _EMPTY.sub("", text)
    text = _WORD_POWER.sub(_area, text)
    text = _WORD_COMMAND.sub(r" \1 ", text)
    text = _UNIT_POWER.sub(_area, text)
    text = _SPACES.sub(" ", text)
    text = _FRAC.sub(r"\\frac", text)
    return text.replace(r"\%", "%").replace(r"\$", "$").replace(r"\{", "{").replace(r"\}", "}")


def without_fonts(text: str) -> str:
    r"""The text without commands that only say how it looks.

    >>> without_fonts(r"\color{red}7"), without_fonts(r"{\bf 7}")
    ('7', '{ 7}')
    """
    return _FONT.sub("", text)


def _area(match: re.Match[str]) -> str:
    """`cm^2` in words, and `cm^3`."""
    unit, power, power1 = match.groups()
    return f" {'square' if (power or power1) == '2' else 'cubic'} {unit} "


def without_ending(text: str) -> str:
    """The text without outer white space and a sentence's final marks; a factorial keeps its own.

    >>> without_ending(" so!. "), without_ending("5!."), without_ending("7.")
    ('so', '5!', '7')
    """
    text = text.strip().rstrip(".,; ")
    bare = text.rstrip("!")
    return text if bare[-1:].isdigit() or bare[-1:] in (")", "}") else bare.rstrip(".,; ")


def plain(text: str) -> str:
    r"""An answer's form for comparing as text: cleaned, no `$`, no spaces, no final period.

    Words are compared without case; single letters keep theirs.

    >>> plain(r"$\text{The dog}$.") == plain("the dog"), plain("B") == plain("b")
    (True, False)
    """
    text = without_ending(cleaned(text).replace("$", " "))
    words = " ".join(text.split())
    if _LETTERS.fullmatch(words) and any(len(word) > 1 for word in words.split()):
        return words.casefold()
    return re.sub(r"\s*([^\w\s])\s*", r"\1", words)
