r"""Numbers as people and models write them, read exactly as fractions.

Read: `8,000`, `8{,}000`, `-3`, `.5`, `28\%`, `28 percent`, `1/2`, `\frac12`, `2\frac{1}{2}`,
`2 1/2`, `1.2e3`, `1.23\times10^{4}`, `10^{100}`, `5 million`, `$12`, `10\text{ cm}`.
Not read, on purpose: a number that is only a piece of something else (`4\sqrt{2}`, `(0,1)`,
`12:00`, `1-1/e`, `\pm 2`, `x^2`). Then there is no number, never a smaller piece of it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from groupwise.verifiers.answers.cleaning import cleaned, without_ending
from groupwise.verifiers.answers.units import SCALES, is_unit, known_unit, same_unit

MAX_DIGITS = 2000
"""Longer numbers, and powers with more digits, are not read."""

_N = r"(?:\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|(?<![\d.])\.\d+)"
_TEN = (
    r"\s*(?:\*|\\times|\\cdot|×|·|x)\s*10\s*\^\s*(?:\{\s*(?P<ten>[+-]?\d+)\s*\}|(?P<ten1>[+-]?\d+))"
)
_MAGNITUDE = re.compile(
    rf"(?:(?P<whole>\d+)\s*)?\\frac\s*(?:\{{\s*(?P<fsign>-?)\s*(?P<top>{_N})\s*\}}|(?P<top1>\d))"
    rf"\s*(?:\{{\s*(?P<bottom>{_N})\s*\}}|(?P<bottom1>\d))"
    r"|(?P<mixed>\d+)[ ]+(?P<mtop>\d+)/(?P<mbottom>\d+)(?![\d.])"
    rf"|(?P<stop>{_N})\s*/\s*(?P<sbottom>{_N})"
    r"|(?P<base>\d+)\s*\^\s*(?:\{\s*(?P<power>[+-]?\d+)\s*\}|(?P<power1>[+-]?\d+))"
    rf"|(?P<number>{_N})(?:[eE](?P<exponent>[+-]?\d+)(?!\w|\.\d)|{_TEN})?"
)
_REPEATING = re.compile(
    r"(\d{0,15})\.(\d{0,15})\\(?:overline|bar|dot)(?:\s*\{\s*(\d{1,15})\s*\}|\s*(\d))"
)
_WHOLE = re.compile(
    rf"(?P<sign>[+-]?)\s*[$€£¥]?\s*(?P<sign2>-?)\s*(?P<magnitude>{_MAGNITUDE.pattern})"
    r"\s*(?P<unit>%|[A-Za-z$€£¥][A-Za-z ./$]*)?"
)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value and the unit written behind it (`%` and currency included; empty where none)."""

    value: Fraction
    unit: str = ""

    @property
    def is_percent(self) -> bool:
        return self.unit == "%"


def parse_number(answer: object) -> Quantity | None:
    r"""The number that `answer` is as a whole, or None.

    >>> parse_number(r"2\frac{1}{2}").value, parse_number("8,000").value, parse_number("(0,1)")
    (Fraction(5, 2), Fraction(8000, 1), None)
    """
    if isinstance(answer, bool) or answer is None:
        return None
    if isinstance(answer, float) and not math.isfinite(answer):
        return None
    text = _REPEATING.sub(_repeated, cleaned(str(answer))).strip()
    if len(text) >= 2 and text[0] == text[-1] == "$":
        text = text[1:-1].strip()
    if text.endswith("$") or text.count("$") > 1:
        text = text.replace("$", " ").strip()
    text = without_ending(text)
    while text.startswith("{") and text.endswith("}") and _one_group(text):
        text = text[1:-1].strip()
    match = _WHOLE.fullmatch(text)
    if match is None or len(text) > 2 * MAX_DIGITS:
        return None
    value = _value(match)
    unit = _unit(match.group("unit") or "")
    if value is None or unit is None:
        return None
    negative = (match.group("sign") + match.group("sign2")).count("-") == 1
    while (first := unit.partition(" "))[0] in SCALES:  # 5 million dollars
        value, unit = value * SCALES[first[0]], first[2]
    return Quantity(-value if negative else value, unit)


