r"""The tokens of an answer in LaTeX or plain notation, with what only concerns its looks removed.

One symbol has one spelling afterwards: `π`, `pi` and `\pi` are `\pi`, `√` is `\sqrt`. A run of up
to three letters is that many symbols, a longer one a word; `\text{...}` holds words; a known unit
directly behind a number, a currency and a percent sign are words too.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal, NamedTuple

from groupwise.verifiers.answers.extraction import repaired
from groupwise.verifiers.answers.units import ONE_LETTER, SCALES, canonical

MAX_CHARACTERS = 2000
"""Longer answers are not read."""


class UnreadableError(ValueError):
    """What the grammar has no rule for, with the reason."""


class Token(NamedTuple):
    """A kind and a spelling."""

    kind: Literal["number", "letter", "function", "op", "separator", "text", "name"]
    text: str


OPENING = {
    "(": (")", "]"), "[": ("]", ")"), "{": ("}",), r"\{": (r"\}",), r"\langle": (r"\rangle",),
    r"\begin": (r"\end",),
}  # fmt: skip
CLOSING = frozenset(closing for each in OPENING.values() for closing in each)
GREEK = {
    chr(code): word.lower() if "SMALL" in name else word.title()
    for code in range(0x391, 0x3CA)
    if (name := unicodedata.name(chr(code), ""))
    for word in (name.split()[-1].replace("LAMDA", "LAMBDA"),)
}
_FUNCTIONS = "sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log lg exp"
_KNOWN: dict[str, Token] = {
    **{each: Token("function", each.lstrip("\\")) for name in _FUNCTIONS.split()
       for each in (name, f"\\{name}")},
    **{name: Token("function", f"arc{name[1:]}") for name in ("asin", "acos", "atan")},
    **{name: Token("op", f"\\{name}") for name in ("pi", "sqrt", "infty", "cup", *GREEK.values())
       if name.islower()},
    **dict.fromkeys(("infinity", "inf", "oo"), Token("op", r"\infty")),
    "mod": Token("op", r"\bmod"), "union": Token("op", r"\cup"),
    **dict.fromkeys((",", ";"), Token("separator", ",")), "and": Token("separator", "and"),
    **dict.fromkeys(("or", r"\lor"), Token("separator", "or")),
    **{each: Token("text", each[-1]) for each in ("$", r"\$", "€", "£", "¥", "%", r"\%")},
}  # fmt: skip
"""Words, commands and marks that are one token."""
_SYMBOLS = str.maketrans({
    **{letter: f"\\{name} " for letter, name in GREEK.items()},
    "√": r"\sqrt ", "∞": r"\infty ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "⩽": r"\le ",
    "⩾": r"\ge ", "×": r"\times ", "÷": r"\div ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ",
    "±": r"\pm ", "∓": r"\mp ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∉": r"\notin ",
    "∅": r"\emptyset ", "°": r"^\circ ", "→": r"\to ", "⟨": r"\langle ", "⟩": r"\rangle ",
    "≈": r"\approx ", "≡": r"\equiv ", "∖": r"\setminus ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}",
    "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}", "⁄": "/", "∕": "/", "…": "...",
    **dict.fromkeys("−‐‑–—", "-"), **dict.fromkeys("“”", '"'), "’": "'",
})  # fmt: skip
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")
_VULGAR = re.compile("[¼½¾⅐-⅞]")
_SPELLINGS = [(re.compile(pattern), spelling) for pattern, spelling in (
    (r"^(?:\*\*|__|`)+|(?:\*\*|__|`)+(?=[.!]?$)", ""),
    (r"\\(?:text)?color\s*\{[^{}]*\}|\\(?:left|right)(?![A-Za-z])\.?|\\[bB]igg?[lr]?(?![A-Za-z])"
     r"|\\!\s*|\\(?:bf|it|rm|sf|tt|small|normalsize|[lL]arge|LARGE|[hH]uge|textstyle|displaystyle"
     r"|limits)(?![A-Za-z])", ""),
    (r"(?<=\d)(?:\\[,!; ]|\{,\})(?=\d{3}(?!\d))", ""),  # between groups of digits
    (r"\\[lc]?dots(?![A-Za-z])", "..."),
    (r"(?<=\d) [xX] (?=\d)", r"\\times "),
    (r"\\(?:O|varnothing)(?![A-Za-z])|\\\{\s*\\\}", r"\\emptyset "),
    (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|\\degrees?(?![A-Za-z])", "°"),
    (r"\\var(?=(?:epsilon|theta|phi|rho|sigma|kappa)(?![A-Za-z]))", r"\\"),
    (r"°\s*(?:\\(?:text|mathrm|rm)\s*\{\s*([CF])\s*\}|([CF])(?![A-Za-z]))", r"\\text{°\1\2}"),
    (r"\\not\s*=", r"\\ne "),
    (r"\bper\s+cent\b", "percent"),
    (r"\\not\s*\\(?=in(?![A-Za-z]))", r"\\not"),
    (r"(?<!\\)\\(?:[,;: ()\[\]]|q?quad(?![a-zA-Z])|(?=\n))|~", " "),
    (r"(?<![\\a-zA-Z])frac(?=\s*[\{\d])|\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
)]  # fmt: skip
"""What only concerns an answer's looks, and other spellings, in this order."""
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?![\d,]*\d)(?:\.\d+)?")
_FACTORIAL = re.compile(r"(?:[\d)}]|(?<![A-Za-z])[A-Za-z])!+\Z")
_PIECE = re.compile(
    r"(?P<space>\s+)"
    r"|\\(?P<font>text(?:bf|it|rm|sf|tt|up|normal)?|mathrm|mathbf|mathit|mathsf|boldsymbol|bm|mbox|operatorname)(?![A-Za-z])"
    r"\*?\s*(?:\{(?P<inner>[^{}]*)\}|(?P<bare>[A-Za-z0-9]))"
    r"|(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3}(?![\w.]))?)"
    r"|(?P<word>[^\W\d_]+(?:['-](?=[^\W\d_]{3})[^\W\d_]+)*)"
    r"|\\(?:begin|end)\s*\{(?P<matrix>\w+)\*?\}(?:\{[lcr|\s]*\})?"
    r"|\\[A-Za-z]+|\\.|\*\*|<=|>=|!=|->|.",
    re.DOTALL,
)
_UNIT = re.compile(
    r"\s*((?:(?:square|cubic|sq|cu)\.?\s+)?[A-Za-z]++(?:\s*\^\s*\{?\d\}?|\s+(?:squared|cubed))?"
    r"(?:\s*(?:/|\bper\b)\s*[A-Za-z]++(?:\s*\^\s*\{?\d\}?)?)*)"
    r"\s*(?=\Z|[,;=<>.]|and\b|or\b|\\text|[A-Za-z]{2})"
)


def normal(text: str) -> str:
    r"""One line with one spelling for each symbol and the looks removed; `$` stays.

    >>> normal(r"**73**"), normal(r"8{,}000"), normal("\boxed{½}")
    ('73', '8000', '\\boxed{ 1/2}')
    """
    text = repaired(text)
    text = _SUPERSCRIPT_RUN.sub(lambda m: "^{" + m.group().translate(_SUPERSCRIPTS) + "}", text)
    text = _VULGAR.sub(lambda m: " " + m.group(), text)
    text = unicodedata.normalize("NFKC", text.translate(_SYMBOLS)).translate(_SYMBOLS)
    text = text.strip()
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    return text


def without_ending(text: str) -> str:
    """Without outer white space and a sentence's final marks; a factorial keeps its own.

    >>> without_ending(" so!. "), without_ending("5!."), without_ending("7.")
    ('so', '5!', '7')
    """
    text = text.strip()
    if text.endswith("..."):
        return text
    bare = text.rstrip(".,; ")
    return bare if _FACTORIAL.search(bare) else bare.rstrip(".,;! ")


def unwrapped(text: str) -> str:
    r"""The text with what stands in `\text{...}` and its like in their place."""
    return _PIECE.sub(lambda m: f" {m['inner'] or m['bare'] or ''} " if m["font"] else m[0], text)


def plain(text: str) -> str:
    r"""An answer's form for comparing as text: no looks, no `$`, no blanks, no final mark.

    Words are compared without case; single letters keep theirs.

    >>> plain(r"$\text{The dog}$.") == plain("the dog"), plain("B") == plain("b")
    (True, False)
    """
    text = without_ending(re.sub(r"\*\*|__|`|\$", " ", unwrapped(normal(text)))).rstrip(". ")
    words = " ".join(text.split())
    if re.fullmatch(r"[^\W\d_](?:[^\W\d_]|['’ -])+", words):
        return words.casefold()
    return re.sub(r"\s*([^\w\s])\s*", r"\1", words)


def tokenized(text: str, unit_letters: bool = False) -> list[Token]:
    """The tokens of an answer; `UnreadableError` if it is too long.

    `unit_letters`: a single letter directly behind a number is a unit (`5m`).
    """
    if len(text) > MAX_CHARACTERS:
        raise UnreadableError(f"an answer of {len(text)} characters")
    found: list[Token] = []
    for place, part in enumerate(_formulas(without_ending(normal(text)))):
        found += _tokens(part, unit_letters, prose=place % 2 == 1)
    return _merged(found)


def is_name(word: str) -> bool:
    """Whether a run of letters names a function or a constant."""
    known = _known(word)
    return known is not None and known.kind in ("function", "op")


def _known(word: str) -> Token | None:
    """The token of a known word; functions are written in small letters."""
    if word in _KNOWN:
        return _KNOWN[word]
    known = _KNOWN.get(word.casefold())
    return None if known is None or known.kind == "function" else known