def last_number(text: str) -> Quantity | None:
    r"""The last number that a text states, or None where the last one is part of something else.

    >>> last_number("3 + 4 = 7.").value, last_number(r"so $x = -2\frac12$").value
    (Fraction(7, 1), Fraction(-5, 2))
    >>> last_number(r"it is 4\sqrt{2}"), last_number("at 12:00"), last_number("5 - 3")
    (None, None, None)
    """
    text = cleaned(text).replace("$", " ")
    last: re.Match[str] | None = None
    for match in _MAGNITUDE.finditer(text):
        last = match
    if last is None:
        return None
    value = _value(last)
    left, right = text[max(0, last.start() - 200) : last.start()], text[last.end() :][:200]
    signed = _split_sign(left)
    if value is None or signed is None or _in_list(left, right):
        return None
    sign, left = signed
    if _LEFT_PIECE.search(left) or _RIGHT_PIECE.match(right):
        return None
    word = _NEXT_WORD.match(right)
    unit = word.group(1) if word else ""
    value *= SCALES.get(unit.casefold(), 1)
    return Quantity(sign * value, "%" if unit in ("%", "percent") else known_unit(unit))


def same_number(
    gold: Quantity,
    given: Quantity,
    *,
    tolerance: float = 0.0,
    relative_tolerance: float = 0.0,
    percent: str = "ignore",
) -> bool:
    """Whether `given` is `gold`: exactly, or within an explicit tolerance.

    `tolerance` is absolute, `relative_tolerance` a share of gold's size; the larger one counts.
    `percent`: `ignore` reads 28% as 28, `divide` reads it as 0.28. Different units (10 cm, 10 m)
    are different; a missing unit is not held against an answer.
    """
    if not same_unit(gold.unit, given.unit):
        return False
    a, b = (_percent(each, percent) for each in (gold, given))
    allowed = max(Fraction(str(tolerance)), Fraction(str(relative_tolerance)) * abs(a))
    return abs(a - b) <= allowed


def _percent(quantity: Quantity, policy: str) -> Fraction:
    divide = quantity.is_percent and policy == "divide"
    return quantity.value / 100 if divide else quantity.value


def _value(match: re.Match[str]) -> Fraction | None:
    """The magnitude's value; None for a zero denominator or too many digits."""
    groups = match.groupdict()
    if match.end() - match.start() > MAX_DIGITS:
        return None
    if groups["base"] is not None:
        return _power(int(groups["base"]), int(groups["power"] or groups["power1"]))
    if groups["number"] is not None:
        ten = groups["exponent"] or groups["ten"] or groups["ten1"]
        value = _decimal(groups["number"])
        if ten is None:
            return value
        factor = _power(10, int(ten))
        return None if factor is None else value * factor
    whole = groups["whole"] or groups["mixed"]
    top = groups["top"] or groups["top1"] or groups["mtop"] or groups["stop"]
    bottom = groups["bottom"] or groups["bottom1"] or groups["mbottom"] or groups["sbottom"]
    denominator = _decimal(bottom)
    if denominator == 0:
        return None
    value = _decimal(top) / denominator
    if groups["fsign"]:
        value = -value
    return value + int(whole) if whole else value


def _repeated(match: re.Match[str]) -> str:
    r"""A decimal with a period as a fraction: of `0.1\overline{6}`, `\frac{15}{90}`."""
    whole, fixed, period = match.group(1), match.group(2), match.group(3) or match.group(4)
    before = int(f"{whole}{fixed}" or "0")
    bottom = (10 ** len(period) - 1) * 10 ** len(fixed)
    return rf"\frac{{{int(f'{whole}{fixed}{period}') - before}}}{{{bottom}}}"


def _decimal(text: str) -> Fraction:
    return Fraction(text.replace(",", ""))


def _power(base: int, exponent: int) -> Fraction | None:
    if abs(exponent) * math.log10(max(base, 2)) > MAX_DIGITS or (base == 0 and exponent <= 0):
        return None
    return Fraction(base) ** exponent


def _unit(text: str) -> str | None:
    """The unit's plain form, or None where the words are not a unit."""
    text = " ".join(text.replace("$", " dollars ").split()).casefold()
    if text in ("%", "percent", "per cent"):
        return "%"
    return text if not text or text in SCALES or is_unit(text) else None


def _one_group(text: str) -> bool:
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth == 0 and position < len(text) - 1:
            return False
    return depth == 0