def _formulas(text: str) -> list[str]:
    """Formulas at even places, the prose between them at odd ones, by the dollars around them.

    One dollar alone is money and stays.
    """
    parts = re.split(r"(?<!\\)\$\$?", text)
    if len(parts) < 3 or len(parts) % 2 == 0:
        return [text]
    if len(parts) == 3 and not parts[0].strip() and not parts[2].strip():
        return [parts[1]]
    return ["", *parts]


def _tokens(text: str, unit_letters: bool, prose: bool) -> list[Token]:
    found: list[Token] = []
    position, level, spaced = 0, 0, False
    while position < len(text):
        if level == 0 and (thousands := _THOUSANDS.match(text, position)):
            found.append(Token("number", thousands.group().replace(",", "")))
            position, spaced = thousands.end(), False
            continue
        match = _PIECE.match(text, position)
        assert match is not None  # `.` matches anything
        start, position, word = position, match.end(), match["word"]
        last = found[-1] if found else Token("op", "")
        valued = last.kind == "number" or last.text in (")", "}", r"\pi", "!", "]")
        valued |= last.text == "/" and found[-2:-1] != [] and found[-2].kind == "text"
        unit = _unit(text, start, spaced, unit_letters) if word and valued else None
        spaced = bool(match["space"])
        if match["font"]:
            found += _font(match["font"], match["inner"] or match["bare"] or "", valued)
        elif unit is not None:
            found.append(Token("text", unit[0]))
            position = unit[1]
        elif word:
            found += [Token("text", word)] if prose and word not in ("and", "or") else _word(word)
        elif match["number"]:
            found.append(Token("number", match["number"]))
        elif match["matrix"]:
            found.append(Token("op", r"\begin" if match.group()[1] == "b" else r"\end"))
            found.append(Token("name", match["matrix"]))
        elif not spaced:
            found.append(_KNOWN.get(match.group()) or Token("op", match.group()))
            level += (found[-1].text in OPENING) - (found[-1].text in CLOSING)
    return found


def _word(word: str) -> list[Token]:
    """The tokens of a run of letters: a separator, a name, symbols, or one word."""
    if (known := _known(word)) is not None:
        return [known]
    for name in (*_FUNCTIONS.split(), "asin", "acos", "atan", "pi", "sqrt"):
        before, found, behind = word.partition(name)
        if found and len(before) + len(behind) <= 2 and not (before and behind):
            return [*_word(before or name), *_word(behind or name)]
    if len(word) <= 3 and word.isascii():
        return [Token("letter", letter) for letter in word]
    return [Token("text", word)]


def _font(font: str, inner: str, behind_value: bool) -> list[Token]:
    r"""`\text{...}` and its like: a separator, a formula's letter or number, else words."""
    words = " ".join(inner.split())
    known = _KNOWN.get(words.strip(",; ").casefold() or words[:1])
    if known is not None and known.kind == "separator":
        return [known]
    head, _, last = words.rpartition(" ")
    if head and last in ("and", "or"):
        return [*_font(font, head, behind_value), _KNOWN[last]]
    if known is not None and known.text == r"\bmod":
        return [known]
    constant = font != "text" and words in ("e", "i", "d")
    symbols = font in ("mathbf", "boldsymbol", "bm", "mathit") and len(words) <= 3
    letter = not behind_value and re.fullmatch(r"\(?[A-Za-z]\)?", words)
    function = known is not None and known.kind == "function" and words in _KNOWN
    if function or constant or symbols or letter or re.fullmatch(r"[\d.,:]+", words):
        return _tokens(words, False, False)
    return [Token("text", words)] if words else []


def _unit(text: str, position: int, spaced: bool, unit_letters: bool) -> tuple[str, int] | None:
    """A known unit that starts here, with its end; single letters only where they may be one."""
    first = re.match(r"[A-Za-z]++(?!['-][A-Za-z]{2})", text[position:])
    if first is None:
        return None
    word = first.group()
    match = _UNIT.match(text, position)
    if match is not None and canonical(match.group(1)) is not None:
        one = len(word) == 1 and not unit_letters and "/" not in match.group(1)
        if not one or (spaced and word in ONE_LETTER):
            return match.group(1), match.end(1)
    known = word.casefold() in SCALES or canonical(word) is not None
    return (word, position + len(word)) if known and len(word) > 1 else None


def _merged(tokens: list[Token]) -> list[Token]:
    """`, and` is one separator, words in a row are one text, money stands behind its number."""
    found: list[Token] = []
    for token in tokens:
        last = found[-1] if found else None
        if last is None:
            found.append(token)
        elif last.kind == token.kind == "separator":
            if last.text != "," or token.text == ",":
                raise UnreadableError("two separators in a row")
            found[-1] = token
        elif last.kind == token.kind == "text":
            found[-1] = Token("text", f"{last.text} {token.text}")
        elif token.kind == "number" and last.kind == "text" and last.text in "$€£¥":
            found[-1:] = [token, last]
        else:
            found.append(token)
    return found