_COMMANDS_BEFORE = r"approx|implies|[Rr]ightarrow|to|q?quad|therefore|equiv|so|boxed|fbox"
_COMMANDS_BEHIND = r"q?quad|end|square|blacksquare|checkmark|[lc]?dots|implies|[Rr]ightarrow"
_FUNCTION = r"(?:sqrt|ln|log|sin|cos|tan)"
# Any of these directly before the last number (its sign taken off) makes it a piece of something.
_LEFT_PIECE = re.compile(
    r"(?:"
    r"[\w\\@√)\]}]"  # x2, (a)2
    r"|\d[:,.]"  # 12:00, 1.2.3
    r"|[\^_][ ]*\{?[ ]*"  # x^2, x^{2}
    r"|\}[ ]*\{[ ]*"  # \frac{x}{2}
    # \sqrt{2}, \pm 2
    rf"|\\(?!(?:{_COMMANDS_BEFORE})(?![A-Za-z]))[A-Za-z]+[ ]*(?:\[[^\]]*\][ ]*)?\{{?[ ]*"
    r"|[\w)\]}][ ]*(?:[+*/^×·÷]|\\times|\\cdot|\\div)[ ]*"  # 3 + 4
    r"|\d[ ]*x[ ]*"  # 3 x 4
    rf"|\b{_FUNCTION}[ ]*\(?[ ]*"
    r"|\\log_(?:\{[^{}]*\}|\w)[ ]*\{?[ ]*"
    r"|\d[ ]*%?[ ]*,?[ ]*or(?:[ ]maybe|[ ]possibly)?[ ]*"  # 5 or 6
    r"|(?:\bnot|\bnever|\bneither|\bnor|n['’]t)[ ]+"  # not 7
    r"|\b(?:minus|negative|twice|times|(?:half|third|quarter|double|root) of)[ ]+"
    r"|\bbetween[ ]\S{1,20}[ ]and[ ]+"
    r"|(?:[<≥≤≠]|\S[ ]+>)[ ]*"  # x > 7
    r"|\d[ ]*,[ ]*-?\d+(?:\.\d+)?[ ]*,?[ ]*(?:and|or)?[ ]+"  # 3, 5, 7
    r"|(?:√|±|\+/)[ ]*"
    r")\Z"
)
_OPERAND = rf"(?:\\[A-Za-z]|{_FUNCTION}|[π√(\d]|pi\b|[b-zB-HJ-Z](?![A-Za-z'.]))"
# Any of these directly behind it does, too.
_RIGHT_PIECE = re.compile(
    r"[\^(]|_[\w{]|[:.,]\d"
    r"|[ ]+(?:squared|cubed|factorial|half|halves|thirds|fourths|fifths)\b"
    r"|[ ]+(?:ten|hundred|thousand)ths\b"
    rf"|[ ]*\\(?!(?:{_COMMANDS_BEHIND})(?![A-Za-z]))[A-Za-z]"  # 4\sqrt{2}
    r"|[ ]*(?:π|√|pi\b|sqrt\b)"
    rf"|[ ]*[*+/^×·÷-][ ]*{_OPERAND}"  # 1/e
    r"|[ ]?(?![mgshlLKCF](?![A-Za-z]))[b-zB-HJ-Z](?![A-Za-z']|\.[A-Za-z])"  # 4x, but 4m, 4 p.m.
    rf"|(?:[xyz]|pi|{_FUNCTION})(?![a-z])"
)
_NEXT_WORD = re.compile(r"\s*(%|(?:(?:square|cubic) )?[A-Za-z]+)")
_IN_LIST = re.compile(r"[(\[{][^()\[\]{}\n]*[,;]\s*-?\s*\Z")
_MINUS = re.compile(r"(?P<before>\S?)(?P<gap>\s*)-(?P<behind>\s*)\Z")


def _in_list(left: str, right: str) -> bool:
    """Whether the number is a member of a tuple, an interval or a set."""
    return bool(_IN_LIST.search(left)) and bool(re.match(r"\s*[,;)\]}]", right))


def _split_sign(left: str) -> tuple[int, str] | None:
    """The sign before a number and the text before the sign; None where the minus subtracts."""
    match = _MINUS.search(left)
    if match is None:
        return 1, left
    rest = left[: match.start("gap")]
    before, gap, behind = match.group("before", "gap", "behind")
    if not before or "\n" in gap:
        return (1 if behind else -1), ""  # a bullet, or a negative number opening its line
    if gap and not behind:
        return -1, rest + gap  # "x is -7"
    if before.isdigit() or before in ")]}":
        return None  # 5-3, 5 - 3
    if before.isalpha():
        word = re.search(r"[^\W\d_]+\Z", rest)
        if not gap or (word is not None and len(word.group()) == 1):
            return None  # x-3, x - 3
        return 1, rest + gap  # "The answer - 7": a dash
    return -1, rest
